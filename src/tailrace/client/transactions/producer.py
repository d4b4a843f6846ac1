"""The transactional producer: what is sent between `begin` and `commit`, and the offsets that go with it, becomes
visible to readers of committed records together, or never.

    NEW --init--> READY --begin--> OPEN --commit--> COMMITTING --> READY
                                    |                   | refused: abortable
                                    v a send has failed v
                                  FAILED <--------------+
    OPEN, FAILED --abort--> ABORTING --> READY         any --fenced, or a fatal answer--> DEAD

COMMITTING and ABORTING last until the coordinator has said how the transaction ended; a call that has given up may be
repeated. Nothing is ever written under an epoch after a batch of it was abandoned: the coordinator raises the epoch
with the end of each transaction (KIP-890, transaction.version 2), or is asked to (KIP-360).

Version notes: with transaction.version 2 brokers add partitions and groups to the transaction themselves. Otherwise
they are added here first, and the versions that say "add" to a broker are not used.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterable
from contextlib import suppress
from enum import Enum, auto
from typing import NamedTuple

from tailrace.client.groups.offsets import GroupMetadata, Offsets
from tailrace.client.lanes import ACKS_ALL, Delivered, Headers, ProducerIdentity, ProducerOptions
from tailrace.client.metadata import Cluster
from tailrace.client.producer import Producer, Sendable
from tailrace.client.transactions.errors import AbortableError, FencedError, OutcomeUnknownError, TransactionError
from tailrace.client.transactions.requests import TransactionRequests
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition

_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_FATAL = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
# A leader that refuses an epoch, or a partition, may be behind: the coordinator will tell when it is asked to abort.
_FATAL_TO_BATCHES = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
_LOST_ID = frozenset({ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
# To a commit: the transaction is as it was.
_COMMIT_REFUSALS = frozenset(
    {ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)


class TransactionOptions(NamedTuple):
    transactional_id: str
    # The coordinator aborts a transaction that takes longer.
    timeout_ms: int = 60_000
    # How long requests to coordinators are repeated.
    retry_timeout_ms: int = 60_000
    # The highest transaction.version to use: below 2 it speaks the protocol of older clients, whatever the cluster has
    # finalized.
    version_max: int = 2
    # Always idempotent, with acks=-1.
    producing: ProducerOptions = ProducerOptions()


class _Phase(Enum):
    NEW = auto()
    READY = auto()
    OPEN = auto()
    FAILED = auto()
    COMMITTING = auto()
    ABORTING = auto()
    DEAD = auto()


class TransactionalProducer:
    """For one caller at a time. `init` it first and `close` it at the end; or use it as an async context manager, which
    aborts what is open on leaving."""

    def __init__(self, cluster: Cluster, options: TransactionOptions) -> None:
        self.options = options
        self.transactional_id = options.transactional_id
        self._requests = TransactionRequests(
            cluster,
            options.transactional_id,
            timeout_ms=options.timeout_ms,
            retry_timeout_ms=options.retry_timeout_ms,
            version_max=options.version_max,
        )
        self._producer = Producer(cluster, options.producing._replace(acks=ACKS_ALL, idempotent=True), author=self)
        self._phase = _Phase.NEW
        self._failure: TransactionError | None = None  # in the phases FAILED and DEAD
        # A batch, or offsets, may be on the way to a broker under the present epoch, though they were given up.
        self._needs_new_epoch = False

    async def __aenter__(self) -> TransactionalProducer:
        await self.init()
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(KafkaError):
            if self._phase in (_Phase.OPEN, _Phase.FAILED):
                await self.abort()
        self.close()

    @property
    def producer(self) -> Producer:
        """What its records go through."""
        return self._producer

    @property
    def identity(self) -> ProducerIdentity:
        """The producer id and epoch of the present transaction, or of the next."""
        return self._requests.identity

    @property
    def is_epoch_raised_by_end(self) -> bool:
        """Whether the present transaction is one of transaction.version 2: its end gives the next one a new epoch."""
        return self._requests.is_epoch_raised_by_end

    async def init(self) -> None:
        """Fences every other producer with this transactional id, and ends what the last one left open. Raises
        KafkaError; if it is a retriable one it may be called again."""
        self._check(_Phase.NEW)
        try:
            await self._requests.init()
        except KafkaError as error:
            if error.code.retriable:
                raise
            raise self._die(error) from None
        self._phase = _Phase.READY

    def begin(self) -> None:
        self._check(_Phase.READY)
        self._requests.begin()
        self._needs_new_epoch = False
        self._phase = _Phase.OPEN

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Future[Delivered]:
        """As of a plain producer. A record that fails makes the transaction fail."""
        self._check(_Phase.OPEN)
        return await self._producer.send(
            topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp
        )

    async def send_many(self, topic: str, records: Iterable[Sendable]) -> Future[int]:
        """As of a plain producer."""
        self._check(_Phase.OPEN)
        return await self._producer.send_many(topic, records)

    async def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        """They are committed, for the group, if the transaction is. Raises AbortableError if the member of the group is
        not what it says any more (KIP-447)."""
        self._check(_Phase.OPEN)
        if not offsets:
            return
        is_settled = False
        try:
            await self._requests.send_offsets(offsets, group)
            is_settled = True
        except KafkaError as error:
            raise self._fail(error) from None
        finally:
            self._needs_new_epoch |= not is_settled

    async def commit(self) -> None:
        """Once everything that was sent is acknowledged. Raises AbortableError, FencedError, OutcomeUnknownError."""
        self._check(_Phase.OPEN, _Phase.COMMITTING)
        if self._phase is _Phase.OPEN:
            await self._producer.flush()
            self._check(_Phase.OPEN)
            self._phase = _Phase.COMMITTING
        try:
            await self._requests.end(committed=True)
        except KafkaError as error:
            # Whoever was given a new id by a commit whose answer was lost, and fenced since, hears the same.
            is_known = error.code not in _LOST_ID or self._requests.commit_attempts <= 1
            if error.code in _COMMIT_REFUSALS and is_known:
                self._phase = _Phase.OPEN
                raise self._fail(error) from None
            raise self._judge_end(error) from None
        self._phase = _Phase.READY

    async def abort(self) -> None:
        """What is not acknowledged yet fails at once. Raises FencedError, OutcomeUnknownError."""
        self._check(_Phase.OPEN, _Phase.FAILED, _Phase.ABORTING)
        if self._phase is not _Phase.ABORTING:
            self._phase = _Phase.ABORTING
            message = "the transaction was aborted before this was acknowledged"
            self._needs_new_epoch |= self._producer.abandon(KafkaError(ErrorCode.TRANSACTION_ABORTABLE, message))
        try:
            is_ended = not self._has_lost_id and await self._end_aborted()
            if not is_ended or (self._needs_new_epoch and not self._requests.is_epoch_raised_by_end):
                await self._requests.init()
        except KafkaError as error:
            raise self._judge_end(error) from None
        self._failure = None
        self._phase = _Phase.READY

    async def _end_aborted(self) -> bool:
        """False if the coordinator does not know the id any more, or has given another one to somebody else: there is
        nothing to end, and it is asked for the next id, or refuses. So it is if the abort has come before the first
        partition was added, which may still be on its way, and must not begin anything."""
        try:
            await self._requests.end(committed=False)
        except KafkaError as error:
            has_not_begun = error.code is ErrorCode.INVALID_TXN_STATE and not self._requests.is_known
            if error.code not in _LOST_ID and not has_not_begun:
                raise
            return False
        return True

    def close(self) -> None:
        """At once. A transaction that is open stays so until its time is over, or another producer takes over."""
        self._phase = _Phase.DEAD
        self._failure = TransactionError(ErrorCode.INVALID_TXN_STATE, "the producer was closed")
        self._producer.close()
        self._requests.close()

    # --- as the author of batches

    @property
    def produce_version_max(self) -> int:
        return self._requests.produce_version_max

    def check_may_send(self) -> None:
        self._check(_Phase.OPEN)

    async def identify(self, partition: TopicPartition, *, has_failed: bool) -> ProducerIdentity:  # noqa: ARG002 - after a failure the epoch is another
        self._check(_Phase.OPEN)
        try:
            await self._requests.add_partition(partition)
        except KafkaError as error:
            raise self._fail(error) from None
        return self._requests.identity

    def note_failure(self, error: KafkaError) -> None:
        self._needs_new_epoch = True
        if self._phase is not _Phase.OPEN:
            return
        if error.code in _FATAL_TO_BATCHES:
            self._die(error)
        else:
            self._fail_transaction(error)

    # --- phases

    @property
    def _has_lost_id(self) -> bool:
        """The coordinator has forgotten the id (transactional.id.expiration.ms): there is nothing to end."""
        failure = self._failure
        return isinstance(failure, AbortableError) and failure.cause_code is ErrorCode.INVALID_PRODUCER_ID_MAPPING

    def _check(self, *allowed: _Phase) -> None:
        if self._phase in allowed:
            return
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"this is not the time for that: the producer {self.transactional_id} is {self._phase.name.lower()}",
        )

    def _judge_end(self, error: KafkaError) -> TransactionError:
        if error.code in _FENCED or error.code in _FATAL or error.code in _LOST_ID:
            return self._die(error, is_undecided=self._requests.commit_attempts > 1)
        message = f"how the transaction of {self.transactional_id} ended is not known: {error}"
        return OutcomeUnknownError(message, is_undecided=self._phase is _Phase.COMMITTING)

    def _fail(self, error: KafkaError) -> TransactionError:
        """The error to raise after a request to a coordinator failed. It ends the producer or the transaction alone."""
        if error.code in _FENCED or error.code in _FATAL:
            return self._die(error)
        return self._fail_transaction(error)

    def _fail_transaction(self, error: KafkaError) -> TransactionError:
        if self._failure is not None:
            return self._failure
        message = f"the transaction of {self.transactional_id} has to be aborted: {error}"
        self._failure = failure = AbortableError(message, error.code)
        self._phase = _Phase.FAILED
        return failure

    def _die(self, error: KafkaError, *, is_undecided: bool = False) -> TransactionError:
        self._phase = _Phase.DEAD
        if error.code in _FENCED:
            message = (
                f"another producer has taken over the transactional id {self.transactional_id}, or the transaction "
                f"took longer than {self.options.timeout_ms} ms: {error}"
            )
            self._failure = FencedError(ErrorCode.PRODUCER_FENCED, message, is_undecided=is_undecided)
        else:
            message = f"the producer {self.transactional_id} cannot go on: {error}"
            self._failure = TransactionError(error.code, message, is_undecided=is_undecided)
        return self._failure
