"""What is stored of a group, and what a new coordinator makes of it."""

from tailrace.coordinator.classic.group import ClassicGroup
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.stored_records import GROUP_RECORDS, GroupMetadataKey, GroupMetadataValue
from tailrace.wire.record_envelopes import decode_coordinator_record, encode_coordinator_value
from tests.unit.coordinator.classic.scene import DELAY_MS, GROUP, RANGE, REBALANCE_MS, ROUNDROBIN, SESSION_MS, Scene
from tests.unit.coordinator.scene import START_MS


def last_record(scene: Scene) -> GroupMetadataValue:
    key, value, _ = scene.log[-1]
    assert value is not None
    assert value[:2] == b"\x00\x03", "Kafka 4.3 writes version 3"
    _, decoded = decode_coordinator_record(GROUP_RECORDS, key, value)
    assert isinstance(decoded, GroupMetadataValue)
    return decoded


def test_a_new_group_is_stored_before_its_members():
    scene = Scene()
    scene.new_member_id()
    assert len(scene.log) == 1
    assert last_record(scene) == GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=START_MS)
    scene.new_member_id()
    assert len(scene.log) == 1


def test_a_generation_is_stored_with_its_assignment():
    scene = Scene()
    ids = scene.stable(2, RANGE, ROUNDROBIN)
    assert len(scene.log) == 2
    stored = last_record(scene)
    assert (stored.protocol_type, stored.protocol, stored.generation) == ("consumer", "range", 1)
    assert stored.leader == ids[0]
    # When the generation began, for it is stored before the group is stable.
    assert stored.current_state_timestamp == START_MS + 2 * DELAY_MS
    assert [each.member_id for each in stored.members] == ids
    member = stored.members[0]
    assert (member.client_id, member.client_host, member.group_instance_id) == ("app", "/127.0.0.1", None)
    assert (member.rebalance_timeout, member.session_timeout) == (REBALANCE_MS, SESSION_MS)
    assert (member.subscription, member.assignment) == (RANGE[1], ids[0].encode())


def test_the_members_go_on_with_a_new_coordinator():
    scene = Scene()
    ids = scene.stable(2)
    scene.fail_over()
    assert scene.group.state == "Stable"
    assert [scene.heartbeat(each, 1) for each in ids] == [ErrorCode.NONE] * 2
    assert scene.sync(ids[1], 1).answer.assignment == ids[1].encode()
    # They know as many protocols as were stored, so that an unchanged follower stays.
    assert scene.join(ids[1]).answer.generation_id == 1


def test_members_have_a_session_time_to_find_a_new_coordinator():
    scene = Scene()
    ids = scene.stable(2)
    scene.pass_ms(SESSION_MS - 1)
    scene.fail_over()
    scene.pass_ms(SESSION_MS - 1)
    assert scene.heartbeat(ids[0], 1) is ErrorCode.NONE
    scene.pass_ms(1)
    assert list(scene.group.members) == [ids[0]]


def test_a_rebalance_that_was_under_way_is_forgotten():
    scene = Scene()
    ids = scene.stable(1)
    newcomer = scene.join(version=3)
    assert newcomer.is_waiting
    scene.fail_over()
    assert (scene.group.state, scene.group.generation) == ("Stable", 1)
    assert list(scene.group.members) == ids


def test_a_group_that_was_only_gathering_is_empty():
    scene = Scene()
    scene.join(version=3)
    scene.fail_over()
    assert (scene.group.state, scene.group.generation, scene.group.protocol_type) == ("Empty", 0, "")
    assert scene.group.empty_since_ms is None


def test_an_empty_group_knows_since_when():
    scene = Scene()
    (member,) = scene.stable(1)
    scene.pass_ms(5_000)
    scene.leave((member, None))
    now_ms = scene.call().now_ms
    scene.pass_ms(5_000)
    scene.fail_over()
    assert (scene.group.state, scene.group.generation) == ("Empty", 2)
    assert scene.group.empty_since_ms == now_ms


def test_records_of_old_versions():
    scene = Scene()
    member = GroupMetadataValue.MemberMetadata(member_id="m", session_timeout=SESSION_MS, subscription=RANGE[1])
    value = GroupMetadataValue(protocol_type="consumer", generation=7, protocol="range", leader="m", members=[member])
    key = GroupMetadataKey(group=GROUP)
    for version in range(4):
        encoded = encode_coordinator_value(value, version)
        _, decoded = decode_coordinator_record(GROUP_RECORDS, b"\x00\x02\x00\x01g", encoded)
        scene.machine.replay(key, decoded)
        assert scene.group.generation == 7
        # Version 0 has no rebalance timeout.
        assert scene.group.rebalance_timeout_ms == SESSION_MS
        assert scene.group.state_since_ms is None


def test_a_deleted_group_is_gone_with_its_deadlines():
    scene = Scene()
    scene.stable(2)
    scene.new_member_id()
    group = scene.group
    for key, value, _ in group.deletion_records():
        scene.machine.replay(key, value)
    assert not scene.machine.state.groups
    assert scene.machine.next_deadline_ms() is None
    # A tombstone without a group is what compaction may leave.
    scene.machine.replay(GroupMetadataKey(group=GROUP), None)


def test_records_of_several_ops_may_be_replayed_later_as_long_as_they_are_in_order():
    scene = Scene()
    ids = [scene.new_member_id() for _ in range(2)]
    for each in ids:
        scene.join(each)
    scene.pass_ms(2 * DELAY_MS)
    group = scene.group
    first = GroupMetadataValue(generation=1)
    second = GroupMetadataValue(generation=2)
    group.unreplayed.extend((first, second))
    for value in (first, second):
        scene.machine.replay(GroupMetadataKey(group=GROUP), value)
        assert scene.group is group
        assert group.stored is value
    # What nobody here has decided makes a new group of it.
    scene.machine.replay(GroupMetadataKey(group=GROUP), GroupMetadataValue(generation=9))
    assert scene.group is not group
    assert isinstance(scene.group, ClassicGroup)
    assert scene.group.generation == 9
