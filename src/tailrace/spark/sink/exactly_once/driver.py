"""What the driver does once all tasks have written: it decides, and carries the decision out.

Each step may be the last one that this driver makes. Whoever restarts the query finds what it left:

    step of `commit`                              a driver that dies before it leaves
    1 takes over the driver's transactional id    open parts: the tasks of the next run abort them, and write anew
    2 checks that each part is open, and in time  the same
    3 records the decision, in a transaction      the same; the record is aborted by step 1 of the next run, or in time
    4 commits each part                           a decision: parts that are open are committed by whoever finds it
    5 records that it is finished                 a decision whose parts are all committed, as their evidence tells

A driver that was thought dead is stopped at 3, by the step 1 of another; or finds at 2 that its parts were aborted.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from tailrace.client.metadata import Cluster
from tailrace.client.transactions.producer import TransactionalProducer, TransactionOptions
from tailrace.model.errors import KafkaError
from tailrace.spark.sink.exactly_once.decision import Decision, Report, decide_ending
from tailrace.spark.sink.exactly_once.decision_log import DecisionLog
from tailrace.spark.sink.exactly_once.names import Names
from tailrace.spark.sink.exactly_once.parts import Parts
from tailrace.spark.sink.exactly_once.settings import ExactlyOnceSettings


class Driver:
    """The driver of one run of a scope."""

    def __init__(self, cluster: Cluster, settings: ExactlyOnceSettings, *, scope: str, run: str) -> None:
        self._cluster = cluster
        self._settings = settings
        self._run = run
        self._names = Names(settings.prefix, scope)
        self._parts = Parts(cluster, settings, self._names)
        self._log = DecisionLog(cluster, settings, self._names)

    async def commit(self, batch: int, reports: Sequence[Report]) -> None:
        """Every part is committed when this returns. Raises ExactlyOnceError, or KafkaError: then `abort` is next, and
        the batch is to be written again, by this run or another."""
        async with TransactionalProducer(self._cluster, self._own_transaction) as producer:
            earlier = await self._log.read()
            decision = earlier if earlier is not None and earlier.batch == batch else None
            lost = await self._parts.settle(decision) if decision is not None and not decision.is_finished else []
            ending = decide_ending(earlier, reports, batch=batch, lost=lost)
            await self._parts.abort(ending.needless)
            if ending.parts:
                await self._parts.check_open(ending.written)
                decision = Decision(batch, self._run, self._cluster.ports.clock.wall_ms(), ending.parts)
                await self._log.write(decision, producer)
                await self._parts.commit(decision)
            if decision is not None and not decision.is_finished:
                await self._log.write(decision._replace(is_finished=True), producer)
            if earlier is None or earlier.run != self._run:
                # The batch is written, and must not fail for this: what stays open ends when its time is over.
                with suppress(KafkaError):
                    await self._parts.abort_orphans()

    @property
    def _own_transaction(self) -> TransactionOptions:
        return TransactionOptions(
            self._names.driver,
            timeout_ms=self._settings.decision_timeout_ms,
            retry_timeout_ms=self._settings.retry_timeout_ms,
        )

    async def abort(self, batch: int, reports: Sequence[Report]) -> None:
        """What was decided on stays: the next run commits it."""
        earlier = await self._log.read()
        decided = earlier.parts if earlier is not None and earlier.batch == batch else ()
        await self._parts.abort(report.part for report in reports if report.part not in decided)
