"""DeleteRecords, on the leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.replica.leading.mirrors import refuse_writes
from tailrace.replica.repair.failures import storage_failure

if TYPE_CHECKING:
    from tailrace.replica.partition import Partition


def delete_records(partition: Partition, offset: int) -> int:
    """Moves the log start; -1 means the high watermark. Returns where it is."""
    partition.check_leader()
    refuse_writes(partition)
    wanted = partition.high_watermark if offset == -1 else offset
    if not 0 <= wanted <= partition.high_watermark:
        why = f"Offset {offset} of {partition.topic_partition} is above its high watermark {partition.high_watermark}"
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, why)
    if "delete" not in partition.log.config.cleanup_policy:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Records of {partition.topic_partition} cannot be deleted: its cleanup.policy does not include delete",
        )
    try:
        (partition.tier or partition.log).advance_start(wanted)
        partition.readers.tell()  # Followers are to hear of it too.
    except StorageError as error:
        raise storage_failure(partition.log, error) from error
    return partition.log_start_offset
