"""Answers to records that another attempt would not change: somebody has to do something. Pure."""

from __future__ import annotations

from tailrace.client.transactions.errors import AbortableError
from tailrace.model.errors import ErrorCode, KafkaError

# Of one record, or the topic that it goes to.
_RECORD_REFUSED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.POLICY_VIOLATION,
    }
)


def cause_of(error: KafkaError) -> ErrorCode:
    """What a transaction failed with, too."""
    return error.cause_code if isinstance(error, AbortableError) else error.code


def is_record_refused(error: KafkaError) -> bool:
    return cause_of(error) in _RECORD_REFUSED
