"""Control records of the metadata log and its snapshots: what Raft itself writes between the metadata records.

A control batch changes no metadata. Its keys are two int16: the version of the key and the type of the record; the
value is the message alone. The numbers are Kafka's, so that kafka-dump-log can print them.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error

from tailrace.model.errors import ProtocolError
from tailrace.model.ports import Bytes
from tailrace.wire.apis.stored_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from tailrace.wire.compile import decode, encode
from tailrace.wire.records import Record, build_batch, iterate_headers, iterate_records
from tailrace.wire.schema import Message

LEADER_CHANGE = 2
SNAPSHOT_HEADER = 3
SNAPSHOT_FOOTER = 4
KRAFT_VERSION = 5
KRAFT_VOTERS = 6

# The level of kraft.version whose voters are (id, directory id) and kept on the log (KIP-853).
DYNAMIC_QUORUM_LEVEL = 1

_KEY = Struct(">hh")
_KEY_VERSION = 0
# Version 1 of a LeaderChangeMessage names the directories of voters too, but Kafka 4.3's kafka-dump-log reads every one
# as version 0. The others have one version.
_VERSION = 0
_TYPES: dict[int, type[Message]] = {
    LEADER_CHANGE: LeaderChangeMessage,
    SNAPSHOT_HEADER: SnapshotHeaderRecord,
    SNAPSHOT_FOOTER: SnapshotFooterRecord,
    KRAFT_VERSION: KRaftVersionRecord,
    KRAFT_VOTERS: VotersRecord,
}
# A batch of Raft's own: some hundred voters at most.
_BATCH_MAX_BYTES = 1 << 20


def build_control_batch(
    records: Sequence[tuple[int, Message]], *, timestamp_ms: int, base_offset: int = 0, epoch: int = -1
) -> bytes:
    """One batch of (type, message)."""
    framed = [
        Record(base_offset + index, timestamp_ms, _KEY.pack(_KEY_VERSION, kind), bytes(encode(message, _VERSION)))
        for index, (kind, message) in enumerate(records)
    ]
    return build_batch(framed, base_offset=base_offset, leader_epoch=epoch, control=True)


def read_control_batch(batch: Bytes) -> list[tuple[int, Message]]:
    """Offset and message of each record; those of types that this version does not know are left out, as in Kafka.
    Raises ProtocolError."""
    found: list[tuple[int, Message]] = []
    for record in iterate_records(batch, max_decompressed_bytes=_BATCH_MAX_BYTES):
        try:
            _, kind = _KEY.unpack(record.key or b"")
        except error as fault:
            raise ProtocolError(f"the control record at offset {record.offset} has no type") from fault
        if kind in _TYPES:
            found.append((record.offset, decode(_TYPES[kind], _VERSION, record.value or b"")))
    return found


def find_control_records(batches: Bytes) -> list[tuple[int, Message]]:
    """Offset and message of all control records within whole batches, such as a fetch brings."""
    found: list[tuple[int, Message]] = []
    view = memoryview(batches)
    for position, header in iterate_headers(view, allow_partial=True):
        if header.is_control:
            found += read_control_batch(view[position : position + header.size_bytes])
    return found
