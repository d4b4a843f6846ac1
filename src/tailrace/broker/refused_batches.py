"""Batches of idempotent producers that were refused for a reason that passes, so that those behind them are too.

A producer has up to five requests on their way. If the first is refused (this broker does not lead yet, or too few
replicas are in sync) and the reason has passed when the second is taken, the second does not follow on what the log
has. Told OUT_OF_ORDER_SEQUENCE_NUMBER, librdkafka begins a new producer epoch for all its partitions, and sends again
under new sequences what it has no answer for, stored or not: doubles. And of a producer that the partition does not
know any sequence is taken, so that the first batch would never fit again: a fatal error. So the second gets the error
of the first, and both come again, in order. Kafka has such a memory for transactions alone.

Only what would be refused as out of order, or would be the first of its producer, is looked up here: whoever was
served by another broker meanwhile is judged by the log. What was refused long ago explains nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import NamedTuple

from tailrace.log.producers import BATCHES_REMEMBERED, MAX_SEQUENCE
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ports import Clock
from tailrace.wire.records import BatchHeader, read_header

Place = tuple[str | bytes, int]
"""A topic, by what the client calls it, and a partition."""

_PASSING = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)
# A client that has waited for longer has closed the connection.
_MEMORY_MS = 30_000
# Producers and their partitions; above it those are forgotten that were noted longest ago.
_PLACES_MAX = 1000


class _Refusal(NamedTuple):
    next_sequence: int  # What follows upon it.
    code: ErrorCode
    refused_ms: float


class RefusedBatches:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By place, producer id and epoch.
        self._refused: dict[tuple[Place, int, int], deque[_Refusal]] = {}

    def __bool__(self) -> bool:
        return bool(self._refused)

    def judge(self, place: Place, batch: memoryview, error: KafkaError) -> KafkaError:
        """What to answer for a batch that was not appended because of `error`."""
        is_out_of_order = error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if not is_out_of_order and error.code not in _PASSING:
            return error
        header = _read(batch)
        if header is None:
            return error
        if is_out_of_order:
            refusal = self._find(place, header)
            if refusal is None:
                return error
            error = _like(refusal)
        self._note(place, header, error.code)
        return error

    def check_first(self, place: Place, batch: memoryview, known: Container[int]) -> None:
        """Raises if what comes before this batch was refused, and its producer is not among those that the log knows
        and judges itself."""
        header = _read(batch)
        if header is None or header.producer_id in known:
            return
        refusal = self._find(place, header)
        if refusal is not None:
            raise _like(refusal)

    def _find(self, place: Place, header: BatchHeader) -> _Refusal | None:
        since_ms = self._clock.monotonic_ms() - _MEMORY_MS
        for refusal in self._refused.get((place, header.producer_id, header.producer_epoch), ()):
            if refusal.next_sequence == header.base_sequence and refusal.refused_ms >= since_ms:
                return refusal
        return None

    def _note(self, place: Place, header: BatchHeader, code: ErrorCode) -> None:
        key = place, header.producer_id, header.producer_epoch
        known = self._refused.pop(key, None) or deque[_Refusal](maxlen=BATCHES_REMEMBERED)
        next_sequence = (header.last_sequence + 1) & MAX_SEQUENCE
        again = next((each for each in known if each.next_sequence == next_sequence), None)
        if again is not None:
            known.remove(again)
        known.append(_Refusal(next_sequence, code, self._clock.monotonic_ms()))
        self._refused[key] = known
        if len(self._refused) > _PLACES_MAX:
            del self._refused[next(iter(self._refused))]


def _read(batch: memoryview) -> BatchHeader | None:
    """The header of an idempotent producer's batch; None for anything else."""
    try:
        header = read_header(batch)
    except KafkaError:
        return None
    return header if header.producer_id >= 0 and header.base_sequence >= 0 else None


def _like(refusal: _Refusal) -> KafkaError:
    return KafkaError(refusal.code, "The batch before this one was refused: both are to be sent again, in order")
