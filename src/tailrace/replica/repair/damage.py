"""What a start finds missing of the logs that the metadata counts on: the proof of a folder does not hold for them.

    gone       the metadata places the log in a folder that is there, and it is not in it
    short      recovery has cut more than a torn end (`log.recovery`), or the log ends below what was synced or
               confirmed
    unopened   the disk refuses it

All of it is told to the controller before this broker is unfenced (`broker.cluster.replica_reports`). Until then the
folders prove nothing: after another kill there may be no trace of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tailrace.controller.image import MetadataImage
from tailrace.log.log import Log
from tailrace.log.recovery import Damage
from tailrace.model.ids import NodeId, PartitionIndex, TopicPartition
from tailrace.replica.directories import LogDirectories


class DamagedReplicas:
    def __init__(self, node_id: NodeId, directories: LogDirectories) -> None:
        self.found: dict[TopicPartition, Damage] = {}
        self._node_id = node_id
        self._directories = directories
        self._is_start_over = False

    def miss_logs(self, image: MetadataImage, present: Collection[TopicPartition]) -> None:
        """Before the logs that are not `present` are made anew, after which nothing shows that they were gone. One that
        was never made before the last stop looks the same: nobody has confirmed anything of it, and it is refilled like
        the others. OSError."""
        for topic, index, state in image.partitions_of(self._node_id):
            key = TopicPartition(topic.name, PartitionIndex(index))
            is_here = self._directories.would_hold(state.directory(self._node_id))
            if key not in present and is_here and state.counts_on(self._node_id):
                # Nothing tells what it held: a stored high watermark may be that of a deleted topic with its name.
                self._note(key, Damage("its folder is not there", 0))

    def judge(self, log: Log, stored_high_watermark: int | None) -> None:
        """A log that was just opened. OSError."""
        damage, end_offset = log.damage, log.log_end_offset
        if damage is None and stored_high_watermark is not None and stored_high_watermark > end_offset:
            cause = f"it ends at offset {end_offset} and was confirmed up to {stored_high_watermark}"
            damage = Damage(cause, stored_high_watermark)
        if damage is not None:
            self._note(log.topic_partition, damage)

    def end_start(self, unopened: Iterable[tuple[str, int]]) -> None:
        """All logs were tried. What is opened later is known to the controller as damaged already. OSError."""
        for topic, index in unopened:
            self._note(TopicPartition(topic, PartitionIndex(index)), Damage("it cannot be opened", 0))
        self._is_start_over = True

    def _note(self, topic_partition: TopicPartition, damage: Damage) -> None:
        if not self._is_start_over:
            self.found[topic_partition] = damage
            for directory in self._directories.online:
                directory.proof.suspend()
