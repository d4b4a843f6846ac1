"""Reads of the store for fetches: what a fetch asks for that lies there alone.

A read is a task beside its fetch, which is parked meanwhile, for remote.fetch.max.wait.ms at most. A read that ends in
time gives records or an error, and the fetch is answered. One that does not is given up, and the client asks again: its
downloads go on, so that a later read finds them.

Rules
- As long as the store may still answer, there is no error: the answer is empty. KAFKA_STORAGE_ERROR once the circuit is
  open, the store refuses, or what it has is damaged or missing. Never OFFSET_OUT_OF_RANGE for what the log holds: a
  client would jump, and never come back.
- At most remote.log.reader.max.pending.tasks reads are under way; who comes then gets an empty answer in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ports import NoObjectError, StoreAwayError, StoreError
from tailrace.tier.format.layout import DamagedObjectError
from tailrace.tier.reading.reader import GapError
from tailrace.wire.records import iterate_headers

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tailrace.broker.tier.parts import TieredLog

_log = events.logger("tier")


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class ColdRecords:
    data: bytes | bytearray
    aborted: list[Aborted]


NOTHING = ColdRecords(b"", [])


class ColdReads:
    """Those of one fetch."""

    def __init__(self) -> None:
        self.wake: Callable[[], None] | None = None
        self._reads: dict[Hashable, asyncio.Task[ColdRecords]] = {}

    @property
    def is_pending(self) -> bool:
        return any(not task.done() for task in self._reads.values())

    @property
    def has_outcome(self) -> bool:
        """Whether one of them has something to tell: records or an error."""
        return any(
            task.done() and not task.cancelled() and (task.exception() is not None or task.result().data)
            for task in self._reads.values()
        )

    def read(
        self, key: Hashable, part: TieredLog, offset: int, max_bytes: int, *, wants_aborted: bool
    ) -> ColdRecords | None:
        """What was read; None while it is not. Raises KafkaError."""
        task = self._reads.get(key)
        if task is None:
            if not part.tier.may_read:
                return NOTHING
            reading = read_cold(part, offset, max_bytes, wants_aborted=wants_aborted)
            task = self._reads[key] = asyncio.ensure_future(part.tier.reading(reading))
            task.add_done_callback(self._tell)
        if not task.done():
            return None
        return task.result()

    def end(self) -> None:
        """Nobody waits any more."""
        self.wake = None
        for task in self._reads.values():
            task.cancel()

    def _tell(self, task: asyncio.Task[ColdRecords]) -> None:
        if not task.cancelled():
            task.exception()  # Perhaps nobody asks.
        if self.wake is not None and not self.is_pending:
            self.wake()


async def read_cold(part: TieredLog, offset: int, max_bytes: int, *, wants_aborted: bool) -> ColdRecords:
    """Raises KafkaError."""
    tier = part.tier
    await tier.wait_ready(part)
    if not part.holds(offset):
        return NOTHING  # The next look finds it here, or says that it is gone.
    coverage = part.coverage()
    try:
        with tier.memory.reserve(max(1, min(max_bytes, tier.config.remote_log_reader_max_bytes))) as size:
            data = await tier.reader.read(part.owner, coverage, offset, size)
        if not data or not wants_aborted:
            return ColdRecords(data, [])
        end_offset = max(header.next_offset for _, header in iterate_headers(data))
        found, is_all = await tier.reader.aborted(part.owner, coverage, offset, end_offset)
        aborted = [Aborted(each.producer_id, each.first_offset) for each in found]
        if not is_all:
            aborted += _aborted_here(part, offset, end_offset, known=aborted)
        return ColdRecords(data, aborted)
    except (StoreError, StorageError) as error:
        return _judge(part, offset, error)


def _aborted_here(part: TieredLog, offset: int, end_offset: int, *, known: list[Aborted]) -> list[Aborted]:
    """Transactions that began before the local log, and were aborted in it."""
    log = part.partition.log
    try:
        found = log.files.find_aborted_before(end_offset, from_offset=offset)
    except StorageError as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
    entries = [Aborted(each.producer_id, each.first_offset) for each in found]
    return [each for each in entries if each not in known]


def _judge(part: TieredLog, offset: int, error: StoreError | StorageError) -> ColdRecords:
    name, tier = part.partition.topic_partition, part.tier
    if not part.holds(offset):
        return NOTHING  # Retention was faster.
    if isinstance(error, StoreAwayError) and not tier.store.circuit.is_open:
        return NOTHING
    if isinstance(error, GapError | NoObjectError | DamagedObjectError):
        tier.complain(f"records of {name} at offset {offset} cannot be read from the store", error)
    raise KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR, f"Records of {name} at offset {offset} lie in the store alone: {error}"
    ) from error
