"""What must hold of the replicas of a cluster whose topics become mirrors, and are cut for that."""

from __future__ import annotations

from collections.abc import Callable

from tailrace.controller.image import MirrorState
from tailrace.sim.checks.history import History
from tailrace.sim.checks.replicas import ReplicaChecks
from tailrace.sim.cluster import SimCluster
from tailrace.sim.trace import Trace


class CuttingChecks(ReplicaChecks):
    """What was committed beyond is forgotten, when a leader that may cut has done it."""

    def __init__(self, cluster: SimCluster, trace: Trace) -> None:
        super().__init__(cluster, trace)
        self.on_cut: Callable[[tuple[str, int], int], None] = lambda _key, _offset: None
        self._cut_epochs: dict[tuple[str, int], int] = {}  # The first of each partition that has begun with a cut.

    def _judge(self, node, key, partition, seen, state) -> None:
        self._look_for_cut(key, partition)
        super()._judge(node, key, partition, seen, state)

    def _check_members_of(self, key) -> None:
        for node in self._cluster.brokers:
            partition = self.member(node, key)
            if partition is not None:
                self._look_for_cut(key, partition)
        super()._check_members_of(key)

    def _look_for_cut(self, key, partition) -> None:
        if partition.is_leader and partition.leader_recovery_state and self._is_cutting(key):
            history = self._history_of(key, partition)
            if partition.log.log_end_offset < history.end_offset:
                self._forget(key, partition, history, partition.log.log_end_offset)

    def _is_unclean(self, key: tuple[str, int], leader_epoch: int) -> bool:
        return self._cut_epochs.get(key, 1 << 31) <= leader_epoch or super()._is_unclean(key, leader_epoch)

    def _compare(self, node, key, partition, seen) -> None:
        """Who was away while the others were cut has old records, until it has fetched."""
        state = self._partition_image(key)
        if key not in self._cut_epochs or (state is not None and node.node_id in state.isr):
            super()._compare(node, key, partition, seen)

    def _is_cutting(self, key: tuple[str, int]) -> bool:
        topic = self.image.topics.get(key[0]) if self.image is not None else None
        return topic is not None and topic.mirror is not None and topic.mirror.state is MirrorState.CUTTING

    def _forget(self, key, partition, history: History, end_offset: int) -> None:
        history.batches = {offset: batch for offset, batch in history.batches.items() if offset < end_offset}
        history._sequences = {each: offset for each, offset in history._sequences.items() if offset < end_offset}
        history.end_offset = end_offset
        self._cut_epochs.setdefault(key, partition.leader_epoch)
        self.committed_ends[partition.topic_id, key[1]] = end_offset
        for (_node, where), seen in self._seen.items():
            if where == key:
                seen.compared_to = min(seen.compared_to, end_offset)
        self.on_cut(key, end_offset)
