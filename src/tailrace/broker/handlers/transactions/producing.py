"""Requests of producers about their ids and transactions.

InitProducerId without a transactional id gives an idempotent producer its id, unique in the cluster for ever: ids come
from blocks of a thousand that the controller hands out through the metadata log, so that a request normally costs
nothing. A request that finds none waits a moment for the next block. Everything else is answered by the coordinator of
the transactional id, at once or later; a broker that is not the one says so.

Offsets that are committed in a transaction belong to the coordinator of their group. It writes them once the
coordinator of the transaction has confirmed that the group is part of it; from version 5 on it has it added (KIP-890).

Version notes: InitProducerId 3 adds the producer's present id and epoch (KIP-360). AddPartitionsToTxn is about one
transaction up to version 3, from 4 on about several, and comes from brokers.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast

from tailrace.broker.coordinators.calls import CoordinatorCall, submit_parts
from tailrace.broker.coordinators.verification import TransactionalProducer, wait_verified
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import CONSUMER_OFFSETS_TOPIC, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tailrace.wire.apis.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
)
from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.broker.context import Pending, RequestContext
    from tailrace.broker.services import Services

_FIRST_VERSION_OF_BROKERS = 4
_FIRST_OFFSET_COMMIT_THAT_ADDS = 5
# What older clients do not expect of a TxnOffsetCommit becomes what they retry without looking for the coordinator.
_TO_BE_TRIED_AGAIN = (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def handle_init_producer_id(
    services: Services, context: RequestContext, request: InitProducerIdRequest
) -> Message | Pending[Message] | Coroutine[Any, Any, Message | Pending[Message]]:
    if request.transactional_id is None:
        return _init_idempotent(services, request)
    if not request.transactional_id:
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    if services.node.producer_ids.is_empty:
        return _submit_with_new_ids(services, context, request)
    return _submit(services, context, request)


async def _init_idempotent(services: Services, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        # Either both are known from an earlier answer, or neither is.
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    producer_id = await services.node.producer_ids.take(wait_ms=services.config.request_controller_wait_ms)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def _submit_with_new_ids(
    services: Services, context: RequestContext, request: InitProducerIdRequest
) -> Pending[Message]:
    """Without an id at hand the machine has the client ask again, if it needs one."""
    producer_ids = services.node.producer_ids
    producer_ids.fetch_if_few()
    await producer_ids.wait_fetched(wait_ms=services.config.request_controller_wait_ms)
    return _submit(services, context, request)


def handle_add_offsets_to_txn(
    services: Services, context: RequestContext, request: AddOffsetsToTxnRequest
) -> Pending[Message] | Coroutine[Any, Any, Pending[Message]]:
    """A client asks who coordinates the group only after this, so nobody may have asked for the topic yet."""
    if CONSUMER_OFFSETS_TOPIC not in services.image.topics:
        return _submit_with_offsets_topic(services, context, request)
    return _submit(services, context, request)


async def _submit_with_offsets_topic(
    services: Services, context: RequestContext, request: AddOffsetsToTxnRequest
) -> Pending[Message]:
    """Without the topic the machine has the client ask again."""
    await services.coordination.creations.wait([CONSUMER_OFFSETS_TOPIC])
    return _submit(services, context, request)


def handle_of_transaction(services: Services, context: RequestContext, request: EndTxnRequest) -> Pending[Message]:
    return _submit(services, context, request)


def _submit(
    services: Services, context: RequestContext, request: InitProducerIdRequest | AddOffsetsToTxnRequest | EndTxnRequest
) -> Pending[Message]:
    call = CoordinatorCall(context, request)
    if request.transactional_id:
        services.coordination.transactions.submit(request.transactional_id, call)
    else:
        call.fail(KafkaError(ErrorCode.INVALID_REQUEST, "The transactional id is empty"))
    return call


def handle_add_partitions_to_txn(
    services: Services, context: RequestContext, request: AddPartitionsToTxnRequest
) -> Pending[Message]:
    is_old = context.api_version < _FIRST_VERSION_OF_BROKERS
    if is_old:
        request = _in_new_form(request)
    answers: list[AddPartitionsToTxnResponse.AddPartitionsToTxnResult] = []
    parts: list[tuple[str, Message]] = []
    for transaction in request.transactions:
        refused = _refuse_unknown(services, transaction)
        if refused is not None:
            answers.append(refused)
        else:
            parts.append((transaction.transactional_id, AddPartitionsToTxnRequest(transactions=[transaction])))

    def join(parts: list[Message]) -> Message:
        for part in parts:
            answers.extend(cast("AddPartitionsToTxnResponse", part).results_by_transaction)
        if is_old:
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=answers[0].topic_results)
        return AddPartitionsToTxnResponse(results_by_transaction=answers)

    return submit_parts(services.coordination.transactions, context, parts, join)


def _in_new_form(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
        ]
    )


def _refuse_unknown(
    services: Services, transaction: AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
) -> AddPartitionsToTxnResponse.AddPartitionsToTxnResult | None:
    """If one of its partitions does not exist, or is read-only, none is added."""
    unknown = {
        (topic.name, index): code
        for topic in transaction.topics
        for index in topic.partitions
        if (code := _refusal_of(services, topic.name, index)) is not ErrorCode.NONE
    }
    if transaction.transactional_id and not unknown:
        return None
    whole = ErrorCode.OPERATION_NOT_ATTEMPTED if transaction.transactional_id else ErrorCode.INVALID_REQUEST
    return AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=[
            AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                        partition_index=index,
                        partition_error_code=int(unknown.get((topic.name, index), whole)),
                    )
                    for index in topic.partitions
                ],
            )
            for topic in transaction.topics
        ],
    )


def _refusal_of(services: Services, topic: str, index: int) -> ErrorCode:
    image = services.image.topics.get(topic)
    if image is None or index not in image.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.POLICY_VIOLATION if image.is_read_only else ErrorCode.NONE


async def handle_txn_offset_commit(
    services: Services, context: RequestContext, request: TxnOffsetCommitRequest
) -> Pending[Message]:
    call = CoordinatorCall(context, request)
    try:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is empty")
        if not request.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The transactional id is empty")
        shard = services.coordination.groups.find(request.group_id)
        producer = TransactionalProducer(request.transactional_id, request.producer_id, request.producer_epoch)
        partition = shard.partition
        if not partition.log.producers.is_in_transaction(producer.producer_id, producer.producer_epoch):
            adds = context.api_version >= _FIRST_OFFSET_COMMIT_THAT_ADDS
            verification = await wait_verified(services, producer, [partition], adds=adds)
            code = verification.errors.get(partition.topic_partition)
            if code is None and not verification.holds(partition):
                code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # Which clients of all ages try again.
            verification.end()  # What is submitted in this turn comes before the next marker.
            if code is not None:
                raise _refusal(code, context.api_version)
    except KafkaError as error:
        call.fail(error)
    else:
        services.coordination.groups.submit(request.group_id, call)
    return call


def _refusal(code: ErrorCode, api_version: int) -> KafkaError:
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code in _TO_BE_TRIED_AGAIN:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    elif code is ErrorCode.TRANSACTION_ABORTABLE and api_version < _FIRST_OFFSET_COMMIT_THAT_ADDS - 1:
        code = ErrorCode.INVALID_TXN_STATE
    return KafkaError(code, "The group is not part of the producer's transaction")
