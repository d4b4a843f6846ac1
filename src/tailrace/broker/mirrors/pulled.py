"""One partition of a mirror that is led here, and what is known of its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.replica.leading import mirrors
from tailrace.wire.records import HEADER_SIZE, read_header

if TYPE_CHECKING:
    from tailrace.controller.image import MirrorTopic
    from tailrace.replica.partition import Partition

_MAGIC_AT = 16
_RATE_WINDOW_MS = 5000.0


class Pulled:
    __slots__ = (
        "_window_bytes",
        "_window_ms",
        "asked_epoch",
        "asked_offset",
        "bytes_per_second",
        "caught_up_ms",
        "failures",
        "is_agreeing",
        "is_begun",
        "is_recognized",
        "is_stopped",
        "last_timestamp",
        "needed_epoch",
        "partition",
        "problem",
        "rests_until_ms",
        "source",
        "source_end",
        "source_topic_id",
        "verified_epoch",
    )

    def __init__(self, partition: Partition, mirror: MirrorTopic) -> None:
        self.partition = partition
        self.source = TopicPartition(mirror.source_topic, PartitionIndex(partition.topic_partition.partition))
        self.source_topic_id = mirror.source_topic_id
        self.source_end = -1  # The source's high watermark, as it was last told.
        self.is_begun = partition.log.log_end_offset > 0  # It is known where it begins.
        # As the request that is under way has it.
        self.asked_offset = self.asked_epoch = -1
        # The source's leader epoch in which histories were compared, where a Fetch does not do it.
        self.verified_epoch = -1
        self.is_recognized = False  # Where the source has no ids: its topic is the one that was mirrored before.
        self.needed_epoch = -1  # What comes next is of this epoch of the source: ours has to be as high.
        self.failures, self.rests_until_ms = 0, 0.0
        self.problem: str | None = None
        self.is_stopped = False  # Nothing but an operator lets it go on.
        self.is_agreeing = False  # The source has taken up a fetch from the log end: histories are the same.
        self.caught_up_ms: float | None = None  # When it was last known to have all that the source has.
        self.last_timestamp = -1
        self.bytes_per_second = 0
        self._window_ms, self._window_bytes = 0.0, 0

    def is_of(self, partition: Partition, mirror: MirrorTopic) -> bool:
        return self.partition is partition and self.source_topic_id == mirror.source_topic_id

    def is_ready(self, now_ms: float) -> bool:
        partition = self.partition
        return (
            not self.is_stopped
            and self.rests_until_ms <= now_ms
            and partition.is_leader
            and partition.is_mirror
            and not partition.log.is_offline
            and partition.leader_epoch >= self.needed_epoch
        )

    def stop(self, problem: str) -> None:
        self.is_stopped, self.is_agreeing, self.problem = True, False, problem

    def try_again(self) -> None:
        """An operator has decided what becomes of what is here."""
        self.is_stopped, self.verified_epoch = False, -1

    def take(self, records: memoryview, *, high_watermark: int, log_start_offset: int, now_ms: float) -> int:
        """What the source has sent for the log end. Gives the bytes written. Raises KafkaError."""
        partition = self.partition
        log = partition.log
        if (self.asked_offset, self.asked_epoch) != (log.log_end_offset, partition.leader_epoch):
            return 0
        fitting = self._fitting(records, high_watermark)
        if fitting:
            mirrors.append_mirrored(partition, fitting, leader_epoch=partition.leader_epoch)
        self.source_end, self.is_agreeing = high_watermark, True
        mirrors.follow_start(partition, log_start_offset)
        if not self.is_stopped:
            self.failures, self.problem = 0, None
        self._measure(len(fitting), now_ms)
        return len(fitting)

    def note_silence(self, now_ms: float) -> None:
        """An answer has come, and if there were news of this partition they are taken."""
        if 0 <= self.source_end <= self.partition.log.log_end_offset:
            self.caught_up_ms = now_ms

    def _fitting(self, records: memoryview, high_watermark: int) -> memoryview:
        """Whole batches behind the log end that may be written in this leader epoch. Nothing from the high watermark
        on is taken, whatever is sent."""
        log_end, epoch = self.partition.log.log_end_offset, self.partition.leader_epoch
        start = position = 0
        while len(records) - position >= HEADER_SIZE:
            if records[position + _MAGIC_AT] < 2:
                self.stop(
                    "the source has records in the format of Kafka before 0.11 (magic 0 or 1), which cannot be taken "
                    "as they are. Write the topic anew at the source, or let its old segments expire"
                )
                break
            header = read_header(records, position)
            if header.size_bytes > len(records) - position:
                break
            if header.last_offset >= high_watermark:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"the source sent offset {header.last_offset}, which is not below its high watermark "
                    f"{high_watermark}",
                )
            if header.leader_epoch > epoch:
                self.needed_epoch = header.leader_epoch
                break
            position += header.size_bytes
            if header.last_offset < log_end:
                start = position
            else:
                self.last_timestamp = header.max_timestamp
        return records[start:position]

    def _measure(self, size_bytes: int, now_ms: float) -> None:
        self._window_bytes += size_bytes
        passed_ms = now_ms - self._window_ms
        if passed_ms >= _RATE_WINDOW_MS:
            self.bytes_per_second = int(self._window_bytes * 1000 / passed_ms) if self._window_ms else 0
            self._window_ms, self._window_bytes = now_ms, 0
