"""What must hold once everything works again: the cluster is available within a bound, its replicas are equal, and
everything that was acknowledged can be read, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tailrace.log.checkpoints import read_meta_properties
from tailrace.model.ids import TopicPartition
from tailrace.sim.checks.history import demand
from tailrace.sim.checks.replicas import ReplicaChecks, state_of
from tailrace.sim.clients.workload import RECKLESS, Clients, Ledger
from tailrace.sim.cluster import SimCluster
from tailrace.sim.damage.damage import Damage
from tailrace.sim.groups.groups import Groups
from tailrace.sim.transactions.transactions import Transactions

# Elections, sessions, the ISR's lag and the back-offs of clients add up to a few seconds.
_AVAILABLE_SECONDS_MAX = 30.0
_CLIENTS_SECONDS_MAX = 30.0
# A JoinGroup to a host that has lost its power is given up after the rebalance timeout and some more, 15 s; then there
# are sessions of members that died, and rebalances one after the other.
_GROUPS_SECONDS_MAX = 30.0
# From the decision to the last marker, where nothing fails.
_MARKERS_SECONDS_MAX = 5.0
# What no reader meets is found by the next round of a scrub, the first of which may have been before the damage.
_MENDED_SECONDS_MAX = 90.0
_LOOK_SECONDS = 0.1


class FinalChecks:
    def __init__(
        self,
        cluster: SimCluster,
        replicas: ReplicaChecks,
        clients: Clients,
        ledger: Ledger,
        *,
        groups: Groups,
        transactions: Transactions,
        damage: Damage,
        expects_voters: bool = False,
    ) -> None:
        self._cluster = cluster
        self._replicas = replicas
        self._clients = clients
        self._ledger = ledger
        self._groups = groups
        self._transactions = transactions
        self._damage = damage
        self._expects_voters = expects_voters  # All controllers.

    async def run(self, partitions: Sequence[TopicPartition]) -> None:
        loop = self._cluster.world.loop
        healed = loop.now
        deadline = healed + _AVAILABLE_SECONDS_MAX
        await self._wait("all nodes are ready again", self._unready, deadline)
        await self._wait("all replicas are in sync again", self._out_of_sync, deadline)
        if self._expects_voters:
            await self._wait("all controllers are voters again", self._missing_voters, deadline)
        await self._wait(
            "all partitions take records again",
            lambda: [each for each in partitions if self._ledger.last_acked.get(each, 0.0) <= healed],
            deadline,
        )
        self._cluster.world.trace.note("world", f"available {loop.now - healed:.1f} s after healing")
        deadline = loop.now + _GROUPS_SECONDS_MAX
        await self._wait("groups are stable again", self._groups.unstable, deadline)
        self._cluster.world.trace.note("world", f"groups are stable {loop.now - healed:.1f} s after healing")
        self._clients.stop()
        await self._clients.wait_stopped(_CLIENTS_SECONDS_MAX)
        await self._end_transactions()
        deadline = loop.now + _GROUPS_SECONDS_MAX
        await self._wait("groups process every record", self._groups.unprocessed, deadline)
        await self._groups.stop(_GROUPS_SECONDS_MAX)
        await self._wait("all replicas are equal", self._unequal, loop.now + _AVAILABLE_SECONDS_MAX)
        await self._wait("what was damaged is whole again", self._damage.damaged, loop.now + _MENDED_SECONDS_MAX)
        self._check_identities()
        self._replicas.check_members()
        self._replicas.compare_all()
        await self._check_readable(partitions)
        await self._groups.check_committed()
        await self._check_transactions()
        if self._clients.operator is not None and self._replicas.image is not None:
            self._clients.operator.check(self._replicas.image)

    def _check_identities(self) -> None:
        for node in self._cluster.nodes:
            for folder in node.config.log_dirs:
                properties = read_meta_properties(node.disk, folder) or {}
                demand(
                    properties.get("directory.id") == self._cluster.directory_ids[node.name, folder],
                    "a data folder keeps the identity that it was given",
                    node=node.name,
                    folder=folder,
                    found=properties,
                )

    async def _end_transactions(self) -> None:
        loop, transactions = self._cluster.world.loop, self._transactions
        await transactions.stop_producers(_CLIENTS_SECONDS_MAX)
        deadline = loop.now + _GROUPS_SECONDS_MAX + transactions.timeout_seconds
        await self._wait("every input record has its effect", transactions.without_effect, deadline)
        await transactions.stop_loops(_CLIENTS_SECONDS_MAX)
        deadline = loop.now + transactions.timeout_seconds + _MARKERS_SECONDS_MAX
        await self._wait("no transaction stays open beyond its timeout", transactions.under_way, deadline)

    async def _check_transactions(self) -> None:
        transactions = self._transactions
        transactions.start_last_reader()
        deadline = self._cluster.world.loop.now + _AVAILABLE_SECONDS_MAX
        await self._wait("readers come to the end", transactions.unread, deadline)
        await transactions.finish()

    async def _wait(self, promise: str, missing: Callable[[], Sequence[object]], deadline: float) -> None:
        while found := missing():
            demand(self._cluster.world.loop.now < deadline, promise, missing=found)
            await asyncio.sleep(_LOOK_SECONDS)

    def _unready(self) -> list[str]:
        """A node that gives up is started again, as a supervisor would."""
        self._cluster.start_all()
        return [node.name for node in self._cluster.nodes if not node.is_ready]

    def _missing_voters(self) -> list[str]:
        keys = {node.broker.quorum.driver.node.key for node in self._cluster.controllers if node.broker is not None}
        return [
            node.name
            for node in self._cluster.nodes
            if node.broker is None or {voter.key for voter in node.broker.quorum.driver.voters} != keys
        ]

    def _out_of_sync(self) -> list[str]:
        """What may wait for a person gets one."""
        self._damage.unmade.elect()
        image = self._replicas.image
        return [
            f"{topic.name}-{index}: leader {state.leader}, isr {state.isr} of {state.replicas}"
            for topic in (image.topics.values() if image is not None else ())
            for index, state in topic.partitions.items()
            if state.leader < 0 or len(state.isr) < len(state.replicas) or state.adding_replicas
        ]

    def _unequal(self) -> list[str]:
        image = self._replicas.image
        assert image is not None, "topics were created"
        found = []
        for topic in image.topics.values():
            for index in topic.partitions:
                states = {
                    node.name: state_of(broker.replicas.partitions[topic.name, index])
                    for node in self._cluster.brokers
                    if (broker := node.broker) is not None and (topic.name, index) in broker.replicas.partitions
                }
                ends = {(state.high_watermark, state.log_end_offset) for state in states.values()}
                if len(ends) != 1 or any(high_watermark != end for high_watermark, end in ends):
                    found.append(f"{topic.name}-{index}: {'; '.join(f'{name} {s}' for name, s in states.items())}")
        images = [broker.image for node in self._cluster.nodes if (broker := node.broker) is not None]
        if any(each.topics != image.topics or each.brokers != image.brokers for each in images):
            found.append("the metadata")
        return found

    async def _check_readable(self, partitions: Sequence[TopicPartition]) -> None:
        ends = {partition: self._end_of(partition) for partition in partitions}
        found = await self._clients.read_all(ends)
        for partition in partitions:
            records = found[partition]
            for offset, value in self._ledger.acked.get(partition, {}).items():
                demand(
                    records.get(offset) == value,
                    "an acked record can be read",
                    partition=partition,
                    offset=offset,
                    value=value[:30],
                    found=records.get(offset, b"")[:30],
                )
            values = [value for value in records.values() if not value.startswith(RECKLESS.encode())]
            demand(len(set(values)) == len(values), "a record is there once", partition=partition)
            for value in self._ledger.acked_somewhere.get(partition, {}):
                demand(value in values, "an acked record can be read", partition=partition, value=value[:30])
            _check_order(partition, values)

    def _end_of(self, partition: TopicPartition) -> int:
        ends = [
            broker.replicas.partitions[partition].high_watermark
            for node in self._cluster.brokers
            if (broker := node.broker) is not None and partition in broker.replicas.partitions
        ]
        return max(ends)


def _check_order(partition: TopicPartition, values: Sequence[bytes]) -> None:
    last: dict[bytes, int] = {}
    for value in values:
        producer, number, _rest = value.split(b":", 2)
        demand(
            int(number) > last.get(producer, 0), "records of a producer are in order", partition=partition, value=value
        )
        last[producer] = int(number)
