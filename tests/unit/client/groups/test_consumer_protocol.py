"""A KIP-848 member against a scripted coordinator: what its heartbeats say, and what becomes of the answers."""

import asyncio

import pytest

from tailrace.client.groups.consumer import GroupProtocol
from tailrace.client.groups.membership import MemberOptions
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from tailrace.wire.schema import Message
from tests.unit.client.groups.group_peer import GroupPeer, Watched
from tests.unit.client.peer import HANG_UP, TOPIC_ID
from tests.unit.simulated import simulated

Heartbeat = ConsumerGroupHeartbeatRequest
MEMBER = MemberOptions(topics=("t",), rack_id="r")
LEAVING, LEAVING_FOR_NOW = -1, -2


class Coordinator(GroupPeer):
    """Answers heartbeats as `plan` says, one after the other, and then with nothing new."""

    def __init__(self, *plan: ErrorCode | str | list[int] | None, topic_id: bytes = TOPIC_ID) -> None:
        super().__init__({Heartbeat: self._heartbeat})
        self.plan = list(plan)
        self.topic_id = topic_id
        self.epoch = 0

    def _heartbeat(self, request: Heartbeat) -> Message | str:
        step = self.plan.pop(0) if self.plan and request.member_epoch >= 0 else None
        if isinstance(step, str):
            return step
        if isinstance(step, ErrorCode):
            return ConsumerGroupHeartbeatResponse(error_code=step, error_message="because")
        self.epoch += step is not None
        assignment = None
        if step is not None:
            wanted = ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=self.topic_id, partitions=step)
            assignment = ConsumerGroupHeartbeatResponse.Assignment(topic_partitions=[wanted])
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=self.epoch, heartbeat_interval_ms=40, assignment=assignment
        )

    @property
    def heartbeats(self) -> list[Heartbeat]:
        return [request for request in self.requests if isinstance(request, Heartbeat)]


def owned(request: Heartbeat) -> list[int] | None:
    if request.topic_partitions is None:
        return None
    return [index for topic in request.topic_partitions for index in topic.partitions]


def watch(peer: Coordinator, member: MemberOptions = MEMBER, **options: object) -> Watched:
    return Watched(peer, GroupProtocol.CONSUMER, member, **options)


@simulated
async def test_a_heartbeat_says_what_is_new():
    async with Coordinator([0, 1], None, [1, 2]) as peer, watch(peer) as member:
        await member.poll_until(lambda: member.story == ["+0 +1", "-0", "+2"] and len(peer.heartbeats) > 4)
        first, *others = peer.heartbeats
        assert (first.member_epoch, first.subscribed_topic_names, first.rack_id) == (0, ["t"], "r")
        assert owned(first) == []
        assert {request.member_id for request in others} == {first.member_id}
        assert all(request.subscribed_topic_names is None for request in others)
        assert [owned(request) for request in others if request.topic_partitions is not None] == [[0, 1], [1, 2]]
        assert [request.member_epoch for request in others[:3]] == [1, 1, 2]


@simulated
async def test_after_a_lost_answer_everything_is_said_again():
    async with Coordinator([0], None, HANG_UP) as peer, watch(peer) as member:
        await member.poll_until(lambda: not peer.plan and len(peer.heartbeats) > 4)
        assert member.story == ["+0"]
        again = peer.heartbeats[3]
        assert (again.member_epoch, again.subscribed_topic_names, owned(again)) == (1, ["t"], [0])
        assert owned(peer.heartbeats[4]) is None


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR])
@simulated
async def test_a_coordinator_that_is_not_ready_is_asked_again(code: ErrorCode):
    async with Coordinator(code, code, [0]) as peer, watch(peer) as member:
        await member.poll_until(lambda: member.story == ["+0"])


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
@simulated
async def test_a_member_that_was_put_out_loses_everything_and_joins_again(code: ErrorCode):
    async with Coordinator([0, 1], None, code, [1]) as peer, watch(peer) as member:
        await member.poll_until(lambda: member.story == ["+0 +1", "!0 !1", "+1"])
        joins = [request for request in peer.heartbeats if request.member_epoch == 0]
        assert [owned(request) for request in joins] == [[], []]


@simulated
async def test_it_does_not_join_again_before_the_caller_knows_of_the_loss():
    async with Coordinator([0], None, ErrorCode.FENCED_MEMBER_EPOCH, [0]) as peer, watch(peer) as member:
        await member.poll_until(lambda: member.story == ["+0"])
        while len(peer.plan) > 1:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert len(peer.plan) == 1
        await member.poll_until(lambda: member.story == ["+0", "!0", "+0"])


@simulated
async def test_what_does_not_pass_reaches_the_caller():
    async with Coordinator([0], None, ErrorCode.UNSUPPORTED_ASSIGNOR) as peer, watch(peer) as member:
        with pytest.raises(KafkaError, match="because") as refused:
            await member.poll_until(lambda: False)
        assert refused.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR
        assert member.story == ["+0", "!0"]


@simulated
async def test_a_static_member_waits_until_its_name_is_free():
    unreleased = ErrorCode.UNRELEASED_INSTANCE_ID
    async with Coordinator(unreleased, unreleased, [0]) as peer:
        async with watch(peer, MEMBER._replace(instance_id="i")) as member:
            await member.poll_until(lambda: member.story == ["+0"])
        assert peer.heartbeats[-1].member_epoch == LEAVING_FOR_NOW
        assert {request.instance_id for request in peer.heartbeats} == {"i"}


@simulated
async def test_a_name_that_is_never_free_is_a_failure():
    member = MEMBER._replace(instance_id="i", rebalance_timeout_ms=200)
    async with Coordinator(*[ErrorCode.UNRELEASED_INSTANCE_ID] * 100) as peer, watch(peer, member) as watched:
        with pytest.raises(KafkaError) as refused:
            await watched.poll_until(lambda: False)
        assert refused.value.code is ErrorCode.UNRELEASED_INSTANCE_ID


@simulated
async def test_leaving_commits_hands_over_and_says_so():
    async with Coordinator([0, 1]) as peer:
        async with watch(peer, auto_commit_interval_ms=100_000) as member:
            await member.poll_until(lambda: member.story == ["+0 +1"])
        assert member.story == ["+0 +1", "-0 -1"]
        assert peer.heartbeats[-1].member_epoch == LEAVING
        assert peer.committed == {0: 0, 1: 0}


@simulated
async def test_going_without_a_word_tells_nobody():
    async with Coordinator([0]) as peer:
        member = watch(peer, auto_commit_interval_ms=100_000)
        await member.poll_until(lambda: member.story == ["+0"])
        await member.consumer.close(leave=False)
        member.cluster.close()
        assert member.story == ["+0"]
        assert peer.committed == {}
        assert peer.heartbeats[-1].member_epoch != LEAVING


@simulated
async def test_who_does_not_poll_leaves_and_comes_back():
    async with Coordinator([0]) as peer, watch(peer, MEMBER._replace(rebalance_timeout_ms=100)) as member:
        await member.poll_until(lambda: member.story == ["+0"])
        async with asyncio.timeout(5):
            while peer.heartbeats[-1].member_epoch != LEAVING:
                await asyncio.sleep(0.02)
        peer.plan = [[0]]
        await member.poll_until(lambda: member.story == ["+0", "!0", "+0"])


@simulated
async def test_a_topic_that_has_no_name_yet_is_asked_for_again():
    async with Coordinator([0], topic_id=bytes(15) + b"u") as peer, watch(peer) as member:
        await member.poll_until(lambda: len(peer.heartbeats) > 2)
        assert member.story == []
        peer.topic_id = TOPIC_ID
        peer.plan = [[0]]
        await member.poll_until(lambda: member.story == ["+0"])


def refusing(*commits: ErrorCode) -> Coordinator:
    peer = Coordinator([0])
    peer.refusals = list(commits)
    return peer


@pytest.mark.parametrize(
    "code", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
)
@simulated
async def test_a_commit_is_repeated_while_that_may_help(code: ErrorCode):
    async with refusing(code, code) as peer, watch(peer) as member:
        await member.poll_until(lambda: member.story == ["+0"])
        await member.consumer.commit()
        assert peer.committed == {0: 0}


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
@simulated
async def test_a_commit_that_is_refused_says_so_and_an_automatic_one_does_not(code: ErrorCode):
    async with refusing(code, code) as peer, watch(peer, auto_commit_interval_ms=100_000) as member:
        await member.poll_until(lambda: member.story == ["+0"])
        with pytest.raises(KafkaError) as refused:
            await member.consumer.commit()
        assert refused.value.code is code
        peer.plan = [[]]
        await member.poll_until(lambda: member.story == ["+0", "-0"])
        assert peer.committed == {}
        assert peer.refusals == []
