"""What is due: transactions that take too long, requests that have waited for long enough, ids that nobody uses."""

from __future__ import annotations

from collections import deque
from functools import partial

from tailrace.coordinator.op import Call, Result, Steps, StoredRecord
from tailrace.coordinator.transactions.ending import decide_abort, owe_markers
from tailrace.coordinator.transactions.state import Due, TransactionsState
from tailrace.coordinator.transactions.transaction import Transaction, TransactionState
from tailrace.coordinator.transactions.waiters import refuse
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError

_log = events.logger("transactions")

# Looked at in a row: less than half a millisecond.
_IDS_PER_STEP = 500
# The characters of all ids in one batch, which may have four bytes each: far below max.message.bytes.
_TOMBSTONES_MAX_CHARACTERS = 150_000
# A decision that could not be taken, since there was no producer id at hand.
_RETRY_MS = 100.0
_WHOLE_PARTITION = ""


def on_loaded(state: TransactionsState, call: Call) -> list[Result]:
    """What was decided is carried out. What is open has until its timeout, as its first coordinator counted it."""
    results: list[Result] = []
    for transaction in state.transactions.values():
        if transaction.state.is_prepared:
            results.append(owe_markers(state, transaction.transactional_id))
        elif transaction.state is TransactionState.ONGOING:
            left_ms = transaction.start_ms + transaction.timeout_ms - call.now_ms
            left_ms = max(0, min(left_ms, transaction.timeout_ms))  # A clock may be wrong, but no more than that.
            state.deadlines.set(("abort", transaction.transactional_id), call.monotonic_ms + left_ms)
    _expire_later(state, call)
    return results


def on_due(state: TransactionsState, call: Call, due: Due) -> Result:
    what, transactional_id = due
    match what:
        case "abort":
            return _abort(state, call, transactional_id)
        case "waiters":
            return Result(
                answers=[
                    (caller, refuse(request, caller.api_version, ErrorCode.CONCURRENT_TRANSACTIONS))
                    for caller, request in state.take_waiters(transactional_id)
                ]
            )
        case _:
            state.work["expiry"] = partial(_expire, state)
            _expire_later(state, call)
            return Result()


def _abort(state: TransactionsState, call: Call, transactional_id: str) -> Result:
    transaction = state.transactions.get(transactional_id)
    if transaction is None or transaction.state is not TransactionState.ONGOING:
        return Result()
    try:
        result = decide_abort(state, call, transaction)
    except KafkaError:
        state.deadlines.set(("abort", transactional_id), call.monotonic_ms + _RETRY_MS)
        return Result()
    _log.info(
        "a transaction has timed out and is aborted",
        transactional_id=transactional_id,
        producer_id=transaction.producer_id,
        timeout_ms=transaction.timeout_ms,
    )
    return result


def _expire_later(state: TransactionsState, call: Call) -> None:
    interval_ms = call.config.transaction_remove_expired_transaction_cleanup_interval_ms
    state.deadlines.set(("expiry", _WHOLE_PARTITION), call.monotonic_ms + interval_ms)


def _expire(state: TransactionsState, call: Call) -> Steps:
    """Looks for ids that have been idle for transactional.id.expiration.ms."""
    idle: deque[str] = deque()
    for number, transaction in enumerate(list(state.transactions.values())):
        if _is_idle(call, transaction):
            idle.append(transaction.transactional_id)
        if number % _IDS_PER_STEP == _IDS_PER_STEP - 1:
            yield
    return _bury(state, call, idle)


def _is_idle(call: Call, transaction: Transaction) -> bool:
    last_ms = call.now_ms - call.config.transactional_id_expiration_ms
    return transaction.state.is_at_rest and transaction.updated_ms <= last_ms


def _bury(state: TransactionsState, call: Call, idle: deque[str]) -> Result:
    """Tombstones of as many as one batch takes. The others are the next piece of work."""
    records: list[StoredRecord] = []
    left = _TOMBSTONES_MAX_CHARACTERS
    while idle and left > 0 and len(records) < _IDS_PER_STEP:
        transaction = state.transactions.get(idle.popleft())
        if transaction is not None and _is_idle(call, transaction):  # It may have been used since it was found.
            left -= len(transaction.transactional_id)
            records.append(transaction.tombstone())
    if idle:
        state.work["expiry"] = partial(_bury_more, state, idle)
    return Result(records)


def _bury_more(state: TransactionsState, idle: deque[str], call: Call) -> Steps:
    yield
    return _bury(state, call, idle)
