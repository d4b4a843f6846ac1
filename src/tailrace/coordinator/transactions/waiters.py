"""Requests that have waited for the end of a transaction: they are taken up again, or sent away."""

from __future__ import annotations

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.apis.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdResponse,
)
from tailrace.wire.schema import Message

# The first version with PRODUCER_FENCED, which is younger than these APIs (KIP-588).
_FIRST_VERSIONS_WITH_FENCED: dict[int, int] = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}


def refuse(request: Message, api_version: int, code: ErrorCode) -> Message:
    """The response to a request about one transaction that fails as a whole."""
    if code is ErrorCode.PRODUCER_FENCED and api_version < _FIRST_VERSIONS_WITH_FENCED[request.api_key]:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    if isinstance(request, AddPartitionsToTxnRequest):
        return _refuse_partitions(request, int(code))
    if isinstance(request, AddOffsetsToTxnRequest):
        return AddOffsetsToTxnResponse(error_code=int(code))
    if isinstance(request, EndTxnRequest):
        return EndTxnResponse(error_code=int(code))
    return InitProducerIdResponse(error_code=int(code), producer_epoch=-1)


def _refuse_partitions(request: AddPartitionsToTxnRequest, code: int) -> AddPartitionsToTxnResponse:
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
