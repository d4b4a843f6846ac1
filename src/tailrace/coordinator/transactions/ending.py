"""EndTxn, and what follows from it: the decision, its markers, the completion.

A decision is committed before the first marker is written, and what is committed is carried out: whoever coordinates
the id finds it in a PREPARE state and owes its markers. Once all are written the transaction is complete, and those who
have waited for that go on: who asks again, and who ends the next transaction, whose epoch the decision has handed out.

Version notes: from 5 on (KIP-890) the client gets the epoch, or id, of its next transaction with the answer, and may
abort a transaction that has not begun. A request that was sent again is told from a new one by its epoch.
"""

from __future__ import annotations

from tailrace.coordinator.op import Call, Caller, Result
from tailrace.coordinator.transactions.state import (
    TRANSACTION_VERSION,
    TransactionsState,
    fenced,
    wrong_producer,
)
from tailrace.coordinator.transactions.transaction import (
    LAST_EPOCH,
    VERSION_WITH_EPOCH_BUMP,
    Transaction,
    TransactionState,
)
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NO_PRODUCER_ID
from tailrace.wire.apis.transactions import EndTxnRequest, EndTxnResponse, WriteTxnMarkersRequest

_FIRST_VERSION_WITH_EPOCH_BUMP = 5


def end_transaction(state: TransactionsState, call: Call, caller: Caller, request: EndTxnRequest) -> Result:
    transaction = state.find(request.transactional_id)
    bumps = caller.api_version >= _FIRST_VERSION_WITH_EPOCH_BUMP
    if bumps and state.is_ending(request.transactional_id):
        return state.wait_for_end(call, caller, request, request.transactional_id)
    is_again = bumps and _is_sent_again(transaction, request)
    _check_producer(transaction, request, is_again=is_again)
    match transaction.state:
        case TransactionState.PREPARE_COMMIT | TransactionState.PREPARE_ABORT:
            return state.wait_for_end(call, caller, request, request.transactional_id)
        case TransactionState.COMPLETE_COMMIT | TransactionState.COMPLETE_ABORT if is_again or not bumps:
            _check_same(transaction, request)
            return Result(answers=[(caller, _respond(transaction))])
        case TransactionState.ONGOING:
            pass
        case _ if request.committed or not bumps:
            raise _nothing_to_end(transaction, request)
    decided = _decide(state, call, transaction, is_commit=request.committed, bumps=bumps)
    return _store_decision(state, call, decided, answers=((caller, _respond(decided.completed(now_ms=0))),))


def decide_abort(state: TransactionsState, call: Call, transaction: Transaction) -> Result:
    """Not by the client: its transaction has timed out, or another instance takes over. Its epoch is fenced."""
    bumps = call.image.features.get(TRANSACTION_VERSION, 0) >= VERSION_WITH_EPOCH_BUMP
    if not bumps:
        # The decision does not raise the epoch by itself.
        transaction = transaction._replace(
            producer_epoch=min(transaction.producer_epoch + 1, LAST_EPOCH + 1), last_producer_epoch=-1
        )
    decided = _decide(state, call, transaction, is_commit=False, bumps=bumps)
    return _store_decision(state, call, decided)


def owe_markers(state: TransactionsState, transactional_id: str) -> Result:
    """The markers of a decision that was found on the log, or that could not be begun when it was made."""
    transaction = state.transactions.get(transactional_id)
    if transaction is None or not transaction.state.is_prepared:
        return Result()
    return Result(answers=[(state.owe_markers(transactional_id), _markers(transaction))])


def complete(state: TransactionsState, call: Call, transactional_id: str, *, producer_id: int, epoch: int) -> Result:
    """All markers of the decision that had this producer id and epoch are written."""
    transaction = state.transactions.get(transactional_id)
    if transaction is None or not transaction.state.is_prepared:
        return Result()
    if (transaction.producer_id, transaction.producer_epoch) != (producer_id, epoch):
        return Result()
    if transactional_id in state.waiters:
        state.deadlines.set(("resume", transactional_id), call.monotonic_ms)
    return Result([state.store(call, transaction.completed(now_ms=call.now_ms))])


def _is_sent_again(transaction: Transaction, request: EndTxnRequest) -> bool:
    """Its epoch was raised by the decision that it asks for; or its id was changed, since there was no epoch left. A
    decision for an older client has raised nothing: then the epoch after its own was given to somebody else."""
    if transaction.client_version < VERSION_WITH_EPOCH_BUMP:
        return False
    return transaction.producer_epoch == request.producer_epoch + 1 or (
        transaction.producer_epoch == 0
        and transaction.previous_producer_id == request.producer_id
        and request.producer_epoch == LAST_EPOCH
    )


def _check_producer(transaction: Transaction, request: EndTxnRequest, *, is_again: bool) -> None:
    has_rotated = is_again and transaction.producer_epoch == 0
    if transaction.producer_id != request.producer_id and not has_rotated:
        raise wrong_producer(transaction, request.producer_id)
    is_complete = transaction.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    if transaction.producer_epoch != request.producer_epoch and not (is_again and is_complete):
        raise fenced(transaction, request.producer_epoch)


def _check_same(transaction: Transaction, request: EndTxnRequest) -> None:
    if (transaction.state is TransactionState.COMPLETE_COMMIT) != request.committed:
        raise _nothing_to_end(transaction, request)


def _nothing_to_end(transaction: Transaction, request: EndTxnRequest) -> KafkaError:
    wanted = "committed" if request.committed else "aborted"
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"The transaction of {transaction.transactional_id} cannot be {wanted}: its state is {transaction.state.title}",
    )


def _decide(
    state: TransactionsState, call: Call, transaction: Transaction, *, is_commit: bool, bumps: bool
) -> Transaction:
    needs_id = bumps and transaction.is_epoch_exhausted
    return transaction.decided(
        is_commit=is_commit,
        now_ms=call.now_ms,
        client_version=VERSION_WITH_EPOCH_BUMP if bumps else 0,
        next_producer_id=state.take_producer_id() if needs_id else NO_PRODUCER_ID,
    )


def _store_decision(
    state: TransactionsState, call: Call, decided: Transaction, answers: tuple[tuple[Caller, EndTxnResponse], ...] = ()
) -> Result:
    state.deadlines.cancel(("abort", decided.transactional_id))
    owed = state.owe_markers(decided.transactional_id), _markers(decided)
    return Result([state.store(call, decided)], [*answers, owed])


def _markers(decided: Transaction) -> WriteTxnMarkersRequest:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(decided.partitions):
        topics.setdefault(topic, []).append(index)
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=decided.producer_id,
        producer_epoch=decided.producer_epoch,
        transaction_result=decided.state is TransactionState.PREPARE_COMMIT,
        topics=[
            WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
            for topic, indexes in topics.items()
        ],
        transaction_version=decided.client_version,
    )
    return WriteTxnMarkersRequest(markers=[marker])


def _respond(transaction: Transaction) -> EndTxnResponse:
    return EndTxnResponse(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch)
