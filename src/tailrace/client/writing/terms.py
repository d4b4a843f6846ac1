"""What whoever writes batches agrees on: how they are written, and in whose name."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from tailrace.model.errors import KafkaError
from tailrace.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from tailrace.wire.records import Compression

SEQUENCE_MODULUS = 1 << 31
ACKS_ALL = -1
ACKS_NONE = 0


class UnknownOutcomeError(KafkaError):
    """The records may have been written, and may not: an attempt to write them was not answered, or so that it tells
    nothing. Any other failure of a record says that it was not written."""


class ProducerOptions(NamedTuple):
    acks: int = ACKS_ALL
    idempotent: bool = True  # in effect only with acks=-1
    compression: Compression = Compression.NONE
    level: int | None = None
    linger_ms: float = 5
    batch_bytes: int = 256 * 1024
    buffer_bytes: int = 32 * 1024 * 1024
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    # Of one partition, up to five. With five, 2 of 30 simulated clusters had a record twice, and it is not known why.
    under_way_max: int = 1
    create_topics: bool = False


class ProducerIdentity(NamedTuple):
    producer_id: int
    producer_epoch: int


ANONYMOUS = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class Author(Protocol):
    """Under whose name the batches of all lanes are written."""

    @property
    def transactional_id(self) -> str | None: ...

    @property
    def produce_version_max(self) -> int: ...

    def check_may_send(self) -> None:
        """Raises KafkaError if a record that comes now must not be taken."""

    async def identify(self, partition: TopicPartition, *, has_failed: bool) -> ProducerIdentity:
        """Before each batch is built; `has_failed` if the one before it was given up: whether the broker has it is not
        known. Raises KafkaError if nothing may be written to this partition."""

    def note_failure(self, error: KafkaError) -> None:
        """A batch was given up."""
