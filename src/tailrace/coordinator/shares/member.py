"""A member of a share group, as the log tells it. Never changed: an op makes a new one, replay puts it in place."""

from __future__ import annotations

from typing import NamedTuple

from tailrace.coordinator.assignors.spec import Partitions

# The epochs that a heartbeat joins and leaves with.
JOIN_EPOCH = 0
LEAVE_EPOCH = -1


class ShareMember(NamedTuple):
    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    # Sorted.
    subscribed_topic_names: tuple[str, ...] = ()
    member_epoch: int = 0
    # The one before: the answer that told of member_epoch may have been lost.
    previous_member_epoch: int = -1
    assigned: Partitions = {}
