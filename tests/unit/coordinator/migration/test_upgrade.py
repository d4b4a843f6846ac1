"""A member of the consumer protocol joins a classic group."""

from typing import Any

import pytest

from tailrace.coordinator.history import Cause
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.groups import ConsumerGroupHeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from tailrace.wire.apis.stored_records import GROUP_RECORDS, ConsumerProtocolAssignment
from tailrace.wire.compile import encode
from tailrace.wire.record_envelopes import decode_coordinator_record
from tests.unit.coordinator.consumers.scene import GROUP, topic_id
from tests.unit.coordinator.migration.scene import (
    SESSION_MS,
    ClassicClient,
    ConsumerClient,
    Scene,
    check_owners,
    run,
    settle,
)


def refusal(scene: Scene) -> ErrorCode:
    newcomer = ConsumerClient(scene, "c")
    newcomer.step()
    (code,) = newcomer.errors
    return code


def test_the_members_keep_what_the_last_generation_gave_them() -> None:
    scene = Scene()
    first, second = ClassicClient(scene), ClassicClient(scene)
    settle(scene, [first, second])
    generation, owned = scene.classic.generation, {each.member_id: each.owned for each in (first, second)}
    newcomer = ConsumerClient(scene, "c")
    newcomer.step()
    group = scene.group
    assert group.epoch == generation + 1
    assert group.assignment_epoch == generation
    for member_id, partitions in owned.items():
        member = group.members[member_id]
        assert member.member_epoch == generation
        assert member.assigned == {topic_id("t"): dict.fromkeys(sorted(index for _, index in partitions), generation)}
        assert group.targets[member_id] == {topic_id("t"): frozenset(index for _, index in partitions)}
        assert member.subscribed_topic_names == ("t",)
        assert member.classic is not None
        assert member.classic.session_timeout_ms == SESSION_MS
        assert [protocol.name for protocol in member.classic.supported_protocols] == ["range"]
    assert newcomer.owned == set()


def test_the_records_are_kafkas_and_in_its_order() -> None:
    scene = Scene()
    settle(scene, [ClassicClient(scene), ClassicClient(scene)])
    start = len(scene.log)
    ConsumerClient(scene, "c").step()
    written = [decode_coordinator_record(GROUP_RECORDS, key, value) for key, value, _ in scene.log[start:]]
    assert [(type(key).__name__.removesuffix("Key"), value is None) for key, value in written] == [
        ("GroupMetadata", True),
        ("ConsumerGroupMemberMetadata", False),
        ("ConsumerGroupMemberMetadata", False),
        ("ConsumerGroupMetadata", False),
        ("ConsumerGroupTargetAssignmentMember", False),
        ("ConsumerGroupTargetAssignmentMember", False),
        ("ConsumerGroupTargetAssignmentMetadata", False),
        ("ConsumerGroupCurrentMemberAssignment", False),
        ("ConsumerGroupCurrentMemberAssignment", False),
        # The one who came.
        ("ConsumerGroupMemberMetadata", False),
        ("ConsumerGroupMetadata", False),
    ]


def test_who_waits_for_the_classic_group_is_told_to_join_again() -> None:
    scene = Scene()
    first, second = ClassicClient(scene), ClassicClient(scene)
    settle(scene, [first])
    # The second one's JoinGroup waits for the first one's.
    second.step()
    second.step()
    assert not second.is_settled
    newcomer = ConsumerClient(scene, "c")
    newcomer.step()
    second.step()
    assert second.errors[-1] is ErrorCode.REBALANCE_IN_PROGRESS
    settle(scene, [first, second, newcomer])


def test_a_group_that_has_no_generation_yet() -> None:
    scene = Scene(group_initial_rebalance_delay_ms=3000)
    first = ClassicClient(scene)
    first.step()
    first.step()
    assert scene.classic.generation == 0
    newcomer = ConsumerClient(scene, "c")
    settle(scene, [newcomer, first])
    assert scene.type == "consumer"


def test_a_silent_classic_member_is_out_after_its_own_session_timeout() -> None:
    scene = Scene()
    first = ClassicClient(scene)
    settle(scene, [first])
    newcomer = ConsumerClient(scene, "c")
    run(scene, [newcomer], SESSION_MS // 1000 - 1)
    assert first.member_id in scene.group.members
    settle(scene, [newcomer])
    assert list(scene.group.members) == ["c"]
    assert scene.history[-1].cause is Cause.MEMBER_TIMED_OUT


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("bidirectional", None),
        ("upgrade", None),
        ("downgrade", ErrorCode.GROUP_ID_NOT_FOUND),
        ("disabled", ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_the_policy_decides(policy: str, code: ErrorCode | None) -> None:
    scene = Scene(group_consumer_migration_policy=policy)
    settle(scene, [ClassicClient(scene)])
    newcomer = ConsumerClient(scene, "c")
    newcomer.step()
    assert newcomer.errors == ([] if code is None else [code])
    assert scene.type == ("consumer" if code is None else "classic")


def test_a_group_of_more_members_than_a_consumer_group_may_have_stays_classic() -> None:
    scene = Scene(group_consumer_max_size=1)
    settle(scene, [ClassicClient(scene), ClassicClient(scene)])
    assert refusal(scene) is ErrorCode.GROUP_ID_NOT_FOUND


def foreign_group(scene: Scene, *, protocol_type: str, metadata: bytes, assignment: bytes = b"") -> None:
    """A stable group of one static member."""
    join: Any = scene.send(
        JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            group_instance_id="i",
            protocol_type=protocol_type,
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="p", metadata=metadata)],
        )
    )
    scene.pass_ms(0)
    joined = join.answers[0]
    scene.send(
        SyncGroupRequest(
            group_id=GROUP,
            member_id=joined.member_id,
            group_instance_id="i",
            generation_id=joined.generation_id,
            protocol_type=protocol_type,
            protocol_name="p",
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)
            ],
        )
    )
    assert scene.classic.state == "Stable"


SUBSCRIPTION = bytes.fromhex("0000 00000001 0001 74 ffffffff")


@pytest.mark.parametrize(
    ("protocol_type", "metadata", "assignment"),
    [
        ("connect", SUBSCRIPTION, b""),
        ("consumer", b"", b""),
        ("consumer", b"\x00", b""),
        ("consumer", b"\xff\xff" + SUBSCRIPTION[2:], b""),
        ("consumer", SUBSCRIPTION[:-5], b""),
        ("consumer", SUBSCRIPTION, b"?"),
        # An assignor that sends data of its own to its members.
        ("consumer", SUBSCRIPTION, bytes(2) + bytes(encode(ConsumerProtocolAssignment(user_data=b"x"), 0))),
    ],
)
def test_what_is_no_group_of_plain_consumers_stays_classic(
    protocol_type: str, metadata: bytes, assignment: bytes
) -> None:
    scene = Scene()
    foreign_group(scene, protocol_type=protocol_type, metadata=metadata, assignment=assignment)
    assert refusal(scene) is ErrorCode.GROUP_ID_NOT_FOUND
    assert scene.classic.state == "Stable"


def test_a_later_version_of_the_embedded_protocol_is_read_as_the_last_one_known() -> None:
    scene = Scene()
    subscription = bytes.fromhex("0063 00000001 0001 74 ffffffff 00000000 00000007 0001 61") + b"more"
    foreign_group(scene, protocol_type="consumer", metadata=subscription)
    ConsumerClient(scene, "c").step()
    (member,) = (member for member in scene.group.members.values() if member.is_classic)
    assert member.subscribed_topic_names == ("t",)
    assert member.rack_id == "a"


def test_a_join_that_is_refused_leaves_the_classic_group_alone() -> None:
    scene = Scene()
    client = ClassicClient(scene)
    settle(scene, [client])
    asked = scene.send(_join_with_bad_expression())
    assert asked.answers[0].code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert scene.type == "classic"
    settle(scene, [client])


def _join_with_bad_expression() -> Any:
    return ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="c",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_regex="(",
        topic_partitions=[],
    )


def test_a_static_member_takes_its_place_under_the_other_protocol() -> None:
    scene = Scene()
    static, other = ClassicClient(scene, instance_id="i"), ClassicClient(scene)
    settle(scene, [static, other])
    owned = static.owned
    # It stops without leaving, and comes back with another protocol and the same instance id.
    newcomer = ConsumerClient(scene, "c", instance_id="i")
    newcomer.step()
    scene.work()
    newcomer.step()
    assert newcomer.owned == owned
    assert set(scene.group.members) == {"c", other.member_id}
    settle(scene, [newcomer, other])


def test_a_group_that_does_not_fit_into_one_batch_stays_classic() -> None:
    scene = Scene(message_max_bytes=4000)
    clients = [ClassicClient(scene) for _ in range(3)]
    settle(scene, clients)
    ConsumerClient(scene, "c").step()
    assert scene.type == "consumer"
    scene = Scene(message_max_bytes=1200)
    settle(scene, [ClassicClient(scene) for _ in range(3)])
    assert refusal(scene) is ErrorCode.GROUP_ID_NOT_FOUND


def test_what_a_cooperative_member_has_yet_to_give_up_is_still_its_own() -> None:
    scene = Scene()
    first, second = (ClassicClient(scene, is_cooperative=True) for _ in range(2))
    settle(scene, [first])
    for client in (second, second, first, first):
        client.step()
    # Its assignment has left it three of its six; it has not heard of that, and the others are nobody's yet.
    assert (scene.classic.state, scene.classic.generation) == ("Stable", 2)
    assert len(first.owned) == 6
    first.lose_connection()
    newcomer = ConsumerClient(scene, "c")
    run(scene, [newcomer], 3)
    check_owners([first, newcomer])
    settle(scene, [first, second, newcomer])


def test_what_cooperative_members_keep_while_they_join_is_still_their_own() -> None:
    scene = Scene()
    first, second, third = (ClassicClient(scene, is_cooperative=True) for _ in range(3))
    settle(scene, [first])
    second.step()
    second.step()
    first.step()
    first.ask_to_join()
    assert scene.classic.state == "CompletingRebalance"
    # The assignment of this generation will never come, and that of the one before is forgotten.
    third.step()
    third.step()
    assert scene.classic.state == "PreparingRebalance"
    newcomer = ConsumerClient(scene, "c")
    clients = [first, second, third, newcomer]
    run(scene, [newcomer], 3)
    check_owners(clients)
    settle(scene, clients)
