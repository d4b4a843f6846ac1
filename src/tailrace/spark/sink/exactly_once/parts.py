"""The transactions of parts, seen from outside: are they open, how have they ended, and ending them.

A part that was committed is known by its evidence: the transaction itself commits an offset, batch + 1, for a group of
its own name. Whatever else is forgotten, the two are there together or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from tailrace.client.groups.admin import GroupAdmin
from tailrace.client.lanes import ProducerIdentity
from tailrace.client.metadata import Cluster
from tailrace.client.transactions.admin import DescribedTransaction, TransactionAdmin
from tailrace.client.transactions.ending import SUPERSEDED, end_transaction
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.spark.sink.exactly_once.decision import Decision, ExactlyOnceError, Fingerprint, Part
from tailrace.spark.sink.exactly_once.names import Names
from tailrace.spark.sink.exactly_once.settings import ExactlyOnceSettings

T = TypeVar("T")

_ONGOING = "Ongoing"


class Parts:
    def __init__(self, cluster: Cluster, settings: ExactlyOnceSettings, names: Names) -> None:
        self._cluster = cluster
        self._settings = settings
        self._names = names
        self._admin = TransactionAdmin(cluster)

    @property
    def evidence(self) -> TopicPartition:
        """What the offset is committed of: brokers ask that it exists, and nothing else."""
        return TopicPartition(self._settings.decision_topic, PartitionIndex(0))

    async def check_open(self, parts: Iterable[Part]) -> None:
        """Raises ExactlyOnceError unless each can still be committed, and has enough time left for it."""
        await self._each(parts, self._check_open)

    async def settle(self, decision: Decision) -> list[int]:
        """Commits what was decided and is still open. The indexes of the parts that are lost: they were aborted."""

        async def settle(part: Part) -> int | None:
            return None if await self.is_committed(part, decision) else part.index

        return [index for index in await self._each(decision.parts, settle) if index is not None]

    async def is_committed(self, part: Part, decision: Decision) -> bool:
        """Whether a part that was decided on is committed; one that is still open is committed now. This is final."""
        try:
            await self._end(part, committed=True)
        except KafkaError as error:
            if error.code not in SUPERSEDED:
                raise
            # An earlier end, whichever it was, is complete: another producer would not have got the id before.
            return await self._has_evidence(part, decision)
        return True

    async def commit(self, decision: Decision) -> None:
        """Raises ExactlyOnceError if a part was lost since it was checked."""
        lost = await self.settle(decision)
        if lost:
            raise ExactlyOnceError(
                f"{len(lost)} of {len(decision.parts)} parts of batch {decision.batch} were decided on, and aborted "
                f"before they were committed (the first is {self._names.part(lost[0])}): the brokers did not answer "
                "for longer than kafka.transaction.timeout.ms, or another run of this query goes on. A restart writes "
                "them again"
            )

    async def abort(self, parts: Iterable[Part]) -> None:
        """Those that are still open."""

        async def abort(part: Part) -> None:
            try:
                await self._end(part, committed=False)
            except KafkaError as error:
                if error.code not in SUPERSEDED:
                    raise

        await self._each(parts, abort)

    async def abort_orphans(self) -> None:
        """What tasks that died have left open: it holds up readers until its time is over. Call this when no other part
        of the scope is to be committed."""
        orphans = []
        for listed in await self._admin.transactions(states=[_ONGOING]):
            index = self._names.part_index(listed.transactional_id)
            orphan = None if index is None else await self._find(listed.transactional_id)
            if index is not None and orphan is not None and orphan.state == _ONGOING:
                identity = ProducerIdentity(orphan.producer_id, orphan.producer_epoch)
                orphans.append(Part(index, identity, Fingerprint()))
        await self.abort(orphans)

    async def _check_open(self, part: Part) -> None:
        name = self._names.part(part.index)
        transaction = await self._find(name)
        if transaction is None or not _is_open(transaction, part.identity):
            raise ExactlyOnceError(
                f"the transaction of {name} is not open any more: it took longer than "
                f"{self._settings.timeout_ms} ms (raise kafka.transaction.timeout.ms), or another attempt of the task "
                "has begun since (spark.speculation brings that about). Nothing of the batch is committed; a restart "
                "writes it again"
            )
        left_ms = transaction.start_ms + transaction.timeout_ms - self._cluster.ports.clock.wall_ms()
        if left_ms < transaction.timeout_ms / 2:
            raise ExactlyOnceError(
                f"the transaction of {name} has {left_ms} of its {transaction.timeout_ms} ms left, less than half, "
                "which is too little to commit the batch safely. Raise kafka.transaction.timeout.ms, make batches "
                "smaller, or set the clock right if it differs from the brokers'. Nothing of the batch is committed; "
                "a restart writes it again"
            )

    async def _has_evidence(self, part: Part, decision: Decision) -> bool:
        name = self._names.part(part.index)
        # Not the stable offset: a newer attempt may have one pending, and this part's own was settled by its markers.
        found = await GroupAdmin(self._cluster).offsets_of(
            name, lambda offsets: offsets.fetch([self.evidence], require_stable=False)
        )
        if self.evidence in found:
            return found[self.evidence].offset > decision.batch
        age_ms = self._cluster.ports.clock.wall_ms() - decision.decided_ms
        if age_ms > self._settings.evidence_age_ms_max:
            raise ExactlyOnceError(
                f"whether {name} was committed in batch {decision.batch} cannot be told any more: it was decided on "
                f"{age_ms // 3_600_000} hours ago, and brokers may have forgotten its evidence, the offset of group "
                f"{name}, since. Look into the topics; a new checkpoint that starts before or after the batch goes on"
            )
        return False

    async def _find(self, transactional_id: str) -> DescribedTransaction | None:
        try:
            return await self._admin.describe(transactional_id)
        except KafkaError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            return None

    async def _end(self, part: Part, *, committed: bool) -> None:
        await end_transaction(
            self._cluster,
            self._names.part(part.index),
            part.identity,
            committed=committed,
            retry_timeout_ms=self._settings.retry_timeout_ms,
        )

    async def _each(self, parts: Iterable[Part], action: Callable[[Part], Awaitable[T]]) -> list[T]:
        """The results for all parts that have a transaction. The first failure is raised once all have ended."""
        room = asyncio.Semaphore(self._settings.parallelism)

        async def run(part: Part) -> T:
            async with room:
                return await action(part)

        results = await asyncio.gather(*(run(part) for part in parts if part.has_transaction), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if not isinstance(result, BaseException)]


def _is_open(transaction: DescribedTransaction, identity: ProducerIdentity) -> bool:
    found = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    return transaction.state == _ONGOING and found == identity
