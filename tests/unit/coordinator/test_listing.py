"""ListGroups with its filters, DescribeGroups, DeleteGroups."""

import pytest

from tailrace.coordinator.listing import ALL_GROUP_OPERATIONS, list_group
from tailrace.coordinator.offsets.batch_capacity import RECORDS_PER_BATCH
from tailrace.coordinator.offsets.simple import all_group_ids
from tailrace.coordinator.offsets.store import offset_record
from tailrace.coordinator.op import StoredRecord
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.groups import DeleteGroupsRequest, DescribeGroupsRequest
from tailrace.wire.apis.stored_records import ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, OffsetCommitValue
from tests.unit.coordinator.offsets.scene import Asked, Scene, classic_group, contents


@pytest.fixture
def scene() -> Scene:
    """A group that only has offsets, an empty one, a stable one and one of the consumer protocol."""
    scene = Scene()
    scene.commit(7, group_id="simple")
    scene.store(classic_group("empty"), classic_group("stable", "t"))
    scene.store(StoredRecord(ConsumerGroupMetadataKey(group_id="new"), ConsumerGroupMetadataValue(epoch=1)))
    scene.commit(7, group_id="stable", generation=3, member_id="m")
    return scene


def listed(scene: Scene, states: set[str] | None = None, types: set[str] | None = None) -> list[tuple[str, ...]]:
    found = [
        list_group(scene.machine.state, group_id, states=states or (), types=types or ())
        for group_id in dict.fromkeys(all_group_ids(scene.machine.state))
    ]
    return sorted(
        (each.group_id, each.protocol_type, each.group_state, each.group_type) for each in found if each is not None
    )


def test_all_groups_are_listed_once(scene: Scene) -> None:
    assert listed(scene) == [
        ("empty", "consumer", "Empty", "classic"),
        ("new", "consumer", "Empty", "consumer"),
        ("simple", "", "Empty", "classic"),
        ("stable", "consumer", "Stable", "classic"),
    ]


def test_filters(scene: Scene) -> None:
    assert [group_id for group_id, *_ in listed(scene, states={"stable"})] == ["stable"]
    assert [group_id for group_id, *_ in listed(scene, types={"consumer"})] == ["new"]
    assert [group_id for group_id, *_ in listed(scene, states={"empty"}, types={"classic"})] == ["empty", "simple"]
    assert listed(scene, types={"share"}) == []


def describe(scene: Scene, group_id: str, version: int = 6, **rest: bool) -> Asked:
    return scene.ask(DescribeGroupsRequest(groups=[group_id], **rest), version)


def test_a_stable_group_is_described_with_its_members(scene: Scene) -> None:
    (group,) = describe(scene, "stable").answer.groups
    assert (group.group_id, group.group_state, group.protocol_type, group.protocol_data) == (
        "stable",
        "Stable",
        "consumer",
        "range",
    )
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == ("m", "c", "/127.0.0.1")
    assert member.member_assignment == b"assigned"
    assert b"t" in member.member_metadata


@pytest.mark.parametrize(("group_id", "protocol_type"), [("simple", ""), ("empty", "consumer")])
def test_a_group_without_members_is_described(scene: Scene, group_id: str, protocol_type: str) -> None:
    (group,) = describe(scene, group_id).answer.groups
    assert (group.error_code, group.group_state, group.protocol_type) == (0, "Empty", protocol_type)
    assert group.members == []


def test_a_group_that_is_not_there_is_dead(scene: Scene) -> None:
    (group,) = describe(scene, "nowhere", 5).answer.groups
    assert (group.group_state, group.error_code) == ("Dead", 0)
    (group,) = describe(scene, "nowhere", 6).answer.groups
    assert (group.group_state, group.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
    assert group.error_message == "Group nowhere not found."


def test_a_group_of_the_consumer_protocol_is_told_by_another_api(scene: Scene) -> None:
    (group,) = describe(scene, "new").answer.groups
    assert (group.group_state, group.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
    assert group.error_message == "Group new is not a classic group."


def test_operations_are_told_if_asked_for(scene: Scene) -> None:
    (group,) = describe(scene, "stable").answer.groups
    assert group.authorized_operations == -(1 << 31)
    (group,) = describe(scene, "stable", include_authorized_operations=True).answer.groups
    assert group.authorized_operations == ALL_GROUP_OPERATIONS == 0b1101_0100_1000


@pytest.mark.parametrize("group_id", ["simple", "empty", "new"])
def test_a_group_without_members_is_deleted_with_its_offsets(scene: Scene, group_id: str) -> None:
    if group_id != "simple":
        scene.commit(7, group_id=group_id, partition=1)
    assert any(place[0] == group_id for place in contents(scene.offsets))
    (result,) = scene.ask(DeleteGroupsRequest(groups_names=[group_id]), 2).answer.results
    assert (result.group_id, result.error_code) == (group_id, 0)
    assert group_id not in [name for name, *_ in listed(scene)]
    assert not any(place[0] == group_id for place in contents(scene.offsets))


def test_what_cannot_be_deleted(scene: Scene) -> None:
    assert scene.ask(DeleteGroupsRequest(groups_names=["stable"]), 2).code == ErrorCode.NON_EMPTY_GROUP
    assert scene.ask(DeleteGroupsRequest(groups_names=["nowhere"]), 2).code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.fixture
def large(scene: Scene) -> Scene:
    """The group `large` has more offsets than one batch takes."""
    scene.create("big", 2 * RECORDS_PER_BATCH + 1)
    value = OffsetCommitValue(offset=5, commit_timestamp=1)
    scene.store(*(offset_record("large", "big", number, value) for number in range(2 * RECORDS_PER_BATCH + 1)))
    scene.store(classic_group("large"))
    scene.work()
    return scene


def test_a_group_with_many_offsets_is_deleted_in_several_batches(large: Scene) -> None:
    asked = [large.ask(DeleteGroupsRequest(groups_names=["large"]), 2) for _ in range(2)]
    assert [each.answer for each in asked] == [None, None]
    assert [len(each.records) for each in asked] == [RECORDS_PER_BATCH] * 2
    assert large.work() == 1
    assert [each.answer.results[0].error_code for each in asked] == [0, ErrorCode.GROUP_ID_NOT_FOUND]
    assert "large" not in all_group_ids(large.machine.state)


def test_a_group_that_gets_a_member_meanwhile_stays(large: Scene) -> None:
    asked = large.ask(DeleteGroupsRequest(groups_names=["large"]), 2)
    large.store(classic_group("large", "big"))
    large.work()
    assert asked.answer.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    assert "large" in all_group_ids(large.machine.state)
