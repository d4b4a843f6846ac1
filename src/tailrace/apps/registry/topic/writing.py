"""Records appended by one registry at a time.

Who takes over asks for a producer id under a transactional id that all registries of a group share, which raises its
epoch, and appends a NOOP under it. From then on the partition refuses every batch of an older epoch, so that a writer
who was replaced, and does not know it yet, cannot write. No transaction is ever begun: the batches are plain idempotent
ones, and no control record comes into the topic. What the old writer still appended before the NOOP is read before the
first decision.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.apps.registry.state.records import NOOP_KEY, Record
from tailrace.client.lanes import SEQUENCE_MODULUS, ProducerIdentity, ProducerOptions, produce_batch
from tailrace.client.metadata import Cluster
from tailrace.client.transactions.requests import TransactionRequests
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.wire.records import build_batch

# Another registry writes now.
FENCED = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
)
_PRODUCE_VERSION_MAX = 12
# Nothing is ever under way that it could end; Kafka wants a number below its transaction.max.timeout.ms.
_TRANSACTION_TIMEOUT_MS = 60_000


class _Plain:
    """The author of batches that belong to no transaction."""

    transactional_id = None
    produce_version_max = _PRODUCE_VERSION_MAX

    def check_may_send(self) -> None:
        pass

    async def identify(self, partition: TopicPartition, *, has_failed: bool) -> ProducerIdentity:
        raise NotImplementedError("the batches are built here")

    def note_failure(self, error: KafkaError) -> None:
        pass


class Writer:
    """One term of one writer: made when it is elected, and thrown away when it is not any more, or when a write has
    failed."""

    def __init__(self, cluster: Cluster, partition: TopicPartition, transactional_id: str, timeout_ms: int) -> None:
        self._cluster = cluster
        self._partition = partition
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._options = ProducerOptions(request_timeout_ms=timeout_ms, delivery_timeout_ms=timeout_ms)
        self._identity = ProducerIdentity(-1, -1)
        self._next_sequence = 0

    async def take_over(self) -> int:
        """The offset up to which the topic has to be read before anything is decided."""
        requests = TransactionRequests(
            self._cluster,
            self._transactional_id,
            timeout_ms=_TRANSACTION_TIMEOUT_MS,
            retry_timeout_ms=self._timeout_ms,
        )
        try:
            await requests.init()
        finally:
            requests.close()
        self._identity = requests.identity
        self._next_sequence = 0
        return await self.append([Record(NOOP_KEY, None)])

    async def append(self, records: Sequence[Record]) -> int:
        """The offset of the last of them. All are in one batch, so either all are there or none. After a KafkaError it
        is not known which."""
        now_ms = self._cluster.ports.clock.wall_ms()
        batch = build_batch(
            [(index, now_ms, record.key, record.value, ()) for index, record in enumerate(records)],
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=self._next_sequence,
        )
        self._next_sequence = (self._next_sequence + len(records)) % SEQUENCE_MODULUS

        async def attempt() -> int:
            result = await produce_batch(self._cluster, self._options, _Plain(), self._partition, batch)
            return result.base_offset

        offset = await self._cluster.with_retries(attempt, timeout_ms=self._timeout_ms)
        if offset < 0:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker does not tell where the records went")
        return offset + len(records) - 1
