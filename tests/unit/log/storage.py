"""Batches and logs for the storage tests, on the simulated disk."""

from collections.abc import Callable

from tailrace.log.log import Log
from tailrace.log.validation import Origin
from tailrace.model.config import TopicConfig
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.model.ports import FileSlice
from tailrace.sim.clock import SimClock
from tailrace.sim.disk import SimDisk
from tailrace.wire.records import Compression, Record, build_batch, iterate_headers, iterate_records

PARTITION = TopicPartition("orders", PartitionIndex(0))
FOLDER = "/data/orders-0"
# Small enough for an index entry every few batches.
CONFIG = TopicConfig(index_interval_bytes=200, segment_bytes=1 << 20, message_timestamp_before_max_ms=1 << 60)
BOMB = 1 << 20


def make_batch(
    count: int = 1,
    *,
    timestamp: int = 1000,
    value: bytes = b"value",
    compression: Compression = Compression.NONE,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    sequence: int = -1,
    step_ms: int = 1,
    transactional: bool = False,
) -> memoryview:
    """Records with timestamps `timestamp`, `timestamp + step_ms`, ..."""
    records = [Record(base_offset + i, timestamp + i * step_ms, b"key", value, ()) for i in range(count)]
    batch = build_batch(
        records,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
        transactional=transactional,
    )
    return memoryview(bytearray(batch))


class World:
    """A disk, a clock, and the one log on it."""

    def __init__(self, config: TopicConfig = CONFIG) -> None:
        self.clock = SimClock(wall_ms=10_000)
        self.disk = SimDisk(self.clock)
        self.config = config

    def open(
        self,
        *,
        is_clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        is_start_proved: bool = False,
        cleaned_offset: int = 0,
        leader_epoch: int = 1 << 30,
        before_damage_is_cut: Callable[[], None] | None = None,
    ) -> Log:
        return Log.open(
            self.disk,
            self.clock,
            FOLDER,
            self.config,
            topic_partition=PARTITION,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            is_start_proved=is_start_proved,
            cleaned_offset=cleaned_offset,
            is_clean=is_clean,
            log_end_hint=recovery_point if is_clean else None,
            leader_epoch=leader_epoch,
            before_damage_is_cut=before_damage_is_cut,
        )

    def reopen_after_crash(self, log: Log) -> Log:
        self.disk.crash()
        return self.open(recovery_point=log.recovery_point, log_start_offset=log.log_start_offset)

    def reopen_after_clean_close(self, log: Log) -> Log:
        log.close(clean=True)
        self.disk.crash()
        return self.open(is_clean=True, recovery_point=log.recovery_point, log_start_offset=log.log_start_offset)

    def names(self, suffix: str = "") -> list[str]:
        return [name for name in self.disk.list(FOLDER) if name.endswith(suffix)]


def append(log: Log, count: int = 1, **options: object) -> int:
    """Appends one batch and returns its base offset."""
    batch = make_batch(count, **options)  # type: ignore[arg-type]
    return log.append_as_leader(batch, leader_epoch=max(0, log.epochs.latest), origin=Origin.CLIENT).base_offset


def sync(log: Log) -> None:
    work, end_offset = log.begin_sync()
    work()
    log.mark_synced(end_offset)


def offsets_in(found: FileSlice | None) -> list[int]:
    """The offsets of all records of the whole batches in a slice."""
    if found is None:
        return []
    data = found.read()
    assert len(data) == found.size
    return [
        record.offset
        for position, header in iterate_headers(data, allow_partial=True)
        for record in iterate_records(data[position : position + header.size_bytes], max_decompressed_bytes=BOMB)
    ]


def read_all(log: Log) -> list[int]:
    """The offsets of all records, as a consumer from the start would get them."""
    offsets: list[int] = []
    position = log.log_start_offset
    while True:
        found = offsets_in(log.read(position, 1 << 20, end_offset=log.log_end_offset))
        if not found:
            return offsets
        offsets += [offset for offset in found if offset >= position]
        position = offsets[-1] + 1
