"""An export: what a recovery needs of the cluster beside segments and manifests. A statement (`format.statements`),
version 1.

    {"cluster", "version", "next_producer_id", "topics", "groups"}

    version    generation, leader epoch and time, as in the name (`format.names`)
    topics     {"name", "id", "settings", "epochs"} of each that has remote storage: its settings that are not defaults,
               and the leader epoch of each partition
    groups     {group: {topic: [[partition, offset, leader epoch, metadata], ...]}}: what groups have committed in those
               topics

It is true of a moment: what was committed since then is read again after a recovery.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tailrace.model.ids import Uuid, parse_uuid, uuid_text
from tailrace.tier.format.layout import DamagedObjectError
from tailrace.tier.format.names import ExportVersion, export_name
from tailrace.tier.format.statements import read_statement, write_statement

_KIND, _VERSION = "export", 1


@dataclass(frozen=True, slots=True)
class ExportedTopic:
    name: str
    topic_id: Uuid
    settings: Mapping[str, str]
    leader_epochs: Sequence[int]  # One for each partition.


class ExportedOffset(NamedTuple):
    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


@dataclass(frozen=True, slots=True)
class Export:
    cluster_id: str
    version: ExportVersion
    next_producer_id: int
    topics: Sequence[ExportedTopic]
    offsets: Sequence[ExportedOffset]

    @property
    def name(self) -> str:
        return export_name(self.cluster_id, self.version)


def write_export(export: Export) -> bytes:
    """A second for a million offsets: not on the loop."""
    groups: dict[str, dict[str, list[tuple[int, int, int, str]]]] = {}
    for each in export.offsets:
        partitions = groups.setdefault(each.group_id, {}).setdefault(each.topic, [])
        partitions.append((each.partition, each.offset, each.leader_epoch, each.metadata))
    topics = [
        {
            "name": topic.name,
            "id": uuid_text(topic.topic_id),
            "settings": dict(topic.settings),
            "epochs": list(topic.leader_epochs),
        }
        for topic in export.topics
    ]
    fields = {"cluster": export.cluster_id, "version": export.version, "next_producer_id": export.next_producer_id}
    return write_statement(_KIND, _VERSION, {**fields, "topics": topics, "groups": groups})


def read_export(name: str, data: bytes) -> Export:
    """DamagedObjectError if it is not what was written under this name."""
    fields = read_statement(_KIND, _VERSION, name, data)
    export = Export(
        cluster_id=fields["cluster"],
        version=ExportVersion(*fields["version"]),
        next_producer_id=fields["next_producer_id"],
        topics=[_topic(each) for each in fields["topics"]],
        offsets=[
            ExportedOffset(group_id, topic, *entry)
            for group_id, topics in fields["groups"].items()
            for topic, entries in topics.items()
            for entry in entries
        ],
    )
    if export.name != name:
        raise DamagedObjectError(f"{name} holds another export, {export.name}")
    return export


def _topic(fields: Mapping[str, Any]) -> ExportedTopic:
    return ExportedTopic(fields["name"], Uuid(parse_uuid(fields["id"])), fields["settings"], fields["epochs"])
