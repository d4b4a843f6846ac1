"""Throttles that a balancer has set, and that say so themselves.

A balancer lists the replicas that it moves in the two settings of their topic, as Kafka's tools do, and adds a mark: a
replica of a partition that cannot exist. Its "broker" is the number of the run; a second mark says that the rate for
all brokers is the run's too. So whoever comes after a crash knows what to take away and what belongs to somebody else,
on Apache Kafka too, and there is no second place that could say something different.

On our own controllers nobody has to come: a list with a mark is taken away once no partition of its topic moves. A
balancer that is alive sets it again if it needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tailrace.controller.image import MetadataImage, ResourceType
from tailrace.wire.apis.stored_records import ConfigRecord
from tailrace.wire.schema import Message

LEADER_LIST = "leader.replication.throttled.replicas"
FOLLOWER_LIST = "follower.replication.throttled.replicas"
LISTS = (LEADER_LIST, FOLLOWER_LIST)
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
EVERYTHING = "*"
_RUN_PARTITION = 2**31 - 1
_RATE_PARTITION = 2**31 - 2
RUN_MAX = 2**31 - 1


class Mark(NamedTuple):
    run: int  # When it began, in seconds: a later run wins.
    sets_rate: bool


def format_list(replicas: Iterable[tuple[int, int]], mark: Mark) -> str:
    """`replicas` are pairs of a partition and a broker."""
    pairs = [*sorted(replicas), (_RUN_PARTITION, mark.run), *([(_RATE_PARTITION, 1)] if mark.sets_rate else [])]
    return ",".join(f"{partition}:{node_id}" for partition, node_id in pairs)


def parse_list(text: str | None) -> tuple[list[tuple[int, int]], Mark | None]:
    """The replicas, and the mark if a balancer has made the list; of a `*` nothing."""
    words = [word.strip().partition(":") for word in (text or "").split(",") if ":" in word]
    pairs = [(int(partition), int(node_id)) for partition, _, node_id in words if (partition + node_id).isdecimal()]
    runs = [node_id for partition, node_id in pairs if partition == _RUN_PARTITION]
    sets_rate = any(partition == _RATE_PARTITION for partition, _ in pairs)
    replicas = [pair for pair in pairs if pair[0] < _RATE_PARTITION]
    return replicas, Mark(max(runs), sets_rate) if runs else None


def mark_of(settings: Mapping[str, str | None]) -> Mark | None:
    """The mark in the settings of a topic."""
    return max((mark for name in LISTS if (mark := parse_list(settings.get(name))[1]) is not None), default=None)


def decide_stale_throttles(image: MetadataImage) -> list[Message]:
    """What takes away the throttles of balancers whose moves are over."""
    marked = {
        name: mark
        for (kind, name), settings in image.configs.items()
        if kind == ResourceType.TOPIC and name in image.topics and (mark := mark_of(settings)) is not None
    }
    stale = [
        name
        for name in marked
        if not any(partition.is_reassigning for partition in image.topics[name].partitions.values())
    ]
    records: list[Message] = []
    if len(stale) == len(marked) and any(mark.sets_rate for mark in marked.values()):
        records += _removals(image, ResourceType.BROKER, "", RATES)
    for name in stale:
        records += _removals(image, ResourceType.TOPIC, name, LISTS)
    return records


def _removals(image: MetadataImage, kind: ResourceType, name: str, settings: Sequence[str]) -> list[ConfigRecord]:
    return [
        ConfigRecord(resource_type=kind, resource_name=name, name=setting, value=None)
        for setting in settings
        if setting in image.config(kind, name)
    ]
