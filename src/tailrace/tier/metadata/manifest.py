"""A manifest: what is visible of a partition, for readers without a broker. A statement (`format.statements`) of
version 1.

    {"cluster", "topic", "topic_id", "partition", "version", "written_ms", "partitions", "settings", "log_start_offset",
     "log_end_offset", "lineage", "lineages", "segments"}

    version    generation, metadata offset, leader epoch and number, as in the name (`format.names`)
    partitions how many the topic has; settings: those of the topic that are not defaults
    lineage    [epoch, start offset] of the log; lineages: those that segments have
    segments   [id, base offset, end offset, bytes of records, bytes of the object, newest timestamp, broker,
               number of its lineage, whether the marker of an aborted transaction may be in it]

The leader writes one after each change of what is visible, under a name of its own, and never changes it. What it says
was true at one moment. An older one names fewer of the newest segments, and some that retention has removed since:
never wrong ones. Which of the segments serves which offset is `coverage`'s decision, as for brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.model.ids import PartitionIndex, Uuid, parse_uuid, uuid_text
from tailrace.tier.format.layout import DamagedObjectError
from tailrace.tier.format.names import ManifestName, ManifestVersion, TieredPartition, manifest_name
from tailrace.tier.format.statements import read_statement, write_statement
from tailrace.tier.metadata.coverage import Coverage, Lineage, RemoteSegment, cover

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    cluster_id: str
    topic: str
    owner: TieredPartition
    version: ManifestVersion
    written_ms: int
    partition_count: int  # Of the topic.
    settings: Mapping[str, str]  # Of the topic, as far as they are not the defaults.
    log_start_offset: int
    log_end_offset: int  # Of the log, most of which may not be here yet.
    lineage: Lineage
    segments: tuple[RemoteSegment, ...]

    @property
    def name(self) -> str:
        return manifest_name(self.cluster_id, ManifestName(self.topic, self.owner, self.version))

    def coverage(self) -> Coverage:
        return cover(
            self.segments,
            self.lineage,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
        )


def write_manifest(manifest: Manifest) -> bytes:
    """A few milliseconds for thousands of segments: not on the loop."""
    lineages: dict[tuple[tuple[int, int], ...], int] = {}
    return write_statement(
        "manifest",
        _VERSION,
        {
            "cluster": manifest.cluster_id,
            "topic": manifest.topic,
            "topic_id": uuid_text(manifest.owner.topic_id),
            "partition": manifest.owner.partition,
            "version": manifest.version,
            "written_ms": manifest.written_ms,
            "partitions": manifest.partition_count,
            "settings": dict(manifest.settings),
            "log_start_offset": manifest.log_start_offset,
            "log_end_offset": manifest.log_end_offset,
            "lineage": manifest.lineage,
            "segments": [
                (
                    uuid_text(segment.segment_id),
                    segment.base_offset,
                    segment.end_offset,
                    segment.size_bytes,
                    segment.object_bytes,
                    segment.max_timestamp,
                    segment.broker_id,
                    lineages.setdefault(segment.epochs, len(lineages)),
                    segment.has_aborted,
                )
                for segment in sorted(manifest.segments, key=lambda each: (each.base_offset, each.segment_id))
            ],
            "lineages": list(lineages),
        },
    )


def read_manifest(name: str, data: bytes) -> Manifest:
    """DamagedObjectError if it is not what was written under this name."""
    manifest = _manifest(read_statement("manifest", _VERSION, name, data))
    if manifest.name != name:
        raise DamagedObjectError(f"{name} holds another manifest, {manifest.name}")
    return manifest


def _manifest(fields: Mapping[str, Any]) -> Manifest:
    lineages = [tuple((epoch, start) for epoch, start in each) for each in fields["lineages"]]
    return Manifest(
        cluster_id=fields["cluster"],
        topic=fields["topic"],
        owner=TieredPartition(parse_uuid(fields["topic_id"]), PartitionIndex(fields["partition"])),
        version=ManifestVersion(*fields["version"]),
        written_ms=fields["written_ms"],
        partition_count=fields["partitions"],
        settings=fields["settings"],
        log_start_offset=fields["log_start_offset"],
        log_end_offset=fields["log_end_offset"],
        lineage=tuple((epoch, start) for epoch, start in fields["lineage"]),
        segments=tuple(_segment(each, lineages) for each in fields["segments"]),
    )


def _segment(row: list[Any], lineages: list[tuple[tuple[int, int], ...]]) -> RemoteSegment:
    segment_id, base, end, size, object_size, newest, broker_id, lineage, has_aborted = row
    return RemoteSegment(
        Uuid(parse_uuid(segment_id)),
        base,
        end,
        size,
        object_size,
        newest,
        broker_id,
        lineages[lineage],
        has_aborted,
    )
