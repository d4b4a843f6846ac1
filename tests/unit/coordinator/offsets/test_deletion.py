"""OffsetDelete, and the offsets of topics that are deleted."""

import pytest

from tailrace.coordinator.offsets.batch_capacity import RECORDS_PER_BATCH
from tailrace.coordinator.offsets.store import offset_record
from tailrace.coordinator.op import Producer, Result
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.groups import OffsetDeleteRequest
from tailrace.wire.apis.stored_records import OffsetCommitValue
from tests.unit.coordinator.offsets.scene import Asked, Scene, classic_group, contents, topic_id
from tests.unit.coordinator.scene import run


def delete(scene: Scene, topic: str, *partitions: int) -> Asked:
    asked = OffsetDeleteRequest.OffsetDeleteRequestTopic(
        name=topic,
        partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=each) for each in partitions],
    )
    return scene.ask(OffsetDeleteRequest(group_id="g", topics=[asked]), 0)


def errors(asked: Asked) -> list[int]:
    return [each.error_code for topic in asked.answer.topics for each in topic.partitions]


def test_offsets_are_deleted_one_by_one() -> None:
    scene = Scene()
    scene.commit(7, partition=0)
    scene.commit(8, partition=1)
    asked = delete(scene, "t", 0, 2)
    assert errors(asked) == [0, 0]
    assert len(asked.records) == 1, "there was nothing of partition 2"
    assert scene.fetch(0, 1) == {0: -1, 1: 8}


def test_what_cannot_be_deleted() -> None:
    scene = Scene()
    scene.create("u", 1)
    assert delete(scene, "t", 0).code == ErrorCode.GROUP_ID_NOT_FOUND
    scene.store(classic_group("g", "t"))
    scene.commit(7, generation=3, member_id="m")
    scene.commit(8, topic="u", generation=3, member_id="m")
    assert errors(delete(scene, "t", 0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    assert errors(delete(scene, "t", 9)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert errors(delete(scene, "nowhere", 0)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert errors(delete(scene, "u", 0)) == [0]
    assert [topic for _, topic, _ in contents(scene.offsets)] == ["t"]


def test_offsets_go_with_their_topic() -> None:
    scene = Scene()
    scene.create("u", 1)
    for group_id in ("g", "h"):
        scene.commit(7, group_id=group_id)
        scene.commit(8, group_id=group_id, topic="u")
    scene.delete("t")
    assert scene.work() == 1
    assert {(group_id, topic) for group_id, topic, _ in contents(scene.offsets)} == {("g", "u"), ("h", "u")}


def test_offsets_of_a_topic_that_was_made_again_stay() -> None:
    scene = Scene()
    scene.commit(7)
    scene.commit(8, group_id="h")
    scene.create("t", 1, incarnation=1)
    scene.commit(1)  # For the new topic, before the old one's offsets are looked for.
    assert scene.work() == 1
    assert {place: each.offset for place, each in contents(scene.offsets).items()} == {("g", "t", 0): 1}


def test_many_offsets_of_a_topic_go_in_several_batches() -> None:
    scene = Scene()
    value = OffsetCommitValue(offset=1, commit_timestamp=1, topic_id=topic_id("t"))
    count = 2 * RECORDS_PER_BATCH + 1
    scene.store(*(offset_record(f"g{number}", "t", 0, value) for number in range(count)))
    assert len(scene.offsets) == count
    scene.delete("t")
    assert scene.work() == 3
    assert contents(scene.offsets) == {}


def test_many_offsets_of_a_topic_that_was_made_again_are_looked_at_once() -> None:
    scene = Scene()
    scene.commit(7)
    scene.create("t", 3, incarnation=1)
    value = OffsetCommitValue(offset=1, commit_timestamp=1, topic_id=topic_id("t", 1))
    count = 2 * RECORDS_PER_BATCH
    scene.store(*(offset_record(f"g{number}", "t", 0, value) for number in range(count)))
    assert scene.work() == 1
    assert len(scene.offsets) == count


def test_a_change_of_topics_without_a_deletion_is_no_work() -> None:
    scene = Scene()
    scene.commit(7)
    scene.create("u", 1)
    assert not [kind for kind, _ in scene.machine.state.work if kind.startswith("offsets")]


@pytest.mark.parametrize("version", [2, 9])
def test_a_commit_to_a_topic_that_was_made_again_while_the_old_offsets_go_stays(version: int) -> None:
    scene = Scene()
    value = OffsetCommitValue(offset=1, commit_timestamp=1, topic_id=topic_id("t"))
    scene.store(*(offset_record(f"g{number}", "t", 0, value) for number in range(450)))
    scene.delete("t")
    steps = scene.machine.take_work(scene.call())
    assert steps is not None
    next(steps)
    scene.create("t", 3, incarnation=1)
    retention = {"retention_time_ms": 60_000} if version == 2 else {}
    for group_id in ("g1", "g449"):  # One that was looked at already, and one that was not.
        scene.commit(7, group_id=group_id, version=version, **retention)
    scene.apply(run(steps))
    scene.work()
    assert {(group_id, found.offset) for (group_id, _, _), found in contents(scene.offsets).items()} == {
        ("g1", 7),
        ("g449", 7),
    }


def test_a_pending_commit_to_a_topic_that_was_made_again_stays() -> None:
    scene = Scene()
    value = OffsetCommitValue(offset=1, commit_timestamp=1, topic_id=topic_id("t"))
    scene.store(*(offset_record(f"g{number}", "t", 0, value) for number in range(450)))
    scene.delete("t")
    steps = scene.machine.take_work(scene.call())
    assert steps is not None
    next(steps)
    scene.create("t", 3, incarnation=1)
    pending = OffsetCommitValue(offset=9, commit_timestamp=scene.now_ms, topic_id=topic_id("t", 1))
    scene.apply(Result([offset_record("g449", "t", 0, pending)], producer=Producer(5, 0)))
    scene.apply(run(steps))
    scene.work()
    scene.mark(5, is_commit=True)
    assert scene.fetch(0, group_id="g449") == {0: 9}
