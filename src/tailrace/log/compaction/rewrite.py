"""What is left of one batch: the rules of compaction, record by record.

    record                                         stays
    without a key                                  no
    a later one of its key is known                no
    has a value                                    yes
    a tombstone (no value)                         until the delete horizon of its batch (KIP-534)
    of an aborted transaction                      no
    a marker that no record needs any more         until the delete horizon of its batch

A batch keeps its base offset, last offset, leader epoch, producer fields, codec and timestamp type, so that offsets,
order and producer state are what they were; its max timestamp becomes that of what is left. The first time that
tombstones survive, the batch is stamped with its delete horizon: now + delete.retention.ms takes the place of the
base timestamp, and the deltas are counted from it. A batch that lost nothing is copied as it is.

A batch without records is dropped, unless it is the last of a producer that is still known (it carries the sequence)
or the last of its segment (the next one must follow on it): then its header alone stays.
"""

from tailrace.log.compaction.keymap import KeyMap
from tailrace.log.compaction.spans import Span
from tailrace.wire.records import NO_TIMESTAMP, BatchHeader, TimestampType
from tailrace.wire.varint import encode_varint

_CODEC_MASK = 0x07
_DELETE_HORIZON_BIT = 0x40


class BatchFilter:
    """One batch on its way: `take` its records slice by slice, then ask what is left."""

    def __init__(
        self,
        header: BatchHeader,
        block: bytes,
        keys: KeyMap,
        *,
        now_ms: int,
        delete_retention_ms: int,
        is_aborted: bool = False,
    ) -> None:
        self.header = header
        self._is_aborted = is_aborted
        self._block = block
        self._keys = keys
        self._kept: list[Span] = []
        self._has_tombstones = False
        self._drops_tombstones = header.has_delete_horizon and header.base_timestamp <= now_ms
        self._delete_horizon_ms = now_ms + delete_retention_ms

    def take(self, spans: list[Span]) -> None:
        if self._is_aborted:
            return
        if self.header.is_control:
            self._take_marker(spans)
            return
        base_offset, latest_offset, kept = self.header.base_offset, self._keys.latest_offset, self._kept
        for span in spans:
            key = span.key
            if key is None or base_offset + span.offset_delta < latest_offset(key):
                continue
            if not span.has_value:
                if self._drops_tombstones:
                    continue
                self._has_tombstones = True
            kept.append(span)

    def _take_marker(self, spans: list[Span]) -> None:
        if not self._drops_tombstones:
            self._has_tombstones = True
            self._kept += spans

    @property
    def kept_count(self) -> int:
        return len(self._kept)

    @property
    def is_unchanged(self) -> bool:
        return len(self._kept) == self.header.record_count and not self._needs_horizon

    def rebuild(self) -> tuple[BatchHeader, bytes]:
        """The header and the records, yet uncompressed, of a batch that changed and has records left."""
        header, kept = self.header, self._kept
        max_timestamp = header.max_timestamp
        if header.timestamp_type is TimestampType.CREATE_TIME:
            max_timestamp = header.base_timestamp + max(span.timestamp_delta for span in kept)
        header = header._replace(max_timestamp=max_timestamp, record_count=len(kept))
        if not self._needs_horizon:
            return header, b"".join([self._block[span.start : span.end] for span in kept])
        horizon_ms = self._delete_horizon_ms
        shift = header.base_timestamp - horizon_ms
        records = b"".join([_shifted(self._block, span, shift) for span in kept])
        return header._replace(attributes=header.attributes | _DELETE_HORIZON_BIT, base_timestamp=horizon_ms), records

    @property
    def _needs_horizon(self) -> bool:
        return self._has_tombstones and not self.header.has_delete_horizon


def empty_header(header: BatchHeader) -> BatchHeader:
    """The header of a batch whose records are all gone: it still tells its offsets and its producer's sequences."""
    attributes = header.attributes & ~(_CODEC_MASK | _DELETE_HORIZON_BIT)
    return header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0)


def _shifted(block: bytes, span: Span, shift: int) -> bytes:
    """The record with its timestamp counted from another base: all after the delta is copied."""
    delta = encode_varint(span.timestamp_delta + shift)
    rest = block[span.rest : span.end]
    return encode_varint(1 + len(delta) + len(rest)) + b"\x00" + delta + rest
