"""A principal as an Envelope carries it: the int16 of a version, then DefaultPrincipalData in that version, as Kafka's
own DefaultKafkaPrincipalBuilder writes and reads it.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct

from tailrace.model.errors import ProtocolError
from tailrace.model.ports import Bytes
from tailrace.model.security import Principal
from tailrace.wire.apis.stored_records import DefaultPrincipalData
from tailrace.wire.compile import decode, encode

_VERSION = Struct(">h")
_WRITTEN_VERSION = 0
# Those who send admin requests are few, and the same ones.
_CACHED_MAX = 256


@lru_cache(_CACHED_MAX)
def encode_principal(principal: Principal) -> bytes:
    kind, name, is_by_token = principal
    data = DefaultPrincipalData(type=kind, name=name, token_authenticated=is_by_token)
    return _VERSION.pack(_WRITTEN_VERSION) + bytes(encode(data, _WRITTEN_VERSION))


def decode_principal(data: Bytes) -> Principal:
    """Raises ProtocolError."""
    if len(data) < _VERSION.size:
        raise ProtocolError(f"a principal of {len(data)} bytes has no version")
    (version,) = _VERSION.unpack_from(data)
    if version != _WRITTEN_VERSION:
        raise ProtocolError(f"a principal in version {version}, which is not known")
    found = decode(DefaultPrincipalData, version, data, _VERSION.size)
    if not found.type or not found.name:
        raise ProtocolError("a principal without a kind or without a name")
    return Principal(found.type, found.name, found.token_authenticated)
