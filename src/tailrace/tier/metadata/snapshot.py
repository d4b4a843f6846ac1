"""What a machine knows, as a file: spares a start the replay of years of records.

    8 bytes TAILTIER, int32 version, int32 size of the header, int32 CRC32C of version, size and all that follows
    header   JSON: the next offset to replay, the partitions with their lineages, and how many rows each has
    rows     one for each segment, see `_ROW`

Kafka has a record for snapshots (type 3), without a topic in it and some ten times as slow to read in Python: 100,000
segments have to be there within two seconds of a start.
"""

from __future__ import annotations

import json
from struct import Struct
from typing import Any

from tailrace.model.errors import StorageError
from tailrace.model.ids import PartitionIndex, Uuid, parse_uuid, uuid_text
from tailrace.tier.format.names import TieredPartition
from tailrace.tier.metadata.coverage import RemoteSegment
from tailrace.tier.metadata.machine import TierMachine
from tailrace.tier.metadata.partition import PartitionTier, Unfinished
from tailrace.tier.metadata.records import PartitionState, SegmentState
from tailrace.wire.checksum import crc32c

_MAGIC = b"TAILTIER"
_VERSION = 1
_HEAD = Struct(">8s8sI")
_SUMMED_HEAD = Struct(">ii")
# Segment id, base and end offset, size, size of the object, newest timestamp, broker, number of its lineage, whether a
# transaction was aborted in it, state; of what is under way also the leader epoch and since when.
_ROW = Struct(">16sqqiqqii?biq")


def write_snapshot(machine: TierMachine) -> bytes:
    partitions, rows = [], bytearray()
    for owner, tier in machine.partitions.items():
        lineages: dict[tuple[tuple[int, int], ...], int] = {}
        count = 0
        for segment, state, leader_epoch, since_ms in _segments(tier):
            lineage = lineages.setdefault(segment.epochs, len(lineages))
            count += 1
            rows += _ROW.pack(
                segment.segment_id,
                segment.base_offset,
                segment.end_offset,
                segment.size_bytes,
                segment.object_bytes,
                segment.max_timestamp,
                segment.broker_id,
                lineage,
                segment.has_aborted,
                state,
                leader_epoch,
                since_ms,
            )
        partitions.append(
            {
                "topic": tier.topic,
                "topic_id": uuid_text(owner.topic_id),
                "partition": owner.partition,
                "leader_epoch": tier.leader_epoch,
                "log_start_offset": tier.log_start_offset,
                "deletion": tier.deletion,
                "lineages": list(lineages),
                "rows": count,
            }
        )
    header = json.dumps({"next_offset": machine.next_offset, "partitions": partitions}, separators=(",", ":")).encode()
    summed = _SUMMED_HEAD.pack(_VERSION, len(header))
    return _HEAD.pack(_MAGIC, summed, crc32c(rows, crc32c(header, crc32c(summed)))) + header + rows


def read_snapshot(data: bytes) -> TierMachine:
    """StorageError if it is not what was written."""
    if len(data) < _HEAD.size:
        raise StorageError("a snapshot of the tier is cut short")
    magic, summed, stored_sum = _HEAD.unpack_from(data)
    version, header_bytes = _SUMMED_HEAD.unpack(summed)
    if magic != _MAGIC or version != _VERSION:
        raise StorageError(f"this is no snapshot of the tier, or one of an unknown version ({version})")
    view = memoryview(data)[_HEAD.size :]
    if crc32c(view, crc32c(summed)) != stored_sum:
        raise StorageError("the sum of a snapshot of the tier is wrong")
    header: dict[str, Any] = json.loads(bytes(view[:header_bytes]))
    rows = _ROW.iter_unpack(view[header_bytes:])
    machine = TierMachine()
    machine.next_offset = header["next_offset"]
    for fields in header["partitions"]:
        deletion = fields["deletion"]
        tier = PartitionTier(
            fields["topic"],
            leader_epoch=fields["leader_epoch"],
            log_start_offset=fields["log_start_offset"],
            deletion=None if deletion is None else PartitionState(deletion),
        )
        owner = TieredPartition(parse_uuid(fields["topic_id"]), PartitionIndex(fields["partition"]))
        machine.partitions[owner] = tier
        lineages = [machine.share(tuple((epoch, start) for epoch, start in each)) for each in fields["lineages"]]
        reached = 0  # One number for where a segment ends and the next one begins.
        for _ in range(fields["rows"]):
            reached = _read_row(next(rows), tier, lineages, reached)
    return machine


def _segments(tier: PartitionTier) -> list[tuple[RemoteSegment, SegmentState, int, int]]:
    return [
        *(
            (each.segment, SegmentState.COPY_STARTED, each.leader_epoch, each.since_ms)
            for each in tier.copying.values()
        ),
        *((segment, SegmentState.COPY_FINISHED, -1, -1) for segment in tier.visible.values()),
        *(
            (each.segment, SegmentState.DELETE_STARTED, each.leader_epoch, each.since_ms)
            for each in tier.deleting.values()
        ),
    ]


def _read_row(
    row: tuple[Any, ...], tier: PartitionTier, lineages: list[tuple[tuple[int, int], ...]], reached: int
) -> int:
    """Gives where the segment ends; `reached`: where the one before it did."""
    raw_id, base, end, size, object_size, newest, broker_id, lineage, has_aborted, state, leader_epoch, since_ms = row
    segment_id = Uuid(raw_id)
    base = reached if base == reached else base
    segment = RemoteSegment(segment_id, base, end, size, object_size, newest, broker_id, lineages[lineage], has_aborted)
    if state == SegmentState.COPY_FINISHED:
        tier.visible[segment_id] = segment
    elif state == SegmentState.COPY_STARTED:
        tier.copying[segment_id] = Unfinished(segment, leader_epoch, since_ms)
    else:
        tier.deleting[segment_id] = Unfinished(segment, leader_epoch, since_ms)
    return int(end)
