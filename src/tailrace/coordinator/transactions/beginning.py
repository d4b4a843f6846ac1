"""InitProducerId: a transactional id gets its producer, and whoever had it before is fenced.

A producer that is sure of its id and epoch may name them (KIP-360), and gets the next epoch only if nobody else has
been given it meanwhile; if it did not get the answer, the same request gives the same answer. An open transaction of
the earlier instance is aborted first.
"""

from __future__ import annotations

from tailrace.coordinator.op import Call, Caller, Result
from tailrace.coordinator.transactions.ending import decide_abort
from tailrace.coordinator.transactions.state import TransactionsState, fenced, wrong_producer
from tailrace.coordinator.transactions.transaction import LAST_EPOCH, Transaction, TransactionState
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tailrace.wire.apis.transactions import InitProducerIdRequest, InitProducerIdResponse


def init_producer_id(state: TransactionsState, call: Call, caller: Caller, request: InitProducerIdRequest) -> Result:
    _check(call, request)
    transactional_id = request.transactional_id
    assert transactional_id, "an idempotent producer needs no coordinator"
    transaction = state.transactions.get(transactional_id)
    if transaction is None:
        return _give(state, call, caller, _first(state, transactional_id), request)
    if state.is_ending(transactional_id):
        return state.wait_for_end(call, caller, request, transactional_id)
    _check_expected(transaction, request)
    if transaction.state is TransactionState.ONGOING:
        if _is_expected(request) and request.producer_epoch < transaction.producer_epoch:
            raise fenced(transaction, request.producer_epoch)
        result = decide_abort(state, call, transaction)
        # The epoch that fences is given to nobody: the client comes again, and gets the next one.
        response = InitProducerIdResponse(error_code=int(ErrorCode.CONCURRENT_TRANSACTIONS), producer_epoch=-1)
        return result._replace(answers=(*result.answers, (caller, response)))
    return _give(state, call, caller, _next(state, transaction, request), request)


def _check(call: Call, request: InitProducerIdRequest) -> None:
    longest_ms = call.config.transaction_max_timeout_ms
    if not 0 < request.transaction_timeout_ms <= longest_ms:
        raise KafkaError(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"A transaction timeout of {request.transaction_timeout_ms} ms is not within 1 and "
            f"transaction.max.timeout.ms={longest_ms}",
        )
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A producer names both its id and its epoch, or neither")


def _is_expected(request: InitProducerIdRequest) -> bool:
    return request.producer_id != NO_PRODUCER_ID


def _check_expected(transaction: Transaction, request: InitProducerIdRequest) -> None:
    if not _is_expected(request) or request.producer_id == transaction.producer_id:
        return
    # It may have sent this before, and not heard that its epochs were used up and it was given a new id.
    if request.producer_id != transaction.previous_producer_id or request.producer_epoch < LAST_EPOCH:
        error = wrong_producer(transaction, request.producer_id)
        raise KafkaError(ErrorCode.PRODUCER_FENCED, error.message)


def _first(state: TransactionsState, transactional_id: str) -> Transaction:
    producer_id = state.take_producer_id()
    return Transaction(transactional_id, producer_id, 0, 0, previous_producer_id=producer_id)


def _next(state: TransactionsState, transaction: Transaction, request: InitProducerIdRequest) -> Transaction:
    """With the next epoch; with a new id where there is none left."""
    epoch, is_expected = transaction.producer_epoch, _is_expected(request)
    if is_expected and request.producer_epoch != epoch:
        if request.producer_epoch == transaction.last_producer_epoch:
            return transaction  # Sent again.
        raise fenced(transaction, request.producer_epoch)
    last_epoch = epoch if is_expected else NO_PRODUCER_EPOCH
    if transaction.is_epoch_exhausted:
        producer_id, epoch = state.take_producer_id(), NO_PRODUCER_EPOCH
    else:
        producer_id = transaction.producer_id
    return transaction._replace(
        producer_id=producer_id,
        producer_epoch=epoch + 1,
        last_producer_epoch=last_epoch,
        previous_producer_id=transaction.producer_id,
    )


def _give(
    state: TransactionsState, call: Call, caller: Caller, transaction: Transaction, request: InitProducerIdRequest
) -> Result:
    new = Transaction(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        request.transaction_timeout_ms,
        updated_ms=call.now_ms,
        previous_producer_id=transaction.previous_producer_id,
        client_version=transaction.client_version,
        last_producer_epoch=transaction.last_producer_epoch,
    )
    response = InitProducerIdResponse(producer_id=new.producer_id, producer_epoch=new.producer_epoch)
    return Result([state.store(call, new)], [(caller, response)])
