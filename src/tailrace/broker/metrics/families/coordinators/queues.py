"""Share groups as leaders of partitions have them: sessions, what is out, and what has become of records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tailrace.broker.metrics.families.meters import gauge, own_counter, own_gauge
from tailrace.coordinator.share_partition.delivery import Acknowledge
from tailrace.model.metrics.text import label

if TYPE_CHECKING:
    from tailrace.broker.shares.groups import ShareGroups
    from tailrace.model.metrics.text import Text

_CACHE = "kafka_server_sharesessioncache"
_SESSIONS = gauge(_CACHE, "ShareSessionsCount", "Members of share groups that fetch from this broker.")
_PARTITIONS = gauge(_CACHE, "SharePartitionsCount", "Partitions that they fetch, each counted for each member.")
_HELD = own_gauge("share_group_held_records", "Records that members of the group have, by their locks.")
_DELAYED = own_gauge("share_group_delayed_records", "Records of the group that come back once their back-off is over.")
_DEAD = own_gauge("share_group_dead_records", "Records that the group has given up and whose dead letters are owed.")
_FULL = own_gauge("share_group_full_windows", "Partitions of the group from which nothing new can be delivered now.")
_DELIVERED = own_counter("share_group_deliveries", "Deliveries of records to members of the group.")
_ACKNOWLEDGED = own_counter("share_group_acknowledgements", "Records of which members have said this.")
_EXPIRED = own_counter("share_group_expired_locks", "Records whose locks ran out.")
_WRITTEN = own_counter("share_group_dead_letters", "Dead letters of the group that were written.")
_LOST = own_counter(
    "share_group_lost_dead_letters", "Records that were given up without the dead letter they should have."
)
_CHUNK = 50


def pieces(shares: ShareGroups, text: Text) -> Iterator[str]:
    yield text.write(_SESSIONS, [("", len(shares.sessions))])
    yield text.write(_PARTITIONS, [("", shares.read_count)])
    held: Counter[str] = Counter()
    delayed: Counter[str] = Counter()
    dead: Counter[str] = Counter()
    full: Counter[str] = Counter()
    for (group_id, _), share_partition in list(shares.partitions.items()):
        counts = share_partition.window.counts()
        held[group_id] += counts.held
        delayed[group_id] += counts.delayed
        dead[group_id] += counts.dead
        full[group_id] += share_partition.is_full
        yield ""
    for metric, found in ((_HELD, held), (_DELAYED, delayed), (_DEAD, dead), (_FULL, full)):
        yield text.write(metric, [(label(group=group_id), count) for group_id, count in sorted(found.items())])
    tallies = shares.tallies.items()
    for metric, attribute in (
        (_DELIVERED, "delivered"),
        (_EXPIRED, "expired"),
        (_WRITTEN, "written"),
        (_LOST, "lost"),
    ):
        yield text.write(metric, [(label(group=group_id), getattr(each, attribute)) for group_id, each in tallies])
    head, name = text.begin(_ACKNOWLEDGED)
    yield head if tallies else ""
    for start in range(0, len(tallies), _CHUNK):
        yield "".join(
            [
                f"{name}{{{label(group=group_id, type=Acknowledge(kind).name.lower())}}} {count}\n"
                for group_id, each in tallies[start : start + _CHUNK]
                for kind, count in sorted(each.acknowledged.items())
            ]
        )
