"""Requests of the classic protocol to a consumer group."""

from typing import Any

import pytest

from tailrace.coordinator.consumers.member import MemberState
from tailrace.coordinator.history import Cause
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.groups import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from tests.unit.coordinator.consumers.scene import GROUP
from tests.unit.coordinator.migration.scene import (
    BEAT_MS,
    REBALANCE_MS,
    SESSION_MS,
    ClassicClient,
    ConsumerClient,
    Scene,
    run,
    settle,
)
from tests.unit.coordinator.migration.test_upgrade import SUBSCRIPTION


class Mixed:
    """A settled group of one client of each protocol."""

    def __init__(self, **settings: Any) -> None:
        self.scene = Scene(**settings)
        self.consumer = ConsumerClient(self.scene, "c")
        self.classic = ClassicClient(self.scene)
        settle(self.scene, [self.consumer])
        settle(self.scene, [self.consumer, self.classic])

    def code(self, request: Any, version: int | None = None) -> ErrorCode:
        asked = self.scene.send(request, version)
        self.scene.work()
        (answer,) = asked.answers
        return ErrorCode(answer.code if isinstance(answer, KafkaError) else answer.error_code)

    def heartbeat(self, **fields: Any) -> ErrorCode:
        known = {"member_id": self.classic.member_id, "generation_id": self.classic.generation}
        return self.code(HeartbeatRequest(group_id=GROUP, **{**known, **fields}))

    def sync(self, **fields: Any) -> ErrorCode:
        known = {"member_id": self.classic.member_id, "generation_id": self.classic.generation}
        known |= {"protocol_type": "consumer", "protocol_name": "range"}
        return self.code(SyncGroupRequest(group_id=GROUP, **{**known, **fields}))

    def join(self, name: str = "range", metadata: bytes = SUBSCRIPTION, version: int = 9, **fields: Any) -> ErrorCode:
        known = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": REBALANCE_MS, "protocol_type": "consumer"}
        protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)]
        return self.code(JoinGroupRequest(group_id=GROUP, protocols=protocols, **{**known, **fields}), version)


def test_heartbeats_of_strangers_and_of_old_generations() -> None:
    mixed = Mixed()
    assert mixed.heartbeat() is ErrorCode.NONE
    assert mixed.heartbeat(member_id="?") is ErrorCode.UNKNOWN_MEMBER_ID
    assert mixed.heartbeat(member_id="c") is ErrorCode.UNKNOWN_MEMBER_ID, "it speaks the other protocol"
    assert mixed.heartbeat(generation_id=mixed.classic.generation - 1) is ErrorCode.ILLEGAL_GENERATION
    assert mixed.heartbeat(group_instance_id="?") is ErrorCode.UNKNOWN_MEMBER_ID


def test_syncs_of_strangers_and_with_what_was_not_agreed() -> None:
    mixed = Mixed()
    assert mixed.sync() is ErrorCode.NONE
    assert mixed.sync(member_id="?") is ErrorCode.UNKNOWN_MEMBER_ID
    assert mixed.sync(generation_id=mixed.classic.generation + 1) is ErrorCode.ILLEGAL_GENERATION
    assert mixed.sync(protocol_type="connect") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert mixed.sync(protocol_name="roundrobin") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_joins_that_do_not_fit_the_group() -> None:
    mixed = Mixed()
    assert mixed.join(protocol_type="connect") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert mixed.join("roundrobin") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "nothing in common with the other one"
    assert mixed.join(metadata=b"?") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert mixed.join(metadata=SUBSCRIPTION + bytes(600_000)) is ErrorCode.UNKNOWN_SERVER_ERROR, (
        "too large to be stored"
    )
    assert len(mixed.scene.group.members) == 2


def test_a_full_group_takes_no_more_classic_members() -> None:
    mixed = Mixed(group_consumer_max_size=2)
    assert mixed.join() is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert mixed.join(member_id=mixed.classic.member_id) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("version", "instance_id", "code"),
    [
        (3, None, ErrorCode.NONE),
        (4, None, ErrorCode.MEMBER_ID_REQUIRED),
        (9, None, ErrorCode.MEMBER_ID_REQUIRED),
        (9, "i", ErrorCode.NONE),
    ],
)
def test_dynamic_members_join_twice_from_version_4_on(version: int, instance_id: str | None, code: ErrorCode) -> None:
    mixed = Mixed()
    assert mixed.join(version=version, group_instance_id=instance_id) is code
    assert len(mixed.scene.group.members) == (2 if code else 3)


def test_version_0_has_one_timeout() -> None:
    mixed = Mixed()
    assert mixed.join(version=0, rebalance_timeout_ms=-1) is ErrorCode.NONE
    member = next(reversed(mixed.scene.group.members.values()))
    assert member.rebalance_timeout_ms == SESSION_MS


def test_a_static_member_is_fenced_by_the_next_one_with_its_instance_id() -> None:
    mixed = Mixed()
    assert mixed.join(group_instance_id="i") is ErrorCode.NONE
    first = mixed.scene.group.static_members["i"]
    assert mixed.join(group_instance_id="i") is ErrorCode.NONE
    second = mixed.scene.group.static_members["i"]
    assert first != second
    fenced = {"member_id": first, "group_instance_id": "i", "generation_id": 1}
    assert mixed.heartbeat(**fenced) is ErrorCode.FENCED_INSTANCE_ID
    assert mixed.sync(**fenced) is ErrorCode.FENCED_INSTANCE_ID
    assert mixed.join(member_id=first, group_instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
    assert mixed.join(member_id="?", group_instance_id="j") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_learns_of_new_partitions() -> None:
    mixed = Mixed()
    mixed.scene.set_topics({"t": 9})
    settle(mixed.scene, [mixed.consumer, mixed.classic])


def test_a_join_waits_for_the_targets_that_it_makes_necessary() -> None:
    scene = Scene()
    consumer, classic = ConsumerClient(scene, "c"), ClassicClient(scene)
    settle(scene, [consumer])
    classic.step()
    classic.step()
    assert not classic.is_settled
    scene.work()
    classic.step()
    assert classic.generation == scene.group.assignment_epoch == scene.group.epoch


def test_a_member_that_is_removed_while_its_join_waits_is_told() -> None:
    scene = Scene()
    consumer = ConsumerClient(scene, "c")
    settle(scene, [consumer])
    classic = ClassicClient(scene)
    classic.step()
    classic.step()
    leaving = LeaveGroupRequest.MemberIdentity(member_id=classic.member_id)
    scene.send(LeaveGroupRequest(group_id=GROUP, members=[leaving]))
    classic.step()
    assert classic.errors[-1] is ErrorCode.UNKNOWN_MEMBER_ID
    assert not scene.group.waiting


def test_a_member_gets_a_partition_once_its_owner_has_given_it_up() -> None:
    scene = Scene({"t": 2})
    consumer, classic = ConsumerClient(scene, "c"), ClassicClient(scene)
    settle(scene, [consumer])
    run(scene, [classic], 6)
    # The consumer has not been heard since: both are still its own.
    assert classic.owned == set()
    assert scene.group.members[classic.member_id].state is MemberState.UNRELEASED_PARTITIONS
    assert classic.errors[-1] is ErrorCode.NONE, "there is nothing to join for yet"
    settle(scene, [consumer, classic])


def test_who_is_told_to_join_again_and_does_not_is_out_after_its_rebalance_timeout() -> None:
    mixed = Mixed()
    mixed.scene.set_topics({"t": 9})
    run(mixed.scene, [mixed.consumer], 2)
    for _ in range(REBALANCE_MS // BEAT_MS):
        assert mixed.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        run(mixed.scene, [mixed.consumer], 1)
    assert mixed.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert mixed.scene.history[-1].cause is Cause.MEMBER_TIMED_OUT
    settle(mixed.scene, [mixed.consumer])


def test_who_joins_and_never_syncs_is_out_after_its_rebalance_timeout() -> None:
    mixed = Mixed()
    assert mixed.join(group_instance_id="i") is ErrorCode.NONE
    member_id = mixed.scene.group.static_members["i"]
    for _ in range(REBALANCE_MS // BEAT_MS - 1):
        member = mixed.scene.group.members[member_id]
        mixed.heartbeat(member_id=member_id, generation_id=member.member_epoch, group_instance_id="i")
        run(mixed.scene, [mixed.consumer, mixed.classic], 1)
    assert member_id in mixed.scene.group.members
    run(mixed.scene, [mixed.consumer, mixed.classic], 2)
    assert member_id not in mixed.scene.group.members


def leave(mixed: Mixed, *members: tuple[str, str | None]) -> list[int]:
    identities = [
        LeaveGroupRequest.MemberIdentity(member_id=each, group_instance_id=static) for each, static in members
    ]
    (answer,) = mixed.scene.send(LeaveGroupRequest(group_id=GROUP, members=identities)).answers
    assert [(each.member_id, each.group_instance_id) for each in answer.members] == list(members)
    return [each.error_code for each in answer.members]


def test_several_members_leave_at_once() -> None:
    mixed = Mixed()
    mixed.join(group_instance_id="i")
    epoch = mixed.scene.group.epoch
    members = [(mixed.classic.member_id, None), ("?", None), ("", "i"), ("", "j"), ("?", "i")]
    assert leave(mixed, *members) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    ]
    assert list(mixed.scene.group.members) == ["c"]
    assert mixed.scene.group.epoch == epoch + 1
    settle(mixed.scene, [mixed.consumer])


def test_nobody_known_leaves() -> None:
    mixed = Mixed()
    log = list(mixed.scene.log)
    assert leave(mixed, ("?", None)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert mixed.scene.log == log


def test_a_client_of_an_old_version_leaves() -> None:
    mixed = Mixed()
    assert mixed.code(LeaveGroupRequest(group_id=GROUP, member_id="?"), 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert mixed.code(LeaveGroupRequest(group_id=GROUP, member_id=mixed.classic.member_id), 2) is ErrorCode.NONE
    assert list(mixed.scene.group.members) == ["c"]


def test_members_go_on_with_another_coordinator() -> None:
    mixed = Mixed()
    owned = mixed.classic.owned
    mixed.scene.fail_over()
    settle(mixed.scene, [mixed.consumer, mixed.classic])
    assert mixed.classic.owned == owned
    mixed.scene.pass_ms(SESSION_MS + 1)
    assert mixed.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID, "its session began with the new coordinator"


def test_a_member_that_changes_its_protocol_under_its_id_is_not_expected_to_sync() -> None:
    mixed = Mixed()
    assert mixed.join(member_id="m") is ErrorCode.NONE
    changed = ConsumerClient(mixed.scene, "m")
    run(mixed.scene, [mixed.consumer, mixed.classic, changed], REBALANCE_MS // BEAT_MS + 2)
    assert set(changed.errors) == {ErrorCode.NONE}
    assert not mixed.scene.group.members["m"].is_classic
