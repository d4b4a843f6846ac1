"""The circuit: when calls stop, and when one is tried again."""

from tailrace.tier.store.circuit import Circuit, CircuitLimits

LIMITS = CircuitLimits(failures_max=3, pause_ms=100, pause_max_ms=300)


def opened() -> Circuit:
    circuit = Circuit(LIMITS)
    assert [circuit.fail(now, "503") for now in (1, 2, 3)] == [False, False, True]
    return circuit


def test_a_success_in_between_keeps_it_closed() -> None:
    circuit = Circuit(LIMITS)
    for _ in range(10):
        assert not circuit.fail(0, "503")
        assert not circuit.fail(0, "503")
        assert not circuit.succeed()
    assert circuit.may_call(0)
    assert circuit.cause == ""


def test_while_it_is_open_nobody_calls_and_then_one() -> None:
    circuit = opened()
    assert circuit.is_open
    assert circuit.cause == "503"
    assert not circuit.may_call(102)
    assert circuit.may_call(103)
    assert not circuit.may_call(103), "one at a time"


def test_pauses_grow_up_to_a_bound_until_a_success() -> None:
    circuit, now, pauses = opened(), 3.0, []
    for _ in range(4):
        started = now
        while not circuit.may_call(now):
            now += 1
        pauses.append(now - started)
        assert not circuit.fail(now, "503"), "it is open already: told once"
    assert pauses == [100, 200, 300, 300]
    while not circuit.may_call(now):
        now += 1
    assert circuit.succeed()
    assert not circuit.is_open
    assert circuit.may_call(now)


def test_late_failures_of_calls_from_before_change_no_pause() -> None:
    circuit = opened()
    for _ in range(5):
        circuit.fail(50, "503")
    assert circuit.may_call(103)


def test_a_cancelled_try_leaves_room_for_another() -> None:
    circuit = opened()
    assert circuit.may_call(103)
    circuit.give_back()
    assert circuit.may_call(103)
