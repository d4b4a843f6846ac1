"""Where the replicas of new partitions go."""

from collections.abc import Sequence

from tailrace.controller.image import BrokerImage
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId


def decide_placement(
    brokers: Sequence[BrokerImage], *, partitions: range, replication_factor: int, start_index: int
) -> list[tuple[NodeId, ...]]:
    """The replicas of each partition, leader first. Leaders go round the active brokers from `start_index` on; the
    followers of a leader are shifted by one more on each round, so that the load of a dead broker spreads over all
    others and not over its neighbour alone. Raises KafkaError INVALID_REPLICATION_FACTOR."""
    nodes = sorted(broker.node_id for broker in brokers if broker.is_active)
    if replication_factor < 1:
        raise _impossible(replication_factor, "The replication factor must be larger than 0.")
    if not nodes:
        raise _impossible(replication_factor, "All brokers are currently fenced.")
    if replication_factor > len(nodes):
        reason = (
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(nodes)} broker(s) are registered."
        )
        raise _impossible(replication_factor, reason)
    return [_replicas(nodes, start_index + partition, replication_factor) for partition in partitions]


def _replicas(nodes: list[NodeId], index: int, replication_factor: int) -> tuple[NodeId, ...]:
    count = len(nodes)
    leader, shift = index % count, index // count
    followers = ((leader + 1 + (shift + step) % (count - 1)) % count for step in range(replication_factor - 1))
    return (nodes[leader], *(nodes[follower] for follower in followers))


def _impossible(replication_factor: int, reason: str) -> KafkaError:
    message = f"Unable to replicate the partition {replication_factor} time(s): {reason}"
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
