"""Frames: a size, a header, a body.

    request   int32 size | RequestHeader  | body
    response  int32 size | ResponseHeader | body

The version of the header follows from the API and its version: compact forms and tags (KIP-482) came to headers and
bodies together. Two exceptions, both so that a client can always ask which versions a broker has (KIP-511):

- The response to ApiVersions has header version 0, whatever its own version.
- An ApiVersions request of a version that is not known is answered with a version 0 body. So its header must be
  readable: a version above all known ones is taken to be flexible.

Nothing here cuts a stream into frames; that is done where the stream is.
"""

from __future__ import annotations

from struct import Struct as Packing
from typing import TYPE_CHECKING

from tailrace.model.errors import ProtocolError
from tailrace.wire.apis import api_name, is_declared, request_type, response_type
from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.compile import Detached, cut, decode_from, decoder, encoder
from tailrace.wire.schema import Message, int16, int32, string

if TYPE_CHECKING:
    from tailrace.model.ports import Bytes, FileSlice


_SIZE = Packing(">i")
_SIZE_AND_CORRELATION_ID = Packing(">ii")
_KEY_AND_VERSION = Packing(">hh")
# Tagged fields of a request header. None exists yet; a header of fifty million of them would hold the loop for seconds.
HEADER_TAGS_MAX = 1000
# The tagged fields of a response header, by its version: none.
_RESPONSE_TAGS = (b"", b"\x00")
# api key -> the first flexible version of its requests, out of reach if there is none; filled as APIs are met.
_flexible_from: dict[int, int] = {}


class RequestHeader(Message, versions="1-2", flexible="2+"):
    """The client id keeps its old form, so that the fields before it and itself lie alike in both versions."""

    request_api_key: int = int16("0+")
    request_api_version: int = int16("0+")
    correlation_id: int = int32("0+")
    client_id: str | None = string("1+", nullable="1+", flexible=False)


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    correlation_id: int = int32("0+")


def request_header_version(api_key: int, version: int) -> int:
    """Raises KeyError for an API that is not declared."""
    first = _flexible_from.get(api_key)
    if first is None:
        flexible = request_type(api_key).flexible
        first = _flexible_from[api_key] = flexible.start if flexible else 1 << 15
    return 2 if version >= first else 1


def response_header_version(api_key: int, version: int) -> int:
    """Raises KeyError for an API that is not declared."""
    return 0 if api_key == ApiKey.API_VERSIONS else request_header_version(api_key, version) - 1


def decode_request_header(buffer: Bytes, position: int = 0) -> tuple[RequestHeader, int]:
    """The header of the request that starts at `position`, behind its size, and the position of its body. The version
    of the API may still be one that is not known."""
    if len(buffer) - position < _KEY_AND_VERSION.size:
        raise ProtocolError(f"a request of {len(buffer) - position} bytes has no room for an API key and a version")
    api_key, version = _KEY_AND_VERSION.unpack_from(buffer, position)
    if not is_declared(api_key):
        raise ProtocolError(f"request with API key {api_key}, version {version}: this API is not known here")
    return decoder(RequestHeader, request_header_version(api_key, version))(buffer, position, HEADER_TAGS_MAX)


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: Message
) -> list[Bytes | FileSlice]:
    """A whole frame, its size in front."""
    header = RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    output = bytearray(_SIZE.size)
    encoder(RequestHeader, request_header_version(api_key, version))(header, output, [])
    return _encode_body(output, message, version)


def encode_response(api_key: int, version: int, correlation_id: int, message: Message) -> list[Bytes | FileSlice]:
    """A whole frame, its size in front. The header is one number: a message made of it for each answer would cost as
    much as most bodies."""
    tags = _RESPONSE_TAGS[response_header_version(api_key, version)]
    output = bytearray(_SIZE_AND_CORRELATION_ID.pack(0, correlation_id) + tags)
    return _encode_body(output, message, version)


def decode_response(api_key: int, version: int, buffer: Bytes, position: int = 0) -> tuple[int, Message]:
    """The correlation id and the body of the response that starts at `position`, behind its size."""
    if not is_declared(api_key):
        raise ProtocolError(f"response to {api_name(api_key)}: this API is not known here")
    header, position = decode_from(ResponseHeader, response_header_version(api_key, version), buffer, position)
    return header.correlation_id, decoder(response_type(api_key), version)(buffer, position)[0]


def _encode_body(output: bytearray, message: Message, version: int) -> list[Bytes | FileSlice]:
    """Behind room for the size and the header."""
    detached: Detached = []
    encoder(type(message), version)(message, output, detached)
    size = len(output) - _SIZE.size
    for _, part in detached:
        size += len(part)
    _SIZE.pack_into(output, 0, size)
    return cut(output, detached)
