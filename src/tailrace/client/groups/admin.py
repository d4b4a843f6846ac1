"""Groups as an administrator sees them: who there is, who has what, why they rebalanced; and how to delete one.

Each broker knows the groups that it coordinates: a list asks all of them, everything else asks the coordinator of the
group, again while it moves or loads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tailrace.client.connection import error_code
from tailrace.client.groups.coordinator import Coordinator, find_coordinator
from tailrace.client.groups.embedded import read_assignment
from tailrace.client.groups.offsets import GroupOffsets
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, PartitionIndex, TopicPartition
from tailrace.wire.apis.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from tailrace.wire.apis.own import (
    DescribeGroupHistoryRequest,
    DescribeGroupHistoryResponse,
    DescribeGroupLagRequest,
    DescribeGroupLagResponse,
)

if TYPE_CHECKING:
    from tailrace.client.shares.admin import ShareOffset

T = TypeVar("T")

CLASSIC = "classic"
CONSUMER = "consumer"
SHARE = "share"
STREAMS = "streams"
# What older brokers say of a group that does not exist, in the place of its state.
_DEAD = "Dead"
_MEMBER_CLASSIC = 0


class ListedGroup(NamedTuple):
    group_id: str
    type: str
    state: str
    protocol_type: str
    coordinator_id: int


class MemberTasks(NamedTuple):
    """Of a member of a streams group: tasks by Kafka Streams' names, such as 0_1."""

    process_id: str
    active: tuple[str, ...]
    standby: tuple[str, ...]


class GroupMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    # In a KIP-848 group: the member's epoch, and what it is to own in the end. Members may still speak the classic
    # protocol in it.
    epoch: int | None
    protocol: str
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None
    tasks: MemberTasks | None = None


class DescribedGroup(NamedTuple):
    group_id: str
    type: str
    state: str
    assignor: str
    epoch: int | None  # classic groups do not tell their generation
    coordinator_id: int
    members: tuple[GroupMember, ...]


class PartitionLag(NamedTuple):
    lag: int  # In records.
    lag_ms: int  # Age of the first record that was not read; -1 if it is not known.
    verdict: str


class GroupLag(NamedTuple):
    verdict: str  # OK, WARN, STALL, STOP or REWIND: the worst of its partitions.
    partitions: Mapping[TopicPartition, PartitionLag]

    @property
    def lag(self) -> int:
        return sum(each.lag for each in self.partitions.values())

    @property
    def lag_ms(self) -> int:
        return max((each.lag_ms for each in self.partitions.values()), default=-1)


class PastRebalance(NamedTuple):
    at_ms: int
    cause: str
    detail: str
    epoch: int
    member_id: str
    client_id: str


class GroupAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def groups(self, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[ListedGroup]:
        """Those of all brokers, by name; only these states and types, if any are given."""
        await self.cluster.refresh([])
        found = {}
        for node_id in sorted(self.cluster.brokers):
            for group in await self._retry(partial(self._groups_of, node_id, states, types)):
                found[group.group_id] = group
        return [group for _, group in sorted(found.items())]

    async def _groups_of(self, node_id: NodeId, states: Sequence[str], types: Sequence[str]) -> list[ListedGroup]:
        connection = await self.cluster.connection_to(node_id)
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        answer = await connection.call(request, ListGroupsResponse)
        if answer.error_code:
            raise KafkaError(error_code(answer.error_code), f"broker {node_id} does not list its groups")
        return [
            ListedGroup(each.group_id, each.group_type.lower(), each.group_state, each.protocol_type, node_id)
            for each in answer.groups
        ]

    async def describe(self, group_id: str) -> DescribedGroup:
        """Raises KafkaError GROUP_ID_NOT_FOUND."""

        async def ask(coordinator: Coordinator) -> DescribedGroup:
            node_id, _ = await find_coordinator(self.cluster, group_id)
            described = await self._describe_consumers(coordinator, node_id)
            return described or await self._describe_others(coordinator, node_id)

        return await self._ask(group_id, ask)

    async def _describe_consumers(self, coordinator: Coordinator, node_id: int) -> DescribedGroup | None:
        """None if it is no KIP-848 group, or the broker knows none."""
        try:
            answer = await coordinator.call(
                ConsumerGroupDescribeRequest(group_ids=[coordinator.group_id]), ConsumerGroupDescribeResponse
            )
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                return None
            raise
        found = answer.groups[0]
        if error_code(found.error_code) is ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        coordinator.check(found.error_code, f"group {found.group_id} is not described", found.error_message)
        return DescribedGroup(
            found.group_id,
            CONSUMER,
            found.group_state,
            found.assignor_name,
            found.group_epoch,
            node_id,
            tuple(map(_consumer_member, found.members)),
        )

    async def _describe_others(self, coordinator: Coordinator, node_id: int) -> DescribedGroup:
        from tailrace.client.groups.streams import describe_streams_group
        from tailrace.client.shares.admin import describe_share_group

        try:
            return await self._describe_classic(coordinator, node_id)
        except KafkaError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            described = await describe_share_group(coordinator, node_id)
            described = described or await describe_streams_group(coordinator, node_id)
            if described is None:
                raise
            return described

    async def share_offsets(self, group_id: str) -> list[ShareOffset]:
        from tailrace.client.shares.admin import share_offsets

        return await self._ask(group_id, share_offsets)

    async def _describe_classic(self, coordinator: Coordinator, node_id: int) -> DescribedGroup:
        answer = await coordinator.call(DescribeGroupsRequest(groups=[coordinator.group_id]), DescribeGroupsResponse)
        found = answer.groups[0]
        is_missing = not found.error_code and found.group_state == _DEAD
        failure = f"group {found.group_id} is not described"
        if is_missing or error_code(found.error_code) is ErrorCode.GROUP_ID_NOT_FOUND:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {coordinator.group_id} does not exist")
        coordinator.check(found.error_code, failure, found.error_message)
        is_consumer = found.protocol_type == CONSUMER
        members = tuple(_classic_member(member, is_consumer=is_consumer) for member in found.members)
        return DescribedGroup(found.group_id, CLASSIC, found.group_state, found.protocol_data, None, node_id, members)

    async def delete(self, group_id: str) -> None:
        """With all its offsets; refused while it has members."""

        async def ask(coordinator: Coordinator) -> None:
            answer = await coordinator.call(DeleteGroupsRequest(groups_names=[group_id]), DeleteGroupsResponse)
            code = answer.results[0].error_code
            reason = "does not exist" if code == ErrorCode.GROUP_ID_NOT_FOUND else "was not deleted"
            coordinator.check(code, f"group {group_id} {reason}")

        await self._ask(group_id, ask)

    async def history(self, group_id: str) -> list[PastRebalance]:
        """Oldest first, as far back as the coordinator remembers. Raises KafkaError UNSUPPORTED_VERSION if the broker
        keeps none."""

        async def ask(coordinator: Coordinator) -> list[PastRebalance]:
            # A broker that does not know the request closes the connection: that is not the time to ask again.
            await coordinator.connect()
            try:
                answer = await coordinator.call(
                    DescribeGroupHistoryRequest(group_id=group_id), DescribeGroupHistoryResponse
                )
            except KafkaError as error:
                if error.code is not ErrorCode.NETWORK_EXCEPTION:
                    raise
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"the coordinator of group {group_id} hung up when it was asked for a history: only brokers of "
                    "Tailrace keep one",
                ) from None
            coordinator.check(answer.error_code, f"the history of group {group_id} is not told", answer.error_message)
            return [
                PastRebalance(each.at_ms, each.cause, each.detail, each.epoch, each.member_id, each.client_id)
                for each in answer.rebalances
            ]

        return await self._ask(group_id, ask)

    async def lag(self, group_id: str) -> GroupLag | None:
        """As of the coordinator's last look, some seconds ago; None if it keeps none, or is no broker of ours."""

        async def ask(coordinator: Coordinator) -> GroupLag | None:
            await coordinator.connect()
            try:
                answer = await coordinator.call(DescribeGroupLagRequest(group_id=group_id), DescribeGroupLagResponse)
            except KafkaError as error:
                if error.code is not ErrorCode.NETWORK_EXCEPTION:
                    raise
                return None
            coordinator.check(answer.error_code, f"the lag of group {group_id} is not told", answer.error_message)
            if not answer.verdict:
                return None
            return GroupLag(
                answer.verdict,
                {
                    TopicPartition(topic.name, PartitionIndex(each.partition_index)): PartitionLag(
                        max(0, each.high_watermark - each.committed_offset), each.lag_ms, each.verdict
                    )
                    for topic in answer.topics
                    for each in topic.partitions
                },
            )

        return await self._ask(group_id, ask)

    async def offsets_of(self, group_id: str, work: Callable[[GroupOffsets], Awaitable[T]]) -> T:
        """Hands the committed offsets of a group to `work`."""
        coordinator = Coordinator(self.cluster, group_id)
        try:
            return await work(GroupOffsets(coordinator, timeout_ms=self._timeout_ms))
        finally:
            coordinator.close()

    async def _ask(self, group_id: str, question: Callable[[Coordinator], Awaitable[T]]) -> T:
        coordinator = Coordinator(self.cluster, group_id)
        try:
            return await self._retry(lambda: question(coordinator))
        finally:
            coordinator.close()

    async def _retry(self, action: Callable[[], Awaitable[T]]) -> T:
        return await self.cluster.with_retries(action, timeout_ms=self._timeout_ms)

    @property
    def _timeout_ms(self) -> int:
        return self.cluster.limits.request_timeout_ms


def _consumer_member(member: ConsumerGroupDescribeResponse.Member) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host.removeprefix("/"),
        member.member_epoch,
        CLASSIC if member.member_type == _MEMBER_CLASSIC else CONSUMER,
        _partitions(member.assignment),
        _partitions(member.target_assignment),
    )


def _partitions(assignment: ConsumerGroupDescribeResponse.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, PartitionIndex(index))
        for topic in assignment.topic_partitions
        for index in topic.partitions
    )


def _classic_member(member: DescribeGroupsResponse.DescribedGroupMember, *, is_consumer: bool) -> GroupMember:
    """What members of another kind, such as Connect's, are assigned is theirs to read."""
    return GroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host.removeprefix("/"),
        None,
        CLASSIC,
        tuple(sorted(read_assignment(member.member_assignment))) if is_consumer else (),
        None,
    )
