"""What the seed of a run decides before it begins: which nodes there are with which settings, what clients do, and
which faults may happen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tailrace.sim.apart.apart import APART_KINDS
from tailrace.sim.cluster import CLIENT_PORT, CONTROLLER_LISTENER, CONTROLLER_PORT, FOLDERS, Node, World
from tailrace.sim.doors.doors import door_listeners, door_settings
from tailrace.sim.faults import ALL_KINDS, MACHINE_KINDS, PROCESS_AND_LINK_KINDS
from tailrace.sim.groups.groups import GROUP_SETTINGS, GroupPlan
from tailrace.sim.machines import machine_settings
from tailrace.sim.quotas import QUOTA_SETTINGS
from tailrace.sim.random import SimRandom
from tailrace.sim.rights.rights import GUARDED_LISTENER, GUARDED_PORT, rights_settings
from tailrace.sim.tier import TIER_SETTINGS, TIER_TOPIC
from tailrace.sim.transactions.transactions import TRANSACTION_SETTINGS, TransactionPlan

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
_SNAPSHOT_SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "metadata.log.segment.ms": "1500",
    "metadata.max.retention.ms": "2000",
    "metadata.max.retention.bytes": "0",
}
_SMALL_SEGMENTS = (("internal.segment.bytes", "4000"),)


@dataclass(frozen=True)
class Plan:
    brokers: int = 3
    on_each_machine: int = 1  # brokers that share a machine, and are lost together
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
    has_logins: bool = False  # all listeners but one ask who comes; rights and quotas too
    has_tier: bool = False  # topics have remote storage
    has_balancer: bool = False  # a balancer is at work, and is killed again and again
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

    def with_tier(self) -> Plan:
        """The same with remote storage. Nothing of it survives the loss of all power that was not synced: copies would,
        of records that are gone."""
        topics = tuple(
            (name, count, tuple({**dict(configs), **dict(TIER_TOPIC)}.items())) for name, count, configs in self.topics
        )
        return replace(self, topics=topics, has_tier=True)

    def with_machines(self) -> Plan:
        """The same with two brokers on each of three machines; nobody moves replicas by hand."""
        return replace(
            self,
            brokers=6,
            on_each_machine=2,
            is_dedicated=True,
            has_operator=False,
            faults=(*self.faults, *MACHINE_KINDS),
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
        extras += "a balancer, " if self.has_balancer else ""
        extras += "remote storage, " if self.has_tier else ""
        extras += f"{self.on_each_machine} brokers on each machine, " if self.on_each_machine > 1 else ""
        extras += "logins, " if self.has_logins else ""
        extras += f"{self.transactions}, " if self.transactions is not None else ""
        return (
            f"{self.brokers} brokers, {self.voters} {kind} controllers, topics {topics}, "
            f"{self.producers}+{self.pipelines} producers, "
            f"{self.consumers} consumers, {extras}{self.fault_seconds:.1f} s of faults"
        )


def nodes_of(world: World, plan: Plan, *, site: str = "") -> list[Node]:
    """Their hosts' names begin with `site`. Brokers come first; those that are controllers too, unless controllers are
    apart, and the controllers that are missing for the number of voters."""
    combined = 0 if plan.is_dedicated else min(plan.brokers, plan.voters)
    roles = ["broker,controller"] * combined + ["broker"] * (plan.brokers - combined)
    roles += ["controller"] * (plan.voters - combined)
    names = [site + _name_of(role, index) for index, role in enumerate(roles, 1)]
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
                **(door_settings(role) if plan.has_logins else {}),
                **(TIER_SETTINGS if plan.has_tier else {}),
                **(machine_settings(plan.brokers, plan.on_each_machine) if plan.on_each_machine > 1 else {}),
                "transaction.state.log.replication.factor": str(min(3, plan.brokers)),
                # What is acknowledged, offsets too, survives the loss of all power in such runs.
                **({"log.flush.interval.messages": "1"} if "power of all" in plan.faults else {}),
                "offsets.topic.replication.factor": str(min(3, plan.brokers)),
                "node.id": str(index),
                "broker.lease.ms": str(plan.lease_ms),
                "log.dirs": ",".join(FOLDERS[: plan.folders]),
                "metadata.log.dir": FOLDERS[0],
                # As with more partitions than a simulated cluster has: they follow the metadata one by one.
                "replica.changes.per.turn": "1" if plan.joins else "50",
                "controller.quorum.auto.join.enable": str(plan.joins and "controller" in role).lower(),
                "process.roles": role,
                "controller.listener.names": CONTROLLER_LISTENER,
                "controller.quorum.bootstrap.servers": ",".join(voters),
                "listeners": _listeners_of(name, role, plan),
                "default.replication.factor": str(min(3, plan.brokers)),
                "min.insync.replicas": str(min(2, plan.brokers)),
                **({"broker.rack": f"rack-{index}"} if "broker" in role and plan.on_each_machine == 1 else {}),
            },
        )
        for index, (name, role) in enumerate(zip(names, roles, strict=True), 1)
    ]


def _name_of(role: str, index: int) -> str:
    return f"{'node' if ',' in role else role}-{index}"


def _listeners_of(name: str, role: str, plan: Plan) -> str:
    listeners = []
    if "broker" in role:
        listeners.append(f"PLAINTEXT://{name}:{CLIENT_PORT}")
        listeners += [f"{GUARDED_LISTENER}://{name}:{GUARDED_PORT}"] if plan.has_rights else []
        listeners += door_listeners(name) if plan.has_logins else []
    if "controller" in role:
        listeners.append(f"{CONTROLLER_LISTENER}://{name}:{CONTROLLER_PORT}")
    return ",".join(listeners)
