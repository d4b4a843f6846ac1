"""OffsetCommit and OffsetFetch, in all versions."""

import pytest

from tailrace.coordinator.offsets.store import offset_record
from tailrace.coordinator.op import StoredRecord
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import ZERO_UUID
from tailrace.wire.apis.groups import OffsetCommitRequest, OffsetFetchRequest
from tailrace.wire.apis.stored_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tailrace.wire.record_envelopes import UnknownRecordTypeError, encode_coordinator_key, encode_coordinator_value
from tests.unit.coordinator.offsets.scene import Asked, Scene, classic_group, contents, topic_id
from tests.unit.coordinator.scene import START_MS, Written

Topic = OffsetCommitRequest.OffsetCommitRequestTopic
Partition = OffsetCommitRequest.OffsetCommitRequestPartition


def commit_errors(asked: Asked) -> dict[tuple[str, int], int]:
    return {
        (topic.name or topic.topic_id.rstrip(b".\0").decode(), each.partition_index): each.error_code
        for topic in asked.answer.topics
        for each in topic.partitions
    }


def fetch_all(scene: Scene, version: int, group_id: str = "g") -> dict[tuple[str, bytes, int], tuple[int, int, str]]:
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group_id, topics=None)
    answer = scene.ask(OffsetFetchRequest(groups=[group]), version).answer
    return {
        (topic.name, topic.topic_id, each.partition_index): (
            each.committed_offset,
            each.committed_leader_epoch,
            each.metadata,
        )
        for topic in answer.groups[0].topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", range(2, 11))
def test_what_is_committed_is_fetched(version: int) -> None:
    scene = Scene()
    asked = scene.commit(7, partition=1, version=version)
    assert commit_errors(asked) == {("t", 1): 0}
    assert scene.fetch(0, 1) == {0: -1, 1: 7}


def test_a_stored_offset_has_kafkas_form() -> None:
    scene = Scene()
    scene.commit(7, partition=1)
    ((key, value, _),) = scene.log
    assert key == b"\x00\x01" + b"\x00\x01g" + b"\x00\x01t" + b"\x00\x00\x00\x01"
    body = (7).to_bytes(8, "big") + b"\xff\xff\xff\xff" + b"\x01" + START_MS.to_bytes(8, "big")
    assert value == b"\x00\x04" + body + b"\x01\x00\x10" + topic_id("t")


def test_a_commit_with_a_retention_time_of_its_own_is_stored_in_version_1() -> None:
    scene = Scene()
    scene.commit(7, version=2, retention_time_ms=5000)
    ((_, value, _),) = scene.log
    assert value[:2] == b"\x00\x01"
    committed = scene.offsets.get("g", "t", 0)
    assert committed is not None
    assert (committed.offset, committed.expire_timestamp_ms) == (7, START_MS + 5000)


def test_partitions_stand_or_fall_alone() -> None:
    scene = Scene(offset_metadata_max_bytes=3)
    request = OffsetCommitRequest(
        group_id="g",
        topics=[
            Topic(
                name="t",
                partitions=[
                    Partition(partition_index=0, committed_offset=1, committed_metadata="abcd"),
                    Partition(
                        partition_index=1, committed_offset=2, committed_metadata="abc", committed_leader_epoch=5
                    ),
                    Partition(partition_index=3, committed_offset=3),
                ],
            ),
            Topic(name="nowhere", partitions=[Partition(partition_index=0, committed_offset=4)]),
        ],
    )
    assert commit_errors(scene.ask(request, 9)) == {
        ("t", 0): ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ("t", 1): 0,
        ("t", 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert fetch_all(scene, 9) == {("t", ZERO_UUID, 1): (2, 5, "abc")}


def test_an_unknown_topic_id() -> None:
    scene = Scene()
    request = OffsetCommitRequest(
        group_id="g",
        topics=[
            Topic(topic_id=topic_id(name), partitions=[Partition(partition_index=0, committed_offset=4)])
            for name in ("nowhere", "t")
        ],
    )
    assert commit_errors(scene.ask(request, 10)) == {("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_ID, ("t", 0): 0}


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_member_of_a_group_that_does_not_exist(version: int, code: ErrorCode) -> None:
    scene = Scene()
    assert scene.commit(7, version=version, generation=0, member_id="m").code == code
    assert scene.log == []


def test_a_member_of_a_group_that_only_has_offsets() -> None:
    scene = Scene()
    scene.commit(7)
    assert scene.commit(8, generation=0, member_id="m").code == ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.fetch(0) == {0: 7}


def test_a_commit_of_which_nothing_can_be_stored_is_answered_without_a_look_at_the_group() -> None:
    asked = Scene().commit(7, partition=99, generation=5)
    assert commit_errors(asked) == {("t", 99): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_only_the_members_of_a_group_commit_and_stay_alive_by_it() -> None:
    scene = Scene()
    scene.store(classic_group("g", "t"))
    scene.load()
    (session,) = [due for due in scene.machine.state.deadlines._due if due[0] == "g"]
    before = scene.machine.state.deadlines.get(session)
    scene.clock.advance_ms(4000)
    assert scene.commit(1).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.commit(1, generation=2, member_id="m").code == ErrorCode.ILLEGAL_GENERATION
    assert scene.machine.state.deadlines.get(session) == before
    assert scene.commit(1, generation=3, member_id="m").code == ErrorCode.NONE
    after = scene.machine.state.deadlines.get(session)
    assert before is not None
    assert after == before + 4000


def test_a_member_that_is_behind_commits_what_it_has_had_since(scene: Scene) -> None:
    """KIP-1251: of a member in epoch 5, partition 0 since epoch 3 and partition 1 since epoch 5."""
    assert scene.commit(1, partition=0, generation=4, member_id="m").code == ErrorCode.NONE
    assert scene.commit(1, partition=1, generation=4, member_id="m").code == ErrorCode.STALE_MEMBER_EPOCH
    assert scene.commit(1, partition=1, generation=5, member_id="m").code == ErrorCode.NONE
    assert scene.commit(1, partition=0, generation=6, member_id="m").code == ErrorCode.STALE_MEMBER_EPOCH
    assert scene.commit(1, partition=0, generation=5, member_id="n").code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.fixture
def scene() -> Scene:
    """With a consumer group."""
    scene = Scene()
    assigned = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(
        topic_id=topic_id("t"), partitions=[0, 1], assignment_epochs=[3, 5]
    )
    of_member = {"group_id": "g", "member_id": "m"}
    scene.store(
        StoredRecord(
            ConsumerGroupMemberMetadataKey(**of_member),
            ConsumerGroupMemberMetadataValue(subscribed_topic_names=["t"], classic_member_metadata=None),
        ),
        StoredRecord(ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=5)),
        StoredRecord(
            ConsumerGroupCurrentMemberAssignmentKey(**of_member),
            ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=5, previous_member_epoch=4, assigned_partitions=[assigned]
            ),
        ),
    )
    return scene


def test_offsets_that_old_brokers_stored_are_read() -> None:
    scene = Scene()
    for version in range(4):
        value = OffsetCommitValue(offset=100 + version, metadata="m", commit_timestamp=5)
        key = encode_coordinator_key(OffsetCommitKey(group="g", topic="t", partition=version))
        scene.machine.replay_stored(key, encode_coordinator_value(value, version))
    # The key of the oldest ones has another type.
    oldest = b"\x00\x00" + key[2:-1] + b"\x04"
    scene.machine.replay_stored(oldest, encode_coordinator_value(OffsetCommitValue(offset=9, commit_timestamp=5), 0))
    assert [offset.offset for offset in contents(scene.offsets).values()] == [100, 101, 102, 103, 9]


def test_an_offset_that_cannot_be_read_is_told_as_none_and_kept() -> None:
    scene = Scene(offsets_retention_check_interval_ms=1)
    scene.load()
    newer = b"\x00\x63" + bytes(20)
    for number, value in enumerate((newer, b"", b"\x00\x04")):
        key = encode_coordinator_key(OffsetCommitKey(group="g", topic="t", partition=number))
        scene.log.append(Written(key, value, None))
        scene.machine.replay_stored(key, value)
    assert scene.fetch(0, 1, 2) == {0: -1, 1: -1, 2: -1}
    scene.sleep_ms(1 << 40)
    assert len(scene.offsets) == 3


@pytest.mark.parametrize("key", [b"\x00\x01", b"\x00\x01\x00\x05g", b"\x00\x01\x00\x01\xff\x00\x01t" + bytes(4)])
def test_a_key_that_cannot_be_read_is_passed_over(key: bytes) -> None:
    with pytest.raises(UnknownRecordTypeError, match="cannot be read"):
        Scene().machine.replay_stored(key, b"")


# ---- OffsetFetch


@pytest.mark.parametrize("version", range(1, 8))
def test_old_versions_ask_for_one_group(version: int) -> None:
    scene = Scene()
    scene.commit(7, partition=1)
    request = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[1, 2])]
    )
    (topic,) = scene.ask(request, version).answer.topics
    assert topic.name == "t"
    assert [(each.partition_index, each.committed_offset, each.metadata) for each in topic.partitions] == [
        (1, 7, ""),
        (2, -1, ""),
    ]
    everything = scene.ask(OffsetFetchRequest(group_id="g", topics=None), version).answer.topics
    assert [[each.committed_offset for each in topic.partitions] for topic in everything] == [[7]]


def test_a_group_that_does_not_exist_has_no_offsets() -> None:
    scene = Scene()
    assert scene.fetch(0, 1) == {0: -1, 1: -1}
    assert fetch_all(scene, 9) == {}


def test_topics_by_id() -> None:
    scene = Scene()
    scene.create("gone", 1)
    scene.commit(7)
    scene.commit(8, topic="gone")
    topics = [
        OffsetFetchRequest.OffsetFetchRequestTopics(topic_id=topic_id(name), partition_indexes=[0])
        for name in ("t", "nowhere")
    ]
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=topics)
    found, unknown = scene.ask(OffsetFetchRequest(groups=[group]), 10).answer.groups[0].topics
    assert (found.topic_id, found.partitions[0].committed_offset) == (topic_id("t"), 7)
    assert (unknown.topic_id, unknown.partitions[0].committed_offset) == (topic_id("nowhere"), -1)
    assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    scene.delete("gone")
    assert fetch_all(scene, 10) == {("t", topic_id("t"), 0): (7, -1, "")}


def test_a_topic_that_was_made_again_has_no_offsets_for_those_who_ask_by_id() -> None:
    scene = Scene()
    scene.commit(7)
    scene.create("t", 3, incarnation=1)
    assert fetch_all(scene, 9) == {("t", ZERO_UUID, 0): (7, -1, "")}
    assert fetch_all(scene, 10) == {("t", topic_id("t", 1), 0): (-1, -1, "")}


@pytest.mark.parametrize("version", [7, 9, 10])
def test_many_offsets_are_read_in_steps(version: int) -> None:
    scene = Scene()
    scene.create("big", 1000)
    value = OffsetCommitValue(offset=5, commit_timestamp=1, topic_id=topic_id("big"))
    scene.store(*(offset_record("g", "big", number, value) for number in range(1000)))
    scene.work()
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
    first = scene.ask(OffsetFetchRequest(group_id="g", topics=None, groups=[group]), version)
    second = scene.ask(OffsetFetchRequest(group_id="g", topics=None, groups=[group]), version)
    assert first.answer is second.answer is None
    scene.work()
    for asked in (first, second):
        (topic,) = asked.answer.topics or asked.answer.groups[0].topics
        assert [(each.partition_index, each.committed_offset) for each in topic.partitions] == [
            (number, 5) for number in range(1000)
        ]


def test_a_retention_time_beyond_all_times_is_cut():
    scene = Scene()
    asked = scene.commit(5, version=2, retention_time_ms=2**63 - 1)
    assert commit_errors(asked) == {("t", 0): 0}
    stored = scene.offsets.get("g", "t", 0)
    assert stored is not None
    assert stored.expire_timestamp_ms == 2**63 - 1


def test_a_long_fetch_ends_when_its_client_is_gone():
    scene = Scene()
    scene.create("t", 2_000)
    for partition in range(200):
        scene.commit(1, partition=partition)
    group = OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id="g",
        topics=[OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=list(range(2_000)))],
    )
    asked = scene.ask(OffsetFetchRequest(groups=[group]), 9)
    steps = scene.machine.take_work(scene.call())
    assert steps is not None
    next(steps)
    asked.is_over = True
    with pytest.raises(StopIteration):
        next(steps)
    assert asked.answer is None
