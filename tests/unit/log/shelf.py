"""A compacted log on the simulated disk, with the cleaner of its data folder."""

from collections.abc import Iterator

from tailrace.log.compaction.cleaner import Cleaner
from tailrace.log.compaction.run import Limits, Outcome, Steps, Work
from tailrace.log.log import Log
from tailrace.model.config import TopicConfig
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.sim.clock import SimClock
from tailrace.sim.disk import SimDisk
from tailrace.wire.records import BatchHeader, Record, build_batch, iterate_headers, iterate_records

DATA = "/data"
FOLDER = "/data/t-0"
PARTITION = TopicPartition("t", PartitionIndex(0))
LIMITS = Limits(map_bytes=1 << 20, read_bytes=4096, max_decompressed_bytes=1 << 20)

Pair = tuple[str, str | None]


class Shelf:
    """A compacted log, with the cleaner of its data folder."""

    def __init__(self, limits: Limits = LIMITS, **settings: object) -> None:
        self.clock = SimClock()
        self.disk = SimDisk(self.clock)
        values = {"cleanup_policy": frozenset({"compact"}), "min_cleanable_dirty_ratio": 0.0, "segment_bytes": 2000}
        self.config = TopicConfig(**{**values, **settings})
        self.limits = limits
        self.disk.make_folder(DATA)
        self.log = self.open()
        self.cleaner = Cleaner(self.disk, DATA, limits)

    def open(self) -> Log:
        return Log.open(self.disk, self.clock, FOLDER, self.config, topic_partition=PARTITION)

    def reopen(self) -> None:
        self.log = self.open()
        self.cleaner = Cleaner(self.disk, DATA, self.limits)

    def append(self, *pairs: Pair, **options: int) -> int:
        """One batch; returns its base offset."""
        now_ms = self.clock.wall_ms()
        records = [
            (index, now_ms + index, key.encode(), None if value is None else value.encode(), ())
            for index, (key, value) in enumerate(pairs)
        ]
        return self.log.append_as_leader(memoryview(build_batch(records, **options)), leader_epoch=1).base_offset

    def roll(self) -> None:
        """Everything so far may be cleaned."""
        self.log.roll()
        self.sync()

    def sync(self) -> None:
        work, end_offset = self.log.begin_sync()
        work()
        self.log.mark_synced(end_offset)

    def begin(self) -> Steps[Outcome] | None:
        return self.cleaner.begin([(self.log, self.log.log_end_offset)], self.clock.wall_ms())

    def compact(self) -> Outcome:
        steps = self.begin()
        assert steps is not None
        return finish(steps)

    def batches(self) -> Iterator[tuple[BatchHeader, bytes]]:
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            slice_ = self.log.read(offset, 1 << 20, end_offset=self.log.log_end_offset)
            if slice_ is None:
                return
            data = slice_.read()
            for position, header in iterate_headers(data):
                yield header, data[position : position + header.size_bytes]
                offset = header.next_offset

    def records(self) -> list[Record]:
        return [r for _, batch in self.batches() for r in iterate_records(batch, max_decompressed_bytes=1 << 20)]

    def content(self) -> list[tuple[int, str, str | None]]:
        return [
            (record.offset, (record.key or b"").decode(), None if record.value is None else record.value.decode())
            for record in self.records()
        ]

    def files(self) -> list[str]:
        return self.disk.list(FOLDER)


def records_of(batch: bytes) -> list[Record]:
    return list(iterate_records(batch, max_decompressed_bytes=1 << 20))


def each_step(steps: Steps[Outcome]) -> Iterator[Work | None]:
    """Runs all steps; yields what each hands out, before it is done."""
    result = None
    while True:
        try:
            work = steps.send(result)
        except StopIteration:
            return
        yield work
        result = None if work is None else work()


def finish(steps: Steps[Outcome]) -> Outcome:
    result = None
    while True:
        try:
            work = steps.send(result)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
        result = None if work is None else work()
