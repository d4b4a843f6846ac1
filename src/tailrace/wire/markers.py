"""Transaction markers: the control batches that end a producer's transaction in one partition. And the barrier, which
ends a mirror: what producers have written before it counts for nothing after it.

A marker is one record. Key: int16 version, int16 type (0 abort, 1 commit). Value: int16 version, int32 epoch of the
coordinator that decided. The barrier is one record too, of a type that Kafka does not have and its clients pass over,
without a producer id and without a value.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from tailrace.model.ports import Bytes
from tailrace.wire.records import BatchHeader, Record, build_batch, iterate_records

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_VERSION = 0
_ABORT, _COMMIT = 0, 1
_BARRIER = 1000
# A marker has 78 bytes; nobody compresses it.
_MARKER_MAX_BYTES = 1024


class Marker(NamedTuple):
    is_commit: bool
    coordinator_epoch: int


def build_marker(marker: Marker, *, producer_id: int, producer_epoch: int, timestamp_ms: int) -> bytes:
    key = _KEY.pack(_VERSION, _COMMIT if marker.is_commit else _ABORT)
    record = Record(0, timestamp_ms, key, _VALUE.pack(_VERSION, marker.coordinator_epoch))
    return build_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )


def read_marker(header: BatchHeader, batch: Bytes) -> Marker | None:
    """None for a batch that is no marker: of records, of Raft, or a marker that compaction has emptied."""
    if not header.is_control or header.record_count == 0:
        return None
    record = next(iterate_records(batch, max_decompressed_bytes=_MARKER_MAX_BYTES))
    if record.key is None or record.value is None or len(record.key) < _KEY.size or len(record.value) < _VALUE.size:
        return None
    kind = _KEY.unpack_from(record.key)[1]
    if kind not in (_ABORT, _COMMIT):
        return None
    return Marker(kind == _COMMIT, _VALUE.unpack_from(record.value)[1])


def build_barrier(*, timestamp_ms: int) -> bytes:
    return build_batch([Record(0, timestamp_ms, _KEY.pack(_VERSION, _BARRIER), b"")], control=True)


def is_barrier(header: BatchHeader, batch: Bytes) -> bool:
    if not header.is_control or header.producer_id >= 0 or header.record_count == 0:
        return False
    record = next(iterate_records(batch, max_decompressed_bytes=_MARKER_MAX_BYTES))
    return record.key is not None and len(record.key) >= _KEY.size and _KEY.unpack_from(record.key)[1] == _BARRIER
