"""Requests that have waited for the end of a transaction: they are taken up again, or sent away."""

from __future__ import annotations

from tailrace.coordinator.op import Caller
from tailrace.coordinator.transactions.state import Waiter
from tailrace.model.errors import KafkaError
from tailrace.wire.apis.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    InitProducerIdResponse,
)
from tailrace.wire.schema import Message


def refuse(waiter: Waiter, error: KafkaError) -> tuple[Caller, Message]:
    """The response to a request that fails as a whole."""
    request, code = waiter.request, int(error.code)
    response: Message
    if isinstance(request, AddPartitionsToTxnRequest):
        response = refuse_partitions(request, code)
    elif isinstance(request, AddOffsetsToTxnRequest):
        response = AddOffsetsToTxnResponse(error_code=code)
    else:
        response = InitProducerIdResponse(error_code=code, producer_epoch=-1)
    return waiter.caller, response


def refuse_partitions(request: AddPartitionsToTxnRequest, code: int) -> AddPartitionsToTxnResponse:
    """Each partition gets the error."""
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=[
                    AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                                partition_index=index, partition_error_code=code
                            )
                            for index in topic.partitions
                        ],
                    )
                    for topic in transaction.topics
                ],
            )
            for transaction in request.transactions
        ]
    )
