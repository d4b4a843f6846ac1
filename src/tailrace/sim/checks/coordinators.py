"""What must hold of the coordinators of groups: what a machine knows is what its log says.

A second machine is replayed from the log, and what is durable of both is compared. What is not on the log (who waits,
deadlines, a rebalance of a classic group under way) is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tailrace.broker.coordinators.shard import Shard
from tailrace.coordinator.classic.group import ClassicGroup, ClassicState
from tailrace.coordinator.history import History
from tailrace.coordinator.machine import GroupMachine
from tailrace.coordinator.streams.group import StreamsGroup
from tailrace.model.ids import CONSUMER_OFFSETS_TOPIC, PartitionIndex, TopicPartition
from tailrace.sim.checks.history import demand
from tailrace.sim.checks.replicas import ReplicaChecks
from tailrace.sim.checks.shards import led_shards, replay_log
from tailrace.sim.cluster import Node, SimCluster

_CONSUMER_PARTS = (
    "epoch",
    "metadata_hash",
    "assignment_epoch",
    "assignment_timestamp_ms",
    "members",
    "static_members",
    "targets",
    "regexes",
    "topic_counts",
    "regex_counts",
    "owners",
)


class CoordinatorChecks:
    def __init__(self, cluster: SimCluster, replicas: ReplicaChecks) -> None:
        self._cluster = cluster
        self._replicas = replicas
        self.compared_count = 0

    def partitions_of(self, topics: Sequence[str]) -> list[TopicPartition]:
        """By the newest metadata."""
        image = self._replicas.image
        assert image is not None, "topics were created"
        return [
            TopicPartition(name, PartitionIndex(index)) for name in topics for index in image.topics[name].partitions
        ]

    def state_of(self, group_id: str) -> tuple[str, int] | None:
        """The state of a group and the number of its members, if it has a coordinator that is ready."""
        for _node, shard in self._shards():
            group = machine_of(shard).state.groups.get(group_id)
            if group is not None:
                return group.state_name, len(group.members)  # type: ignore[attr-defined]
        return None

    def replay_all(self) -> None:
        for node, shard in self._shards():
            if node.may_complain or shard.has_unwritten:
                continue
            with node.disk.observed():
                replayed = GroupMachine(History(groups_max=1, rebalances_max=1))
                replay_log(shard, replayed)
            self.compared_count += 1
            found = differences(machine_of(shard), replayed)
            demand(
                not found,
                "the replay of a coordinator's log gives the live state",
                node=node.name,
                partition=shard.index,
                differences=found,
            )

    def _shards(self) -> Iterator[tuple[Node, Shard]]:
        return led_shards(self._cluster, self._replicas.image, CONSUMER_OFFSETS_TOPIC)


def machine_of(shard: Shard) -> GroupMachine:
    machine = shard.machine
    assert isinstance(machine, GroupMachine)
    return machine


def differences(live: GroupMachine, replayed: GroupMachine) -> list[str]:
    """What is durable in the one and not the same in the other, in words."""
    ours, theirs = _durable_state(live), _durable_state(replayed)
    found = [
        f"{name}: live {ours.get(name)}, replayed {theirs.get(name)}"
        for name in sorted({*ours, *theirs})
        if ours.get(name) != theirs.get(name)
    ]
    for group_id, group in live.state.groups.items():
        other = replayed.state.groups.get(group_id)
        if isinstance(group, ClassicGroup) and isinstance(other, ClassicGroup):
            found += _classic_differences(group, other)
    return found


def _durable_state(machine: GroupMachine) -> dict[str, Any]:
    offsets = machine.state.offsets
    found: dict[str, Any] = {}
    for group_id in offsets.group_ids():
        found[f"offsets of {group_id}"] = offsets.topics(group_id)
        found[f"pending offsets of {group_id}"] = sorted(offsets.pending(group_id))
    for group_id, group in machine.state.groups.items():
        if isinstance(group, StreamsGroup):
            found[f"group {group_id}"] = _streams_state(group)
        elif not isinstance(group, ClassicGroup):
            found[f"group {group_id}"] = _consumer_state(group)
        elif group.stored is not None:
            found[f"group {group_id}"] = group.stored
    return found


def _streams_state(group: StreamsGroup) -> tuple[Any, ...]:
    epochs = group.epoch, group.basis, group.assignment_epoch, group.assignment_timestamp_ms
    owners = group.active_owners, group.copy_owners
    topology = None if group.topology is None else group.topology.stored
    return epochs, topology, group.members, group.targets, owners


def _classic_differences(live: ClassicGroup, replayed: ClassicGroup) -> list[str]:
    """Only a group that does not rebalance is compared: between two generations it is ahead of its record."""
    if live.state not in (ClassicState.STABLE, ClassicState.EMPTY) or live.stored is None:
        return []
    ours, theirs = _classic_state(live), _classic_state(replayed)
    return [] if ours == theirs else [f"group {live.group_id}: live {ours}, replayed {theirs}"]


def _classic_state(group: ClassicGroup) -> tuple[Any, ...]:
    members = {
        member.member_id: (member.instance_id, member.metadata(group.protocol_name), member.assignment)
        for member in group.members.values()
    }
    return group.state, group.generation, group.protocol_type, group.protocol_name, group.leader_id, members


def _consumer_state(group: Any) -> dict[str, Any]:
    return {name: _plain(getattr(group, name)) for name in _CONSUMER_PARTS}


def _plain(part: Any) -> Any:
    """Without regard to the order in which things came."""
    return {key: _plain(part[key]) for key in sorted(part)} if isinstance(part, dict) else part
