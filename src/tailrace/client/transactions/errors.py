"""How a transaction goes wrong, by what its producer has to do next."""

from __future__ import annotations

from tailrace.model.errors import ErrorCode, KafkaError


class TransactionError(KafkaError):
    """This producer cannot go on: close it. Another one with the same transactional id may."""

    def __init__(self, code: ErrorCode, message: str, *, is_undecided: bool = False) -> None:
        super().__init__(code, message)
        # Whether the transaction was committed is not known: the coordinator was asked to, and its answer was lost.
        self.is_undecided = is_undecided


class FencedError(TransactionError):
    """Another producer with the same transactional id has taken over, or the coordinator has aborted a transaction
    that took too long: this producer is done."""


class AbortableError(TransactionError):
    """The transaction can only be aborted; the next one may succeed. `cause_code` tells what has failed."""

    def __init__(self, message: str, cause_code: ErrorCode) -> None:
        super().__init__(ErrorCode.TRANSACTION_ABORTABLE, message)
        self.cause_code = cause_code


class OutcomeUnknownError(TransactionError):
    """The coordinator did not answer in time: `commit`, or `abort`, again tells how it has ended."""

    def __init__(self, message: str, *, is_undecided: bool) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message, is_undecided=is_undecided)
