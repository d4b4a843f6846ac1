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
from tailrace.sim.apart.apart import APART_KINDS
from tailrace.sim.checks.coordinators import CoordinatorChecks
from tailrace.sim.checks.final import FinalChecks
from tailrace.sim.checks.history import ViolationError, demand
from tailrace.sim.checks.leases import LeaseChecks, Progress
from tailrace.sim.checks.metadata import MetadataChecks
from tailrace.sim.checks.replicas import ReplicaChecks
from tailrace.sim.checks.transaction_state import TransactionStateChecks
from tailrace.sim.checks.transactions import TransactionChecks
from tailrace.sim.cluster import (
    CLIENT_PORT,
    CONTROLLER_LISTENER,
    CONTROLLER_PORT,
    FOLDERS,
    Node,
    SimCluster,
    World,
)
from tailrace.sim.damage.damage import Damage
from tailrace.sim.faults import ALL_KINDS, PROCESS_AND_LINK_KINDS, Faults
from tailrace.sim.groups.groups import GROUP_SETTINGS, GroupPlan, Groups
from tailrace.sim.loop import DeadError, Process, SimLoop, StuckError
from tailrace.sim.network import SimNetwork
from tailrace.sim.operators import Operator
from tailrace.sim.quotas import QUOTA_SETTINGS, Quotas
from tailrace.sim.random import SimRandom
from tailrace.sim.rights.rights import GUARDED_LISTENER, GUARDED_PORT, Rights, rights_settings
from tailrace.sim.trace import Trace
from tailrace.sim.transactions.transactions import OUTPUT, TRANSACTION_SETTINGS, TransactionPlan, Transactions
from tailrace.sim.workload import Clients, Ledger, partitions_of

_START_SECONDS_MAX = 30.0
_FULL_CHECK_SECONDS = 2.0
_TRANSACTIONS_SHARE = 0.3
_TRANSACTIONS_SECONDS_MAX = 10.0
SESSION_MS = 3000
# Quick enough for several elections in a run, slow enough that a busy node is not taken for a dead one.
_SETTINGS = {
    "broker.session.timeout.ms": str(SESSION_MS),
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.backoff.ms": "200",
    "broker.flapping.pause.max.ms": "4000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.initial.task.delay.ms": "1500",
    # Old segments are read again all the time: damage is found and repaired within a run.
    "log.scrub.interval.ms": "2000",
    # A repair closes segments of internal topics, and the checks compare logs offset by offset.
    "log.cleaner.enable": "false",
    "loop.lag.warning.ms": "1000000000",
}


_SMALL_SEGMENTS = (("internal.segment.bytes", "4000"),)
# Damage is drawn from a sequence of its own: the rest of a run begins as it would without.
_DAMAGE_SEED_MASK = 0x64616D616765
_RIGHTS_SEED_MASK = 0x726967687473
_SNAPSHOT_SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "metadata.log.segment.ms": "1500",
    "metadata.max.retention.ms": "2000",
    "metadata.max.retention.bytes": "0",
}


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

    @property
    def command(self) -> str:
        """What runs it again."""
        options = (" --damage" if self.has_damage else "") + (" --rights" if self.has_rights else "")
        return f"tailrace sim {self.seed}{options}"


@dataclass(frozen=True)
class Plan:
    """What the seed has decided before the run."""

    brokers: int = 3
    voters: int = 3
    is_dedicated: bool = False
    folders: int = 1
    topics: tuple[tuple[str, int, tuple[tuple[str, str], ...]], ...] = (("orders", 1, ()),)
    producers: int = 2
    pipelines: int = 0  # producers with several batches under way
    is_reckless: bool = False  # whether another producer does not wait for replicas
    consumers: int = 0
    has_operator: bool = False
    has_quotas: bool = False  # a reader with a quota, which changes
    has_snapshots: bool = False  # snapshots of the metadata, all the time, with the log cut behind them
    joins: bool = False  # whether controllers with an empty disk become voters again by themselves
    groups: tuple[GroupPlan, ...] = ()
    transactions: TransactionPlan | None = None
    fault_seconds: float = 5.0
    faults: tuple[str, ...] = ALL_KINDS
    has_damage: bool = False  # disks lose what they had synced
    has_rights: bool = False  # there is an authorizer, and ACLs come and go
    lease_ms: int = SESSION_MS // 2  # at most SESSION_MS: then no hint shortens a session
    must_go_on: bool = False  # whether no fault of this run may keep a partition from acknowledging

    @classmethod
    def of(cls, random: SimRandom) -> Plan:
        is_dedicated = random.random() < 0.35
        voters = 5 if random.random() < 0.15 else 3
        topics = []
        is_synced = random.random() < 0.2
        for name in ("orders", "events")[: 1 + random.randrange(2)]:
            configs = {"flush.messages": "1"} if is_synced else {}
            if random.random() < 0.3:
                configs["internal.segment.bytes"] = "20000"
            topics.append((name, 1 + random.randrange(3), tuple(configs.items())))
        plan = cls(
            brokers=4 if random.random() < 0.15 else 3,
            voters=voters,
            is_dedicated=is_dedicated,
            topics=tuple(topics),
            producers=1 + random.randrange(2),
            pipelines=1 + random.randrange(2),
            is_reckless=random.random() < 0.5,
            consumers=random.randrange(2),
            has_operator=random.random() < 0.5,
            has_snapshots=random.random() < 0.5,
            folders=2 if random.random() < 0.25 else 1,
            joins=random.random() < 0.5,
            lease_ms=SESSION_MS if random.random() < 0.3 else SESSION_MS // 2,
            fault_seconds=random.between(6, 20),
            faults=(
                *ALL_KINDS,
                *(("power of all",) * 3 if is_synced else ()),
                *(APART_KINDS if is_dedicated else ()),
            ),
            groups=tuple(GroupPlan.of(random, f"readers-{index}") for index in range(random.choice((0, 0, 1, 2)))),
        )
        return plan._with_transactions(random) if random.random() < _TRANSACTIONS_SHARE else plan

    def _with_transactions(self, random: SimRandom) -> Plan:
        """They cost as much as everything else: there is less of that."""
        return replace(
            self,
            transactions=TransactionPlan.of(random),
            producers=1,
            pipelines=min(1, self.pipelines),
            groups=self.groups[:1],
            fault_seconds=min(_TRANSACTIONS_SECONDS_MAX, self.fault_seconds),
            faults=(*self.faults, *(("kill between",) * 8)),
        )

    def with_damage(self, random: SimRandom) -> Plan:
        """The same with damaged disks: more logs have closed segments, and controllers are apart more often, so that a
        damaged broker can be the only one that is back. What takes power or whole disks is left out most of the time,
        as nothing may be damaged until that is over."""
        topics = tuple(
            (name, count, (*configs, *_SMALL_SEGMENTS) if random.random() < 0.6 else configs)
            for name, count, configs in self.topics
        )
        return replace(
            self,
            topics=topics,
            is_dedicated=self.is_dedicated or random.random() < 0.3,
            fault_seconds=random.between(8, 16),
            faults=ALL_KINDS if random.random() < 0.2 else PROCESS_AND_LINK_KINDS,
            has_damage=True,
        )

    def describe(self) -> str:
        topics = " ".join(f"{name}:{count}{dict(configs) or ''}" for name, count, configs in self.topics)
        kind = "dedicated" if self.is_dedicated else "combined"
        extras = "an operator, " if self.has_operator else ""
        extras += "quotas, " if self.has_quotas else ""
        extras += "a reckless producer, " if self.is_reckless else ""
        extras += "snapshots, " if self.has_snapshots else ""
        extras += "two folders, " if self.folders > 1 else ""
        extras += "auto join, " if self.joins else ""
        extras += "leases as long as sessions, " if self.lease_ms == SESSION_MS else ""
        extras += "".join(f"group {group}, " for group in self.groups)
        extras += "damage, " if self.has_damage else ""
        extras += "rights, " if self.has_rights else ""
        extras += f"{self.transactions}, " if self.transactions is not None else ""
        return (
            f"{self.brokers} brokers, {self.voters} {kind} controllers, topics {topics}, "
            f"{self.producers}+{self.pipelines} producers, "
            f"{self.consumers} consumers, {extras}{self.fault_seconds:.1f} s of faults"
        )


class Scenario:
    def __init__(
        self,
        seed: int,
        *,
        has_damage: bool = False,
        has_rights: bool = False,
        echo: Callable[[str], None] | None = None,
        plan: Plan | None = None,
    ) -> None:
        random, damage_random = SimRandom(seed), SimRandom(seed ^ _DAMAGE_SEED_MASK)
        self.seed = seed
        self.plan = plan or Plan.of(random)
        if has_damage:
            self.plan = self.plan.with_damage(damage_random)
        if has_rights:
            self.plan = replace(self.plan, has_rights=True)
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
        self.damage = Damage(self.cluster, self.replicas, self.faults, damage_random)
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
        self.rights = self._make_rights()
        self.quotas = Quotas(self.world, self.clients, is_there=self.plan.has_quotas)
        self._nodes_by_name = {node.name: node for node in self.cluster.nodes}
        self._errors: list[str] = []
        self._violation: ViolationError | None = None  # Found by a client, in a callback.
        self._next_full_check = _FULL_CHECK_SECONDS

    def _make_rights(self) -> Rights | None:
        if not self.plan.has_rights:
            return None
        return Rights(self.world, self.cluster, self.clients, SimRandom(self.seed ^ _RIGHTS_SEED_MASK))

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
        if self.rights is not None:
            await self.rights.start()
        disturbing = [asyncio.ensure_future(each.disturb()) for each in (self.groups, self.transactions)]
        if self.plan.must_go_on:
            self.progress.start(partitions[: self.plan.pipelines])
        failing = [self.faults.run(self.plan.fault_seconds, self.plan.faults)]
        failing += [self.damage.run(self.plan.fault_seconds)] if self.plan.has_damage else []
        await asyncio.gather(*failing)
        self.progress.stop()
        for each in disturbing:
            each.cancel()
        await self.faults.heal()
        self.groups.heal()
        self.transactions.heal()
        await self.final.run(partitions)
        if self.rights is not None:
            await self.rights.stop()
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
                if self.rights is not None:
                    self.rights.look(node)
                self.metadata.look(node)
                self.replicas.look(node)
                self.leases.look(node)
                self.transaction_checks.look(node)
        else:
            self.clients.check()
            self.groups.check()
            self.transactions.check()
            self.faults.check()
            if self.rights is not None:
                self.rights.check()
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
        if node is None or not node.may_complain or not is_excused:
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
        if self.rights is not None:
            told += f", {self.rights.tried_count} tried, {self.rights.refused_count} refused"
        return told + self.quotas.story() + self.groups.story() + self.transactions.story()


def nodes_of(world: World, plan: Plan) -> list[Node]:
    """Brokers come first; those that are controllers too, unless controllers are apart, and the controllers that are
    missing for the number of voters."""
    combined = 0 if plan.is_dedicated else min(plan.brokers, plan.voters)
    roles = ["broker,controller"] * combined + ["broker"] * (plan.brokers - combined)
    roles += ["controller"] * (plan.voters - combined)
    names = [_name_of(role, index) for index, role in enumerate(roles, 1)]
    voters = [f"{name}:{CONTROLLER_PORT}" for name, role in zip(names, roles, strict=True) if "controller" in role]
    return [
        Node(
            world,
            name,
            {
                **_SETTINGS,
                **(_SNAPSHOT_SETTINGS if plan.has_snapshots else {}),
                **(QUOTA_SETTINGS if plan.has_quotas else {}),
                **GROUP_SETTINGS,
                **TRANSACTION_SETTINGS,
                **(rights_settings(role) if plan.has_rights else {}),
                "transaction.state.log.replication.factor": str(min(3, plan.brokers)),
                # What is acknowledged, offsets too, survives the loss of all power in such runs.
                **({"log.flush.interval.messages": "1"} if "power of all" in plan.faults else {}),
                "offsets.topic.replication.factor": str(min(3, plan.brokers)),
                "node.id": str(index),
                "broker.lease.ms": str(plan.lease_ms),
                "log.dirs": ",".join(FOLDERS[: plan.folders]),
                "metadata.log.dir": FOLDERS[0],
                "controller.quorum.auto.join.enable": str(plan.joins and "controller" in role).lower(),
                "process.roles": role,
                "controller.listener.names": CONTROLLER_LISTENER,
                "controller.quorum.bootstrap.servers": ",".join(voters),
                "listeners": _listeners_of(name, role, has_rights=plan.has_rights),
                "default.replication.factor": str(min(3, plan.brokers)),
                "min.insync.replicas": str(min(2, plan.brokers)),
                **({"broker.rack": f"rack-{index}"} if "broker" in role else {}),
            },
        )
        for index, (name, role) in enumerate(zip(names, roles, strict=True), 1)
    ]


def _name_of(role: str, index: int) -> str:
    return f"{'node' if ',' in role else role}-{index}"


def _listeners_of(name: str, role: str, *, has_rights: bool) -> str:
    listeners = []
    if "broker" in role:
        listeners.append(f"PLAINTEXT://{name}:{CLIENT_PORT}")
        listeners += [f"{GUARDED_LISTENER}://{name}:{GUARDED_PORT}"] if has_rights else []
    if "controller" in role:
        listeners.append(f"{CONTROLLER_LISTENER}://{name}:{CONTROLLER_PORT}")
    return ",".join(listeners)
