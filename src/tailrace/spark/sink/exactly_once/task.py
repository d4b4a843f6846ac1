"""What a task does: it writes its part in a transaction that it leaves open for the driver, with the evidence inside.

Before it begins it asks whether the write was decided on before, by a driver that died since: to begin a transaction is
to abort the one that is open under the same id, which may be the very one that is to be committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from tailrace.client.groups.offsets import GroupMetadata
from tailrace.client.lanes import ANONYMOUS, Author, ProducerIdentity
from tailrace.client.metadata import Cluster
from tailrace.client.transactions.ending import SUPERSEDED
from tailrace.client.transactions.producer import TransactionalProducer, TransactionOptions
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.spark.blocking import BlockingCluster
from tailrace.spark.sink.exactly_once.decision import ExactlyOnceError, Part, Report
from tailrace.spark.sink.exactly_once.decision_log import DecisionLog
from tailrace.spark.sink.exactly_once.fingerprint import Fingerprints
from tailrace.spark.sink.exactly_once.names import Names
from tailrace.spark.sink.exactly_once.parts import Parts
from tailrace.spark.sink.exactly_once.settings import ExactlyOnceSettings

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Task:
    scope: str
    batch: int
    index: int


class TaskTransaction:
    """`is_done` comes first. If it is not, `begin`, write in the author's name, and `seal` or `give_up`."""

    def __init__(self, cluster: Cluster, settings: ExactlyOnceSettings, task: Task) -> None:
        self._cluster = cluster
        self._settings = settings
        self._task = task
        self._names = Names(settings.prefix, task.scope)
        self._parts = Parts(cluster, settings, self._names)
        self._producer = TransactionalProducer(
            cluster,
            TransactionOptions(
                self._names.part(task.index),
                timeout_ms=settings.timeout_ms,
                retry_timeout_ms=settings.retry_timeout_ms,
            ),
        )

    async def is_done(self) -> bool:
        """Whether this part needs no writing any more, after committing it if it was decided on and is still open."""
        decision = await DecisionLog(self._cluster, self._settings, self._names).read()
        if decision is None:
            return False
        decision.check_order(self._task.batch)
        if decision.batch < self._task.batch:
            return False
        if decision.is_finished:
            return True
        part = decision.part_of(self._task.index)
        return part is not None and await self._parts.is_committed(part, decision)

    async def begin(self) -> Author:
        """Fences every other attempt of this task, and aborts what it has written."""
        try:
            await self._producer.init()
        except KafkaError as error:
            if error.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise ExactlyOnceError(
                    f"the brokers do not take kafka.transaction.timeout.ms={self._settings.timeout_ms}: set it to no "
                    "more than their transaction.max.timeout.ms"
                ) from error
            raise
        self._producer.begin()
        if not self._producer.is_epoch_raised_by_end:
            raise ExactlyOnceError(
                "exactlyOnce needs brokers with transaction.version 2, where a commit can safely be sent again by "
                "somebody else: Kafka 4.0 or newer, with the feature finalized (kafka-features.sh upgrade --feature "
                "transaction.version=2), or Tailrace. Otherwise leave exactlyOnce out"
            )
        return self._producer

    async def seal(self) -> ProducerIdentity:
        """Once everything is acknowledged. The transaction stays open: from here on it is the driver's."""
        group = GroupMetadata(self._names.part(self._task.index))
        await self._producer.send_offsets({self._parts.evidence: self._task.batch + 1}, group)
        identity = self._producer.identity
        self._producer.close()
        return identity

    def ended_by_others(self) -> ExactlyOnceError:
        return ExactlyOnceError(
            f"the transaction of {self._names.part(self._task.index)} was aborted in mid-write: it took longer than "
            f"{self._settings.timeout_ms} ms (raise kafka.transaction.timeout.ms, or make batches smaller), or another "
            "attempt of the task has begun since. Nothing of this attempt is visible"
        )

    async def give_up(self) -> None:
        """So that readers need not wait until its time is over. The failure that led here is the one to be told."""
        with suppress(KafkaError, TimeoutError):
            await asyncio.wait_for(self._producer.abort(), self._settings.abort_timeout_ms / 1000)
        self._producer.close()


class WriteRows(Protocol):
    """Writes all rows in the author's name, and returns once they are acknowledged."""

    def __call__(self, rows: Iterator[pa.RecordBatch], blocking: BlockingCluster, author: Author) -> object: ...


def write_part(
    rows: Iterator[pa.RecordBatch],
    blocking: BlockingCluster,
    settings: ExactlyOnceSettings,
    task: Task,
    write_rows: WriteRows,
) -> Report:
    fingerprints = Fingerprints()
    watched = fingerprints.watch(rows)
    transaction = TaskTransaction(blocking.cluster, settings, task)
    is_done = blocking.run(transaction.is_done())
    first = None if is_done else next((batch for batch in watched if batch.num_rows), None)
    identity = ANONYMOUS
    if first is not None:
        try:
            author = blocking.run(transaction.begin())
            write_rows(chain([first], watched), blocking, author)
            identity = blocking.run(transaction.seal())
        except BaseException as error:
            blocking.run(transaction.give_up())
            if isinstance(error, KafkaError) and error.code in SUPERSEDED:
                raise transaction.ended_by_others() from error
            raise
    for _ in watched:
        pass  # Not written: but the driver may have to know whether they are the rows of the last time.
    return Report(Part(task.index, identity, fingerprints.fingerprint), has_written=not is_done)
