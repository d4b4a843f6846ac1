"""What a transactional producer asks of coordinators: its own, and those of the groups whose offsets it commits.

Requests are repeated while a coordinator moves, loads, or still completes the transaction before; each of them may
arrive twice. What is raised in the end is the last answer.
"""

from __future__ import annotations

from asyncio import Lock, sleep
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tailrace.client.groups.coordinator import Coordinator, CoordinatorKind
from tailrace.client.groups.offsets import GroupMetadata, Offsets, by_topic, offsets_by_topic
from tailrace.client.lanes import ANONYMOUS, ProducerIdentity
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import TopicPartition
from tailrace.wire.apis.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

T = TypeVar("T")

_FEATURE = "transaction.version"
_VERSION_WITH_EPOCH_BUMP = 2
# The newest versions for one client, and those that leave it to the client to add partitions and groups.
_INIT_PRODUCER_ID_MAX = 5
_ADD_PARTITIONS_MAX = 3
_PRODUCE_MAX, _PRODUCE_MAX_BEFORE = 12, 11
_OFFSET_COMMIT_MAX, _OFFSET_COMMIT_MAX_BEFORE = 5, 4
_END_MAX, _END_MAX_BEFORE = 5, 4


class TransactionRequests:
    """`close` it at the end."""

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        timeout_ms: int,
        retry_timeout_ms: int,
        version_max: int = _VERSION_WITH_EPOCH_BUMP,
    ) -> None:
        self.identity = ANONYMOUS
        # How often the coordinator was asked to commit this transaction. If more than once, the answers to the earlier
        # requests were lost, or said nothing of the outcome.
        self.commit_attempts = 0
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._retry_timeout_ms = retry_timeout_ms
        self._version_max = version_max
        self._coordinator = Coordinator(cluster, transactional_id, CoordinatorKind.TRANSACTION)
        self._group_coordinators: dict[str, Coordinator] = {}  # By the groups that the caller names.
        self._is_version_2 = False
        # The coordinator may know of the transaction.
        self._has_begun = False
        self._partitions: set[TopicPartition] = set()
        self._groups: set[str] = set()
        # Asked for by lanes that wait for the lock: whoever gets it asks for all.
        self._wanted: dict[TopicPartition, None] = {}
        self._adding = Lock()

    @property
    def is_epoch_raised_by_end(self) -> bool:
        return self._is_version_2

    @property
    def is_known(self) -> bool:
        """Whether the coordinator knows of the transaction, or takes the abort of one that it does not know."""
        return self._is_version_2 or bool(self._partitions or self._groups)

    @property
    def produce_version_max(self) -> int:
        return _PRODUCE_MAX if self._is_version_2 else _PRODUCE_MAX_BEFORE

    async def init(self) -> None:
        """Gives an identity, or raises the epoch of the one that it has (KIP-360)."""
        await self._retry(self._init)

    def begin(self) -> None:
        """The version that the cluster has decided on holds for the whole transaction."""
        version = self._coordinator.finalized_features.get(_FEATURE, 0)
        self._is_version_2 = min(version, self._version_max) >= _VERSION_WITH_EPOCH_BUMP
        self._has_begun = False
        self.commit_attempts = 0
        self._partitions.clear()
        self._groups.clear()
        self._wanted.clear()

    async def add_partition(self, partition: TopicPartition) -> None:
        """A batch may be sent to it afterwards."""
        if self._is_version_2:
            self._has_begun = True
            return
        if partition in self._partitions:
            return
        self._wanted[partition] = None
        async with self._adding:
            if partition in self._partitions:
                return
            await sleep(0)  # For lanes that are to send in this very turn.
            wanted, self._wanted = sorted({*self._wanted, partition}), {}
            self._has_begun = True
            await self._retry(lambda: self._add_partitions(wanted))
            self._partitions.update(wanted)

    async def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        self._has_begun = True
        coordinator = self._group_coordinators.setdefault(group.group_id, Coordinator(self._cluster, group.group_id))
        if not self._is_version_2 and group.group_id not in self._groups:
            # To look for the first coordinator of a group creates the topic whose partition is to be added.
            await self._retry(coordinator.connect)
            await self._retry(lambda: self._add_offsets(group.group_id))
            self._groups.add(group.group_id)
        await self._retry(lambda: self._commit_offsets(coordinator, offsets, group))

    async def end(self, *, committed: bool) -> None:
        """One that the coordinator cannot know of has nothing to end."""
        if self._has_begun:
            await self._retry(lambda: self._end(committed=committed))
            self._has_begun = False

    def close(self) -> None:
        for coordinator in (self._coordinator, *self._group_coordinators.values()):
            coordinator.close()

    # --- one attempt each

    async def _init(self) -> None:
        answer = await self._coordinator.call(
            InitProducerIdRequest(
                transactional_id=self._transactional_id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.producer_epoch,
            ),
            InitProducerIdResponse,
            version_max=_INIT_PRODUCER_ID_MAX,
        )
        self._check(answer.error_code, "is not initialized")
        self.identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)

    async def _add_partitions(self, partitions: list[TopicPartition]) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                for topic, indexes in by_topic(partitions).items()
            ],
        )
        answer = await self._coordinator.call(request, AddPartitionsToTxnResponse, version_max=_ADD_PARTITIONS_MAX)
        results = [
            (result.partition_error_code, f"{topic.name}-{result.partition_index}")
            for topic in answer.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        ]
        # One that is refused keeps the others from being added, too: its error is the one that tells why.
        for code, partition in sorted(results, key=lambda result: result[0] == ErrorCode.OPERATION_NOT_ATTEMPTED):
            self._check(code, f"does not get {partition}")

    async def _add_offsets(self, group_id: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            group_id=group_id,
        )
        answer = await self._coordinator.call(request, AddOffsetsToTxnResponse)
        self._check(answer.error_code, f"does not get the offsets of group {group_id}")

    async def _commit_offsets(self, coordinator: Coordinator, offsets: Offsets, group: GroupMetadata) -> None:
        member_id, epoch, instance_id = group.committer
        request = TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=group.group_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            generation_id=epoch,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=each.offset,
                            committed_leader_epoch=each.leader_epoch,
                            committed_metadata=each.metadata,
                        )
                        for index, each in given.items()
                    ],
                )
                for topic, given in offsets_by_topic(offsets).items()
            ],
        )
        version_max = _OFFSET_COMMIT_MAX if self._is_version_2 else _OFFSET_COMMIT_MAX_BEFORE
        answer = await coordinator.call(request, TxnOffsetCommitResponse, version_max=version_max)
        for topic in answer.topics:
            for result in topic.partitions:
                failure = f"the offset of {topic.name}-{result.partition_index} is not part of the transaction"
                coordinator.check(result.error_code, failure)

    async def _end(self, *, committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            committed=committed,
        )
        self.commit_attempts += committed
        version_max = _END_MAX if self._is_version_2 else _END_MAX_BEFORE
        answer = await self._coordinator.call(request, EndTxnResponse, version_max=version_max)
        self._check(answer.error_code, "is not committed" if committed else "is not aborted")
        if self._is_version_2:
            self.identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)

    # --- answers

    def _check(self, error_code: int, failure: str) -> None:
        self._coordinator.check(error_code, f"the transaction of {self._transactional_id} {failure}")

    async def _retry(self, action: Callable[[], Awaitable[T]]) -> T:
        return await self._cluster.with_retries(action, timeout_ms=self._retry_timeout_ms)
