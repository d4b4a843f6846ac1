"""What an assignor sees, and what it is.

An assignor is a pure function, the same input gives the same output on every broker: it goes through members and topics
in an order of its own, never in that of a set. It runs in steps, as a big group takes longer than one turn of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import NamedTuple

from tailrace.model.ids import Uuid

# What one member has: topic -> partitions. A topic without partitions is left out.
Partitions = Mapping[Uuid, frozenset[int]]


class MemberSpec(NamedTuple):
    instance_id: str | None
    rack_id: str | None
    # Topics that do not exist are passed over.
    subscribed_topic_ids: frozenset[Uuid]
    # The target that it has so far, which may name partitions that are no longer there.
    assignment: Partitions


class TopicSpec(NamedTuple):
    partition_count: int
    # For each partition, the racks of its replicas. Empty if no broker has a rack.
    racks: Sequence[frozenset[str]] = ()


# Gives every member of the group its target, be it empty.
Assignment = Generator[None, None, dict[str, Partitions]]
Assignor = Callable[[Mapping[str, MemberSpec], Mapping[Uuid, TopicSpec]], Assignment]
