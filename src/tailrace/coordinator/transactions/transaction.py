"""What is known of one transactional id. Never changed: a transition makes a new one, which goes to the log.

    from                            by                                           to
    -                               InitProducerId                               EMPTY
    EMPTY, COMPLETE_*               InitProducerId: a new epoch, or a new id     EMPTY
    EMPTY, COMPLETE_*               AddPartitionsToTxn, AddOffsetsToTxn          ONGOING
    ONGOING                         the same, for more partitions                ONGOING
    ONGOING                         EndTxn                                       PREPARE_COMMIT, PREPARE_ABORT
    ONGOING                         InitProducerId, the timeout: a new epoch     PREPARE_ABORT
    EMPTY, COMPLETE_*               EndTxn that aborts, of version 2             PREPARE_ABORT
    PREPARE_COMMIT, PREPARE_ABORT   the last marker is written                   COMPLETE_COMMIT, COMPLETE_ABORT
    EMPTY, COMPLETE_*               transactional.id.expiration.ms               - (a tombstone)

A PREPARE state is the decision: from there the transaction can only come to the COMPLETE state of the same kind,
whoever coordinates it. From version 2 on (KIP-890) the epoch is raised with the decision: markers carry the new one, so
that nothing of the old epoch can be written after them, and the next transaction begins with it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Self

from tailrace.coordinator.op import StoredRecord
from tailrace.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, PartitionIndex, TopicPartition
from tailrace.wire.apis.stored_records import TransactionLogKey, TransactionLogValue

# The largest epoch that a producer is given; the one above it is left for fencing it.
LAST_EPOCH = 32_766
NOT_STARTED = -1
# A client that speaks of version 2 knows that its epoch changes with every transaction.
VERSION_WITH_EPOCH_BUMP = 2
_VALUE_VERSIONS = (0, 1)


class TransactionState(IntEnum):
    """As stored. Kafka's names, as DescribeTransactions tells them, are those of `title`."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_at_rest(self) -> bool:
        return self in (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


class Transaction(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    # When it began, by the wall clock: the timeout counts from there.
    start_ms: int = NOT_STARTED
    updated_ms: int = NOT_STARTED
    # What it had before the last change of the id, and what it gets when this transaction is complete.
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    # The transaction version of the client that began or ended it.
    client_version: int = 0
    # The epoch before the last InitProducerId, which may be sent again (KIP-360). Not stored.
    last_producer_epoch: int = NO_PRODUCER_EPOCH

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_EPOCH

    def with_partitions(self, partitions: frozenset[TopicPartition], *, now_ms: int, client_version: int) -> Self:
        return self._replace(
            state=TransactionState.ONGOING,
            partitions=self.partitions | partitions,
            start_ms=now_ms if self.state.is_at_rest else self.start_ms,
            updated_ms=now_ms,
            client_version=client_version,
            previous_producer_id=self.producer_id,
        )

    def decided(self, *, is_commit: bool, now_ms: int, client_version: int, next_producer_id: int) -> Self:
        """The epoch of version 2 rises. What was ended before anything was added to it begins now."""
        bumps = client_version >= VERSION_WITH_EPOCH_BUMP
        return self._replace(
            state=TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
            producer_epoch=min(self.producer_epoch + bumps, LAST_EPOCH + 1),
            last_producer_epoch=self.producer_epoch if bumps else self.last_producer_epoch,
            start_ms=now_ms if self.state.is_at_rest else self.start_ms,
            updated_ms=now_ms,
            client_version=client_version,
            previous_producer_id=self.producer_id,
            next_producer_id=next_producer_id,
        )

    def completed(self, *, now_ms: int) -> Self:
        """All its markers are written."""
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        rotates = self.client_version >= VERSION_WITH_EPOCH_BUMP and self.next_producer_id != NO_PRODUCER_ID
        return self._replace(
            state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
            producer_id=self.next_producer_id if rotates else self.producer_id,
            producer_epoch=0 if rotates else self.producer_epoch,
            partitions=frozenset(),
            updated_ms=now_ms,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )

    # ---- the log

    def record(self, *, transaction_version: int) -> StoredRecord:
        """Kafka's form; the version of the value is that of the finalized feature transaction.version."""
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(self.partitions):
            topics.setdefault(topic, []).append(index)
        value = TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=int(self.state),
            transaction_partitions=None
            if self.state is TransactionState.EMPTY
            else [
                TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=indexes)
                for topic, indexes in topics.items()
            ],
            transaction_last_update_timestamp_ms=self.updated_ms,
            transaction_start_timestamp_ms=self.start_ms,
            client_transaction_version=self.client_version,
        )
        key = TransactionLogKey(transactional_id=self.transactional_id)
        return StoredRecord(key, value, _VALUE_VERSIONS[min(transaction_version, 1)])

    def tombstone(self) -> StoredRecord:
        return StoredRecord(TransactionLogKey(transactional_id=self.transactional_id), None)


def read_transaction(key: TransactionLogKey, value: TransactionLogValue, last_producer_epoch: int) -> Transaction:
    return Transaction(
        transactional_id=key.transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=frozenset(
            TopicPartition(each.topic, PartitionIndex(index))
            for each in value.transaction_partitions or ()
            for index in each.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
        last_producer_epoch=last_producer_epoch,
    )
