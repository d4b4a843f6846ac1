"""What is due when, whatever was put off, brought forward or cancelled before."""

import random

import pytest

from tailrace.coordinator.deadlines import Deadlines


def pop_all(deadlines: Deadlines[str], now_ms: float) -> list[str]:
    popped = []
    while (key := deadlines.pop_due(now_ms)) is not None:
        popped.append(key)
    return popped


def test_the_earliest_comes_first_and_of_one_time_the_one_set_first():
    deadlines: Deadlines[str] = Deadlines()
    for key, due_ms in (("c", 3.0), ("a", 1.0), ("late", 9.0), ("b", 1.0)):
        deadlines.set(key, due_ms)
    assert deadlines.next_ms() == 1.0
    assert pop_all(deadlines, 3.0) == ["a", "b", "c"]
    assert deadlines.next_ms() == 9.0
    assert len(deadlines) == 1


def test_a_key_has_the_time_that_was_set_last():
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("put off", 1.0)
    deadlines.set("put off", 5.0)
    deadlines.set("brought forward", 9.0)
    deadlines.set("brought forward", 2.0)
    deadlines.set("cancelled", 1.0)
    deadlines.cancel("cancelled")
    deadlines.set("set anew", 1.0)
    deadlines.cancel("set anew")
    deadlines.set("set anew", 3.0)
    assert deadlines.get("put off") == 5.0
    assert deadlines.get("cancelled") is None
    assert deadlines.next_ms() == 2.0
    assert pop_all(deadlines, 4.0) == ["brought forward", "set anew"]
    assert pop_all(deadlines, 9.0) == ["put off"]
    assert deadlines.next_ms() is None


def test_who_is_heard_again_and_again_takes_no_room():
    deadlines: Deadlines[str] = Deadlines()
    for round_ in range(100):
        for member in range(50):
            deadlines.set(f"m{member}", 45_000.0 + round_)
    assert len(deadlines._heap) == 50


def test_what_is_cancelled_is_forgotten_in_the_end():
    deadlines: Deadlines[str] = Deadlines()
    for number in range(10_000):
        deadlines.set(f"m{number}", float(number))
        deadlines.cancel(f"m{number}")
    assert len(deadlines._heap) < 2_000


def test_many_that_were_put_off_are_moved_in_several_turns():
    deadlines: Deadlines[str] = Deadlines()
    for number in range(2_000):
        deadlines.set(f"m{number}", 10.0)
    for number in range(2_000):
        deadlines.set(f"m{number}", 20.0)
    turns = 0
    while (next_ms := deadlines.next_ms()) is not None and next_ms <= 10.0:
        assert deadlines.pop_due(10.0) is None
        turns += 1
        assert turns < 100
    assert turns >= 1
    assert deadlines.next_ms() == 20.0
    assert len(pop_all(deadlines, 20.0)) == 2_000


@pytest.mark.parametrize("seed", range(20))
def test_it_does_what_a_plain_table_does(seed: int):
    chance = random.Random(seed)
    deadlines: Deadlines[str] = Deadlines()
    table: dict[str, tuple[float, int]] = {}
    now_ms = 0.0
    for number in range(1_000):
        key = f"k{chance.randrange(20)}"
        match chance.randrange(5):
            case 0 | 1 | 2:
                due_ms = now_ms + chance.randrange(10)
                deadlines.set(key, due_ms)
                table[key] = due_ms, number
            case 3:
                deadlines.cancel(key)
                table.pop(key, None)
            case 4:
                now_ms += chance.randrange(4)
                due = sorted((when, key) for key, when in table.items() if when[0] <= now_ms)
                assert pop_all(deadlines, now_ms) == [key for _, key in due]
                for _, gone in due:
                    del table[gone]
        assert deadlines.next_ms() == min((when[0] for when in table.values()), default=None)
        assert len(deadlines) == len(table)
