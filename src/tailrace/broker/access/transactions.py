"""Who may use transactional ids, and the topics of which transactions tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.broker.access.access import refusal
from tailrace.broker.access.judging import access_of, ask, change_answer, may_by_cluster, require
from tailrace.broker.context import AnsweredError
from tailrace.model.acls import CLUSTER_NAME, Kind, Operation
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import INTERNAL_TOPICS
from tailrace.wire.apis.transactions import AddPartitionsToTxnResponse

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services
    from tailrace.wire.apis.transactions import (
        AddPartitionsToTxnRequest,
        DescribeTransactionsRequest,
        DescribeTransactionsResponse,
        InitProducerIdRequest,
        ListTransactionsRequest,
        ListTransactionsResponse,
    )

_FIRST_ADDITION_OF_BROKERS = 4


def judge_init_producer_id(
    services: Services, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdRequest:
    """An idempotent producer needs no more than some topic to write to (KIP-679)."""
    if request.transactional_id is not None:
        require(services, context, Operation.WRITE, Kind.TRANSACTIONAL_ID, request.transactional_id)
    elif not may_by_cluster(services, context, Operation.IDEMPOTENT_WRITE) and not access_of(services).may_on_any(
        context, Operation.WRITE, Kind.TOPIC
    ):
        ask(services, context, Operation.IDEMPOTENT_WRITE, Kind.CLUSTER, CLUSTER_NAME)  # For the log.
        raise refusal(context, Operation.IDEMPOTENT_WRITE, Kind.CLUSTER)
    return request


def judge_add_partitions_to_txn(
    services: Services, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnRequest:
    """If one of a client's partitions is refused, none is added."""
    if context.api_version >= _FIRST_ADDITION_OF_BROKERS:
        if not ask(services, context, Operation.CLUSTER_ACTION, Kind.CLUSTER, CLUSTER_NAME):
            # At the top, and not at each partition as other refusals of this API.
            raise AnsweredError(AddPartitionsToTxnResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)))
        return request
    require(services, context, Operation.WRITE, Kind.TRANSACTIONAL_ID, request.v3_and_below_transactional_id)
    refused = {
        topic.name
        for topic in request.v3_and_below_topics
        if topic.name in INTERNAL_TOPICS or not ask(services, context, Operation.WRITE, Kind.TOPIC, topic.name)
    }
    if refused:
        raise AnsweredError(_refuse_all(services, request, refused))
    return request


def _refuse_all(
    services: Services, request: AddPartitionsToTxnRequest, refused: set[str]
) -> AddPartitionsToTxnResponse:
    def code(name: str, index: int) -> ErrorCode:
        topic = services.image.topics.get(name)
        if name in refused:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topic is None or index not in topic.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.OPERATION_NOT_ATTEMPTED

    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=int(code(topic.name, index))
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


def judge_describe_transactions(
    services: Services, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsRequest:
    def without_hidden(answer: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
        for state in answer.transaction_states:
            state.topics = [
                each for each in state.topics if ask(services, context, Operation.DESCRIBE, Kind.TOPIC, each.topic)
            ]
        return answer

    change_answer(context, without_hidden)
    return request


def judge_list_transactions(
    services: Services, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsRequest:
    def without_hidden(answer: ListTransactionsResponse) -> ListTransactionsResponse:
        answer.transaction_states = [
            each
            for each in answer.transaction_states
            if ask(services, context, Operation.DESCRIBE, Kind.TRANSACTIONAL_ID, each.transactional_id, is_logged=False)
        ]
        return answer

    change_answer(context, without_hidden)
    return request
