"""A run: a cluster, clients and faults, all of it decided by a seed.

start     nodes, topics, clients
faults    for some ten seconds of virtual time, while clients go on and every turn is checked
heal      then the cluster has to be available within a bound, and everything is checked in full
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tailrace.client.admin import Admin
from tailrace.client.metadata import Cluster
from tailrace.model.errors import KafkaError, StorageError
from tailrace.model.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from tailrace.sim.balancing import TOPIC as SKEWED_TOPIC
from tailrace.sim.balancing import Balancing
from tailrace.sim.checks.coordinators import CoordinatorChecks
from tailrace.sim.checks.final import FinalChecks
from tailrace.sim.checks.history import ViolationError, demand
from tailrace.sim.checks.leases import LeaseChecks, Progress
from tailrace.sim.checks.metadata import MetadataChecks
from tailrace.sim.checks.replicas import ReplicaChecks
from tailrace.sim.checks.transaction_state import TransactionStateChecks
from tailrace.sim.checks.transactions import TransactionChecks
from tailrace.sim.clients.operators import Operator
from tailrace.sim.clients.workload import Clients, Ledger, partitions_of
from tailrace.sim.cluster import SimCluster, World
from tailrace.sim.damage.damage import Damage
from tailrace.sim.doors.doors import Doors, node_login
from tailrace.sim.faults import Faults
from tailrace.sim.groups.groups import Groups
from tailrace.sim.loop import DeadError, Process, SimLoop, StuckError
from tailrace.sim.machines import MachineRun
from tailrace.sim.network import SimNetwork
from tailrace.sim.plan import Plan, nodes_of
from tailrace.sim.quotas import Quotas
from tailrace.sim.random import SimRandom
from tailrace.sim.rights.rights import Rights
from tailrace.sim.tier import TierRun
from tailrace.sim.trace import Trace
from tailrace.sim.transactions.transactions import OUTPUT, Transactions

_START_SECONDS_MAX = 30.0
_FULL_CHECK_SECONDS = 2.0
# Damage is drawn from a sequence of its own: the rest of a run begins as it would without.
_DAMAGE_SEED_MASK = 0x64616D616765
_RIGHTS_SEED_MASK = 0x726967687473
_LOGINS_SEED_MASK = 0x6C6F67696E73
_BALANCER_SEED_MASK = 0x62616C616E6365
_TIER_SEED_MASK = 0x74696572


@dataclass
class Outcome:
    seed: int
    digest: str
    turns: int
    virtual_seconds: float
    story: str  # what was acked, read and so on, in words
    failure: str | None = None
    lines: list[str] = field(default_factory=list)
    has_damage: bool = False
    has_rights: bool = False
    has_logins: bool = False
    has_tier: bool = False
    has_machines: bool = False

    @property
    def command(self) -> str:
        """What runs it again."""
        kinds = {
            "damage": self.has_damage,
            "rights": self.has_rights and not self.has_logins,
            "logins": self.has_logins,
            "tier": self.has_tier,
            "machines": self.has_machines,
        }
        options = "".join(f" --{kind}" for kind, is_there in kinds.items() if is_there)
        return f"tailrace sim {self.seed}{options}"


class Scenario:
    def __init__(
        self,
        seed: int,
        *,
        has_damage: bool = False,
        has_rights: bool = False,
        has_logins: bool = False,
        has_tier: bool = False,
        has_machines: bool = False,
        echo: Callable[[str], None] | None = None,
        plan: Plan | None = None,
    ) -> None:
        random, damage_random = SimRandom(seed), SimRandom(seed ^ _DAMAGE_SEED_MASK)
        self.seed = seed
        self.plan = plan or Plan.of(random)
        self.plan = self.plan.with_damage(damage_random) if has_damage else self.plan
        self.plan = replace(self.plan, has_rights=True) if has_rights else self.plan
        if has_logins:
            self.plan = replace(self.plan, has_logins=True, has_rights=True, has_quotas=True)
        self.plan = self.plan.with_tier() if has_tier else self.plan
        self.plan = self.plan.with_machines() if has_machines else self.plan
        self.loop = SimLoop(random.fork())
        self.trace = Trace(self.loop, echo)
        self.world = World(self.loop, SimNetwork(self.loop, random.fork()), random, self.trace)
        self.world.network.on_arrival = self.trace.note_arrival
        self.cluster = SimCluster(self.world, nodes_of(self.world, self.plan))
        self.ledger = Ledger()
        self.replicas = ReplicaChecks(self.cluster, self.trace)
        self.ledger.on_acked = self.replicas.judge_acked
        self.metadata = MetadataChecks(self.cluster, self.trace)
        self.leases = LeaseChecks(self.cluster)
        self.progress = Progress(self.ledger.last_acked)
        self.clients = Clients(self.world, self.cluster, self.ledger)
        self.faults = Faults(self.world, self.cluster, self.replicas)
        self.damage = Damage(self.cluster, self.replicas, self.clients, self.faults, damage_random)
        self.coordinators = CoordinatorChecks(self.cluster, self.replicas)
        topics = [name for name, _count, _configs in self.plan.topics]
        plans, coordinators = self.plan.groups, self.coordinators
        self.groups = Groups(
            self.world, self.clients, self.ledger, coordinators=coordinators, plans=plans, topics=topics
        )
        self.transaction_state = TransactionStateChecks(self.cluster, self.replicas)
        self.faults.wait_decision = self.transaction_state.wait_decision
        self.transaction_checks = TransactionChecks(self.replicas, self.transaction_state)
        self.transactions = Transactions(
            self.world,
            self.clients,
            self.ledger,
            checks=self.transaction_checks,
            state=self.transaction_state,
            plan=self.plan.transactions,
            topics=topics,
            hosts=[node.name for node in self.cluster.brokers],
        )
        self.final = FinalChecks(
            self.cluster,
            self.replicas,
            self.clients,
            self.ledger,
            groups=self.groups,
            transactions=self.transactions,
            damage=self.damage,
            expects_voters=self.plan.joins,
        )
        self._guards = self._make_guards()
        self.quotas = Quotas(self.world, self.clients, is_there=self.plan.has_quotas)
        self._nodes_by_name = {node.name: node for node in self.cluster.nodes}
        self._errors: list[str] = []
        self._violation: ViolationError | None = None  # Found by a client, in a callback.
        self._next_full_check = _FULL_CHECK_SECONDS

    def _make_guards(self) -> list[Rights | Doors | Balancing | TierRun | MachineRun]:
        self.rights, self.doors = self._make_rights(), self._make_doors()
        self.balancing, self.tier = self._make_balancing(), self._make_tier()
        guards = (self.rights, self.doors, self.balancing, self.tier, self._make_machines())
        return [each for each in guards if each is not None]

    def _make_rights(self) -> Rights | None:
        if not self.plan.has_rights:
            return None
        random = SimRandom(self.seed ^ _RIGHTS_SEED_MASK)
        if self.plan.has_logins:
            return Rights(self.world, self.cluster, self.clients, random, node_login=node_login)
        return Rights(self.world, self.cluster, self.clients, random)

    def _make_balancing(self) -> Balancing | None:
        if not self.plan.has_balancer:
            return None
        return Balancing(self.world, self.cluster, self.clients, SimRandom(self.seed ^ _BALANCER_SEED_MASK))

    def _make_tier(self) -> TierRun | None:
        if not self.plan.has_tier:
            return None
        return TierRun(self.world, self.cluster, SimRandom(self.seed ^ _TIER_SEED_MASK))

    def _make_machines(self) -> MachineRun | None:
        on_each = self.faults.on_each_machine = self.plan.on_each_machine
        if on_each == 1:
            return None
        machines = self.plan.brokers // on_each
        return MachineRun(self.world, self.replicas, machines=machines, on_each=on_each, by_hand=(SKEWED_TOPIC,))

    def _make_doors(self) -> Doors | None:
        if not self.plan.has_logins:
            return None
        return Doors(self.world, self.cluster, self.clients, SimRandom(self.seed ^ _LOGINS_SEED_MASK))

    def run(self) -> Outcome:
        """What a check, a broker or a client finds wrong is told in the outcome, never raised."""
        self.loop.after_turn = self._after_turn
        self.loop.set_exception_handler(self._on_loop_error)
        self.trace.on_error = self._on_error
        failure: str | None = None
        with self.trace.listening():
            try:
                self.loop.run_until_complete(self._run())
            except (ViolationError, StuckError, KafkaError) as error:
                failure = str(error)
                self.trace.note("world", f"VIOLATION {failure}")
            finally:
                self.loop.after_turn = lambda _process: None
                self.loop.close()
        return Outcome(
            self.seed,
            self.trace.digest,
            self.loop.turns,
            self.loop.now,
            self._story(),
            failure,
            list(self.trace.lines),
            self.plan.has_damage,
            self.plan.has_rights,
            self.plan.has_logins,
            self.plan.has_tier,
            self.plan.on_each_machine > 1,
        )

    async def _run(self) -> None:
        self.trace.note("world", f"seed {self.seed}: {self.plan.describe()}")
        self.cluster.format()
        self.cluster.start_all()
        demand(await self.cluster.wait_ready(_START_SECONDS_MAX), "a cluster starts in time")
        partitions, outputs = await self._create_topics()
        for _ in range(self.plan.producers):
            self.clients.start_producer(partitions, pause_ms=self.world.random.between(10, 80))
        for partition in partitions[: self.plan.pipelines]:
            self.clients.start_pipeline(partition, pause_ms=self.world.random.between(10, 80))
        if self.plan.is_reckless:
            self.clients.start_producer(partitions, pause_ms=50, is_reckless=True)
        for _ in range(self.plan.consumers):
            self.clients.start_consumer(partitions)
        if self.plan.has_operator:
            brokers = [node.node_id for node in self.cluster.brokers]
            moved = [*partitions, *(partitions_of(CONSUMER_OFFSETS_TOPIC, 2) if self.plan.groups else ())]
            moved += partitions_of(TRANSACTION_STATE_TOPIC, 2) if self.plan.transactions is not None else ()
            growing = [name for name, _count, _configs in self.plan.topics] if self.plan.groups else []
            self.clients.start_operator(Operator(self.world.random.fork(), moved, brokers, growing=growing))
        self.quotas.start(partitions)
        self.groups.start()
        self.transactions.start(partitions, outputs)
        for guard in self._guards:
            await guard.start()
        disturbing = [asyncio.ensure_future(each.disturb()) for each in (self.groups, self.transactions)]
        if self.plan.must_go_on:
            self.progress.start(partitions[: self.plan.pipelines])
        failing = [self.faults.run(self.plan.fault_seconds, self.plan.faults)]
        failing += [self.damage.run(self.plan.fault_seconds)] if self.plan.has_damage else []
        await asyncio.gather(*failing)
        self.progress.stop()
        for each in disturbing:
            each.cancel()
        if self.tier is not None:
            self.tier.heal()
        await self.faults.heal()
        self.groups.heal()
        self.transactions.heal()
        await self.final.run(partitions)
        for guard in self._guards:
            await guard.stop()
        self.quotas.check(self.replicas.image)
        self.metadata.replay_all()
        self.coordinators.replay_all()
        demand(self.coordinators.compared_count or not self.plan.groups, "coordinators of groups can be found")
        self.transaction_state.replay_all()
        demand(
            self.transaction_state.compared_count or self.plan.transactions is None,
            "coordinators of transactions can be found",
        )
        await self.cluster.stop_all()

    async def _create_topics(self) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """The partitions of the plan's topics, and those that loops write to."""
        process, cluster = self.clients.connect("admin")
        creating = process.spawn(self._create_topics_by(cluster), name="admin")
        return await creating

    async def _create_topics_by(self, cluster: Cluster) -> tuple[list[TopicPartition], list[TopicPartition]]:
        admin = Admin(cluster)
        partitions: list[TopicPartition] = []
        for name, count, configs in self.plan.topics:
            await admin.create_topic(name, partition_count=count, configs=dict(configs))
            partitions += partitions_of(name, count)
        outputs: list[TopicPartition] = []
        if self.plan.transactions is not None and self.plan.transactions.loops:
            outputs = partitions_of(OUTPUT, self.plan.transactions.output_partitions)
            await admin.create_topic(OUTPUT, partition_count=len(outputs))
        cluster.close()
        return partitions, outputs

    # ---- what is looked at as it happens

    def _after_turn(self, process: Process) -> None:
        node = self._nodes_by_name.get(process.name)
        if node is not None:
            if node.failure is not None:
                raise ViolationError(f"{node.name} found its own state wrong: {node.failure!r}")
            if node.process is process:
                for guard in self._guards:
                    guard.look(node)
                self.metadata.look(node)
                self.replicas.look(node)
                self.leases.look(node)
                self.transaction_checks.look(node)
        else:
            self.clients.check()
            self.groups.check()
            self.transactions.check()
            self.faults.check()
            for guard in self._guards:
                guard.check()
            self.progress.check(self.loop.now)
        if self._violation is not None:
            raise self._violation
        if self._errors:
            raise ViolationError(f"something failed that should not: {self._errors[0]}")
        if self.loop.now >= self._next_full_check:
            self._next_full_check = self.loop.now + _FULL_CHECK_SECONDS
            self.replicas.check_members()
            self.metadata.replay_all()
            self.coordinators.replay_all()
            self.transaction_state.replay_all()

    def _on_error(self, name: str, record: logging.LogRecord) -> None:
        """A disk that fails may be complained about by its node; nothing else may be an error."""
        node = self._nodes_by_name.get(name)
        error = record.exc_info[1] if record.exc_info else None
        is_excused = isinstance(error, OSError | StorageError | KafkaError | None)
        is_excused_store = self.tier is not None and record.getMessage().startswith("the object store fails")
        if not is_excused_store and (node is None or not node.may_complain or not is_excused):
            self._errors.append(f"{name}: {record.getMessage()} {getattr(record, 'facts', {})} {error!r}")

    def _on_loop_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        name = self.loop.current.name
        if isinstance(error, DeadError):
            return
        if isinstance(error, ViolationError):
            self._violation = error
            return
        node = self._nodes_by_name.get(name)
        if node is None or not node.may_complain or not isinstance(error, OSError | StorageError | KafkaError):
            self._errors.append(f"{name}: {context['message']} {error!r}")

    def _story(self) -> str:
        ledger = self.ledger
        lives = sum(node.lives for node in self.cluster.nodes)
        told = f"{ledger.acked_count} acked, {ledger.failed_count} failed, {ledger.read_count} read, {lives} lives"
        told += f", {self.damage.count} damaged" if self.plan.has_damage else ""
        told += "".join(guard.story() for guard in self._guards)
        return told + self.quotas.story() + self.groups.story() + self.transactions.story()
