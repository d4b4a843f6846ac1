"""The names of objects. Each is given to one content and never to another; nobody learns from them what is visible.

    <cluster id>/<topic id>/<partition>/<base offset>-<segment id>.segment    a segment
    <cluster id>/manifests/<topic>/<topic id>/<partition>/<version>.manifest  what is visible of a partition
    <cluster id>/exports/<version>.export                                     topics and groups of the cluster
    cluster.json                                                              whose store this is

Ids are Kafka's base64url texts, offsets have 20 digits, so that the names of a partition sort by offset. A version is
<generation>-<metadata offset>-<leader epoch>-<number>, that of an export <generation>-<leader epoch>-<milliseconds>,
each with leading zeroes, so that versions sort as they followed on each other. Manifests lie apart from segments: to
find the newest, a reader lists one topic's and nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

from tailrace.model.ids import PartitionIndex, Uuid, parse_uuid, uuid_text

MARKER_NAME = "cluster.json"
_SEGMENT_SUFFIX = ".segment"
_MANIFEST_SUFFIX = ".manifest"
_OFFSET_DIGITS = 20
_MANIFESTS = "manifests"  # No topic id has so few characters.
_VERSION_DIGITS = (10, _OFFSET_DIGITS, 10, 10)
_EXPORTS = "exports"
_EXPORT_SUFFIX = ".export"
_EXPORT_DIGITS = (10, 10, _OFFSET_DIGITS)


class TieredPartition(NamedTuple):
    """A partition for ever: another topic of the same name has another id."""

    topic_id: Uuid
    partition: PartitionIndex


class SegmentName(NamedTuple):
    owner: TieredPartition
    base_offset: int
    segment_id: Uuid


class ManifestVersion(NamedTuple):
    """Versions of one partition are compared field by field: the greatest tells what is visible."""

    generation: int  # Of the cluster: a recovery from the bucket begins another one, with offsets from 0 on.
    metadata_offset: int  # All records of the metadata partition below it are told of.
    leader_epoch: int  # Of who wrote it. Two leaders may know equal records, and have different histories.
    number: int  # Of the manifests of that leader in that epoch.


class ManifestName(NamedTuple):
    topic: str
    owner: TieredPartition
    version: ManifestVersion


class ExportVersion(NamedTuple):
    """Of a cluster's exports the greatest is the newest."""

    generation: int
    leader_epoch: int  # Of who wrote it, in partition 0 of __remote_log_metadata: one broker at a time.
    written_ms: int  # By its clock.


def partition_folder(cluster_id: str, owner: TieredPartition) -> str:
    return f"{cluster_id}/{uuid_text(owner.topic_id)}/{owner.partition}"


def segment_name(cluster_id: str, owner: TieredPartition, base_offset: int, segment_id: Uuid) -> str:
    folder = partition_folder(cluster_id, owner)
    return f"{folder}/{base_offset:0{_OFFSET_DIGITS}d}-{uuid_text(segment_id)}{_SEGMENT_SUFFIX}"


def manifest_folder(cluster_id: str, topic: str = "") -> str:
    """Of all topics, or of one and those that had its name before."""
    return f"{cluster_id}/{_MANIFESTS}/{topic}" if topic else f"{cluster_id}/{_MANIFESTS}"


def partition_manifest_folder(cluster_id: str, topic: str, owner: TieredPartition) -> str:
    return f"{manifest_folder(cluster_id, topic)}/{uuid_text(owner.topic_id)}/{owner.partition}"


def manifest_name(cluster_id: str, name: ManifestName) -> str:
    version = _version_text(name.version, _VERSION_DIGITS)
    return f"{partition_manifest_folder(cluster_id, name.topic, name.owner)}/{version}{_MANIFEST_SUFFIX}"


def export_folder(cluster_id: str) -> str:
    return f"{cluster_id}/{_EXPORTS}"


def export_name(cluster_id: str, version: ExportVersion) -> str:
    return f"{export_folder(cluster_id)}/{_version_text(version, _EXPORT_DIGITS)}{_EXPORT_SUFFIX}"


def parse_export_name(cluster_id: str, name: str) -> ExportVersion | None:
    """None for what is no export."""
    folder, _, file = name.rpartition("/")
    if folder != export_folder(cluster_id):
        return None
    try:
        return ExportVersion(*_parse_version(file, _EXPORT_SUFFIX, _EXPORT_DIGITS))
    except ValueError:
        return None


def parse_name(cluster_id: str, name: str) -> SegmentName | ManifestName | None:
    """None for what is not ours: nobody touches it."""
    try:
        match name.split("/"):
            case [cluster, kind, topic, topic_id, partition, file] if (cluster, kind) == (cluster_id, _MANIFESTS):
                owner = TieredPartition(parse_uuid(topic_id), PartitionIndex(_number(partition)))
                version = ManifestVersion(*_parse_version(file, _MANIFEST_SUFFIX, _VERSION_DIGITS))
                return ManifestName(topic, owner, version)
            case [cluster, topic_id, partition, file] if cluster == cluster_id:
                owner = TieredPartition(parse_uuid(topic_id), PartitionIndex(_number(partition)))
                return SegmentName(owner, *_parse_segment(file))
    except ValueError:
        pass
    return None


def _version_text(version: tuple[int, ...], digits: tuple[int, ...]) -> str:
    return "-".join(f"{part:0{count}d}" for part, count in zip(version, digits, strict=True))


def _parse_version(file: str, suffix: str, digits: tuple[int, ...]) -> list[int]:
    parts = file.removesuffix(suffix).split("-")
    if not file.endswith(suffix) or tuple(map(len, parts)) != digits:
        raise ValueError(f"{file} is no version")
    return [_number(part) for part in parts]


def _parse_segment(file: str) -> tuple[int, Uuid]:
    offset, dash, segment_id = file.removesuffix(_SEGMENT_SUFFIX).partition("-")
    if not file.endswith(_SEGMENT_SUFFIX) or len(offset) != _OFFSET_DIGITS or not dash:
        raise ValueError(f"{file} is no segment")
    return _number(offset), parse_uuid(segment_id)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{text} is no number")
    return int(text)
