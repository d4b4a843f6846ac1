"""What the balancer knows of a cluster, what it is asked to do, and what it answers. Plain values.

A load has four resources: bytes on disk, bytes a second that come in, bytes a second that go out, and the share of
the event loop. Every replica of a partition has its disk and what comes in; what goes out, and most of the loop, is the
leader's. A rate that nobody has measured is 0, and then its goal asks for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from tailrace.model.ids import TopicPartition

Replicas = tuple[int, ...]  # The first is the preferred leader.


class Resource(IntEnum):
    """In the order in which they are balanced."""

    DISK = 0
    NETWORK_IN = 1
    NETWORK_OUT = 2
    LOOP = 3
    LEADERS = 4
    REPLICAS = 5


# Those that a broker can run out of.
LOADS = (Resource.DISK, Resource.NETWORK_IN, Resource.NETWORK_OUT, Resource.LOOP)
WORDS = {
    Resource.DISK: "disk",
    Resource.NETWORK_IN: "network in",
    Resource.NETWORK_OUT: "network out",
    Resource.LOOP: "loop",
    Resource.LEADERS: "leaders",
    Resource.REPLICAS: "replicas",
}


class BrokerState(NamedTuple):
    node_id: int
    rack: str | None = None
    is_live: bool = True
    capacity: Mapping[Resource, float] = {}  # Of its LOADS; one that is missing has no bound.
    machine: str | None = None  # Those with the same are lost together; None is a machine of its own.


class PartitionState(NamedTuple):
    partition: TopicPartition
    replicas: Replicas
    size_bytes: float = 0.0
    in_rate: float = 0.0  # bytes a second
    out_rate: float = 0.0  # to clients; what goes to followers is computed
    leader_loop: float = 0.0  # a share of one broker's loop
    follower_loop: float = 0.0
    pinned: str | None = None  # Why it must not be touched now.


class Picture(NamedTuple):
    brokers: Sequence[BrokerState]
    partitions: Sequence[PartitionState]


class Goals(NamedTuple):
    """Hard: racks, machines, and the share of a capacity that may be used. Soft: how far from its share a broker may
    be."""

    use_max: Mapping[Resource, float] = {
        Resource.DISK: 0.8,
        Resource.NETWORK_IN: 0.8,
        Resource.NETWORK_OUT: 0.8,
        Resource.LOOP: 0.7,
    }
    spread_max: float = 0.10
    # Below such a load of each broker it is not worth a move.
    negligible: Mapping[Resource, float] = {
        Resource.DISK: 1e6,
        Resource.NETWORK_IN: 1e4,
        Resource.NETWORK_OUT: 1e4,
        Resource.LOOP: 0.01,
    }


class Wish(NamedTuple):
    """What is asked for, beside the goals."""

    drained: frozenset[int] = frozenset()  # Brokers that hold nothing afterwards.
    added: frozenset[int] = frozenset()  # If there are any, nothing but what must move goes to other brokers.
    factors: Mapping[str, int] = {}  # Replication factors, by topic.
    must_only: bool = False  # Hard goals and wishes, no balance.


class Move(NamedTuple):
    partition: TopicPartition
    old: Replicas
    new: Replicas
    size_bytes: int  # What is copied, over all replicas that are new.
    reason: str


class Spread(NamedTuple):
    """How far the brokers are from their shares: the worst of them, as a fraction, and its id."""

    resource: Resource
    worst: float
    node_id: int


class Plan(NamedTuple):
    moves: tuple[Move, ...]
    before: tuple[Spread, ...]
    after: tuple[Spread, ...]
    # Hard goals and wishes that cannot be met, and why. Nothing is moved while there are any.
    problems: tuple[str, ...]
    # What is left undone and why: partitions that are pinned, spreads that no move makes smaller.
    remarks: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        return sum(move.size_bytes for move in self.moves)


def seconds_for(moves: Iterable[Move], rate: int) -> float:
    """How long the copies take at least: the busiest broker sends or receives at the rate of the throttle."""
    busy: dict[tuple[str, int], float] = {}
    for move in moves:
        added = [node for node in move.new if node not in move.old]
        for node in added:
            size = move.size_bytes / len(added)
            busy["in", node] = busy.get(("in", node), 0.0) + size
            busy["out", move.old[0]] = busy.get(("out", move.old[0]), 0.0) + size
    return max(busy.values(), default=0.0) / rate
