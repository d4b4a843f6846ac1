"""DescribeTransactions, ListTransactions, DescribeProducers: who is in a transaction, since when, where (KIP-664)."""

from __future__ import annotations

from asyncio import sleep
from typing import TYPE_CHECKING, cast

from tailrace.broker.coordinators.calls import submit_parts
from tailrace.coordinator.transactions.listing import list_transactions, unknown_states
from tailrace.coordinator.transactions.machine import TransactionMachine
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.broker.context import Pending, RequestContext
    from tailrace.broker.services import Services
    from tailrace.coordinator.transactions.transaction import Transaction

# Looked at in one turn of the loop: less than a millisecond.
_IDS_PER_TURN = 500
_PartitionAnswer = DescribeProducersResponse.PartitionResponse


def handle_describe_transactions(
    services: Services, context: RequestContext, request: DescribeTransactionsRequest
) -> Pending[Message]:
    parts: list[tuple[str, Message]] = [
        (transactional_id, DescribeTransactionsRequest(transactional_ids=[transactional_id]))
        for transactional_id in request.transactional_ids
    ]

    def join(answers: list[Message]) -> Message:
        states = [cast("DescribeTransactionsResponse", answer).transaction_states[0] for answer in answers]
        for state in states:
            if not state.transactional_id:
                state.error_code = int(ErrorCode.INVALID_REQUEST)
        return DescribeTransactionsResponse(transaction_states=states)

    return submit_parts(services.coordination.transactions, context, parts, join)


async def handle_list_transactions(
    services: Services, _context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """The transactions of all partitions that this broker coordinates, as they are when it is asked."""
    now_ms = services.ports.clock.wall_ms()
    response = ListTransactionsResponse(unknown_state_filters=unknown_states(request))
    known: list[Transaction] = []
    for shard in services.coordination.transactions.active_shards():
        assert isinstance(shard.machine, TransactionMachine), "a shard of __transaction_state"
        known += shard.machine.state.transactions.values()
    for start in range(0, max(1, len(known)), _IDS_PER_TURN):  # Once at least: the pattern may be wrong.
        response.transaction_states += list_transactions(known[start : start + _IDS_PER_TURN], request, now_ms=now_ms)
        await sleep(0)
    return response


async def handle_describe_producers(
    services: Services, _context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[
                    await _describe_partition(services, topic.name, index) for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


async def _describe_partition(services: Services, topic: str, index: int) -> _PartitionAnswer:
    try:
        partition = services.replicas.find(topic, index)
        partition.check_leader()
    except KafkaError as error:
        return _PartitionAnswer(partition_index=index, error_code=int(error.code), error_message=error.message)
    answer = _PartitionAnswer(partition_index=index)
    known = list(partition.log.producers.states.items())
    for start in range(0, len(known), _IDS_PER_TURN):
        answer.active_producers += [
            DescribeProducersResponse.ProducerState(
                producer_id=producer_id,
                producer_epoch=state.epoch,
                last_sequence=state.last_sequence,
                last_timestamp=state.last_timestamp,
                coordinator_epoch=state.coordinator_epoch,
                current_txn_start_offset=state.current_txn_first_offset,
            )
            for producer_id, state in known[start : start + _IDS_PER_TURN]
        ]
        await sleep(0)
    return answer
