"""What clients are told of a log that cannot be used."""

from tailrace.log.log import Log
from tailrace.model.errors import ErrorCode, KafkaError, StorageError


def storage_failure(log: Log, cause: StorageError | AssertionError | None = None) -> KafkaError:
    """A failed assertion has left the log in doubt: it goes offline first."""
    if isinstance(cause, AssertionError):
        cause = log.give_up(cause)
    reason = str(cause) if cause is not None else log.files.offline_reason
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log of {log.topic_partition} cannot be used: {reason}")
