"""How many partitions have got a leader that may lack records, as the metadata tells it since this node started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.replica.late import find_changes

if TYPE_CHECKING:
    from tailrace.controller.image import MetadataImage


class Elections:
    def __init__(self) -> None:
        self.unclean_count = 0

    def follow_image(self, old: MetadataImage, new: MetadataImage) -> None:
        if old.topics is new.topics:
            return
        for topic, index, state in find_changes(old, new):
            if state.leader_recovery_state:
                known = old.topics.get(topic.name)
                before = None if known is None else known.partitions.get(index)
                self.unclean_count += before is not None and before.leader_epoch < state.leader_epoch
