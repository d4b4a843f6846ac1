"""The shards of coordinators in a simulated cluster, and what their logs say to a second machine."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.broker.coordinators.shard import Machine, Shard
from tailrace.controller.image import MetadataImage
from tailrace.coordinator.op import Producer
from tailrace.model.ids import CONSUMER_OFFSETS_TOPIC
from tailrace.sim.checks.history import demand
from tailrace.sim.cluster import Node, SimCluster
from tailrace.wire.markers import read_marker
from tailrace.wire.records import BatchHeader, iterate_headers, iterate_records

_READ_BYTES = 1 << 20
_MAX_DECOMPRESSED_BYTES = 1 << 24


def led_shards(cluster: SimCluster, image: MetadataImage | None, topic_name: str) -> Iterator[tuple[Node, Shard]]:
    """Those of an internal topic whose brokers lead them by the newest metadata."""
    topic = image.topics.get(topic_name) if image is not None else None
    for node in cluster.brokers:
        if topic is None or node.broker is None or not node.is_ready:
            continue
        # Asking for them would make them.
        coordination = node.broker.services.coordination
        is_groups = topic_name == CONSUMER_OFFSETS_TOPIC
        running = coordination.running_groups if is_groups else coordination.running_transactions
        for index, shard in running.shards.items() if running is not None else ():
            state = topic.partitions[index]
            if shard.is_active and (state.leader, state.leader_epoch) == (node.node_id, shard.leader_epoch):
                yield node, shard


def replay_log(shard: Shard, machine: Machine) -> None:
    """All of its log into an empty machine, as a new coordinator would."""
    log = shard.partition.log
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, _READ_BYTES, end_offset=log.log_end_offset)
        demand(piece is not None, "the log of a coordinator can be read", partition=shard.index, offset=offset)
        assert piece is not None, "as was demanded"
        data = piece.read()
        for position, header in iterate_headers(data, allow_partial=True):
            _replay_batch(machine, header, data[position : position + header.size_bytes])
            offset = header.next_offset


def _replay_batch(machine: Machine, header: BatchHeader, batch: bytes) -> None:
    if header.is_control:
        marker = read_marker(header, batch)
        if marker is not None:
            machine.replay_marker(header.producer_id, is_commit=marker.is_commit)
        return
    producer = Producer(header.producer_id, header.producer_epoch) if header.is_transactional else None
    for record in iterate_records(batch, max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES):
        assert record.key is not None, "coordinators write no others"
        machine.replay_stored(record.key, record.value, producer)
