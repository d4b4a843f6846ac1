"""The names of objects. Each is given to one content and never to another; nobody learns from them what is visible.

    <cluster id>/<topic id>/<partition>/<base offset>-<segment id>.segment    a segment
    <cluster id>/<topic id>/<partition>/<metadata offset>.manifest            what is visible of a partition
    cluster.json                                                              whose store this is

Ids are Kafka's base64url texts, offsets have 20 digits, so that the names of a partition sort by offset.
"""

from __future__ import annotations

from typing import NamedTuple

from tailrace.model.ids import PartitionIndex, Uuid, parse_uuid, uuid_text

MARKER_NAME = "cluster.json"
_SEGMENT_SUFFIX = ".segment"
_MANIFEST_SUFFIX = ".manifest"
_OFFSET_DIGITS = 20


class TieredPartition(NamedTuple):
    """A partition for ever: another topic of the same name has another id."""

    topic_id: Uuid
    partition: PartitionIndex


class SegmentName(NamedTuple):
    owner: TieredPartition
    base_offset: int
    segment_id: Uuid


class ManifestName(NamedTuple):
    owner: TieredPartition
    metadata_offset: int


def partition_folder(cluster_id: str, owner: TieredPartition) -> str:
    return f"{cluster_id}/{uuid_text(owner.topic_id)}/{owner.partition}"


def segment_name(cluster_id: str, owner: TieredPartition, base_offset: int, segment_id: Uuid) -> str:
    folder = partition_folder(cluster_id, owner)
    return f"{folder}/{base_offset:0{_OFFSET_DIGITS}d}-{uuid_text(segment_id)}{_SEGMENT_SUFFIX}"


def manifest_name(cluster_id: str, owner: TieredPartition, metadata_offset: int) -> str:
    return f"{partition_folder(cluster_id, owner)}/{metadata_offset:0{_OFFSET_DIGITS}d}{_MANIFEST_SUFFIX}"


def parse_name(cluster_id: str, name: str) -> SegmentName | ManifestName | None:
    """None for what is not ours: nobody touches it."""
    folder, _, file = name.removeprefix(f"{cluster_id}/").rpartition("/")
    topic_id, _, partition = folder.partition("/")
    if not name.startswith(f"{cluster_id}/") or not partition.isdecimal():
        return None
    offset, rest = file[:_OFFSET_DIGITS], file[_OFFSET_DIGITS:]
    if len(offset) != _OFFSET_DIGITS or not offset.isdecimal():
        return None
    try:
        owner = TieredPartition(parse_uuid(topic_id), PartitionIndex(int(partition)))
        if rest == _MANIFEST_SUFFIX:
            return ManifestName(owner, int(offset))
        if rest.startswith("-") and rest.endswith(_SEGMENT_SUFFIX):
            return SegmentName(owner, int(offset), parse_uuid(rest[1 : -len(_SEGMENT_SUFFIX)]))
    except ValueError:
        pass
    return None
