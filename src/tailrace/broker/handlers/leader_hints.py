"""Leader hints (KIP-951): an error that means "ask another broker" says which one, so that a client need not ask for
metadata first. They decide how fast clients fail over. And who is to be read instead of the leader (KIP-392)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, PartitionIndex, Uuid

if TYPE_CHECKING:
    from tailrace.broker.services import Services
    from tailrace.controller.image import BrokerImage
    from tailrace.replica.partition import Partition

_HINTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def hint_leader(
    services: Services, error: KafkaError, topic: str, topic_id: bytes, index: int
) -> tuple[int, int] | None:
    """(leader, leader epoch) of a partition that is led elsewhere, as the newest metadata has it."""
    if error.code not in _HINTED:
        return None
    image = services.image
    name = topic or image.topic_names.get(Uuid(topic_id), "")
    topic_image = image.topics.get(name)
    partition = topic_image.partitions.get(PartitionIndex(index)) if topic_image is not None else None
    if partition is None:
        return None
    if partition.leader == services.node_id and services.replicas.lease.is_past:
        return None  # It does not know who leads.
    return partition.leader, partition.leader_epoch


def sends_away(services: Services, topic: str, index: int) -> bool:
    """Of a partition that the metadata say is led here: whether clients have to look for another leader."""
    lease = services.replicas.lease
    if not lease.is_past:
        return False
    partition = services.replicas.partitions.get((topic, index))
    return partition is None or lease.sends_away(partition)


def node_endpoints(
    services: Services, listener_name: str, node_ids: Iterable[int]
) -> list[tuple[int, str, int, str | None]]:
    """(node id, host, port, rack) of brokers, by the listener that the client uses."""
    found = []
    for node_id in sorted(node_ids):
        node = services.image.brokers.get(NodeId(node_id))
        endpoint = None if node is None else node.endpoint(listener_name)
        if node is not None and endpoint is not None:
            found.append((node_id, endpoint.host, endpoint.port, node.rack))
    return found


def decide_read_replica(brokers: Mapping[int, BrokerImage], partition: Partition, rack: str, offset: int) -> int:
    """The in-sync follower in the reader's rack that has come furthest; -1 where the leader is the one to read from."""
    leader = brokers.get(partition.node_id)
    if leader is not None and leader.rack == rack:
        return -1
    best, best_end = -1, -1
    for follower in partition.followers.values():
        broker = brokers.get(follower.node_id)
        has_offset = 0 <= follower.log_start_offset <= offset <= follower.log_end_offset
        if (
            broker is not None
            and broker.is_active
            and broker.rack == rack
            and follower.node_id in partition.isr
            and has_offset
            and follower.log_end_offset > best_end
        ):
            best, best_end = follower.node_id, follower.log_end_offset
    return best
