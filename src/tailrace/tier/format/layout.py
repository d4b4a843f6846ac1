"""A segment as one object, version 1.

    the segment      the bytes of Kafka's .log file, as they are
    parts            offset_index, time_index, aborted, producers, leader_epochs, checksums; see below
    directory        JSON: whose segment it is, where each part lies, and CRC32C of each, as 8 hexadecimal digits
    trailer          int64 position of the first part, int32 size of the directory, int32 CRC32C of the directory and of
                     the 12 bytes before, int32 version, and 8 bytes TAILSEGM; numbers are big-endian

    offset_index     int32 last offset of a batch - base offset, int32 position of that batch
    time_index       int64 largest timestamp so far, int32 last offset of its batch - base offset
    aborted          Kafka's .txnindex: transactions whose abort marker is in this segment
    producers        Kafka's .snapshot: what was known of producers at the end of the segment
    leader_epochs    Kafka's leader-epoch-checkpoint: all epochs that the log had up to the end of the segment
    checksums        int32 CRC32C of each chunk of the segment; all chunks but the last have `chunk_bytes`

Both indexes are Kafka's files with most entries left out: one is kept for each chunk. A reader takes whole chunks, for
it could not check less, so a finer index would not spare it anything; the footer of 1 GiB is some 100 KB so, not 5 MB.
A reader that knows how large the segment and the object are reads all of the footer at once.

One object and not six as Kafka's storage managers have: a copy is one PUT (of a large segment, one multipart upload),
and there is no moment in which some of them are there. A cold read takes two requests: the footer, then records.

Never looks into records.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple

from tailrace.model.errors import StorageError
from tailrace.model.ids import PartitionIndex, Uuid, parse_uuid, uuid_text
from tailrace.model.ports import Bytes
from tailrace.tier.format.names import TieredPartition
from tailrace.wire.checksum import crc32c

VERSION = 1
DEFAULT_CHUNK_BYTES = 256 << 10
TRAILER = Struct(">qiIi8s")
_TRAILER_BEFORE_SUM = Struct(">qi")
_MAGIC = b"TAILSEGM"
_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_ABORTED_ENTRY = Struct(">hqqqq")
_SUM = Struct(">I")
_PARTS = ("offset_index", "time_index", "aborted", "producers", "leader_epochs", "checksums")
# A footer that claims to be larger than this is damaged: 1 GiB has some 100 KB, and an index of Kafka's 10 MB at most.
FOOTER_MAX_BYTES = 64 << 20


class DamagedObjectError(StorageError):
    """What was read is not what was written. Says which object, and which offsets it holds where that is known."""


class AbortedEntry(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int  # of the marker
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    cluster_id: str
    topic: str
    owner: TieredPartition
    segment_id: Uuid
    base_offset: int
    end_offset: int  # of the segment: the base offset of what follows it
    size_bytes: int  # of Kafka's .log file
    max_timestamp: int  # -1 where the records have none


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """What lies beside the .log file of a closed segment, as Kafka writes it."""

    offset_index: bytes
    time_index: bytes
    aborted: bytes
    producers: bytes
    leader_epochs: bytes


class ChunkSums:
    """CRC32C of each chunk, of bytes that come piece by piece."""

    def __init__(self, chunk_bytes: int = DEFAULT_CHUNK_BYTES) -> None:
        self.size_bytes = 0
        self._chunk_bytes = chunk_bytes
        self._sums = bytearray()
        self._running = 0

    def feed(self, data: Bytes) -> None:
        view = memoryview(data)
        while view:
            room = self._chunk_bytes - self.size_bytes % self._chunk_bytes
            piece, view = view[:room], view[room:]
            self._running = crc32c(piece, self._running)
            self.size_bytes += len(piece)
            if len(piece) == room:
                self._end_chunk()

    def finish(self) -> bytes:
        if self.size_bytes % self._chunk_bytes:
            self._end_chunk()
        return bytes(self._sums)

    def _end_chunk(self) -> None:
        self._sums += _SUM.pack(self._running)
        self._running = 0


def footer_size(facts: SegmentFacts, files: SegmentFiles, chunk_bytes: int = DEFAULT_CHUNK_BYTES) -> int:
    """Before anything of the segment was read: the sums have a fixed size."""
    chunks = -(-facts.size_bytes // chunk_bytes)
    return len(build_footer(facts, files, bytes(chunks * _SUM.size), chunk_bytes))


def build_footer(
    facts: SegmentFacts, files: SegmentFiles, sums: bytes, chunk_bytes: int = DEFAULT_CHUNK_BYTES
) -> bytes:
    """What follows the bytes of the segment."""
    contents = {
        "offset_index": _thin_offsets(files.offset_index, chunk_bytes),
        "time_index": b"",
        "aborted": files.aborted,
        "producers": files.producers,
        "leader_epochs": files.leader_epochs,
        "checksums": sums,
    }
    kept = len(contents["offset_index"]) // _OFFSET_ENTRY.size
    contents["time_index"] = _thin_times(files.time_index, entries_max=kept + 1)
    position, places = facts.size_bytes, {}
    for name in _PARTS:
        content = contents[name]
        places[name] = [position, len(content), f"{crc32c(content):08x}"]
        position += len(content)
    directory = json.dumps(
        {
            "cluster": facts.cluster_id,
            "topic": facts.topic,
            "topic_id": uuid_text(facts.owner.topic_id),
            "partition": facts.owner.partition,
            "segment_id": uuid_text(facts.segment_id),
            "base_offset": facts.base_offset,
            "end_offset": facts.end_offset,
            "size_bytes": facts.size_bytes,
            "max_timestamp": facts.max_timestamp,
            "chunk_bytes": chunk_bytes,
            "parts": places,
        },
        separators=(",", ":"),
        sort_keys=True,
    ).encode()
    before_sum = _TRAILER_BEFORE_SUM.pack(facts.size_bytes, len(directory))
    trailer = TRAILER.pack(facts.size_bytes, len(directory), crc32c(before_sum, crc32c(directory)), VERSION, _MAGIC)
    return b"".join([*(contents[name] for name in _PARTS), directory, trailer])


def footer_start(name: str, trailer: Bytes, object_bytes: int) -> int:
    """Where the footer of an object begins, by its last TRAILER.size bytes. DamagedObjectError."""
    position, directory_bytes, _sum, version, magic = TRAILER.unpack(trailer)
    if magic != _MAGIC:
        raise DamagedObjectError(f"{name} is no segment: it does not end as one")
    if version != VERSION:
        raise DamagedObjectError(f"{name} has version {version} of the format: this program knows {VERSION} alone")
    size_bytes = object_bytes - position
    if position < 0 or not 0 < directory_bytes <= size_bytes - TRAILER.size or size_bytes > FOOTER_MAX_BYTES:
        raise DamagedObjectError(f"{name} is damaged: its trailer says that the footer begins at {position}")
    return int(position)


class SegmentFooter:
    """All but the records. Raises DamagedObjectError where anything is not as it was written."""

    def __init__(self, name: str, data: Bytes, object_bytes: int) -> None:
        """`data` is the end of the object, from the footer's start on or from before it."""
        view = memoryview(data)
        if len(view) < TRAILER.size:
            raise DamagedObjectError(f"{name} is damaged: it has {object_bytes} bytes")
        trailer = view[-TRAILER.size :]
        start = footer_start(name, trailer, object_bytes)
        first = object_bytes - len(view)  # The position in the object of what was read.
        if start < first:
            raise DamagedObjectError(f"{name} is damaged: its footer begins at {start}, before byte {first}")
        _, directory_bytes, stored_sum, _, _ = TRAILER.unpack(trailer)
        directory = view[-TRAILER.size - directory_bytes : -TRAILER.size]
        if crc32c(trailer[: _TRAILER_BEFORE_SUM.size], crc32c(directory)) != stored_sum:
            raise DamagedObjectError(f"{name} is damaged: the sum of its directory is wrong")
        # From here on the directory is what was written; a part may not be.
        fields: Mapping[str, Any] = json.loads(bytes(directory))
        self.name = name
        self.facts = _facts(fields)
        self.chunk_bytes: int = fields["chunk_bytes"]
        parts = {}
        for part, (position, size_bytes, part_sum) in fields["parts"].items():
            content = bytes(view[position - first : position - first + size_bytes])
            if len(content) != size_bytes or crc32c(content) != int(part_sum, 16):
                raise DamagedObjectError(f"{name} is damaged: the sum of its part {part} is wrong ({self._range})")
            parts[part] = content
        self.producers: bytes = parts["producers"]
        self.leader_epochs: bytes = parts["leader_epochs"]
        self._aborted = parts["aborted"]
        self._sums = parts["checksums"]
        self._offsets, self._positions = _columns(_OFFSET_ENTRY, parts["offset_index"])
        self._timestamps, self._time_offsets = _columns(_TIME_ENTRY, parts["time_index"])

    @property
    def _range(self) -> str:
        return f"offsets {self.facts.base_offset} to {self.facts.end_offset - 1}"

    def position_for(self, offset: int) -> int:
        """A batch begins there, and none that reaches to `offset` begins before it."""
        number = bisect_right(self._offsets, offset - self.facts.base_offset)
        return self._positions[number - 1] if number else 0

    def position_behind(self, end_offset: int) -> int:
        """What reaches below `end_offset` ends there or before it: a batch begins there, or the segment ends."""
        number = bisect_left(self._offsets, end_offset - 1 - self.facts.base_offset) + 1
        return self._positions[number] if number < len(self._positions) else self.facts.size_bytes

    def offset_for_time(self, timestamp: int) -> int:
        """No record before this offset is as new as `timestamp`."""
        number = bisect_right(self._timestamps, timestamp - 1)
        return self.facts.base_offset + self._time_offsets[number - 1] if number else self.facts.base_offset

    def split_offsets(self) -> list[int]:
        """Offsets at which a batch ends, in about equal distances of bytes: where a task's share may end."""
        return [self.facts.base_offset + offset + 1 for offset in self._offsets]

    def aborted(self, offset: int, end_offset: int) -> Iterator[AbortedEntry]:
        """Those that reach into `offset` to `end_offset` and whose marker is in this segment."""
        for _version, *entry in _ABORTED_ENTRY.iter_unpack(self._aborted):
            found = AbortedEntry(*entry)
            if found.last_offset >= offset and found.first_offset < end_offset:
                yield found

    def whole_chunks(self, start: int, end: int) -> tuple[int, int]:
        """The range of whole chunks that holds the bytes from `start` to `end`."""
        size = self.chunk_bytes
        return start // size * size, min(-(-end // size) * size, self.facts.size_bytes)

    def check(self, start: int, data: Bytes) -> None:
        """Whole chunks from `start` on."""
        view = memoryview(data)
        for at in range(0, len(view), self.chunk_bytes):
            number = (start + at) // self.chunk_bytes
            if crc32c(view[at : at + self.chunk_bytes]) != _SUM.unpack_from(self._sums, number * _SUM.size)[0]:
                raise DamagedObjectError(
                    f"{self.name} is damaged: the sum of the bytes from {start + at} on is wrong ({self._range})"
                )


def _thin_offsets(index: bytes, chunk_bytes: int) -> bytes:
    kept, next_position = bytearray(), 0
    for offset, position in _OFFSET_ENTRY.iter_unpack(index):
        if position >= next_position:
            kept += _OFFSET_ENTRY.pack(offset, position)
            next_position = position + chunk_bytes
    return bytes(kept)


def _thin_times(index: bytes, *, entries_max: int) -> bytes:
    """Every so manieth entry, and the last: it has the largest timestamp."""
    count = len(index) // _TIME_ENTRY.size
    step = -(-count // entries_max) or 1
    entries = [index[at * _TIME_ENTRY.size : (at + 1) * _TIME_ENTRY.size] for at in range(0, count, step)]
    if count and (count - 1) % step:
        entries.append(index[(count - 1) * _TIME_ENTRY.size : count * _TIME_ENTRY.size])
    return b"".join(entries)


def _columns(entry: Struct, data: bytes) -> tuple[array[int], array[int]]:
    entries = list(entry.iter_unpack(data))
    return array("q", [first for first, _ in entries]), array("q", [second for _, second in entries])


def _facts(fields: Mapping[str, Any]) -> SegmentFacts:
    return SegmentFacts(
        cluster_id=fields["cluster"],
        topic=fields["topic"],
        owner=TieredPartition(parse_uuid(fields["topic_id"]), PartitionIndex(fields["partition"])),
        segment_id=parse_uuid(fields["segment_id"]),
        base_offset=fields["base_offset"],
        end_offset=fields["end_offset"],
        size_bytes=fields["size_bytes"],
        max_timestamp=fields["max_timestamp"],
    )
