"""Proposals of in-sync sets to the controller: many partitions in one AlterPartition, one request at a time.

What is proposed while a request is under way goes with the next one. A request that fails is tried again, for as long
as its proposals stand: the metadata may overtake them, and then they are dropped here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId
from tailrace.replica.isr import ISR_ERRORS_TO_DROP, ISR_ERRORS_TO_WAIT_OUT, Proposal
from tailrace.replica.partition import OnBug, Partition
from tailrace.wire.apis.quorum import AlterPartitionRequest, AlterPartitionResponse

AlterPartition = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]]

_log = events.logger("alter_isr")

# After a failure; doubles up to the maximum while it lasts. A new controller is elected within a second or two.
_PAUSE_SECONDS = 0.05
_PAUSE_MAX_SECONDS = 0.5

_Batch = list[tuple[Partition, Proposal]]


class IsrProposals:
    """`own_epoch` gives the broker epoch of this incarnation at the time of sending."""

    def __init__(
        self, alter_partition: AlterPartition, *, node_id: NodeId, own_epoch: Callable[[], int], on_bug: OnBug
    ) -> None:
        self._alter_partition = alter_partition
        self._on_bug = on_bug
        self._node_id = node_id
        self._own_epoch = own_epoch
        self._waiting: dict[Partition, Proposal] = {}  # At most one a partition.
        self._task: asyncio.Task[None] | None = None

    def submit(self, partition: Partition) -> None:
        assert partition.proposal is not None, "there is nothing to propose"
        self._waiting[partition] = partition.proposal
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send_all(), name="alter-isr")

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _send_all(self) -> None:
        pause_seconds = 0.0
        try:
            while batch := self._take_standing():
                try:
                    is_over = await self._send(batch)
                except Exception as error:
                    # A bug of ours must not end the proposals of all other partitions.
                    _log.error("a proposal of in-sync replicas failed", trace=True)
                    self._on_bug(error, None)
                    is_over = False
                    self._waiting = {**dict(batch), **self._waiting}
                pause_seconds = 0.0 if is_over else min(_PAUSE_MAX_SECONDS, max(_PAUSE_SECONDS, 2 * pause_seconds))
                await asyncio.sleep(pause_seconds)
        finally:
            self._task = None

    def _take_standing(self) -> _Batch:
        batch = [(each, proposal) for each, proposal in self._waiting.items() if each.proposal is proposal]
        self._waiting.clear()
        return batch

    async def _send(self, batch: _Batch) -> bool:
        """False if some of it has to be asked again, which is noted."""
        answers: dict[tuple[bytes, int], AlterPartitionResponse.PartitionData] = {}
        failure = ErrorCode.NONE
        try:
            response = await self._alter_partition(self._request(batch))
        except KafkaError as error:
            failure = error.code
        else:
            failure = ErrorCode(response.error_code)
            answers = {
                (topic.topic_id, each.partition_index): each for topic in response.topics for each in topic.partitions
            }
        if failure:
            _log.warning("the controller took no in-sync replicas", cause=failure.name, partitions=len(batch))
        is_over = True
        for partition, proposal in batch:
            answer = answers.get((partition.topic_id, partition.topic_partition.partition))
            if not settle_proposal(partition, proposal, answer):
                is_over = False
                self._waiting.setdefault(partition, proposal)
        return is_over

    def _request(self, batch: _Batch) -> AlterPartitionRequest:
        topics: dict[bytes, AlterPartitionRequest.TopicData] = {}
        for partition, proposal in batch:
            topic = topics.setdefault(partition.topic_id, AlterPartitionRequest.TopicData(topic_id=partition.topic_id))
            members = zip(proposal.isr, proposal.broker_epochs, strict=True)
            topic.partitions.append(
                AlterPartitionRequest.PartitionData(
                    partition_index=partition.topic_partition.partition,
                    leader_epoch=proposal.leader_epoch,
                    new_isr=list(proposal.isr),
                    new_isr_with_epochs=[
                        AlterPartitionRequest.BrokerState(broker_id=node_id, broker_epoch=broker_epoch)
                        for node_id, broker_epoch in members
                    ],
                    # A leader that has taken over has recovered: its log is the partition from here on.
                    leader_recovery_state=0,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._node_id, broker_epoch=self._own_epoch(), topics=list(topics.values())
        )


def settle_proposal(
    partition: Partition, proposal: Proposal, answer: AlterPartitionResponse.PartitionData | None
) -> bool:
    """The controller's answer; False if it is to be asked again. An answer to a proposal that the metadata has
    overtaken says nothing any more. One that was accepted stands until the image comes that has it: with the new
    in-sync set comes the min.insync.replicas by which its members were judged."""
    if partition.proposal is not proposal:
        return True
    if answer is None:
        return False
    error = ErrorCode(answer.error_code)
    # Accepted, and there was nothing to change: no image will tell of it.
    is_as_before = error == ErrorCode.NONE and answer.partition_epoch == partition.partition_epoch
    if is_as_before or error in ISR_ERRORS_TO_DROP:
        partition.drop_proposal()
        return True
    return error == ErrorCode.NONE or error in ISR_ERRORS_TO_WAIT_OUT
