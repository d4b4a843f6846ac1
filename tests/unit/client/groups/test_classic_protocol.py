"""A classic member against a scripted coordinator: joining, leading, being asked to join again and being forgotten."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.client.groups.assignors import COOPERATIVE_STICKY, RANGE
from tailrace.client.groups.consumer import GroupProtocol
from tailrace.client.groups.embedded import assignment_bytes, read_assignment, read_subscriber, subscription_bytes
from tailrace.client.groups.membership import MemberOptions
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.wire.apis.data import ListOffsetsRequest
from tailrace.wire.apis.groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tailrace.wire.schema import Message
from tests.unit.client.groups.group_peer import GroupPeer, Watched
from tests.unit.client.peer import HANG_UP
from tests.unit.simulated import simulated

MEMBER = MemberOptions(topics=("t",), assignors=(RANGE,), heartbeat_interval_ms=20)
COOPERATIVE = MEMBER._replace(assignors=(COOPERATIVE_STICKY,))


class Coordinator(GroupPeer):
    """Gives member ids m1, m2, ... and a new generation to each JoinGroup. SyncGroup gives what the leader says, or, of
    another leader, `assignments` one after the other. `heartbeats`, `joins` and `syncs` hold errors to answer first."""

    def __init__(self, *assignments: list[int], leads: bool = False) -> None:
        super().__init__(
            {
                JoinGroupRequest: self._join,
                SyncGroupRequest: self._sync,
                HeartbeatRequest: self._heartbeat,
                LeaveGroupRequest: lambda _: LeaveGroupResponse(),
                DescribeGroupsRequest: self._describe,
            }
        )
        self.assignments = list(assignments)
        self.leads = leads
        self.generation = 0
        self.member_count = 0
        self.joins: list[ErrorCode | str] = []
        self.syncs: list[ErrorCode | str] = []
        self.heartbeats: list[ErrorCode | str] = []
        self.had_decided: list[int] | None = None  # What the static leader had given itself, if it is back.

    def _join(self, request: JoinGroupRequest) -> Message | str:
        if not request.member_id and request.group_instance_id is None:
            self.member_count += 1
            return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=f"m{self.member_count}")
        step = self.joins.pop(0) if self.joins else ErrorCode.NONE
        if isinstance(step, str) or step is not ErrorCode.NONE:
            return step if isinstance(step, str) else JoinGroupResponse(error_code=step)
        self.generation += 1
        me = JoinGroupResponse.JoinGroupResponseMember(
            member_id=request.member_id or "m", metadata=request.protocols[0].metadata
        )
        other = JoinGroupResponse.JoinGroupResponseMember(
            member_id="z", metadata=subscription_bytes(["t"], frozenset(), generation=-1, rack_id=None)
        )
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=request.protocols[0].name,
            leader=me.member_id if self.leads else "z",
            member_id=me.member_id,
            members=[me, other] if self.leads else [],
            skip_assignment=self.had_decided is not None and self.generation == 1,
        )

    def _describe(self, _request: DescribeGroupsRequest) -> Message:
        mine = DescribeGroupsResponse.DescribedGroupMember(member_assignment=_on_t(self.had_decided or []))
        others = DescribeGroupsResponse.DescribedGroupMember(member_assignment=_on_t([2]))
        return DescribeGroupsResponse(groups=[DescribeGroupsResponse.DescribedGroup(members=[mine, others])])

    def _sync(self, request: SyncGroupRequest) -> Message | str:
        step = self.syncs.pop(0) if self.syncs else ErrorCode.NONE
        if isinstance(step, str) or step is not ErrorCode.NONE:
            return step if isinstance(step, str) else SyncGroupResponse(error_code=step)
        if self.had_decided is not None and self.generation == 1:
            assert request.assignments == []
            return SyncGroupResponse(assignment=_on_t(self.had_decided))
        if self.leads:
            (mine,) = [each.assignment for each in request.assignments if each.member_id == request.member_id]
            return SyncGroupResponse(assignment=mine)
        assert request.assignments == []
        partitions = self.assignments.pop(0) if len(self.assignments) > 1 else self.assignments[0]
        return SyncGroupResponse(assignment=_on_t(partitions))

    def _heartbeat(self, _request: HeartbeatRequest) -> Message | str:
        step = self.heartbeats.pop(0) if self.heartbeats else ErrorCode.NONE
        return step if isinstance(step, str) else HeartbeatResponse(error_code=step)

    def claims(self) -> list[list[int]]:
        """What was claimed as owned with each JoinGroup that had a member id."""
        found = []
        for request in self.requests:
            if isinstance(request, JoinGroupRequest) and request.member_id:
                owned = read_subscriber(request.protocols[0].metadata, None).owned
                found.append(sorted(partition.partition for partition in owned))
        return found


def _on_t(partitions: list[int]) -> bytes:
    return assignment_bytes(TopicPartition("t", index) for index in partitions)


def watch(peer: Coordinator, member: MemberOptions = MEMBER, **options: object) -> Watched:
    return Watched(peer, GroupProtocol.CLASSIC, member, **options)


@simulated
async def test_joining_following_and_leaving():
    async with Coordinator([0, 1]) as peer:
        async with watch(peer) as member:
            await member.poll_until(lambda: member.story == ["+0 +1"])
            assert (member.consumer.member_id, member.consumer.epoch) == ("m1", 1)
        assert member.story == ["+0 +1", "-0 -1"]
        (left,) = peer.received(LeaveGroupRequest)
        assert [each.member_id for each in left.members] == ["m1"]


@simulated
async def test_the_leader_assigns():
    async with Coordinator(leads=True) as peer, watch(peer) as member:
        await member.poll_until(lambda: member.story == ["+0 +1"])
        (sync,) = peer.received(SyncGroupRequest)
        found = {each.member_id: sorted(read_assignment(each.assignment)) for each in sync.assignments}
        assert found == {"m1": [("t", 0), ("t", 1)], "z": [("t", 2)]}


@simulated
async def test_the_leader_joins_again_when_the_topic_has_grown():
    async with Coordinator(leads=True) as peer, watch(peer, MEMBER._replace(metadata_max_age_ms=40)) as member:
        await member.poll_until(lambda: member.story == ["+0 +1"])
        await asyncio.sleep(0.1)
        assert peer.generation == 1
        peer.partitions = 5
        await member.poll_until(lambda: member.story == ["+0 +1", "-0 -1", "+0 +1 +2"])


@pytest.mark.parametrize(("had_decided", "joins"), [([0, 1], 1), ([0], 2)], ids=["all is assigned", "it has grown"])
@simulated
async def test_a_static_leader_that_is_back_looks_for_partitions_that_came_meanwhile(had_decided, joins):
    async with Coordinator(leads=True) as peer, watch(peer, COOPERATIVE._replace(instance_id="i")) as member:
        peer.had_decided = had_decided
        await member.poll_until(lambda: peer.generation == joins and len(peer.received(HeartbeatRequest)) > 3)
        assert peer.generation == joins
        assert len(peer.received(DescribeGroupsRequest)) == 1


@simulated
async def test_an_eager_member_gives_everything_up_before_it_joins_again():
    async with Coordinator([0, 1], [1, 2]) as peer, watch(peer, auto_commit_interval_ms=100_000) as member:
        await member.poll_until(lambda: member.story == ["+0 +1"])
        peer.heartbeats = [ErrorCode.REBALANCE_IN_PROGRESS]
        await member.poll_until(lambda: member.story == ["+0 +1", "-0 -1", "+1 +2"])
        assert peer.claims() == [[], []]
        assert peer.committed == {0: 0, 1: 0}


@simulated
async def test_an_eager_member_does_not_join_again_before_the_caller_polls():
    async with Coordinator([0]) as peer, watch(peer) as member:
        await member.poll_until(lambda: member.story == ["+0"])
        peer.heartbeats = [ErrorCode.REBALANCE_IN_PROGRESS] * 3
        async with asyncio.timeout(5):
            while peer.heartbeats:  # They go on: the caller is at work.
                await asyncio.sleep(0.02)
        assert peer.generation == 1
        await member.poll_until(lambda: peer.generation == 2)


@simulated
async def test_a_place_to_begin_that_was_asked_for_before_others_had_the_partition_is_asked_for_again():
    """The member asks where to begin, and hears of it two rebalances later. The partition was another's in between."""
    async with Coordinator([0, 2], [1], [0, 2]) as peer, watch(peer) as member:
        peer.committed = {0: 10}
        peer.heartbeats = [
            ErrorCode.NONE,
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.NONE,
            ErrorCode.REBALANCE_IN_PROGRESS,
        ]
        find_ends = peer.scripts[ListOffsetsRequest]

        def wait_for_the_third(request: ListOffsetsRequest) -> Message:
            if peer.generation < 3:
                return HANG_UP
            peer.committed[0] = 20
            return find_ends(request)

        peer.scripts[ListOffsetsRequest] = wait_for_the_third
        await member.poll_until(lambda: member.story == ["+0 +2"])
        assert member.consumer.position(TopicPartition("t", 0)) == 20


@simulated
async def test_a_cooperative_member_keeps_what_stays_and_joins_once_more():
    async with Coordinator([0, 1], [1], [1, 2]) as peer, watch(peer, COOPERATIVE) as member:
        await member.poll_until(lambda: member.story == ["+0 +1"])
        peer.heartbeats = [ErrorCode.REBALANCE_IN_PROGRESS]
        await member.poll_until(lambda: member.story == ["+0 +1", "-0", "+2"])
        assert peer.claims() == [[], [0, 1], [1]]
        await asyncio.sleep(0.1)
        assert peer.generation == 3


@simulated
async def test_a_cooperative_member_claims_what_it_is_about_to_take():
    async with Coordinator([0, 1], [1]) as peer, watch(peer, COOPERATIVE) as member:
        answer = peer.scripts[OffsetFetchRequest]
        late = OffsetFetchResponse.OffsetFetchResponseGroup(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        peer.scripts[OffsetFetchRequest] = lambda request: (
            OffsetFetchResponse(groups=[late]) if peer.generation < 3 else answer(request)
        )
        peer.heartbeats = [ErrorCode.REBALANCE_IN_PROGRESS]
        # Partition 0 was never begun with; yet who is to have it waits until this member joins without it.
        await member.poll_until(lambda: bool(member.story))
        assert member.story == ["+1"]
        assert peer.claims() == [[], [0, 1], [1]]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
@simulated
async def test_a_member_that_was_forgotten_loses_everything_and_joins_anew(code: ErrorCode):
    async with Coordinator([0]) as peer, watch(peer) as member:
        await member.poll_until(lambda: member.story == ["+0"])
        peer.heartbeats = [code]
        await member.poll_until(lambda: member.story == ["+0", "!0", "+0"])
        assert member.consumer.member_id == ("m2" if code is ErrorCode.UNKNOWN_MEMBER_ID else "m1")


@simulated
async def test_a_commit_from_before_a_loss_is_not_repeated_after_it():
    async with Coordinator([0]) as peer, watch(peer) as member:
        await member.poll_until(lambda: member.story == ["+0"])
        peer.refusals = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3
        peer.heartbeats = [ErrorCode.UNKNOWN_MEMBER_ID]
        with pytest.raises(KafkaError, match="no member of group g now") as refused:
            await member.consumer.commit()
        assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
        assert peer.committed == {}
        peer.refusals = []
        await member.poll_until(lambda: member.story == ["+0", "!0", "+0"])
        await member.consumer.commit()
        assert peer.committed == {0: 0}


@simulated
async def test_a_consumer_that_is_closed_while_it_joins_says_goodbye():
    async with Coordinator([0]) as peer:
        async with watch(peer) as member:
            peer.joins = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 100
            await member.poll_until(lambda: len(peer.joins) < 99)
        assert member.story == []
        (left,) = peer.received(LeaveGroupRequest)
        assert [each.member_id for each in left.members] == ["m1"]


@simulated
async def test_a_consumer_that_never_polled_is_closed_without_a_word():
    async with Coordinator([0]) as peer:
        async with watch(peer):
            pass
        assert peer.requests == []


@pytest.mark.parametrize("step", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, HANG_UP])
@pytest.mark.parametrize("when", ["joins", "syncs", "heartbeats"])
@simulated
async def test_a_coordinator_that_moves_does_not_cost_the_membership(step: ErrorCode | str, when: str):
    async with Coordinator([0]) as peer, watch(peer) as member:
        setattr(peer, when, [step])
        await member.poll_until(lambda: member.story == ["+0"] and not getattr(peer, when))
        await member.poll_until(lambda: peer.member_count == 1 and len(peer.received(HeartbeatRequest)) > 2)
        assert member.story == ["+0"]


@simulated
async def test_a_rebalance_during_the_sync_is_joined():
    async with Coordinator([0]) as peer, watch(peer) as member:
        peer.syncs = [ErrorCode.REBALANCE_IN_PROGRESS]
        await member.poll_until(lambda: member.story == ["+0"])
        assert peer.generation == 2


@pytest.mark.parametrize("code", [ErrorCode.FENCED_INSTANCE_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL])
@simulated
async def test_what_does_not_pass_reaches_the_caller(code: ErrorCode):
    async with Coordinator([0]) as peer, watch(peer, MEMBER._replace(instance_id="i")) as member:
        peer.joins = [code]
        with pytest.raises(KafkaError, match="cannot join group g") as refused:
            await member.poll_until(lambda: False)
        assert refused.value.code is code


@simulated
async def test_a_static_member_goes_without_a_word():
    async with Coordinator([0]) as peer:
        async with watch(peer, MEMBER._replace(instance_id="i")) as member:
            await member.poll_until(lambda: member.story == ["+0"])
        assert member.story == ["+0", "-0"]
        assert peer.received(LeaveGroupRequest) == []


@simulated
async def test_who_does_not_poll_leaves_and_comes_back():
    async with Coordinator([0]) as peer, watch(peer, MEMBER._replace(rebalance_timeout_ms=100)) as member:
        await member.poll_until(lambda: member.story == ["+0"])
        async with asyncio.timeout(5):
            while not peer.received(LeaveGroupRequest):
                await asyncio.sleep(0.02)
        await member.poll_until(lambda: member.story == ["+0", "!0", "+0"])


def test_a_newer_subscription_is_read_as_far_as_it_is_known():
    written = subscription_bytes(["t"], frozenset({TopicPartition("t", 1)}), generation=3, rack_id="r")
    newer = (99).to_bytes(2, "big") + written[2:] + b"more"
    assert read_subscriber(newer, "i") == read_subscriber(written, "i")
    assert read_subscriber(written, "i") == (frozenset({"t"}), {("t", 1)}, 3, "i")


def test_who_was_left_out_gets_nothing():
    assert read_assignment(b"") == frozenset()
    assert read_assignment(assignment_bytes([TopicPartition("t", 2), TopicPartition("u", 0)])) == {("t", 2), ("u", 0)}
