"""Transactional producers in a run: processes of their own, over our own client.

Several may have the same transactional id: the last one to begin fences the others. Each record names its producer, its
number and its transaction; what the producer asks and is told goes to `checks.transactions`.

The markers of a transaction are written after its producer was told of the end. So many begin the next one at once, and
end it while it has hardly begun; some begin anew with their id, and some ask for the same end once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from tailrace.client.groups.offsets import GroupMetadata
from tailrace.client.lanes import Delivered, ProducerOptions
from tailrace.client.metadata import Cluster
from tailrace.client.transactions.ending import SUPERSEDED, end_transaction
from tailrace.client.transactions.errors import AbortableError, OutcomeUnknownError, TransactionError
from tailrace.client.transactions.producer import TransactionalProducer, TransactionOptions
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.sim.checks.history import demand
from tailrace.sim.checks.transactions import Transaction, TransactionChecks
from tailrace.sim.clients.workload import Ledger
from tailrace.sim.loop import Process
from tailrace.sim.random import SimRandom
from tailrace.verify.recorder import Ending, Send

# It gives up soon, while what it has sent may be on its way still.
_PRODUCING = ProducerOptions(linger_ms=2, request_timeout_ms=1000, delivery_timeout_ms=3000, batch_bytes=2000)
# How long coordinators are asked again before a client says that it does not know.
_RETRY_MS = 6000
_RECORDS_MAX = 6
_ABORT_SHARE = 0.25
_OFFSETS_SHARE = 0.3
# The share of transactions that take longer than their timeout.
_SLOW_SHARE = 0.03
# The shares of transactions that begin right after the last one; that are aborted at once; in which nothing is sent;
# whose end is asked for once more, though it was answered; and after which the producer begins anew.
_AT_ONCE_SHARE = 0.5
_HASTY_SHARE = 0.25
_EMPTY_SHARE = 0.05
_AGAIN_SHARE = 0.1
_ANEW_SHARE = 0.03
_HASTY_SECONDS_MAX = 0.01
_PAUSE_SECONDS = 0.03
# Until what a coordinator has told is on its log.
_TOLD_SECONDS_MAX = 2.0
_VALUE_BYTES_MAX = 200
_RECORDED = (b"txn-", b"loop-")
# Another one has its id, or a new one in its place, or its transaction took too long: this one is done.
_FATAL = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


class Surroundings(NamedTuple):
    """What the transactional clients of a run share."""

    checks: TransactionChecks
    ledger: Ledger
    now: Callable[[], float]  # by the time of the world
    timeout_ms: int  # the transactions' timeout
    version_max: int  # the latest transaction.version that clients know


class Instance:
    """One process with a transactional id; another one may have the same. Ends when it is fenced or told to."""

    def __init__(
        self,
        process: Process,
        cluster: Cluster,
        surroundings: Surroundings,
        *,
        transactional_id: str,
        random: SimRandom,
    ) -> None:
        self.name = process.name
        self.process = process
        self.transactional_id = transactional_id
        self.is_leaving = False
        self.is_gone = False
        self._cluster = cluster
        self._checks, self._ledger, self._now = surroundings[:3]
        self._random = random
        self._number = 0
        self._transaction_number = 0
        self._transaction: Transaction | None = None
        self._sent_count = 0  # In this transaction.
        self._options = TransactionOptions(
            transactional_id,
            timeout_ms=surroundings.timeout_ms,
            retry_timeout_ms=_RETRY_MS,
            version_max=surroundings.version_max,
            producing=_PRODUCING,
        )
        self._producer: TransactionalProducer | None = None
        self._recorded = self._checks.recorder.process(self.name, isolation="read_committed")
        self.task = process.spawn(self._run(), name=process.name)

    def leave(self) -> None:
        """Once its transaction is over."""
        self.is_leaving = True

    def note_death(self) -> None:
        self.is_gone = True

    async def _run(self) -> None:
        producer = self._producer = TransactionalProducer(self._cluster, self._options)
        try:
            await self._init(producer)
            await self._live(producer)
        except TransactionError as error:
            demand(
                error.code in _FATAL and await self._is_superseded(),
                "a producer goes on unless it is fenced",
                producer=self.name,
                error=error,
                identity=self._producer.identity,
            )
        self._producer.close()
        await self._close()
        self._cluster.close()
        self.note_death()

    async def _is_superseded(self) -> bool:
        assert self._producer is not None, "it runs"
        end = self._now() + _TOLD_SECONDS_MAX
        while not (is_superseded := self._checks.is_superseded(self.transactional_id, self._producer.identity)):
            if self._now() > end:
                break
            await asyncio.sleep(_PAUSE_SECONDS)
        return is_superseded

    async def _init(self, producer: TransactionalProducer) -> None:
        while not self.is_leaving:
            try:
                await producer.init()
            except TransactionError:
                raise
            except KafkaError as error:
                demand(error.code.retriable, "producers meet errors that pass", producer=self.name, error=error)
            else:
                self._checks.note_identity(self.name, producer.identity)
                return

    async def _live(self, producer: TransactionalProducer) -> None:
        raise NotImplementedError

    async def _close(self) -> None:
        pass

    # ---- one transaction

    def _begin(self, producer: TransactionalProducer) -> Transaction:
        self._transaction_number += 1
        self._sent_count = 0
        producer.begin()
        self._recorded.begin()
        self._transaction = self._checks.begin(
            self.name, self._transaction_number, producer.identity, is_epoch_its_own=self._options.version_max > 1
        )
        return self._transaction

    async def _send(
        self, producer: TransactionalProducer, partition: TopicPartition, rest: bytes, recorded_value: str | None = None
    ) -> None:
        transaction = self._transaction
        assert transaction is not None, "it has begun"
        self._number += 1
        self._sent_count += 1
        value = b"%s:%d:%d:" % (self.name.encode(), self._number, transaction.number) + rest
        was_fenced = self._checks.is_fenced(transaction.identity)
        send = self._recorded.send(name_of(partition), recorded_value or text_of(value))
        try:
            delivered = await producer.send(partition.topic, value, partition=partition.partition)
        except KafkaError:
            send.info()
            raise
        delivered.add_done_callback(lambda future: self._note(future, transaction, send, value, was_fenced))

    def _note(
        self, delivered: asyncio.Future[Delivered], transaction: Transaction, send: Send, value: bytes, was_fenced: bool
    ) -> None:
        if delivered.cancelled() or delivered.exception() is not None:
            send.info()
            self._ledger.failed_count += 1
            return
        where = delivered.result()
        send.ok(where.offset if where.offset >= 0 else None)
        self._checks.judge_taken(transaction, "a record", was_fenced=was_fenced)
        self._ledger.note_acked(where, value, self._now())

    async def _commit(self, producer: TransactionalProducer) -> None:
        """Raises AbortableError if it could only be aborted, which is done; FencedError if this producer is done."""
        transaction = self._transaction
        assert transaction is not None, "it has begun"
        transaction.ask_to_commit()
        # Nobody is asked to commit nothing.
        was_fenced = self._sent_count > 0 and self._checks.is_fenced(transaction.identity)
        ending = self._recorded.commit()
        try:
            await self._insist(producer.commit)
        except AbortableError:
            # Refused: it is as if nobody had asked.
            transaction.is_asked_to_commit = False
            ending.fail()
            raise
        except TransactionError as error:
            self._note_undecided(transaction, ending, error)
            raise
        self._checks.judge_taken(transaction, "a commit", was_fenced=was_fenced)
        transaction.note_told(is_committed=True)
        ending.ok()

    def _note_undecided(self, transaction: Transaction, ending: Ending, error: TransactionError) -> None:
        if error.is_undecided:
            ending.info()
        else:
            transaction.is_asked_to_commit = False
            ending.fail()

    async def _abort(self, producer: TransactionalProducer) -> None:
        transaction = self._transaction
        assert transaction is not None, "it has begun"
        ending = self._recorded.abort()
        try:
            await self._insist(producer.abort)
        except TransactionError:
            ending.info()
            raise
        transaction.note_told(is_committed=False)
        ending.ok()

    async def _insist(self, end: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await end()
            except OutcomeUnknownError:
                continue
            return


class ProducerInstance(Instance):
    """Writes transactions over several partitions, some with offsets of a group that has no members."""

    def __init__(
        self,
        process: Process,
        cluster: Cluster,
        surroundings: Surroundings,
        partitions: Sequence[TopicPartition],
        *,
        transactional_id: str,
        random: SimRandom,
    ) -> None:
        self._partitions = list(partitions)
        super().__init__(process, cluster, surroundings, transactional_id=transactional_id, random=random)

    async def _live(self, producer: TransactionalProducer) -> None:
        while not self.is_leaving:
            transaction = self._begin(producer)
            try:
                is_hasty = await self._fill(producer)
                if is_hasty or self._random.random() < _ABORT_SHARE:
                    await self._abort(producer)
                else:
                    await self._commit(producer)
            except KafkaError as error:
                if isinstance(error, TransactionError) and not isinstance(error, AbortableError):
                    raise
                demand(_may_go_on(error), "producers meet errors that pass", producer=self.name, error=error)
                await self._abort(producer)
            if self._random.random() < _AGAIN_SHARE and producer.is_epoch_raised_by_end:
                await self._end_again(producer, transaction)
            if self._random.random() < _ANEW_SHARE:
                producer = await self._begin_anew(producer)
            if self._random.random() >= _AT_ONCE_SHARE:
                await self._pause()

    async def _end_again(self, producer: TransactionalProducer, transaction: Transaction) -> None:
        """As if the answer had been lost: it ends as it has, and not otherwise."""
        if producer.identity == transaction.identity:
            return  # The coordinator was not asked: nothing had been sent.
        for is_other_way in (False, True):
            committed = bool(transaction.told) != is_other_way
            try:
                await end_transaction(
                    self._cluster,
                    self.transactional_id,
                    transaction.identity,
                    committed=committed,
                    retry_timeout_ms=_RETRY_MS,
                )
            except KafkaError as error:
                is_expected = error.code.retriable or (
                    error.code in SUPERSEDED and (is_other_way or await self._is_superseded())
                )
            else:
                is_expected = not is_other_way
            demand(
                is_expected,
                "an end that is asked for again is what it was",
                producer=self.name,
                transaction=transaction,
                committed=committed,
            )

    async def _begin_anew(self, producer: TransactionalProducer) -> TransactionalProducer:
        """As an application that was restarted."""
        producer.close()
        producer = self._producer = TransactionalProducer(self._cluster, self._options)
        await self._init(producer)
        return producer

    async def _fill(self, producer: TransactionalProducer) -> bool:
        """Whether it is in haste to abort: what it has sent is still on its way."""
        if self._random.random() < _EMPTY_SHARE:
            return False
        if self._random.random() < _HASTY_SHARE:
            await self._send(producer, self._random.choice(self._partitions), b"")
            await asyncio.sleep(self._random.between(0, _HASTY_SECONDS_MAX))
            return True
        for _ in range(1 + self._random.randrange(_RECORDS_MAX)):
            await self._send(
                producer, self._random.choice(self._partitions), bytes(self._random.randrange(_VALUE_BYTES_MAX))
            )
            if self._random.random() < 0.5:
                await self._pause()
        if self._random.random() < _OFFSETS_SHARE:
            group_id = f"notes-of-{self.transactional_id}"
            await producer.send_offsets({self._partitions[0]: self._transaction_number}, GroupMetadata(group_id))
        if self._random.random() < _SLOW_SHARE:
            await asyncio.sleep(self._options.timeout_ms / 1000 * self._random.between(0.8, 1.5))
        return False

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.between(0, 2 * _PAUSE_SECONDS))


def _may_go_on(error: KafkaError) -> bool:
    """With the next transaction."""
    return isinstance(error, AbortableError) or error.code.retriable


def name_of(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def is_recorded(value: bytes | None) -> bool:
    """Whether the history has its producer: the plain ones are not part of it."""
    return value is not None and value.startswith(_RECORDED)


def text_of(value: bytes) -> str:
    """What tells a record from all others."""
    producer, number, _rest = value.split(b":", 2)
    return f"{producer.decode()}:{number.decode()}"
