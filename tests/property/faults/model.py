"""What the broker has promised: every batch that was sent, what was answered, and what a partition may therefore hold.

    a batch is     unknown   sent, the answer is not there or says nothing certain: it may turn up, once
                   acked     confirmed at an offset: it is there until something is allowed to take it
                   absent    refused, or found to be lost: it never turns up

What may take records away is written down as it happens: DeleteRecords, retention, compaction, the loss of power.
"""

from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from tailrace.sim.checks.history import demand

UNKNOWN, ACKED, ABSENT = "unknown", "acked", "absent"


class Row(NamedTuple):
    """A record as a consumer reads it."""

    offset: int
    number: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    leader_epoch: int


class SentRecord(NamedTuple):
    number: int  # unique in a run, carried in a header
    timestamp: int
    key: bytes | None
    value: bytes | None


@dataclass(eq=False)
class Batch:
    records: list[SentRecord]
    sent_ms: int
    producer: "ProducerModel | None" = None
    sequence: int = -1
    life: int = -1  # in which it was sent
    status: str = UNKNOWN
    base_offset: int = -1

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.records)


@dataclass(eq=False)
class ProducerModel:
    """An idempotent producer of one partition; its batches in the order of their sequences."""

    producer_id: int
    epoch: int
    next_sequence: int
    batches: list[Batch] = field(default_factory=list)
    is_sure: bool = True  # the broker must know its last batch


class PartitionModel:
    def __init__(self, topic: "TopicModel", index: int) -> None:
        self.topic = topic
        self.index = index
        self.sent: dict[int, tuple[Batch, int]] = {}  # by number of the record: its batch and its place there
        self.rows: dict[int, tuple[Batch, int]] = {}  # by offset, of what was acked or found
        self.batches: list[Batch] = []
        self.producers: list[ProducerModel] = []
        self.acked_end = 0
        self.durable_end = 0  # what a power loss must leave
        self.deleted_start = 0  # confirmed by DeleteRecords
        self.asked_start = 0  # the largest start that was ever asked for
        self.tombstone_keys: set[bytes] = set()  # keys of batches that may never have been seen

    def __repr__(self) -> str:
        return f"{self.topic.name}-{self.index}"

    def send(self, batch: Batch) -> None:
        self.batches.append(batch)
        for index, record in enumerate(batch.records):
            self.sent[record.number] = batch, index
            if record.value is None and record.key is not None:
                self.tombstone_keys.add(record.key)

    def note_acked(self, batch: Batch, base_offset: int) -> None:
        if batch.base_offset >= 0:
            demand(batch.base_offset == base_offset, "a batch has one place", at=batch.base_offset, told=base_offset)
        for offset in range(base_offset, base_offset + len(batch.records)):
            owner = self.rows.get(offset)
            demand(owner is None or owner[0] is batch, "an offset is given once", partition=self, offset=offset)
        batch.status = ACKED
        self._place(batch, base_offset)
        self.acked_end = max(self.acked_end, batch.next_offset)

    def _place(self, batch: Batch, base_offset: int) -> None:
        batch.base_offset = base_offset
        for index in range(len(batch.records)):
            self.rows[base_offset + index] = batch, index

    # What is found

    def check_rows(self, rows: list[Row], *, log_start: int, end: int) -> None:
        """`rows` is all that the log holds in [log_start, end)."""
        numbers: set[int] = set()
        last_offset = -1
        for row in rows:
            demand(row.offset > last_offset, "offsets only grow", partition=self, offset=row.offset)
            demand(row.number not in numbers, "a record is there once", partition=self, row=row)
            last_offset = row.offset
            numbers.add(row.number)
            self._check_row(row)
        found = {row.offset for row in rows}
        for offset, (batch, index) in self.rows.items():
            if log_start <= offset < end and offset not in found:
                record = batch.records[index]
                demand(
                    self._may_be_compacted(record, offset),
                    "an acked record is there" if batch.status == ACKED else "a record that was seen stays",
                    partition=self,
                    offset=offset,
                    record=record,
                    log_start=log_start,
                    end=end,
                )
        self._check_that_the_deleted_stay_deleted(rows, log_start)

    def _check_row(self, row: Row) -> None:
        demand(row.number in self.sent, "a record belongs to this partition of this topic", partition=self, row=row)
        batch, index = self.sent[row.number]
        record = batch.records[index]
        demand((record.key, record.value) == (row.key, row.value), "a record is what was sent", row=row, sent=record)
        demand(
            record.timestamp == row.timestamp or self.topic.had_append_time, "a timestamp stays", row=row, sent=record
        )
        demand(batch.status != ABSENT, "what was refused or lost does not turn up", partition=self, row=row)
        if batch.base_offset < 0:
            self._place(batch, row.offset - index)
        demand(batch.base_offset + index == row.offset, "a record stays at its offset", row=row, at=batch.base_offset)

    def _may_be_compacted(self, record: SentRecord, offset: int) -> bool:
        if not self.topic.was_compacted:
            return False
        if record.key is None or record.value is None or record.key in self._unseen_tombstones():
            return True
        return any(
            later > offset and batch.records[index].key == record.key for later, (batch, index) in self.rows.items()
        )

    def _unseen_tombstones(self) -> set[bytes]:
        """Keys of tombstones that were never seen: one may have come and gone again."""
        return {
            record.key
            for batch in self.batches
            if batch.base_offset < 0
            for record in batch.records
            if record.value is None and record.key is not None
        }

    def _check_that_the_deleted_stay_deleted(self, rows: list[Row], log_start: int) -> None:
        last: dict[bytes, tuple[int, SentRecord]] = {}
        for offset, (batch, index) in self.rows.items():
            record = batch.records[index]
            if record.key is not None and offset >= last.get(record.key, (-1, record))[0]:
                last[record.key] = offset, record
        found = {row.offset for row in rows}
        for key, (offset, record) in last.items():
            if record.value is None and offset >= log_start and offset not in found:
                back = [row for row in rows if row.key == key]
                demand(not back, "a deleted key stays deleted", partition=self, tombstone=offset, back=back)

    def check_bounds(self, log_start: int, high_watermark: int, log_end: int, now_ms: int) -> None:
        demand(
            log_start <= high_watermark <= log_end,
            "log_start_offset <= high_watermark <= log_end_offset",
            found=(log_start, high_watermark, log_end),
        )
        demand(log_start >= self.deleted_start, "DeleteRecords' start never goes back", partition=self, start=log_start)
        topic = self.topic
        if log_start > self.asked_start and not (
            topic.had_retention_bytes or topic.was_compacted or topic.had_append_time
        ):
            young_ms = now_ms - topic.retention_min_ms
            young = [
                (offset, batch.records[index])
                for offset, (batch, index) in self.rows.items()
                if self.asked_start <= offset < log_start and batch.records[index].timestamp > young_ms
            ]
            demand(not young, "retention takes only what is old", partition=self, start=log_start, young=young[:2])

    # What a restart settles

    def settle_end(self, log_end: int, *, power_failed: bool) -> None:
        """Before the rows are looked at."""
        if power_failed:
            synced = self.durable_end
            demand(log_end >= synced, "what was synced survives", partition=self, end=log_end, synced=synced)
            for offset in [offset for offset in self.rows if offset >= log_end]:
                batch, _ = self.rows.pop(offset)
                batch.status, batch.base_offset = ABSENT, -1
            self.acked_end = min(self.acked_end, log_end)
        demand(
            log_end >= self.acked_end,
            "acked records outlive the process",
            partition=self,
            end=log_end,
            acked=self.acked_end,
        )

    def settle_unknown(self) -> None:
        """After the rows were looked at: what has not turned up never will."""
        for batch in self.batches:
            if batch.status == UNKNOWN and batch.base_offset < 0:
                batch.status = ABSENT


@dataclass(eq=False)
class TopicModel:
    name: str
    topic_id: bytes | None  # None while nobody knows
    configs: dict[str, str]
    partitions: list[PartitionModel] = field(default_factory=list)
    was_compacted: bool = False
    had_append_time: bool = False
    had_retention_bytes: bool = False
    retention_min_ms: float = inf

    def __post_init__(self) -> None:
        self.note_configs(self.configs)

    def note_configs(self, configs: dict[str, str]) -> None:
        """They take effect, or may have."""
        self.was_compacted |= "compact" in configs.get("cleanup.policy", "")
        self.had_append_time |= configs.get("message.timestamp.type") == "LogAppendTime"
        self.had_retention_bytes |= configs.get("retention.bytes", "-1") != "-1"
        retention_ms = int(configs.get("retention.ms", "604800000"))
        if retention_ms >= 0:
            self.retention_min_ms = min(self.retention_min_ms, retention_ms)

    def grow(self, count: int) -> None:
        for index in range(len(self.partitions), count):
            self.partitions.append(PartitionModel(self, index))

    @property
    def syncs_each(self) -> bool:
        return self.configs.get("flush.messages") == "1"


class TopicState(NamedTuple):
    """What the metadata may say of a name after a restart."""

    topic: TopicModel | None
    count: int
    configs: dict[str, str]
