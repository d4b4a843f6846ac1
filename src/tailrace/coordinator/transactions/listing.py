"""DescribeTransactions and ListTransactions: what is known of transactional ids, for people (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tailrace.controller.patterns import compile_pattern
from tailrace.coordinator.op import Call, Caller, Result
from tailrace.coordinator.transactions.state import TransactionsState
from tailrace.coordinator.transactions.transaction import Transaction, TransactionState
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

_TITLES = {state.title: state for state in TransactionState}
_ListedTransaction = ListTransactionsResponse.TransactionState


def describe_transaction(
    state: TransactionsState, _call: Call, caller: Caller, request: DescribeTransactionsRequest
) -> Result:
    (transactional_id,) = request.transactional_ids
    described = DescribeTransactionsResponse.TransactionState(transactional_id=transactional_id)
    transaction = state.transactions.get(transactional_id)
    if transaction is None:
        described.error_code = int(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    else:
        _describe(transaction, described)
    return Result(answers=[(caller, DescribeTransactionsResponse(transaction_states=[described]))])


def _describe(transaction: Transaction, described: DescribeTransactionsResponse.TransactionState) -> None:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(index)
    described.transaction_state = transaction.state.title
    described.transaction_timeout_ms = transaction.timeout_ms
    described.transaction_start_time_ms = transaction.start_ms
    described.producer_id, described.producer_epoch = transaction.producer_id, transaction.producer_epoch
    described.topics = [
        DescribeTransactionsResponse.TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()
    ]


def list_transactions(
    transactions: Iterable[Transaction], request: ListTransactionsRequest, *, now_ms: int
) -> Iterator[_ListedTransaction]:
    """Those that pass all filters. Raises INVALID_REGULAR_EXPRESSION."""
    states = {_TITLES[name] for name in request.state_filters if name in _TITLES}
    producer_ids = frozenset(request.producer_id_filters)
    pattern = compile_pattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
    for transaction in transactions:
        age_ms = now_ms - transaction.start_ms  # As in Kafka, what has not begun is older than anything.
        if (
            (request.state_filters and transaction.state not in states)
            or (producer_ids and transaction.producer_id not in producer_ids)
            or (request.duration_filter >= 0 and age_ms <= request.duration_filter)
            or (pattern is not None and not pattern.fullmatch(transaction.transactional_id))
        ):
            continue
        yield _ListedTransaction(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            transaction_state=transaction.state.title,
        )


def unknown_states(request: ListTransactionsRequest) -> list[str]:
    """Names in its filter that no state has."""
    return [name for name in request.state_filters if name not in _TITLES]
