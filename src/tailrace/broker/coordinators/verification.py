"""Is this partition part of the producer's transaction? The coordinator is asked before the first record of a
transaction is written to a partition, so that none can begin that nobody would end (KIP-890).

For clients of version 2 the coordinator adds the partition at once; of older clients, which have added it themselves,
it only tells. What it says holds until a marker comes: then it was about a transaction that has ended, and it is asked
again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.coordinators.calls import InnerCall
from tailrace.coordinator.placement import coordinator_partition
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TRANSACTION_STATE_TOPIC, PartitionIndex, TopicPartition
from tailrace.wire.apis.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

if TYPE_CHECKING:
    from tailrace.broker.services import Services
    from tailrace.replica.partition import Partition

_log = events.logger("transactions")

_CHANNEL = "transactions"
# The form that brokers use among themselves.
_VERSION = 5
# The producer's connection is not read meanwhile. If the coordinator does not answer, another one may be there by now.
_TIMEOUT_MS = 4000

# A marker that comes between the answer and the write makes it ask again; more of them would be a storm.
_TRIES = 3


class TransactionalProducer(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int


class Verification:
    """What the coordinator has said of some partitions: `errors` of those that may not be written to. For the others it
    `holds` until a marker comes. To be ended, whatever came of it."""

    def __init__(self, producer: TransactionalProducer, partitions: Collection[Partition]) -> None:
        self.errors: Mapping[TopicPartition, ErrorCode] = {}
        self._producer_id = producer.producer_id
        self._begun = {
            partition.topic_partition: (
                partition.log.producers,
                partition.log.producers.begin_verification(producer.producer_id),
            )
            for partition in partitions
        }

    def holds(self, partition: Partition) -> bool:
        """In this very turn of the loop. The partition may be another one than before, if its topic was made anew."""
        begun = self._begun.get(partition.topic_partition)
        if begun is None or partition.topic_partition in self.errors:
            return False
        producers, token = begun
        return producers is partition.log.producers and producers.is_verified(self._producer_id, token)

    def end(self) -> None:
        for producers, _ in self._begun.values():
            producers.end_verification(self._producer_id)


async def wait_verified(
    services: Services, producer: TransactionalProducer, partitions: Collection[Partition], *, adds: bool
) -> Verification:
    for _ in range(_TRIES):
        verification = Verification(producer, partitions)
        names = [partition.topic_partition for partition in partitions]
        try:
            verification.errors = await _ask_coordinator(services, producer, names, adds=adds)
        except BaseException:
            verification.end()
            raise
        if all(each.topic_partition in verification.errors or verification.holds(each) for each in partitions):
            break
        verification.end()
    return verification


async def _ask_coordinator(
    services: Services, producer: TransactionalProducer, partitions: Collection[TopicPartition], *, adds: bool
) -> Mapping[TopicPartition, ErrorCode]:
    """The error of each partition that may not be written to; none for the others."""
    request = _request(producer, partitions, adds=adds)
    try:
        leader = _find_coordinator(services, producer.transactional_id)
        if leader == services.node_id:
            answer = await _ask_here(services, producer.transactional_id, request)
        else:
            answer = await services.node.call_broker(
                leader, request, AddPartitionsToTxnResponse, channel=_CHANNEL, timeout_ms=_TIMEOUT_MS
            )
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), "The coordinator refused the request as a whole")
    except KafkaError as error:
        _log.debug("a transaction could not be verified", transactional_id=producer.transactional_id, cause=error)
        return dict.fromkeys(partitions, error.code)
    return {
        TopicPartition(topic.name, PartitionIndex(each.partition_index)): ErrorCode(each.partition_error_code)
        for result in answer.results_by_transaction
        for topic in result.topic_results
        for each in topic.results_by_partition
        if each.partition_error_code
    }


def _find_coordinator(services: Services, transactional_id: str) -> int:
    topic = services.image.topics.get(TRANSACTION_STATE_TOPIC)
    leader = -1
    if topic is not None:
        leader = topic.partitions[coordinator_partition(transactional_id, len(topic.partitions))].leader
    if leader < 0:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "Nobody coordinates this transactional id now")
    return leader


async def _ask_here(
    services: Services, transactional_id: str, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    call = InnerCall(request, _VERSION)
    services.coordination.transactions.submit(transactional_id, call)
    answer = await call.wait()
    assert isinstance(answer, AddPartitionsToTxnResponse), "what was asked for"
    return answer


def _request(
    producer: TransactionalProducer, partitions: Collection[TopicPartition], *, adds: bool
) -> AddPartitionsToTxnRequest:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        verify_only=not adds,
        topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=indexes)
            for topic, indexes in topics.items()
        ],
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])
