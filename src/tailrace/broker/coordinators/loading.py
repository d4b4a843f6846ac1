"""A machine is replayed from the log of its partition, from the start to the end, in slices of a millisecond.

Everything in the log counts, beyond the high watermark too: this broker leads, so that all of it will be committed.
Answers wait for that. Records of a type that is not known were written by a newer version, and are passed over. So are
those that the disk has damaged, where there is no other replica to take them from: without them their groups or
transactions are as they were before; with a wait for them nobody here would ever be served again.
"""

from __future__ import annotations

import gc
from asyncio import sleep
from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING

from tailrace.broker.coordinators.shard import State
from tailrace.coordinator.op import Producer
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.record_envelopes import UnknownRecordTypeError
from tailrace.wire.records import BatchHeader, crc_is_valid, iterate_headers, iterate_unpacked, unpack_records

if TYPE_CHECKING:
    from tailrace.broker.coordinators.shard import Shard
    from tailrace.broker.node import Node
    from tailrace.replica.partition import Partition

_log = events.logger("coordinator")

_SLICE_MS = 1.0
_RECORDS_PER_LOOK = 64
_READ_BYTES = 1 << 20
_RECORDS_PER_FREEZE = 50_000
# The key of a marker: its version, and 0 for an abort or 1 for a commit.
_MARKER_KEY = Struct(">hh")
_COMMIT = 1


async def load(node: Node, shard: Shard, partition: Partition) -> None:
    """Makes the shard active, unless it is closed meanwhile. Raises if the log cannot be read."""
    await _Loading(node, shard, partition).run()


class _Loading:
    def __init__(self, node: Node, shard: Shard, partition: Partition) -> None:
        self._ports = node.ports
        self._shard = shard
        self._machine = shard.begin_loading()
        self._partition = partition
        self._max_decompressed_bytes = node.config.max_decompressed_bytes
        self._record_count = 0
        self._unknown_types: dict[str, int] = {}  # What is not known of them, and how often.

    async def run(self) -> None:
        log, clock = self._partition.log, self._ports.clock
        began_ms = clock.monotonic_ms()
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            try:
                piece = log.read(offset, _READ_BYTES, end_offset=log.log_end_offset, at_least_one_batch=True)
            except KafkaError as error:
                offset = self._pass_over(offset, error)
                continue
            assert piece is not None, "a log has a batch at each of its offsets, or after it"
            data = await self._ports.background.run(piece.read)
            if self._shard.state is not State.LOADING:
                return
            offset = await self._replay(data, offset)
            if self._shard.state is not State.LOADING:
                return
        for problem, count in self._unknown_types.items():
            _log.warning("passed over records", partition=log.topic_partition, cause=problem, count=count)
        took_ms = round(clock.monotonic_ms() - began_ms, 1)
        tell = _log.info if self._record_count else _log.debug
        tell("loaded a coordinator", partition=log.topic_partition, records=self._record_count, took_ms=took_ms)
        self._shard.activate(self._partition, offset)

    async def _replay(self, data: bytes, start_offset: int) -> int:
        """Gives the offset after the last whole batch."""
        clock, offset = self._ports.clock, start_offset
        slice_ends_ms = clock.monotonic_ms() + _SLICE_MS
        for position, header in iterate_headers(data, allow_partial=True):
            if not crc_is_valid(data, position, header):
                raise self._damaged(header)
            batch = data[position : position + header.size_bytes]
            for count in self._replay_batch(batch, header, start_offset):
                self._note(count)
                if clock.monotonic_ms() >= slice_ends_ms:
                    await sleep(0)
                    if self._shard.state is not State.LOADING:
                        return offset
                    slice_ends_ms = clock.monotonic_ms() + _SLICE_MS
            offset = header.next_offset
        return offset

    def _damaged(self, header: BatchHeader) -> KafkaError:
        """What a disk has changed must not become a committed offset. It is tried again, here or by the next leader."""
        log = self._partition.log
        log.suspect(header.base_offset)
        return KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"The CRC of the batch at offset {header.base_offset} does not match"
        )

    def _pass_over(self, offset: int, error: KafkaError) -> int:
        log = self._partition.log
        damage = [each for each in log.files.damage.ranges if each.start_offset <= offset < each.end_offset]
        if not damage or len(self._partition.replicas) > 1:
            raise error
        lost = f"{offset}-{damage[0].end_offset - 1}"
        _log.error(
            "a coordinator goes on without records that are damaged: no other replica has them",
            partition=log.topic_partition,
            lost_offsets=lost,
            cause=damage[0].cause,
        )
        return damage[0].end_offset

    def _note(self, count: int) -> None:
        """What was loaded stays, and holds no cycles. Unless it is set aside, the garbage collector walks through all
        of it again and again: 74 ms at a time with a million offsets."""
        before, self._record_count = self._record_count, self._record_count + count
        if before // _RECORDS_PER_FREEZE != self._record_count // _RECORDS_PER_FREEZE:
            gc.freeze()

    def _replay_batch(self, batch: bytes, header: BatchHeader, start_offset: int) -> Iterator[int]:
        """Yields now and then, with the number of records since."""
        records = iterate_unpacked(header, unpack_records(batch, header, self._max_decompressed_bytes))
        if header.is_control:
            for record in records:
                _, kind = _MARKER_KEY.unpack_from(record.key or b"")
                self._machine.replay_marker(header.producer_id, is_commit=kind == _COMMIT)
            return
        producer = Producer(header.producer_id, header.producer_epoch) if header.is_transactional else None
        replay, count = self._machine.replay_stored, 0
        for offset, _, key, value, _ in records:
            if offset < start_offset or key is None:
                continue
            try:
                replay(key, value, producer)
            except UnknownRecordTypeError as problem:
                self._unknown_types[str(problem)] = self._unknown_types.get(str(problem), 0) + 1
            count += 1
            if count == _RECORDS_PER_LOOK:
                yield count
                count = 0
        yield count
