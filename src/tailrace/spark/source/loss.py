"""Records that should be read and cannot be: the query fails, or goes on and says what it leaves out."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from tailrace.model.ids import ZERO_UUID, TopicPartition, Uuid, uuid_text
from tailrace.spark.source.offsets import OffsetRange, Offsets

logger = logging.getLogger(__name__)


class DataLossError(RuntimeError):
    """With failOnDataLoss: the message names what is lost."""


class LossReport:
    def __init__(self, *, fail_on_data_loss: bool) -> None:
        self._fails = fail_on_data_loss

    def add(self, loss: str) -> None:
        if self._fails:
            raise DataLossError(f"{loss}. To go on without, set the option failOnDataLoss to false")
        logger.warning("%s. The query goes on without, since failOnDataLoss is false", loss)


class KnownTopics:
    """A topic that was deleted and created anew under its name is another topic: its offsets begin again, and those of
    a checkpoint say nothing of it. Offsets alone do not show it once the new topic has grown beyond what was read of
    the old one; ids do. They are those that the option `topicIds` names, and of other topics those that were seen
    first."""

    def __init__(self, given: Mapping[str, Uuid], losses: LossReport) -> None:
        self.ids = dict(given)
        self._losses = losses

    def check(self, found: Mapping[str, Uuid]) -> None:
        """Raises DataLossError, or tells once. Brokers of old give no ids, and topics without are not judged."""
        for topic, topic_id in sorted(found.items()):
            if topic_id == ZERO_UUID:
                continue
            known = self.ids.setdefault(topic, topic_id)
            if topic_id != known:
                self._losses.add(
                    f"topic {topic} was deleted and created anew: its id was {uuid_text(known)} and is "
                    f"{uuid_text(topic_id)}. What was not read of the old one is lost, and of the new one what lies "
                    "below the offsets of the checkpoint is not read; to read it all, give the query a new checkpoint"
                )
                self.ids[topic] = topic_id


def clip_to_log(
    start: Offsets, end: Offsets, *, log_starts: Offsets, log_ends: Offsets, losses: LossReport
) -> Iterator[OffsetRange]:
    """What of each partition of `end` the log still holds. A partition that the log does not have is left out."""
    for partition in sorted(end):
        if partition not in log_starts or partition not in log_ends:
            losses.add(f"{partition} is gone, with what it held below offset {end[partition]}")
            continue
        clipped = _clip(
            OffsetRange(partition, start[partition], end[partition]),
            log=range(log_starts[partition], log_ends[partition]),
            losses=losses,
        )
        if clipped.size > 0:
            yield clipped


def _clip(wanted: OffsetRange, *, log: range, losses: LossReport) -> OffsetRange:
    partition, start, end = wanted
    if start > end:
        losses.add(
            f"{partition} is to be read from offset {start}, and ends at {end}: either the starting offset was "
            "chosen too high, or the topic was deleted and created anew, and what it holds now is not read"
        )
        return OffsetRange(partition, end, end)
    if start < min(log.start, end):
        lost = min(log.start, end)
        losses.add(
            f"offsets {start} to {lost - 1} of {partition} are lost: its log begins at {log.start}; "
            "retention or a deletion of records took them"
        )
        start = lost
    if end > max(log.stop, start):
        there = max(log.stop, start)
        losses.add(
            f"offsets {there} to {end - 1} of {partition} are not there: its log ends at {log.stop}; either the "
            "ending offset was chosen too high, or the topic was deleted and created anew, or a transaction is open "
            "there and only what is committed is read"
        )
        end = there
    return OffsetRange(partition, start, end)


def report_missing(known: Offsets, found: Offsets, losses: LossReport) -> None:
    """Partitions that were read before and are not there any more."""
    gone = sorted(known.keys() - found.keys())
    if gone:
        losses.add(
            f"{_enumerate(gone)} was read before and is gone: its topic was deleted, or is not subscribed to any more; "
            "what it held beyond the checkpoint is not read"
        )


def report_late_start(first_offsets: Offsets, losses: LossReport) -> None:
    """Partitions that were added while the query ran are read from their first record, offset 0."""
    for partition, offset in sorted(first_offsets.items()):
        if offset > 0:
            losses.add(f"{partition} is new, and its log begins at offset {offset}: offsets 0 to {offset - 1} are lost")


def _enumerate(partitions: list[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))
