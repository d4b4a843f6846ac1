"""What is asked of a consumer group: offsets, deletion, description; and what a compacted log makes of it."""

import pytest

from tailrace.coordinator.consumers.group import ConsumerGroup
from tailrace.coordinator.consumers.member import Member, MemberState
from tailrace.coordinator.consumers.records import epoch_record, member_record
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.groups import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from tailrace.wire.apis.stored_records import (
    GROUP_RECORDS,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
)
from tailrace.wire.record_envelopes import decode_coordinator_record
from tests.unit.coordinator.consumers.scene import ASSIGNMENT_MS, GROUP, SESSION_MS, Scene, durable, topic_id
from tests.unit.coordinator.scene import Asked

EVERYTHING = {"t": {0, 1, 2, 3}}


def commit_error(group: ConsumerGroup, **fields) -> ErrorCode:
    given = {"member_id": "a", "group_instance_id": None, "generation": 2, "is_transactional": False, "api_version": 9}
    try:
        check = group.check_offset_commit(**{**given, **fields})
        if check is not None:
            check("t", topic_id("t"), 0)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def fetch_error(group: ConsumerGroup, member_id: str | None, member_epoch: int) -> ErrorCode:
    try:
        group.check_offset_fetch(member_id=member_id, member_epoch=member_epoch)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_who_may_commit():
    scene = Scene()
    scene.join("a")
    group = scene.group
    assert commit_error(group) is ErrorCode.NONE
    assert commit_error(group, member_id="b") is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_error(group, member_id="", generation=-1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_error(group, generation=3) is ErrorCode.STALE_MEMBER_EPOCH
    # The partition was assigned in epoch 2.
    assert commit_error(group, generation=1) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit_error(group, api_version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert commit_error(group, api_version=5, is_transactional=True) is ErrorCode.NONE
    assert commit_error(group, member_id="", generation=-1, is_transactional=True) is ErrorCode.NONE
    scene.beat("a", -1)
    assert commit_error(group, member_id="", generation=-1) is ErrorCode.NONE
    assert commit_error(group) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_in_a_later_epoch_may_commit_in_the_one_in_which_it_got_the_partition():
    scene = Scene({"t": 1, "u": 1})
    scene.join("a", "t")
    scene.pass_ms(ASSIGNMENT_MS)
    scene.beat("a", 2, {"t": {0}}, subscribed_topic_names=["t", "u"])
    assert scene.group.members["a"].member_epoch == 3
    assert commit_error(scene.group, generation=2) is ErrorCode.NONE
    check = scene.group.check_offset_commit(
        member_id="a", group_instance_id=None, generation=2, is_transactional=False, api_version=9
    )
    assert check is not None
    for topic in ("u", "other"):
        with pytest.raises(KafkaError) as refused:
            check(topic, topic_id(topic), 0)
        assert refused.value.code is ErrorCode.STALE_MEMBER_EPOCH


def test_classic_members_are_told_of_generations():
    group = ConsumerGroup("g")
    classic = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(session_timeout_ms=1)
    group.replay_member(Member("a", member_epoch=2, classic=classic), "a")
    assert commit_error(group, api_version=5) is ErrorCode.NONE
    assert commit_error(group, generation=3, api_version=5) is ErrorCode.ILLEGAL_GENERATION
    assert commit_error(group, generation=1, api_version=5) is ErrorCode.ILLEGAL_GENERATION
    assert fetch_error(group, "a", 1) is ErrorCode.ILLEGAL_GENERATION


def test_who_may_fetch_offsets():
    scene = Scene()
    scene.join("a")
    assert fetch_error(scene.group, None, -1) is ErrorCode.NONE
    assert fetch_error(scene.group, "a", 2) is ErrorCode.NONE
    assert fetch_error(scene.group, "a", 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert fetch_error(scene.group, "b", 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_with_members_is_not_deleted_and_an_empty_one_leaves_nothing():
    scene = Scene()
    scene.join("a", subscribed_topic_regex="t.*")
    with pytest.raises(KafkaError) as refused:
        scene.group.check_deletion()
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    scene.beat("a", -1)
    scene.group.check_deletion()
    for record in scene.group.deletion_records():
        scene.machine.replay(record.key, record.value)
    assert scene.machine.state.groups == {}


def test_a_group_is_described_as_it_is():
    scene = Scene()
    scene.join("a", instance_id="i", rack_id="r", server_assignor="range")
    scene.join("b")
    scene.pass_ms(ASSIGNMENT_MS)
    scene.beat("a", 2, EVERYTHING)
    asked = scene.ask(ConsumerGroupDescribeRequest(group_ids=[GROUP]))
    response = asked.answers[0]
    assert isinstance(response, ConsumerGroupDescribeResponse)
    (group,) = response.groups
    assert (group.error_code, group.group_id, group.group_state) == (0, GROUP, "Reconciling")
    assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (3, 3, "range")
    first, second = group.members
    assert (first.member_id, first.instance_id, first.rack_id, first.member_epoch) == ("a", "i", "r", 2)
    assert (first.client_id, first.client_host, first.member_type) == ("app", "/127.0.0.1", 1)
    assert first.subscribed_topic_names == ["t"]
    # What it has yet to give up is still its own.
    assert [(each.topic_name, each.partitions) for each in first.assignment.topic_partitions] == [("t", [0, 1, 2, 3])]
    assert [(each.topic_name, each.partitions) for each in first.target_assignment.topic_partitions] == [("t", [0, 1])]
    assert second.assignment.topic_partitions == []
    scene.set_topics({})
    (group,) = scene.ask(ConsumerGroupDescribeRequest(group_ids=[GROUP])).answers[0].groups
    assert group.members[0].assignment.topic_partitions == []


def test_what_is_no_consumer_group_is_not_described():
    scene = Scene()
    (group,) = scene.ask(ConsumerGroupDescribeRequest(group_ids=["x"])).answers[0].groups
    assert (group.error_code, group.group_id) == (ErrorCode.GROUP_ID_NOT_FOUND, "x")


def test_a_compacted_log_gives_the_same_groups():
    scene = Scene()
    scene.join("a")
    scene.join("b", subscribed_topic_regex="t")
    scene.pass_ms(ASSIGNMENT_MS)
    kept = {"t": {0, 1}}
    scene.beat("a", 2, EVERYTHING)
    scene.beat("a", 2, kept)
    scene.beat("b", scene.group.members["b"].member_epoch, {})
    scene.beat("a", -1)
    last = {key: offset for offset, (key, *_) in enumerate(scene.log)}
    machine = Scene().machine
    for offset, (key, value, _) in enumerate(scene.log):
        if last[key] == offset:
            machine.replay(*decode_coordinator_record(GROUP_RECORDS, key, value))
    assert durable(machine) == durable(scene.machine)


def test_a_partition_whose_next_owner_is_told_first_keeps_it():
    """As a log may tell it whose earlier records were compacted."""
    group = ConsumerGroup("g")
    topic = topic_id("t")
    group.replay_member(Member("a", assigned={topic: {0: 1}}), "a")
    group.replay_member(Member("b", assigned={topic: {0: 2}}), "b")
    group.replay_member(Member("a"), "a")
    assert group.owners == {topic: {0: "b"}}


def test_records_of_old_brokers_are_understood_and_removed():
    scene = Scene()
    for key, value in [
        epoch_record(GROUP, 7, 0)[:2],
        (ConsumerGroupPartitionMetadataKey(group_id=GROUP), ConsumerGroupPartitionMetadataValue()),
        member_record(GROUP, Member("a", subscribed_topic_names=("t",)))[:2],
        (
            ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="a"),
            ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=7,
                previous_member_epoch=6,
                state=99,
                assigned_partitions=[
                    ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(
                        topic_id=topic_id("t"), partitions=[0, 1], assignment_epochs=None
                    )
                ],
            ),
        ),
    ]:
        scene.machine.replay(key, value)
    assert scene.group.members["a"].assigned == {topic_id("t"): {0: 7, 1: 7}}
    assert scene.group.members["a"].state is MemberState.UNKNOWN
    assert scene.group.has_partition_metadata
    assert scene.refusal("a", 7, {"t": {0}}) is ErrorCode.FENCED_MEMBER_EPOCH
    assert any(isinstance(record.key, ConsumerGroupPartitionMetadataKey) for record in scene.group.deletion_records())
    for result in scene.machine.on_loaded(scene.call()):
        assert not result.records


def test_a_join_whose_records_are_refused_leaves_nothing():
    scene = Scene()
    caller = Asked(1)
    result = scene.machine.op(scene.call(), caller, scene.joining("a"))
    assert result.on_refused is not None
    undone = result.on_refused(scene.call())
    assert [asked for asked, _ in undone.answers] == [caller]
    assert scene.machine.state.groups == {}


def test_a_group_that_could_not_be_converted_stays_what_it_was():
    scene = Scene()
    stored = GroupMetadataValue(protocol_type="consumer", generation=3, protocol=None, leader=None)
    scene.machine.replay(GroupMetadataKey(group=GROUP), stored)
    before = scene.machine.state.groups[GROUP]
    caller = Asked(1)
    result = scene.machine.op(scene.call(), caller, scene.joining("a"))
    assert scene.machine.state.groups[GROUP] is not before
    assert result.on_refused is not None, "else all groups of the partition would be loaded anew"
    undone = result.on_refused(scene.call())
    assert [asked for asked, _ in undone.answers] == [caller]
    assert scene.machine.state.groups[GROUP] is before


def test_a_subscription_is_measured_in_bytes():
    scene = Scene(message_max_bytes=100_000)
    assert scene.refusal("a", 0, {}, subscribed_topic_names=["t" * 20_000], rebalance_timeout_ms=1) is ErrorCode.NONE
    fits_not = ["\N{GRINNING FACE}" * 20_000]
    code = scene.refusal("b", 0, {}, subscribed_topic_names=fits_not, rebalance_timeout_ms=1)
    assert code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_static_member_that_could_not_be_replaced_still_times_out():
    scene = Scene()
    scene.join("a", instance_id="i")
    scene.beat("a", -2, instance_id="i")
    result = scene.machine.op(scene.call(), Asked(1), scene.joining("b", instance_id="i"))
    assert result.on_refused is not None
    result.on_refused(scene.call())
    assert set(scene.group.members) == {"a"}
    scene.pass_ms(SESSION_MS)
    assert scene.group.is_empty
