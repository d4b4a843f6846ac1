"""What must hold of those who answer as leaders, looked at after every turn of a node.

- A broker is fenced by the controller only after its lease has ended, unless it asked for it or died.
- A leader past its lease that takes itself for confirmed was the only one the time of a session ago: nobody had begun
  to lead in a later epoch by then. So what it tells readers is at most so old.
- While controllers alone are missing, every partition goes on acknowledging, without a long gap (`Progress`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailrace.controller.image import MetadataImage
from tailrace.model.ids import TopicPartition, Uuid
from tailrace.sim.checks.history import demand
from tailrace.sim.cluster import Node, SimCluster

# The clock of a broker is wrong by a percent at most.
_CLOCK_ERROR = 1.011
# A gap that clients notice. Acknowledgements take some milliseconds here, and producers pause for less than 0.2 s.
_GAP_SECONDS_MAX = 1.0


class LeaseChecks:
    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._nodes = {node.node_id: node for node in cluster.nodes}
        self._image: MetadataImage | None = None  # The newest that any node has shown: it is committed.
        # When somebody was first seen to lead, by partition and leader epoch.
        self._began: dict[tuple[Uuid, int], dict[int, float]] = {}

    def look(self, node: Node) -> None:
        broker = node.broker
        if broker is None or getattr(broker, "quorum", None) is None:
            return
        image = broker.image
        if self._image is None or image.next_offset > self._image.next_offset:
            before, self._image = self._image, image
            if before is not None and before.brokers is not image.brokers:
                self._judge_fencing(before, image)
        if node.is_broker and node.is_ready:
            self._judge_leaders(node)

    def _judge_fencing(self, before: MetadataImage, now: MetadataImage) -> None:
        for node_id, broker in now.brokers.items():
            was = before.brokers.get(node_id)
            node = self._nodes[node_id]
            if was is None or was.fenced or not broker.fenced or was.epoch != broker.epoch or node.is_stopping:
                continue
            replicas = node.broker.replicas if node.broker is not None and node.is_ready else None
            demand(
                replicas is None or replicas.broker_epoch != broker.epoch or replicas.lease.is_past,
                "a broker is fenced after its lease has ended",
                broker=node.name,
                ends_ms=replicas and replicas.lease.ends_ms,
                now_ms=replicas and replicas.monotonic_ms(),
            )

    def _judge_leaders(self, node: Node) -> None:
        assert node.broker is not None, "it is ready"
        replicas, now = node.broker.replicas, self._cluster.world.loop.now
        is_past = replicas.lease.is_past
        for key, partition in replicas.partitions.items():
            if not partition.is_leader:
                continue
            began = self._began.setdefault((partition.topic_id, key[1]), {})
            began.setdefault(partition.leader_epoch, now)
            if len(began) > 1 and is_past and replicas.lease.is_confirmed(partition):
                later = [time for epoch, time in began.items() if epoch > partition.leader_epoch]
                session_seconds = replicas.config.broker_session_timeout_ms / 1000 * _CLOCK_ERROR
                demand(
                    not later or now - min(later) <= session_seconds,
                    "a leader that is confirmed past its lease was the only one a session ago",
                    partition=key,
                    leader=node.name,
                    epoch=partition.leader_epoch,
                    began=began,
                    now=now,
                )


class Progress:
    """That every partition is written to all the time, from its first acknowledgement until `stop`."""

    def __init__(self, last_acked: Mapping[TopicPartition, float]) -> None:
        self._last_acked = last_acked
        self._partitions: Sequence[TopicPartition] = ()

    def start(self, partitions: Sequence[TopicPartition]) -> None:
        self._partitions = partitions

    def stop(self) -> None:
        self._partitions = ()

    def check(self, now: float) -> None:
        for partition in self._partitions:
            last = self._last_acked.get(partition)
            demand(
                last is None or now - last <= _GAP_SECONDS_MAX,
                "without controllers partitions go on",
                partition=partition,
                last_acked=last,
                now=now,
            )
