"""AddPartitionsToTxn and AddOffsetsToTxn: which partitions a transaction writes to.

A client adds them itself before it produces; from version 2 on the broker that is produced to does it (KIP-890). For
older clients that broker only asks whether they were added, so that no record can begin a transaction that nobody ends.
Partitions are added to the transaction that is open, and the first ones open it. While the one before is being ended,
the request waits.
"""

from __future__ import annotations

from tailrace.coordinator.op import Call, Caller, Result
from tailrace.coordinator.placement import coordinator_partition
from tailrace.coordinator.transactions.state import TransactionsState
from tailrace.coordinator.transactions.transaction import VERSION_WITH_EPOCH_BUMP, Transaction, TransactionState
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import CONSUMER_OFFSETS_TOPIC, PartitionIndex, TopicPartition
from tailrace.wire.apis.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)

_FIRST_VERSION_OF_BROKERS = 4
_TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult


def add_partitions(state: TransactionsState, call: Call, caller: Caller, request: AddPartitionsToTxnRequest) -> Result:
    """The partitions of one transaction, in the form of version 4 whoever asks."""
    (asked,) = request.transactions
    if state.is_ending(asked.transactional_id) and not asked.verify_only:
        return state.wait_for_end(call, caller, request, asked.transactional_id)
    transaction = state.check_producer(
        asked.transactional_id, producer_id=asked.producer_id, producer_epoch=asked.producer_epoch
    )
    if transaction.state.is_prepared:
        # The epoch of who is verified stays with the end of its transaction: this may be of its next one.
        return state.wait_for_end(call, caller, request, asked.transactional_id)
    partitions = frozenset(
        TopicPartition(topic.name, PartitionIndex(index)) for topic in asked.topics for index in topic.partitions
    )
    if asked.verify_only:
        return Result(answers=[(caller, _respond(asked, missing=partitions - transaction.partitions))])
    records = []
    if not _has_all(transaction, partitions):
        is_broker = caller.api_version >= _FIRST_VERSION_OF_BROKERS
        new = transaction.with_partitions(
            partitions, now_ms=call.now_ms, client_version=VERSION_WITH_EPOCH_BUMP if is_broker else 0
        )
        _note_begun(state, call, transaction, new)
        records.append(state.store(call, new))
    return Result(records, [(caller, _respond(asked))])


def add_offsets(state: TransactionsState, call: Call, caller: Caller, request: AddOffsetsToTxnRequest) -> Result:
    """The offsets of a group are records too: on the partition where its coordinator keeps them."""
    if state.is_ending(request.transactional_id):
        return state.wait_for_end(call, caller, request, request.transactional_id)
    transaction = state.check_producer(
        request.transactional_id, producer_id=request.producer_id, producer_epoch=request.producer_epoch
    )
    topic = call.image.topics.get(CONSUMER_OFFSETS_TOPIC)
    if topic is None:
        response = AddOffsetsToTxnResponse(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return Result(answers=[(caller, response)])
    index = PartitionIndex(coordinator_partition(request.group_id, len(topic.partitions)))
    partitions = frozenset({TopicPartition(CONSUMER_OFFSETS_TOPIC, index)})
    records = []
    if not _has_all(transaction, partitions):
        new = transaction.with_partitions(partitions, now_ms=call.now_ms, client_version=0)
        _note_begun(state, call, transaction, new)
        records.append(state.store(call, new))
    return Result(records, [(caller, AddOffsetsToTxnResponse())])


def _has_all(transaction: Transaction, partitions: frozenset[TopicPartition]) -> bool:
    return transaction.state is TransactionState.ONGOING and partitions <= transaction.partitions


def _note_begun(state: TransactionsState, call: Call, old: Transaction, new: Transaction) -> None:
    if old.state is not TransactionState.ONGOING:
        state.deadlines.set(("abort", new.transactional_id), call.monotonic_ms + new.timeout_ms)


def _respond(
    asked: AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction, missing: frozenset[TopicPartition] = frozenset()
) -> AddPartitionsToTxnResponse:
    topics = [
        _TopicResult(
            name=topic.name,
            results_by_partition=[
                _PartitionResult(
                    partition_index=index,
                    partition_error_code=int(
                        ErrorCode.TRANSACTION_ABORTABLE if (topic.name, index) in missing else ErrorCode.NONE
                    ),
                )
                for index in topic.partitions
            ],
        )
        for topic in asked.topics
    ]
    result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
        transactional_id=asked.transactional_id, topic_results=topics
    )
    return AddPartitionsToTxnResponse(results_by_transaction=[result])
