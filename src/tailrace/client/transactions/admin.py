"""Transactions as an administrator sees them: which there are, what they have open, and which nobody will end.

A coordinator knows the transactions of its ids; the leader of a partition knows which producers have one open there.
Where the two disagree for long, a transaction hangs: it holds up everyone who reads committed records only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from tailrace.client.connection import error_code
from tailrace.client.consumer import LATEST, Consumer, ConsumerOptions, Isolation
from tailrace.client.groups.coordinator import CoordinatorKind, find_coordinator
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TRANSACTION_STATE_TOPIC, NodeId, PartitionIndex, TopicPartition
from tailrace.wire.apis.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

T = TypeVar("T")

# The states in which a coordinator is going to write a marker to each partition of a transaction.
_ONGOING = "Ongoing"
UNDER_WAY = (_ONGOING, "PrepareCommit", "PrepareAbort")
_IDS_AT_ONCE = 500


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


class DescribedTransaction(NamedTuple):
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int  # -1 while none is open
    coordinator_id: int
    partitions: tuple[TopicPartition, ...]


class OpenTransaction(NamedTuple):
    """In one partition, as its leader sees it."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    start_offset: int
    coordinator_epoch: int  # -1 if no marker of this producer was written here before
    last_timestamp_ms: int


class HangingTransaction(NamedTuple):
    transaction: OpenTransaction
    age_ms: int
    transactional_id: str | None  # None if no coordinator knows the producer
    reason: str


class TransactionAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[ListedTransaction]:
        """Those of all brokers, by transactional id. Raises KafkaError INVALID_REQUEST for a state that does not
        exist."""
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern,
        )
        await self.cluster.refresh([])
        found = {}
        for node_id in sorted(self.cluster.brokers):
            for each in await self._retry(partial(self._transactions_of, node_id, request)):
                found[each.transactional_id] = each
        return [each for _, each in sorted(found.items())]

    async def _transactions_of(self, node_id: NodeId, request: ListTransactionsRequest) -> list[ListedTransaction]:
        connection = await self.cluster.connection_to(node_id)
        answer = await connection.call(request, ListTransactionsResponse)
        if answer.error_code:
            raise KafkaError(error_code(answer.error_code), f"broker {node_id} does not list its transactions")
        if answer.unknown_state_filters:
            unknown = ", ".join(answer.unknown_state_filters)
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"transactions have no state {unknown}")
        return [
            ListedTransaction(each.transactional_id, each.producer_id, each.transaction_state, node_id)
            for each in answer.transaction_states
        ]

    async def describe(self, transactional_id: str) -> DescribedTransaction:
        """Raises KafkaError TRANSACTIONAL_ID_NOT_FOUND."""

        async def ask() -> DescribedTransaction:
            await self.cluster.refresh([])
            node_id, _ = await find_coordinator(self.cluster, transactional_id, CoordinatorKind.TRANSACTION)
            found = await self._describe_at(NodeId(node_id), [transactional_id])
            if not found:
                raise KafkaError(
                    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"transactional id {transactional_id} does not exist"
                )
            return found[0]

        return await self._retry(ask)

    async def _describe_at(self, node_id: NodeId, transactional_ids: list[str]) -> list[DescribedTransaction]:
        """Without those that do not exist."""
        connection = await self.cluster.connection_to(node_id)
        answer = await connection.call(
            DescribeTransactionsRequest(transactional_ids=transactional_ids), DescribeTransactionsResponse
        )
        described = []
        for found in answer.transaction_states:
            code = error_code(found.error_code)
            if code is ErrorCode.NONE:
                described.append(_described(found, node_id))
            elif code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise KafkaError(code, f"transactional id {found.transactional_id} is not described")
        return described

    async def open_transactions(self, partitions: Iterable[TopicPartition]) -> list[OpenTransaction]:
        """The open transactions of these partitions, the oldest first in each."""
        wanted = await self._undecided(sorted(partitions))
        by_leader: dict[NodeId, list[TopicPartition]] = {}
        for each in wanted:
            by_leader.setdefault((await self.cluster.leader_of(each)).leader_id, []).append(each)
        found = []
        for node_id, led in by_leader.items():
            found += await self._retry(partial(self._open_at, node_id, led))
        return sorted(found, key=lambda each: (each.partition, each.start_offset))

    async def _undecided(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Where the last stable offset stays behind the high watermark; the others have nothing open."""
        committed = Consumer(self.cluster, ConsumerOptions(isolation=Isolation.READ_COMMITTED))
        stable = await committed.offsets_at(partitions, LATEST)
        ends = await Consumer(self.cluster).offsets_at(partitions, LATEST)
        return [each for each in partitions if stable[each] < ends[each]]

    async def _open_at(self, node_id: NodeId, partitions: list[TopicPartition]) -> list[OpenTransaction]:
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        request = DescribeProducersRequest(
            topics=[
                DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=indexes)
                for topic, indexes in topics.items()
            ]
        )
        connection = await self.cluster.connection_to(node_id)
        answer = await connection.call(request, DescribeProducersResponse)
        found = []
        for topic_answer in answer.topics:
            for each in topic_answer.partitions:
                where = TopicPartition(topic_answer.name, PartitionIndex(each.partition_index))
                if each.error_code:
                    self.cluster.forget(where.topic)
                    raise KafkaError(error_code(each.error_code), f"{where} does not tell its producers")
                found += [_open(where, state) for state in each.active_producers if state.current_txn_start_offset >= 0]
        return found

    async def find_hanging(self, partitions: Iterable[TopicPartition], *, max_age_ms: int) -> list[HangingTransaction]:
        """Those that are open in a partition though no coordinator has them open there, and those that were not
        written to for longer than `max_age_ms`."""
        is_open = await self.open_transactions(partitions)
        known = await self.coordinated(is_open)
        suspects = [each for each in is_open if each not in known or self._age_ms(each) > max_age_ms]
        names = await self._transactional_ids(suspects)
        # A transaction that ended while we asked was open when the leader was asked, and not for its coordinator.
        still = {
            each._replace(last_timestamp_ms=0)
            for each in await self.open_transactions({each.partition for each in suspects})
        }
        return [
            HangingTransaction(
                each,
                self._age_ms(each),
                names.get(each.producer_id),
                f"its coordinator gives it {known[each].timeout_ms / 1000:g} s"
                if each in known
                else "no coordinator has it open",
            )
            for each in suspects
            if each._replace(last_timestamp_ms=0) in still
        ]

    async def coordinated(self, found: Sequence[OpenTransaction]) -> dict[OpenTransaction, DescribedTransaction]:
        """Those of them whose coordinator is going to end them in their partition."""
        return await self._retry(partial(self._coordinated, found)) if found else {}

    async def _coordinated(self, found: Sequence[OpenTransaction]) -> dict[OpenTransaction, DescribedTransaction]:
        await self._check_coordinators()
        producer_ids = sorted({each.producer_id for each in found})
        by_coordinator: dict[int, list[str]] = {}
        for listed in await self.transactions(producer_ids=producer_ids, states=UNDER_WAY):
            by_coordinator.setdefault(listed.coordinator_id, []).append(listed.transactional_id)
        described: dict[int, DescribedTransaction] = {}
        for node_id, transactional_ids in by_coordinator.items():
            for start in range(0, len(transactional_ids), _IDS_AT_ONCE):
                some = transactional_ids[start : start + _IDS_AT_ONCE]
                described |= {each.producer_id: each for each in await self._describe_at(NodeId(node_id), some)}
        matches = ((each, described.get(each.producer_id)) for each in found)
        return {each: match for each, match in matches if match is not None and _ends(match, each)}

    async def _check_coordinators(self) -> None:
        """Raises KafkaError while somebody's coordinator is away: what nobody lists might be known to it."""
        try:
            topic = (await self.cluster.refresh([TRANSACTION_STATE_TOPIC]))[TRANSACTION_STATE_TOPIC]
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return
            raise
        if any(partition.leader_id < 0 for partition in topic.partitions.values()):
            message = f"{TRANSACTION_STATE_TOPIC} has partitions without a leader: what hangs cannot be told"
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)

    async def _transactional_ids(self, found: Sequence[OpenTransaction]) -> dict[int, str]:
        if not found:
            return {}
        producer_ids = sorted({each.producer_id for each in found})
        return {each.producer_id: each.transactional_id for each in await self.transactions(producer_ids=producer_ids)}

    def _age_ms(self, found: OpenTransaction) -> int:
        return self.cluster.ports.clock.wall_ms() - found.last_timestamp_ms

    async def abort(self, found: OpenTransaction) -> None:
        """Ends it in this partition, by a marker that no coordinator has decided on. One attempt."""
        topic, index = found.partition
        marker = WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            transaction_result=False,
            topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
            coordinator_epoch=max(0, found.coordinator_epoch),
        )
        leader = await self.cluster.leader_of(found.partition)
        connection = await self.cluster.connection_to(leader.leader_id)
        answer = await connection.call(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
        for result in (each for marker in answer.markers for topic in marker.topics for each in topic.partitions):
            if result.error_code:
                raise KafkaError(error_code(result.error_code), f"{found.partition} does not take the marker")

    async def _retry(self, action: Callable[[], Awaitable[T]]) -> T:
        return await self.cluster.with_retries(action, timeout_ms=self.cluster.limits.request_timeout_ms)


def _ends(described: DescribedTransaction, found: OpenTransaction) -> bool:
    """The decision may have raised the epoch; a transaction of an earlier one was forgotten."""
    epochs = [described.producer_epoch, described.producer_epoch - (described.state != _ONGOING)]
    return found.producer_epoch in epochs and found.partition in described.partitions


def _described(found: DescribeTransactionsResponse.TransactionState, coordinator_id: int) -> DescribedTransaction:
    return DescribedTransaction(
        found.transactional_id,
        found.transaction_state,
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        found.transaction_start_time_ms,
        coordinator_id,
        tuple(
            TopicPartition(topic.topic, PartitionIndex(index))
            for topic in sorted(found.topics, key=lambda topic: topic.topic)
            for index in sorted(topic.partitions)
        ),
    )


def _open(where: TopicPartition, state: DescribeProducersResponse.ProducerState) -> OpenTransaction:
    return OpenTransaction(
        where,
        state.producer_id,
        state.producer_epoch,
        state.current_txn_start_offset,
        state.coordinator_epoch,
        state.last_timestamp,
    )
