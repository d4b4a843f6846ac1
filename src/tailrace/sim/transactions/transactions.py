"""The transactions of a run: who writes them, who reads them, and what becomes of these processes.

Producers share few transactional ids, so that they fence each other. They and the loops come, stall and die at moments
that chance picks, while brokers do too. Once everything is healed, all transactions have to end within a bound, and all
input has to have its effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tailrace.client.consumer import Isolation
from tailrace.model.ids import TopicPartition
from tailrace.sim.checks.history import demand
from tailrace.sim.checks.transaction_state import TransactionStateChecks
from tailrace.sim.checks.transactions import TransactionChecks
from tailrace.sim.clients.workload import Clients, Ledger
from tailrace.sim.cluster import World
from tailrace.sim.random import SimRandom
from tailrace.sim.transactions.loops import LoopInstance
from tailrace.sim.transactions.producers import Instance, ProducerInstance, Surroundings
from tailrace.sim.transactions.readers import Reader

OUTPUT = "effects"
_PAUSE_SECONDS_MAX = 1.5
_STALL_SECONDS_MAX = 6.0
_LATENCY_MS_MAX = 1500
_INSTANCES_MAX = 4
_TIMEOUTS_MS = (1000, 2500, 6000)

# What makes transactions as quick as the rest of a run.
TRANSACTION_SETTINGS = {"transaction.state.log.num.partitions": "2"}


class TransactionPlan(NamedTuple):
    ids: int = 2
    producers: int = 3
    loops: int = 0
    output_partitions: int = 2
    timeout_ms: int = 2500
    is_classic: bool = False  # the group of the loops
    old_share: float = 0.0  # the share of clients that speak the protocol of version 1

    @classmethod
    def of(cls, random: SimRandom) -> TransactionPlan:
        ids = 1 + random.randrange(3)
        return cls(
            ids=ids,
            producers=ids + random.randrange(2),
            loops=random.choice((0, 1, 2, 2)),
            output_partitions=1 + random.randrange(3),
            timeout_ms=random.choice(_TIMEOUTS_MS),
            is_classic=random.random() < 0.5,
            old_share=random.choice((0.0, 0.0, 0.3, 1.0)),
        )

    def __str__(self) -> str:
        loops = f" and {self.loops} {'classic ' if self.is_classic else ''}loops" if self.loops else ""
        kind = f"{self.timeout_ms} ms, {self.old_share:.0%} old"
        return f"{self.producers} transactional producers with {self.ids} ids ({kind}){loops}"


class Transactions:
    def __init__(
        self,
        world: World,
        clients: Clients,
        ledger: Ledger,
        *,
        checks: TransactionChecks,
        state: TransactionStateChecks,
        plan: TransactionPlan | None,
        topics: Sequence[str],
        hosts: Sequence[str],
    ) -> None:
        """`hosts` are those of the brokers."""
        self.checks = checks
        self._world = world
        self._clients = clients
        self._ledger = ledger
        self._output_ledger = Ledger()  # Nobody else looks for what is there.
        self._output_ledger.on_acked = ledger.on_acked
        self._state = state
        self._plan = plan
        self._topics = tuple(topics)
        self._hosts = tuple(hosts)
        self._random = world.random.fork()
        self._partitions: list[TopicPartition] = []
        self._outputs: list[TopicPartition] = []
        self._instances: list[Instance] = []
        self._readers: list[Reader] = []
        self._stalls: list[asyncio.Task[None]] = []
        self._count = 0

    def start(self, partitions: Sequence[TopicPartition], outputs: Sequence[TopicPartition]) -> None:
        if self._plan is None:
            return
        self._partitions, self._outputs = list(partitions), list(outputs)
        for _ in range(self._plan.producers):
            self._start_producer()
        for _ in range(self._plan.loops):
            self._start_loop()
        for isolation in (Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED):
            self._start_reader(isolation)

    # ---- who is there

    def _start_producer(self) -> None:
        assert self._plan is not None, "asked for by the plan"
        self._count += 1
        process, cluster = self._clients.connect(f"txn-{self._count}")
        transactional_id = f"id-{self._random.randrange(self._plan.ids)}"
        self._note(process.name, f"begins as {transactional_id}")
        self._instances.append(
            ProducerInstance(
                process,
                cluster,
                self._surroundings(self._ledger),
                self._partitions,
                transactional_id=transactional_id,
                random=self._random.fork(),
            )
        )

    def _surroundings(self, ledger: Ledger) -> Surroundings:
        assert self._plan is not None, "asked for by the plan"
        plan = self._plan
        # Whoever takes over an id may be of another age than the one before.
        version_max = 1 if self._random.random() < plan.old_share else 2
        return Surroundings(self.checks, ledger, lambda: self._world.loop.now, plan.timeout_ms, version_max)

    def _start_loop(self) -> None:
        assert self._plan is not None, "asked for by the plan"
        self._count += 1
        process, cluster = self._clients.connect(f"loop-{self._count}")
        transactional_id = f"loop-id-{self._random.randrange(self._plan.loops + 1)}"
        self._note(process.name, f"begins as {transactional_id}")
        self._instances.append(
            LoopInstance(
                process,
                cluster,
                self._surroundings(self._output_ledger),
                self._topics,
                self._outputs,
                is_classic=self._plan.is_classic,
                transactional_id=transactional_id,
                random=self._random.fork(),
            )
        )

    def _start_reader(self, isolation: Isolation) -> Reader:
        self._count += 1
        process, cluster = self._clients.connect(f"{isolation.name.lower()}-{self._count}")
        reader = Reader(
            process,
            cluster,
            [*self._partitions, *self._outputs],
            isolation=isolation,
            outputs=self._outputs,
            checks=self.checks,
        )
        self._readers.append(reader)
        return reader

    def _alive(self) -> list[Instance]:
        self._instances = [each for each in self._instances if not each.is_gone]
        return self._instances

    # ---- what becomes of them

    async def disturb(self) -> None:
        """Until it is cancelled."""
        kinds: list[Callable[[], None]] = [self._add, self._add, self._kill, self._stall, self._slow, self._slow]
        while self._plan is not None:
            await asyncio.sleep(self._random.between(0, _PAUSE_SECONDS_MAX))
            self._fill_up()
            self._random.choice(kinds)()

    def heal(self) -> None:
        """Nobody stalls any more."""
        for stall in self._stalls:
            stall.cancel()
        for instance in self._alive():
            instance.process.resume()
        self._fill_up()

    def check(self) -> None:
        """A client that has found something wrong has ended."""
        for instance in self._instances:
            if instance.task.done() and not instance.is_gone:
                instance.task.result()
        for reader in self._readers:
            if reader.task.done():
                reader.task.result()
        for stall in self._stalls:
            if stall.done() and not stall.cancelled():
                stall.result()

    def _fill_up(self) -> None:
        """One that was fenced is started again, as a supervisor would."""
        if self._plan is not None:
            for _ in range(self._plan.ids - sum(isinstance(each, ProducerInstance) for each in self._alive())):
                self._start_producer()
        self._fill_up_loops()

    def _fill_up_loops(self) -> None:
        if self._plan is not None:
            for _ in range(min(1, self._plan.loops) - sum(isinstance(each, LoopInstance) for each in self._alive())):
                self._start_loop()

    def _add(self) -> None:
        assert self._plan is not None, "asked for by the plan"
        if len(self._alive()) < _INSTANCES_MAX:
            if self._plan.loops and self._random.random() < 0.5:
                self._start_loop()
            else:
                self._start_producer()

    def _kill(self) -> None:
        if (instance := self._pick()) is not None:
            self._note(instance.name, "dies")
            instance.process.kill()
            self._world.network.end_process(instance.process)
            instance.note_death()

    def _stall(self) -> None:
        if (instance := self._pick()) is not None:
            self._stalls.append(asyncio.ensure_future(self._stall_for_a_while(instance)))

    async def _stall_for_a_while(self, instance: Instance) -> None:
        self._note(instance.name, "stalls")
        instance.process.pause()
        await asyncio.sleep(self._random.between(0.2, _STALL_SECONDS_MAX))
        self._note(instance.name, "goes on")
        instance.process.resume()

    def _slow(self) -> None:
        """What it sends to one broker is late: others may speak of its transaction before it arrives."""
        if (instance := self._pick()) is not None:
            self._stalls.append(asyncio.ensure_future(self._slow_for_a_while(instance.name)))

    async def _slow_for_a_while(self, name: str) -> None:
        host = self._random.choice(self._hosts)
        latency_ms = self._random.between(50, _LATENCY_MS_MAX)
        self._note(name, f"reaches {host} in {latency_ms:.0f} ms")
        self._world.network.slow(name, host, latency_ms=latency_ms, bytes_per_ms=50)
        await asyncio.sleep(self._random.between(0.2, _STALL_SECONDS_MAX))
        self._world.network.slow(name, host)

    def _pick(self) -> Instance | None:
        able = [each for each in self._alive() if not each.process.is_paused]
        return self._random.choice(able) if able else None

    def _note(self, name: str, text: str) -> None:
        self._world.trace.note(name, text)

    # ---- in the end

    @property
    def timeout_seconds(self) -> float:
        return 0.0 if self._plan is None else self._plan.timeout_ms / 1000

    async def stop_producers(self, timeout_seconds: float) -> None:
        await self._stop([each for each in self._alive() if isinstance(each, ProducerInstance)], timeout_seconds)

    def under_way(self) -> list[str]:
        return [*self.checks.open_transactions(), *self._state.under_way()] if self._plan is not None else []

    def without_effect(self) -> list[str]:
        if self._plan is None or not self._plan.loops:
            return []
        self._fill_up_loops()
        return self.checks.without_effect(self._partitions)

    async def stop_loops(self, timeout_seconds: float) -> None:
        await self._stop(self._alive(), timeout_seconds)

    async def _stop(self, instances: Sequence[Instance], timeout_seconds: float) -> None:
        for instance in instances:
            instance.leave()
        if instances:
            _done, pending = await asyncio.wait([each.task for each in instances], timeout=timeout_seconds)
            demand(
                not pending, "transactional clients end in time", waiting=sorted(task.get_name() for task in pending)
            )
        for instance in instances:
            instance.task.result()

    def unread(self) -> list[str]:
        """Readers that are not at the end yet."""
        return [
            f"{reader.name} at {position} of {partition}"
            for reader in self._readers
            for partition, position in reader.positions.items()
            if partition in self.checks.logs and position < self.checks.logs[partition].end_offset
        ]

    def start_last_reader(self) -> None:
        """As somebody new sees it."""
        if self._plan is not None:
            self._start_reader(Isolation.READ_COMMITTED)

    async def finish(self) -> None:
        """Everything has been read."""
        if self._plan is None:
            return
        for reader in self._readers:
            reader.is_leaving = True
        await asyncio.wait([reader.task for reader in self._readers])
        self.check()
        self._readers[-1].note_drained()
        self.checks.judge_history()

    def story(self) -> str:
        return self.checks.story() if self._plan is not None else ""
