"""What is made of manifests and an export."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace.model.ids import PartitionIndex, Uuid
from tailrace.tier.format.names import ExportVersion, ManifestVersion, TieredPartition
from tailrace.tier.metadata.coverage import RemoteSegment
from tailrace.tier.metadata.export import Export, ExportedOffset, ExportedTopic
from tailrace.tier.metadata.manifest import Manifest
from tailrace.tier.recovery.plan import RecoveryError, RecoveryPlan, decide_partition, decide_recovery

TOPIC_ID, OTHER_ID = Uuid(bytes(range(16))), Uuid(bytes(range(1, 17)))


def segment(number: int, start: int, end: int, *epochs: tuple[int, int]) -> RemoteSegment:
    return RemoteSegment(Uuid(bytes([number]) * 16), start, end, 100, 150, 1000 + end, 1, epochs or ((0, 0),))


SEGMENTS = (segment(1, 0, 10), segment(2, 10, 20), segment(3, 20, 30))


def manifest(*segments: RemoteSegment, **changes: object) -> Manifest:
    whole = Manifest(
        cluster_id="cluster",
        topic="t",
        owner=TieredPartition(TOPIC_ID, PartitionIndex(0)),
        version=ManifestVersion(0, 5, 4, 1),
        written_ms=5_000,
        partition_count=2,
        settings={"retention.ms": "1"},
        log_start_offset=0,
        log_end_offset=35,
        lineage=((0, 0), (4, 33)),
        segments=segments or SEGMENTS,
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def export(*offsets: ExportedOffset, written_ms: int = 9_000, **changes: object) -> Export:
    topics = [ExportedTopic("t", TOPIC_ID, {"retention.ms": "2"}, [4, 6])]
    return replace(Export("cluster", ExportVersion(0, 0, written_ms), 3_000, topics, offsets), **changes)  # type: ignore[arg-type]


def recovery(*manifests: Manifest, told: Export | None = None, wanted: tuple[str, ...] = ()) -> RecoveryPlan:
    plans = {each.owner: decide_partition(each, (), accepts_loss=False) for each in manifests}
    return decide_recovery("cluster", manifests, plans, told, wanted=wanted)


def test_a_partition_ends_where_its_copies_do():
    plan = decide_partition(manifest(), (), accepts_loss=False)
    assert (plan.log_start_offset, plan.end_offset, plan.seen_end_offset) == (0, 30, 35)
    assert plan.lineage == ((0, 0),), "what comes after the end is not its history"
    assert plan.leader_epoch > 4
    assert plan.newest_ms == 1030


def test_what_retention_took_meanwhile():
    plan = decide_partition(manifest(), {SEGMENTS[0].segment_id}, accepts_loss=False)
    assert (plan.log_start_offset, plan.end_offset) == (10, 30)


def test_a_hole_has_to_be_accepted():
    missing = {SEGMENTS[1].segment_id}
    with pytest.raises(RecoveryError, match="t-0: the objects of offsets 10 to 19 are not there"):
        decide_partition(manifest(), missing, accepts_loss=False)
    assert decide_partition(manifest(), missing, accepts_loss=True).log_start_offset == 20


def test_the_end_may_be_gone():
    plan = decide_partition(manifest(), {SEGMENTS[2].segment_id}, accepts_loss=False)
    assert (plan.end_offset, len(plan.segments)) == (20, 2)


def test_nothing_is_left():
    plan = decide_partition(manifest(segment(1, 0, 10), log_start_offset=35), (), accepts_loss=False)
    assert (plan.log_start_offset, plan.end_offset) == (35, 35)


def test_a_copy_that_parts_from_the_log_is_not_its_end():
    """Nobody knows the producers in the middle of it."""
    parted = segment(3, 20, 30, (0, 0), (2, 25))
    plan = decide_partition(manifest(*SEGMENTS[:2], parted), (), accepts_loss=False)
    assert plan.end_offset == 20


def test_all_partitions_and_the_later_settings():
    (topic,) = recovery(manifest(), told=export()).topics
    assert [each.end_offset for each in topic.partitions] == [30, 0]
    assert topic.settings == {"retention.ms": "2"}
    assert topic.partitions[1].leader_epoch > 6
    (topic,) = recovery(manifest(), told=export(written_ms=10)).topics
    assert topic.settings == {"retention.ms": "1"}
    (topic,) = recovery(manifest()).topics
    assert len(topic.partitions) == 2


def test_a_topic_without_copies_is_made_again():
    (topic,) = recovery(told=export()).topics
    assert (topic.topic_id, len(topic.partitions), topic.partitions[0].end_offset) == (TOPIC_ID, 2, 0)


def test_a_topic_that_was_deleted_is_left_out():
    told = export(topics=[])
    plan = recovery(manifest(), told=told)
    assert (plan.topics, plan.left_out) == ([], ["t"])
    assert [each.name for each in recovery(manifest(), told=told, wanted=("t",)).topics] == ["t"]
    late = manifest(written_ms=99_999)
    assert [each.name for each in recovery(late, told=told).topics] == ["t"], "it came after the export"


def test_of_two_topics_with_one_name_the_later():
    anew = export(topics=[ExportedTopic("t", OTHER_ID, {}, [0])])
    (topic,) = recovery(manifest(), told=anew).topics
    assert (topic.topic_id, topic.partitions[0].end_offset) == (OTHER_ID, 0)
    (topic,) = recovery(manifest(written_ms=99_999), told=anew).topics
    assert (topic.topic_id, topic.partitions[0].end_offset) == (TOPIC_ID, 30)


def test_committed_offsets():
    offsets = [
        ExportedOffset("g", "t", 0, 12, 0, "x"),
        ExportedOffset("far", "t", 0, 34, 4, ""),
        ExportedOffset("g", "t", 1, 5, -1, ""),
        ExportedOffset("g", "gone", 0, 5, -1, ""),
    ]
    plan = recovery(manifest(), told=export(*offsets))
    assert [(each.group_id, each.partition, each.offset, each.leader_epoch) for each in plan.offsets] == [
        ("g", 0, 12, 0),
        ("far", 0, 30, 0),
        ("g", 1, 0, -1),
    ]
    assert [each.offset for each in plan.lowered] == [34, 5]
    assert plan.next_producer_id > 3_000
