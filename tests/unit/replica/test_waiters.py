"""Who waits for a partition is told in order, once."""

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.replica.waiters import OffsetWaiters, ReadWaiters


def test_offsets_are_released_in_order():
    waiters, told = OffsetWaiters(), []
    for offset in (1, 3, 5):
        waiters.wait_until(offset, lambda error, offset=offset: told.append((offset, error)))
    waiters.release(0)
    assert told == []
    waiters.release(3)
    assert told == [(1, None), (3, None)]
    assert waiters
    error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    waiters.fail(error)
    assert told[2:] == [(5, error)]
    assert not waiters


def test_one_who_waits_again_while_being_failed_is_kept():
    waiters, told = OffsetWaiters(), []
    waiters.wait_until(1, lambda error: waiters.wait_until(2, told.append))
    waiters.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert waiters
    waiters.release(2)
    assert told == [None]


def test_one_who_gives_up_is_not_told():
    waiters, told = OffsetWaiters(), []
    callbacks = [lambda _error, offset=offset: told.append(offset) for offset in (1, 2, 3)]
    for offset, callback in enumerate(callbacks, start=1):
        waiters.wait_until(offset, callback)
    waiters.discard(callbacks[1])
    waiters.discard(callbacks[1])
    waiters.release(2)
    assert told == [1]
    waiters.release(3)
    assert told == [1, 3]


class Reader:
    def __init__(self, waiters: ReadWaiters, *, again: bool) -> None:
        self.calls = 0
        self._waiters, self._again = waiters, again

    def on_readable(self) -> None:
        self.calls += 1
        if self._again:
            self._waiters.add(self)


def test_readers_are_told_once_and_may_register_again():
    waiters = ReadWaiters()
    once, again, gone = (Reader(waiters, again=each) for each in (False, True, False))
    for reader in (once, again, gone):
        waiters.add(reader)
    waiters.discard(gone)
    waiters.discard(gone)
    waiters.tell()
    waiters.tell()
    assert (once.calls, again.calls, gone.calls) == (1, 2, 0)
