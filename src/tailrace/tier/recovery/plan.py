"""What is made of what a bucket has: topics, where each partition begins and ends, what groups have committed. Pure.

Rules
- A partition ends where its copies do. What was written after that is lost, and its offsets are given again; so the new
  leader epoch is above all that the old cluster can have had, and readers find that histories part.
- A copy whose object is gone at the front was removed by retention. A hole further on is a loss that somebody has to
  accept: then the log begins after it.
- A committed offset beyond the end becomes the end: left as it is, a reader would skip what is written next, or jump.
- A topic that a later export does not know was deleted, or has given up its copies.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tailrace.log.producers import ProducerStates
from tailrace.model.errors import StorageError
from tailrace.model.ids import PartitionIndex, Uuid
from tailrace.tier.format.names import TieredPartition
from tailrace.tier.metadata.coverage import Piece, RemoteSegment, cover
from tailrace.tier.metadata.export import Export, ExportedOffset
from tailrace.tier.metadata.manifest import Manifest
from tailrace.tier.reading.bucket import newest_of_each_name

# Elections after the last manifest and the last export are not known: each took one.
_EPOCH_JUMP = 1_000
# Nor are producer ids that were given since: brokers take them in blocks of a thousand.
_PRODUCER_ID_JUMP = 1_000_000


class RecoveryError(StorageError):
    """It is not done as it was asked for: says what to do."""


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    topic: str
    owner: TieredPartition
    leader_epoch: int  # Of the first leader.
    log_start_offset: int = 0
    end_offset: int = 0
    lineage: tuple[tuple[int, int], ...] = ()
    segments: tuple[RemoteSegment, ...] = ()
    last: Piece | None = None  # That ends at the end.
    seen_end_offset: int = 0  # Of the log, as its last manifest has it: what is between was lost for certain.
    as_of_ms: int = -1  # When that was; -1 without a manifest.
    producers: bytes = b""  # Kafka's snapshot, as of the end.

    @property
    def newest_ms(self) -> int:
        return -1 if self.last is None else self.last.segment.max_timestamp

    def epoch_before(self, offset: int) -> int:
        number = bisect_right(self.lineage, offset - 1, key=lambda entry: entry[1])
        return self.lineage[number - 1][0] if number else -1


@dataclass(frozen=True, slots=True)
class TopicPlan:
    name: str
    topic_id: Uuid
    settings: Mapping[str, str]
    partitions: Sequence[PartitionPlan]


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    cluster_id: str
    topics: Sequence[TopicPlan]
    offsets: Sequence[ExportedOffset]
    lowered: Sequence[ExportedOffset]  # Of them, as they were, those that lay beyond the end.
    next_producer_id: int  # At least.
    groups_as_of_ms: int = -1  # -1 without an export.
    left_out: Sequence[str] = ()  # Topics that were deleted.

    @property
    def partitions(self) -> list[PartitionPlan]:
        return [partition for topic in self.topics for partition in topic.partitions]


def decide_partition(manifest: Manifest, missing: Collection[Uuid], *, accepts_loss: bool) -> PartitionPlan:
    """`missing`: copies whose objects are not there. RecoveryError for a hole that nobody accepts."""
    present = [segment for segment in manifest.segments if segment.segment_id not in missing]
    coverage = cover(
        present,
        manifest.lineage,
        log_start_offset=manifest.log_start_offset,
        log_end_offset=manifest.log_end_offset,
    )
    run = _whole_pieces(coverage.pieces)
    holes = [number for number in range(1, len(run)) if run[number].start_offset != run[number - 1].end_offset]
    if holes and not accepts_loss:
        before, after = run[holes[-1] - 1], run[holes[-1]]
        raise RecoveryError(
            f"{manifest.topic}-{manifest.owner.partition}: the objects of offsets {before.end_offset} to "
            f"{after.start_offset - 1} are not there. Bring them back (a bucket with versions has them), or begin "
            "after them with --accept-loss"
        )
    run = run[holes[-1] :] if holes else run
    start_offset = run[0].start_offset if run else manifest.log_start_offset
    end_offset = run[-1].end_offset if run else start_offset
    known = [epoch for epoch, _ in manifest.lineage] + [epoch for each in present for epoch, _ in each.epochs]
    return PartitionPlan(
        topic=manifest.topic,
        owner=manifest.owner,
        leader_epoch=max([manifest.version.leader_epoch, *known]) + _EPOCH_JUMP,
        log_start_offset=start_offset,
        end_offset=end_offset,
        lineage=tuple((epoch, start) for epoch, start in manifest.lineage if start < end_offset),
        segments=tuple(each for each in present if each.base_offset < end_offset),
        last=run[-1] if run else None,
        seen_end_offset=manifest.log_end_offset,
        as_of_ms=manifest.written_ms,
    )


def decide_recovery(
    cluster_id: str,
    manifests: Sequence[Manifest],
    partitions: Mapping[TieredPartition, PartitionPlan],
    export: Export | None,
    *,
    wanted: Collection[str] = (),
) -> RecoveryPlan:
    """`partitions`: what `decide_partition` made of each manifest. `wanted`: names of topics; all without."""
    topics, left_out = [], []
    by_name: dict[str, list[Manifest]] = {}
    for manifest in newest_of_each_name(manifests):
        by_name.setdefault(manifest.topic, []).append(manifest)
    exported = {} if export is None else {topic.name: topic for topic in export.topics}
    for name in sorted(by_name.keys() | exported.keys()):
        if wanted and name not in wanted:
            continue
        if _was_deleted(name, by_name.get(name, ()), export) and name not in wanted:
            left_out.append(name)
        else:
            topics.append(_decide_topic(name, by_name.get(name, ()), partitions, export))
    found = {(each.topic, int(each.owner.partition)): each for topic in topics for each in topic.partitions}
    offsets, lowered = _decide_offsets(() if export is None else export.offsets, found)
    return RecoveryPlan(
        cluster_id,
        topics,
        offsets,
        lowered,
        _next_producer_id(found.values(), export),
        -1 if export is None else export.version.written_ms,
        left_out,
    )


def open_transactions(producers: bytes) -> list[tuple[int, int]]:
    """Of a snapshot: producer id and epoch of those whose transaction is open at its end. The marker is lost."""
    states = _read_producers(producers).states
    return [(producer_id, state.epoch) for producer_id, state in states.items() if state.current_txn_first_offset >= 0]


def _next_producer_id(partitions: Iterable[PartitionPlan], export: Export | None) -> int:
    given = [producer_id + 1 for each in partitions for producer_id in _read_producers(each.producers).states]
    return max([0 if export is None else export.next_producer_id, *given]) + _PRODUCER_ID_JUMP


def _read_producers(snapshot: bytes) -> ProducerStates:
    states = ProducerStates()
    if snapshot:
        states.load(snapshot)
    return states


def _was_deleted(name: str, manifests: Iterable[Manifest], export: Export | None) -> bool:
    if export is None:
        return False
    ids = {topic.topic_id for topic in export.topics if topic.name == name}
    return all(
        manifest.owner.topic_id not in ids and manifest.written_ms < export.version.written_ms for manifest in manifests
    ) and bool(not ids)


def _decide_topic(
    name: str,
    manifests: Sequence[Manifest],
    plans: Mapping[TieredPartition, PartitionPlan],
    export: Export | None,
) -> TopicPlan:
    newest = max(manifests, key=lambda each: each.written_ms, default=None)
    told = None if export is None else next((each for each in export.topics if each.name == name), None)
    if newest is not None and told is not None and told.topic_id != newest.owner.topic_id:
        # It was deleted and made anew: the later word counts.
        assert export is not None
        if export.version.written_ms > newest.written_ms:
            newest, manifests = None, ()
        else:
            told = None
    topic_id = newest.owner.topic_id if newest is not None else told.topic_id  # type: ignore[union-attr]
    count = max(len(told.leader_epochs) if told else 0, newest.partition_count if newest else 0)
    is_told_later = told is not None and (
        newest is None or (export is not None and export.version.written_ms > newest.written_ms)
    )
    settings = told.settings if told is not None and is_told_later else newest.settings  # type: ignore[union-attr]
    partitions = []
    for index in range(count):
        owner = TieredPartition(topic_id, PartitionIndex(index))
        known = told.leader_epochs[index] if told is not None and index < len(told.leader_epochs) else 0
        plan = plans.get(owner) or PartitionPlan(name, owner, leader_epoch=0)
        partitions.append(replace(plan, leader_epoch=max(plan.leader_epoch, known + _EPOCH_JUMP)))
    return TopicPlan(name, topic_id, settings, partitions)


def _decide_offsets(
    offsets: Iterable[ExportedOffset], found: Mapping[tuple[str, int], PartitionPlan]
) -> tuple[list[ExportedOffset], list[ExportedOffset]]:
    decided, lowered = [], []
    for each in offsets:
        partition = found.get((each.topic, each.partition))
        if partition is None:
            continue
        if each.offset > partition.end_offset:
            lowered.append(each)
        offset = min(each.offset, partition.end_offset)
        epoch = -1 if each.leader_epoch < 0 else partition.epoch_before(offset)
        decided.append(each._replace(offset=offset, leader_epoch=epoch))
    return decided, lowered


def _whole_pieces(pieces: Sequence[Piece]) -> list[Piece]:
    """Without a last one of which only the beginning is on the log's lineage: what was known of producers at its end is
    not what was known where it is left."""
    whole = list(pieces)
    while whole and whole[-1].end_offset != whole[-1].segment.end_offset:
        whole.pop()
    return whole
