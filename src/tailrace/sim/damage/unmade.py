"""Partitions of topics that were being made when a disk was lost: they may end without a leader, and a person helps.

All processes die before any other replica has made the log, and one disk is replaced. Whoever comes back cannot tell
whether it ever had that log, so nobody leads, and the partition waits for an unclean election: that is not promised,
and loses nothing. Here the election is asked for, and everything that is promised has to hold from then on.

A partition is one of these only if, when a disk was lost, no other disk had its folder, if no other node has ever led
it, and if nothing of it was ever confirmed. Any other partition that nobody leads is a broken promise.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import NamedTuple

from tailrace.client.admin import Admin
from tailrace.log.files.names import parse_folder_name
from tailrace.model.errors import KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.sim.checks.replicas import ReplicaChecks
from tailrace.sim.clients.workload import Clients
from tailrace.sim.cluster import Node, SimCluster


class Loss(NamedTuple):
    """Of a whole disk."""

    name: str  # the node's
    elsewhere: frozenset[TopicPartition]  # what had a folder on the disk of another node


class UnmadePartitions:
    def __init__(self, cluster: SimCluster, replicas: ReplicaChecks, clients: Clients) -> None:
        self._cluster = cluster
        self._replicas = replicas
        self._clients = clients
        self._losses: list[Loss] = []
        self._electing: asyncio.Task[None] | None = None

    def note_loss(self, lost: Node) -> None:
        others = [node for node in self._cluster.nodes if node is not lost]
        self._losses.append(Loss(lost.name, frozenset(each for node in others for each in _folders_of(node))))

    def find(self) -> list[TopicPartition]:
        """Those that nobody leads now."""
        image = self._replicas.image
        return [
            partition
            for topic in (image.topics.values() if image is not None else ())
            for index, state in topic.partitions.items()
            if state.leader < 0
            and not state.isr
            and not self._replicas.committed_ends.get((topic.id, index))
            and self._is_unmade(
                partition := TopicPartition(topic.name, PartitionIndex(index)),
                self._replicas.leaders_of((topic.id, index)),
            )
        ]

    def _is_unmade(self, partition: TopicPartition, leaders: frozenset[str]) -> bool:
        return any(partition not in loss.elsewhere and leaders <= {loss.name} for loss in self._losses)

    def elect(self) -> None:
        """As often as anybody looks, until all of them are led."""
        waiting = self.find()
        if waiting and (self._electing is None or self._electing.done()):
            self._cluster.world.trace.note("world", f"asks for an unclean election of {' '.join(map(str, waiting))}")
            process, cluster = self._clients.connect("attendant")
            self._electing = process.spawn(_elect(Admin(cluster), waiting), name="attendant")


async def _elect(admin: Admin, partitions: list[TopicPartition]) -> None:
    with suppress(KafkaError):  # Whoever is asked may be stopping: it is asked for again.
        await admin.elect_leaders(partitions, unclean=True)
    admin.cluster.close()


def _folders_of(node: Node) -> list[TopicPartition]:
    with node.disk.observed():
        names = [name for folder in node.config.log_dirs for name in node.disk.list(folder)]
    return [found for name in names if (found := parse_folder_name(name)) is not None]
