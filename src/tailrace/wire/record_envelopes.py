"""The envelopes around the records of internal topics.

    __cluster_metadata     value: varint frame version (1), varint record type, varint version, body
    __remote_log_metadata  the same, with record types of its own
    __consumer_offsets     key: int16 record type, body      value: int16 version, body; no value is a tombstone
    __transaction_state    the same, with record types of its own

The declarations, and the record types of each topic, are in `apis.stored_records`.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct as Packing
from typing import TYPE_CHECKING

from tailrace.model.errors import ProtocolError
from tailrace.wire.apis.stored_records import METADATA_RECORDS
from tailrace.wire.codec.decoding import read_varint
from tailrace.wire.codec.layout import varint
from tailrace.wire.compile import decode, decode_from, encoder
from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.model.ports import Bytes

_FRAME_VERSION = 1
# A coordinator's record type tells all: its keys exist in version 0 alone.
_KEY_VERSION = 0
_INT16 = Packing(">h")


class UnknownRecordTypeError(ProtocolError):
    """A record that a newer version wrote. Who replays a topic decides whether it may be passed over."""


def encode_metadata_record(record: Message, version: int | None = None) -> bytes:
    """The value of a record on a metadata topic; without `version`, in the newest one."""
    version = record.versions[-1] if version is None else version
    output = bytearray(varint(_FRAME_VERSION) + varint(record.record_type) + varint(version))
    encoder(type(record), version)(record, output, [])
    return bytes(output)


def decode_metadata_record(value: Bytes, types: Mapping[int, type[Message]] = METADATA_RECORDS) -> Message:
    """Bytes after the body are an error here, for a metadata record is applied whole or not at all."""
    try:
        frame_version, position = read_varint(value, 0)
        record_type, position = read_varint(value, position)
        version, position = read_varint(value, position)
    except IndexError as fault:
        raise ProtocolError(f"a metadata record of {len(value)} bytes is cut short") from fault
    if frame_version != _FRAME_VERSION:
        raise ProtocolError(f"a metadata record with frame version {frame_version}: only {_FRAME_VERSION} is known")
    if record_type not in types:
        raise UnknownRecordTypeError(f"metadata record type {record_type} is not known")
    record, end = decode_from(types[record_type], version, value, position)
    if end != len(value):
        raise ProtocolError(f"{len(value) - end} bytes after a {type(record).__name__} v{version}")
    return record


def encode_coordinator_key(key: Message) -> bytes:
    output = bytearray(_INT16.pack(key.record_type))
    encoder(type(key), _KEY_VERSION)(key, output, [])
    return bytes(output)


def encode_coordinator_value(value: Message, version: int | None = None) -> bytes:
    """Without `version`, in the newest one."""
    version = value.versions[-1] if version is None else version
    output = bytearray(_INT16.pack(version))
    encoder(type(value), version)(value, output, [])
    return bytes(output)


def decode_coordinator_record(
    types: Mapping[int, tuple[type[Message], type[Message]]], key: Bytes, value: Bytes | None
) -> tuple[Message, Message | None]:
    """`types` is GROUP_RECORDS or TRANSACTION_RECORDS. A value of None is a tombstone."""
    record_type = _read_int16(key)
    if record_type not in types:
        raise UnknownRecordTypeError(f"coordinator record type {record_type} is not known")
    key_type, value_type = types[record_type]
    decoded_key = decode(key_type, _KEY_VERSION, key, _INT16.size)
    if value is None:
        return decoded_key, None
    return decoded_key, decode(value_type, _read_int16(value), value, _INT16.size)


def _read_int16(buffer: Bytes) -> int:
    if len(buffer) < _INT16.size:
        raise ProtocolError(f"a coordinator record of {len(buffer)} bytes is cut short")
    number: int = _INT16.unpack_from(buffer)[0]
    return number
