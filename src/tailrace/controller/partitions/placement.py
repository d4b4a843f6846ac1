"""Where the replicas of new partitions go.

Racks first: the replicas of a partition lie in as many racks as there are. Then evenly: each active broker leads the
same number of partitions of a topic, and the followers of a leader differ from partition to partition, so that the load
of a dead broker spreads over all others and not over its neighbour alone. Brokers that are fenced get replicas only if
there are too few others, and never lead.
"""

from collections.abc import Sequence
from itertools import zip_longest

from tailrace.controller.image import BrokerImage
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId


def decide_placement(
    brokers: Sequence[BrokerImage], *, partitions: range, replication_factor: int, start_index: int
) -> list[tuple[NodeId, ...]]:
    """The replicas of each partition, leader first. Leaders go round the active brokers from `start_index` on.
    Raises KafkaError INVALID_REPLICATION_FACTOR."""
    usable = [broker for broker in brokers if not broker.in_controlled_shutdown]
    active = _alternate_racks([broker for broker in usable if not broker.fenced])
    fenced = _alternate_racks([broker for broker in usable if broker.fenced])
    if replication_factor < 1:
        raise _impossible(replication_factor, "The replication factor must be larger than 0.")
    if not active:
        raise _impossible(replication_factor, "All brokers are currently fenced.")
    if replication_factor > len(usable):
        reason = (
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(usable)} broker(s) are registered."
        )
        raise _impossible(replication_factor, reason)
    followers = min(replication_factor, len(active)) - 1
    spare = tuple(broker.node_id for broker in fenced[: replication_factor - 1 - followers])
    racks = len({broker.rack for broker in active})
    return [(*_replicas(active, start_index + partition, followers, racks), *spare) for partition in partitions]


def _alternate_racks(brokers: Sequence[BrokerImage]) -> list[BrokerImage]:
    """One of each rack, then the second of each, and so on: neighbours in the list are in different racks."""
    racks: dict[str, list[BrokerImage]] = {}
    for broker in sorted(brokers, key=lambda broker: (broker.rack or "", broker.node_id)):
        racks.setdefault(broker.rack or "", []).append(broker)
    return [broker for row in zip_longest(*racks.values()) for broker in row if broker is not None]


def _replicas(brokers: Sequence[BrokerImage], index: int, followers: int, rack_count: int) -> tuple[NodeId, ...]:
    count = len(brokers)
    leader, shift = index % count, index // count
    chosen = [brokers[leader].node_id]
    racks = {brokers[leader].rack}
    passed: list[NodeId] = []
    for step in range(count - 1):
        if len(chosen) > followers:
            break
        candidate = brokers[(leader + 1 + (shift + step) % (count - 1)) % count]
        if candidate.rack in racks and len(racks) < rack_count:
            passed.append(candidate.node_id)
        else:
            chosen.append(candidate.node_id)
            racks.add(candidate.rack)
    return (*chosen, *passed[: followers + 1 - len(chosen)])


def _impossible(replication_factor: int, reason: str) -> KafkaError:
    message = f"Unable to replicate the partition {replication_factor} time(s): {reason}"
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
