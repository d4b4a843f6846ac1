"""One attempt to hand a batch to the leader of its partition."""

from __future__ import annotations

from tailrace.client.connection import error_code
from tailrace.client.metadata import Cluster
from tailrace.client.writing.terms import ACKS_NONE, Author, ProducerOptions, UnknownOutcomeError
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.model.ports import Bytes
from tailrace.wire.apis.data import ProduceRequest, ProduceResponse

_ANSWER_MARGIN_MS = 5000

ProduceResult = ProduceResponse.PartitionProduceResponse

# Answers after which the records may have been written all the same.
_UNCERTAIN = frozenset(
    {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.UNKNOWN_SERVER_ERROR}
)


async def produce_batch(
    cluster: Cluster, options: ProducerOptions, author: Author, partition: TopicPartition, batch: Bytes
) -> ProduceResult:
    """One attempt to hand a whole batch to the leader. After a KafkaError the next one asks anew who leads."""
    topic, index = partition
    leader = await cluster.leader_of(partition)
    version_max = author.produce_version_max
    request = ProduceRequest(
        transactional_id=author.transactional_id,
        acks=options.acks,
        timeout_ms=options.request_timeout_ms,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic, partition_data=[ProduceRequest.PartitionProduceData(index=index, records=batch)]
            )
        ],
    )
    try:
        connection = await cluster.connection_to(leader.leader_id)
        if options.acks == ACKS_NONE:
            await connection.post(request, version_max=version_max)
            return ProduceResult(base_offset=-1)
        # The broker may take the whole timeout for the acks; its answer then is still on its way.
        patience_ms = options.request_timeout_ms + _ANSWER_MARGIN_MS
        try:
            answer = await connection.call(request, ProduceResponse, version_max=version_max, timeout_ms=patience_ms)
        except KafkaError as error:
            if error.code is ErrorCode.NETWORK_EXCEPTION:
                raise UnknownOutcomeError(error.code, error.message) from error
            raise
        return _judge(partition, answer, len(batch))
    except KafkaError:
        cluster.forget(topic)
        raise


def _judge(partition: TopicPartition, answer: ProduceResponse, batch_bytes: int) -> ProduceResult:
    results = [result for topic in answer.responses for result in topic.partition_responses]
    if not results:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker says nothing of {partition}")
    result = results[0]
    code = error_code(result.error_code)
    if code is ErrorCode.NONE:
        return result
    if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        # An earlier attempt did arrive, so long ago that its offset is not known any more.
        return ProduceResult(base_offset=-1)
    message = result.error_message or f"{partition} does not take a batch of {batch_bytes} bytes"
    if code is ErrorCode.MESSAGE_TOO_LARGE:
        message += f"; allow it with: tailrace topic alter {partition.topic} --set max.message.bytes=..."
    raise (UnknownOutcomeError if code in _UNCERTAIN else KafkaError)(code, message)
