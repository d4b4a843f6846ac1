"""A member of a classic group: JoinGroup, SyncGroup, and heartbeats until somebody wants to rebalance.

A member that knows `range` gives everything up before it joins again (eager), for the group may choose `range` at any
time, and its leader then gives partitions away without asking who has them. One that knows `cooperative-sticky` alone
goes on with what it has while it joins, gives up what the new assignment takes from it, and joins once more, so that
who is to have it gets it (KIP-429).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from math import inf

from tailrace.client.connection import error_code
from tailrace.client.groups.assignors import ASSIGNORS, COOPERATIVE_STICKY
from tailrace.client.groups.coordinator import Coordinator
from tailrace.client.groups.embedded import (
    PROTOCOL_TYPE,
    assignment_bytes,
    read_assignment,
    read_subscriber,
    subscription_bytes,
)
from tailrace.client.groups.membership import NO_PARTITIONS, MemberOptions, Membership, Partitions
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.model.ports import Bytes
from tailrace.wire.apis.groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

# On top of the rebalance timeout, in which the coordinator answers a JoinGroup.
_ANSWER_MARGIN_MS = 5000
_NO_GENERATION = -1
# The coordinator does not know this member in this generation: it has to begin anew.
_FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class ClassicMembership(Membership):
    def __init__(self, coordinator: Coordinator, options: MemberOptions, on_news: Callable[[], None]) -> None:
        super().__init__(coordinator, options, on_news)
        self._sent_ms = 0.0
        self._must_join = True
        # The assignment takes something that this member has claimed: once that is given up, others wait for it.
        self._gives_up = False
        # What the members of a group that this one leads are subscribed to, and how many partitions that had.
        self._topics_led: list[str] = []
        self._partition_counts: dict[str, int] = {}
        self._counted_ms = 0.0

    @property
    def is_member(self) -> bool:
        return bool(self.member_id) and self.epoch != _NO_GENERATION

    @property
    def _is_cooperative(self) -> bool:
        return set(self._options.assignors) == {COOPERATIVE_STICKY}

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                if self._is_idle:
                    await self._pause_membership()
                if self._must_join:
                    await self._rejoin()
                await self._stay()
                failures = 0
            except KafkaError as error:
                if error.code in _FENCED:
                    await self._start_over(keep_id=error.code is ErrorCode.ILLEGAL_GENERATION)
                elif error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                    self._must_join = True
                elif error.code.retriable:
                    await self._wait_awake(self._coordinator.cluster.backoff_ms(failures))
                    failures += 1
                else:
                    raise

    # --- joining

    async def _rejoin(self) -> None:
        if not self._is_cooperative:
            await self._give_everything_up()
        # What the last assignment gave is claimed too: the consumer may be about to take it.
        claimed = self.owned | (self.wanted or NO_PARTITIONS)
        joined = await self._join(claimed)
        assignment = await self._sync(joined, await self._assign(joined))
        self.epoch = joined.generation_id
        self._must_join = False
        wanted = read_assignment(assignment)
        self._gives_up = bool(claimed - wanted)
        self._want(wanted)

    async def _give_everything_up(self) -> None:
        """The caller may take its time: the coordinator waits for the rebalance timeout, if it hears heartbeats."""
        self._want(NO_PARTITIONS)
        while self.owned:
            if self._heartbeat_due_ms() <= 0:
                with suppress(KafkaError):  # Which says that a rebalance is on. What is fenced shows when it joins.
                    await self._heartbeat()
            await self._wait_awake(self._heartbeat_due_ms())

    async def _join(self, claimed: Partitions) -> JoinGroupResponse:
        options = self._options
        subscription = subscription_bytes(options.topics, claimed, generation=self.epoch, rack_id=options.rack_id)
        request = JoinGroupRequest(
            group_id=self._coordinator.group_id,
            session_timeout_ms=options.session_timeout_ms,
            rebalance_timeout_ms=options.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=options.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=subscription)
                for name in options.assignors
            ],
        )
        sent_ms = self._clock.monotonic_ms()
        timeout_ms = options.rebalance_timeout_ms + _ANSWER_MARGIN_MS
        answer = await self._coordinator.call(request, JoinGroupResponse, timeout_ms=timeout_ms)
        if error_code(answer.error_code) is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return await self._join(claimed)
        self._check(answer.error_code, "join")
        self.heard_ms = sent_ms
        self.member_id = answer.member_id
        return answer

    async def _assign(self, joined: JoinGroupResponse) -> dict[str, list[TopicPartition]]:
        """What the leader decides; nothing from everybody else. A static leader that is back goes on with what it had
        decided (KIP-814), but watches its topics: partitions may have come while it was away."""
        self._topics_led = []
        if joined.leader != joined.member_id:
            return {}
        members = {
            member.member_id: read_subscriber(member.metadata, member.group_instance_id) for member in joined.members
        }
        self._topics_led = sorted({topic for member in members.values() for topic in member.topics})
        if joined.skip_assignment:
            self._partition_counts = await self._count_assigned()
            self._counted_ms = -inf  # To be compared at once.
            return {}
        self._partition_counts = await self._count_partitions()
        assert joined.protocol_name is not None
        return ASSIGNORS[joined.protocol_name](members, self._partition_counts)

    async def _count_partitions(self) -> dict[str, int]:
        """Topics that do not exist have none."""
        self._counted_ms = self._clock.monotonic_ms()
        found = await self._coordinator.cluster.refresh(None)
        return {name: len(found[name].partitions) for name in self._topics_led if name in found}

    async def _count_assigned(self) -> dict[str, int]:
        """As the coordinator has it, for nobody else knows what the members were given."""
        request = DescribeGroupsRequest(groups=[self._coordinator.group_id])
        answer = await self._coordinator.call(request, DescribeGroupsResponse)
        assigned: set[TopicPartition] = set()
        for group in answer.groups:
            self._check(group.error_code, "learn the assignment of")
            assigned.update(*(read_assignment(member.member_assignment) for member in group.members))
        return dict(Counter(partition.topic for partition in assigned))

    async def _sync(self, joined: JoinGroupResponse, assignment: dict[str, list[TopicPartition]]) -> Bytes:
        request = SyncGroupRequest(
            group_id=self._coordinator.group_id,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            group_instance_id=self._options.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=member_id, assignment=assignment_bytes(partitions)
                )
                for member_id, partitions in assignment.items()
            ],
        )
        # It is no sign of life to a coordinator that has the assignment already.
        self._sent_ms = self._clock.monotonic_ms()
        timeout_ms = self._options.rebalance_timeout_ms + _ANSWER_MARGIN_MS
        answer = await self._coordinator.call(request, SyncGroupResponse, timeout_ms=timeout_ms)
        self._check(answer.error_code, "get an assignment in")
        return answer.assignment

    # --- staying

    async def _stay(self) -> None:
        """Until it is time to join again."""
        while not self._must_join and not self._is_idle:
            if self._gives_up and self.owned <= (self.wanted or NO_PARTITIONS):
                self._gives_up = False
                self._must_join = True
            elif self._heartbeat_due_ms() <= 0:
                await self._heartbeat()
                await self._look_for_partitions()
            else:
                await self._wait_awake(self._heartbeat_due_ms())

    def _heartbeat_due_ms(self) -> float:
        return self._sent_ms + self._options.heartbeat_interval_ms - self._clock.monotonic_ms()

    async def _heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self._coordinator.group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self._options.instance_id,
        )
        sent_ms = self._sent_ms = self._clock.monotonic_ms()
        answer = await self._coordinator.call(request, HeartbeatResponse)
        # A member that is asked to join again is a member.
        if error_code(answer.error_code) in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self.heard_ms = sent_ms
        self._check(answer.error_code, "stay in")

    async def _look_for_partitions(self) -> None:
        is_old = self._clock.monotonic_ms() - self._counted_ms >= self._options.metadata_max_age_ms
        if self._topics_led and is_old:
            self._must_join = await self._count_partitions() != self._partition_counts

    # --- leaving

    async def _start_over(self, *, keep_id: bool) -> None:
        self.epoch = _NO_GENERATION
        if not keep_id:
            self.member_id = ""
        self._must_join = True
        self._lose()
        while self.is_lost:
            await self._wait_awake(1000)

    async def _pause_membership(self) -> None:
        """The caller does not poll: others get its partitions, until it is back."""
        with suppress(KafkaError):  # Else the session ends by itself.
            await self._leave()
        self._lose()
        while self._is_idle:
            await self._wait_awake(self._options.rebalance_timeout_ms)
        await self._start_over(keep_id=False)

    async def _leave(self) -> None:
        """A static member stays for its session time, and comes back under its name (KIP-345)."""
        if self._options.instance_id is not None or not self.member_id:
            return
        if self._must_join:
            self._coordinator.close()  # A JoinGroup that waits there would hold this up.
        identity = LeaveGroupRequest.MemberIdentity(member_id=self.member_id, reason="the consumer is closed")
        request = LeaveGroupRequest(group_id=self._coordinator.group_id, member_id=self.member_id, members=[identity])
        await self._coordinator.call(request, LeaveGroupResponse)

    def _check(self, number: int, action: str) -> None:
        self._coordinator.check(number, f"a member cannot {action} group {self._coordinator.group_id}")
