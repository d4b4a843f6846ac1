"""What a share-partition gives out, and what becomes of it."""

import pytest

from tailrace.coordinator.share_partition.delivery import Acknowledge, Acknowledged, Acquired, Limits, RecordState
from tailrace.coordinator.share_partition.window import Window
from tailrace.coordinator.share_state.batches import StateBatch
from tailrace.model.errors import ErrorCode, KafkaError

LIMITS = Limits(delivery_count_max=5, window_max=200, lock_ms=1000)
ACCEPT, RELEASE, REJECT = Acknowledge.ACCEPT, Acknowledge.RELEASE, Acknowledge.REJECT


def acquire(
    window: Window,
    *found: tuple[int, int],
    member: str = "a",
    max_records: int = 500,
    batch_size: int = 500,
    is_strict: bool = False,
    limits: Limits = LIMITS,
    now_ms: float = 0,
) -> list[tuple[int, int, int]]:
    acquired = window.acquire(
        member,
        found,
        max_records=max_records,
        batch_size=batch_size,
        is_strict=is_strict,
        limits=limits,
        now_ms=now_ms,
    )
    return [tuple(each) for each in acquired]


def acknowledge(window: Window, first: int, last: int, *types: Acknowledge, member: str = "a") -> None:
    changes = window.acknowledge(member, [Acknowledged(first, last, types)], limits=LIMITS, now_ms=0)
    window.commit(changes)


def states(window: Window) -> list[tuple[int, int, str, int]]:
    return [(each.first, each.last, each.state.name, each.count) for each in window]


def refusal(window: Window, first: int, last: int, *types: Acknowledge, member: str = "a") -> ErrorCode:
    with pytest.raises(KafkaError) as failure:
        window.acknowledge(member, [Acknowledged(first, last, types)], limits=LIMITS, now_ms=0)
    return failure.value.code


def test_whole_batches_go_out_and_the_start_follows_what_is_done_with() -> None:
    window = Window(0)
    assert acquire(window, (0, 9), (10, 19), (20, 29), max_records=12) == [(0, 19, 1)]
    assert window.next_offset() == 20
    acknowledge(window, 0, 4, ACCEPT)
    acknowledge(window, 10, 19, ACCEPT)
    assert (window.start_offset, window.done_count) == (5, 10)
    acknowledge(window, 5, 9, REJECT)
    assert (window.start_offset, window.end_offset, window.done_count) == (20, 20, 0)


def test_a_strict_member_gets_no_more_than_it_asks_for() -> None:
    window = Window(0)
    assert acquire(window, (0, 9), max_records=3, is_strict=True) == [(0, 2, 1)]
    assert acquire(window, (0, 9), max_records=100, is_strict=True) == [(3, 9, 1)]


def test_new_records_are_told_in_pieces_of_the_batch_size() -> None:
    assert acquire(Window(0), (0, 4), (5, 9), (10, 14), batch_size=8) == [(0, 9, 1), (10, 14, 1)]


def test_what_is_released_is_delivered_again_before_anything_new() -> None:
    window = Window(0)
    acquire(window, (0, 9))
    acknowledge(window, 0, 9, ACCEPT, RELEASE, *[ACCEPT] * 6, RELEASE, RELEASE)
    assert window.start_offset == 1
    assert window.next_offset() == 1
    assert acquire(window, (0, 9), (10, 12)) == [(1, 1, 2), (8, 9, 2), (10, 12, 1)]


def test_a_record_that_comes_back_too_often_is_given_up() -> None:
    window = Window(0)
    for count in range(1, 6):
        assert acquire(window, (0, 0)) == [(0, 0, count)]
        acknowledge(window, 0, 0, RELEASE)
    assert (window.start_offset, window.end_offset) == (1, 1)


def test_records_that_may_kill_their_consumer_come_in_ever_smaller_company() -> None:
    window = Window(0)
    taken = []
    for _ in range(5):
        acquired = acquire(window, (0, 15))
        taken.append([(first, last) for first, last, _ in acquired])
        acknowledge(window, acquired[0][0], acquired[-1][1], RELEASE)
    # Alone at last; the others of its batch are still to come.
    assert taken == [[(0, 15)], [(0, 15)], [(0, 15)], [(0, 7)], [(0, 0)]]
    assert window.start_offset == 1
    assert acquire(window, (0, 15)) == [(1, 1, 5)]


def test_a_lock_that_runs_out_makes_records_available() -> None:
    window = Window(0)
    acquire(window, (0, 4), now_ms=0)
    acquire(window, (5, 9), member="b", now_ms=500)
    assert window.next_due_ms() == 1000
    changes = window.expire(1000, LIMITS)
    assert refusal(window, 0, 4, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    window.commit(changes)
    assert acquire(window, (0, 4), member="b", now_ms=1000) == [(0, 4, 2)]
    assert refusal(window, 0, 4, ACCEPT) is ErrorCode.INVALID_RECORD_STATE


def test_a_lock_that_was_renewed_lasts_longer() -> None:
    window = Window(0)
    acquire(window, (0, 4))
    renewal = [Acknowledged(1, 2, (Acknowledge.RENEW,))]
    assert window.acknowledge("a", renewal, limits=LIMITS, now_ms=900) == []
    window.commit(window.expire(1000, LIMITS))
    assert [name for _, _, name, _ in states(window)] == ["AVAILABLE", "ACQUIRED", "AVAILABLE"]
    assert window.expire(1899, LIMITS) == []
    assert len(window.expire(1900, LIMITS)) == 1
    with pytest.raises(KafkaError) as failure:
        window.acknowledge("a", renewal, limits=LIMITS._replace(may_renew=False), now_ms=900)
    assert failure.value.code is ErrorCode.INVALID_RECORD_STATE


def test_a_member_that_leaves_gives_back_what_it_holds() -> None:
    window = Window(0)
    acquire(window, (0, 4))
    acquire(window, (5, 9), member="b")
    window.commit(window.release("a", limits=LIMITS, now_ms=0))
    assert states(window) == [(0, 4, "AVAILABLE", 1), (5, 9, "ACQUIRED", 1)]


def test_what_could_not_be_stored_is_as_it_was() -> None:
    window = Window(0)
    acquire(window, (0, 9))
    changes = window.acknowledge("a", [Acknowledged(0, 4, (ACCEPT,))], limits=LIMITS, now_ms=0)
    assert (window.done_count, window.prospect()) == (5, (5, 0))
    assert window.start_offset == 0
    window.undo(changes)
    assert (window.done_count, window.prospect()) == (0, (0, 0))
    acknowledge(window, 0, 9, ACCEPT)
    assert window.start_offset == 10


def test_what_is_not_held_is_refused() -> None:
    window = Window(10)
    assert refusal(window, 10, 12, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    acquire(window, (10, 19))
    assert refusal(window, 20, 22, ACCEPT) is ErrorCode.INVALID_REQUEST
    assert refusal(window, 15, 20, ACCEPT) is ErrorCode.INVALID_REQUEST
    assert refusal(window, 15, 19, ACCEPT, member="b") is ErrorCode.INVALID_RECORD_STATE
    acknowledge(window, 0, 9, ACCEPT)  # They are gone: nothing to say of them.
    acknowledge(window, 12, 14, ACCEPT)
    assert refusal(window, 10, 14, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    # All or nothing.
    both = [Acknowledged(10, 11, (ACCEPT,)), Acknowledged(12, 12, (ACCEPT,))]
    with pytest.raises(KafkaError):
        window.acknowledge("a", both, limits=LIMITS, now_ms=0)
    assert states(window)[0] == (10, 11, "ACQUIRED", 1)


def test_the_window_is_bounded() -> None:
    limits = LIMITS._replace(window_max=10)
    window = Window(0)
    assert acquire(window, (0, 7), limits=limits) == [(0, 7, 1)]
    assert window.may_acquire(limits)
    # Whole batches, as in Kafka: the last one may go beyond it.
    assert acquire(window, (8, 13), (14, 19), limits=limits) == [(8, 13, 1)]
    assert not window.may_acquire(limits)
    acknowledge(window, 4, 7, RELEASE)
    assert window.may_acquire(limits)
    assert acquire(window, (0, 7), (8, 13), (14, 19), limits=limits) == [(4, 7, 2)]


def test_offsets_without_records_are_passed_over() -> None:
    window = Window(0)
    assert acquire(window, (5, 9)) == [(5, 9, 1)]
    assert window.start_offset == 5
    acknowledge(window, 5, 9, RELEASE)
    # The records are gone since: the cleaner took them.
    assert acquire(window, (8, 12)) == [(8, 9, 2), (10, 12, 1)]
    assert window.start_offset == 8


def test_records_of_aborted_transactions_are_done_with() -> None:
    window = Window(0)
    window.acquire("a", [(0, 9)], max_records=9, batch_size=9, is_strict=False, limits=LIMITS, now_ms=0)
    left = window.discard([Acquired(0, 9, 1)], [(0, 2), (5, 6)])
    assert left == [(3, 4, 1), (7, 9, 1)]
    assert window.start_offset == 3
    acknowledge(window, 3, 4, ACCEPT)
    acknowledge(window, 7, 9, ACCEPT)
    assert window.start_offset == 10


def test_retention_takes_what_lies_before_the_log() -> None:
    window = Window(0)
    acquire(window, (0, 9))
    acknowledge(window, 6, 7, ACCEPT)
    changes = window.acknowledge("a", [Acknowledged(0, 1, (ACCEPT,))], limits=LIMITS, now_ms=0)
    window.move_start(7)
    assert (window.start_offset, window.done_count) == (8, 0)
    window.undo(changes)
    assert window.done_count == 0
    window.move_start(100)
    assert (window.start_offset, window.end_offset, list(window)) == (100, 100, [])


def test_what_was_stored_is_where_the_next_leader_begins() -> None:
    stored = [StateBatch(3, 4, RecordState.ACKNOWLEDGED, 1), StateBatch(7, 8, RecordState.AVAILABLE, 2)]
    window = Window(2, stored)
    assert states(window) == [
        (2, 2, "AVAILABLE", 0),
        (3, 4, "ACKNOWLEDGED", 1),
        (5, 6, "AVAILABLE", 0),
        (7, 8, "AVAILABLE", 2),
    ]
    assert acquire(window, (0, 20)) == [(2, 2, 1), (5, 6, 1), (7, 8, 3), (9, 20, 1)]
