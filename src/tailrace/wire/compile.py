"""Codecs: each (message, version) becomes two Python functions, written as source text and compiled once.

    decode(ProduceRequest, 9, frame, position)   -> ProduceRequest
    encode(response, 9)                          -> bytearray

Rules:
- Neighbouring fields of fixed size, the length that follows them and the count of tags are one `Struct`.
- Decoding trusts nothing: every length is checked against the bytes that are left before anything is allocated, a
  count also against the smallest size of its items. Whatever is wrong raises ProtocolError and nothing else. What a
  message lists in all can be bounded too: an instance is a hundred times as large as its smallest encoding.
- Any bytes-like object can be decoded. Records stay a memoryview of it; strings and bytes are copied out.
- Unknown tagged fields are skipped and forgotten; a tagged field that equals its default is not written.
- Encoding null into a field that is not nullable in that version, or a number that does not fit, is our own bug: it
  raises ValueError with the path of the field.

How the functions are written: see `codec`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tailrace.model.errors import ProtocolError
from tailrace.wire.codec.decoding import NO_LIMIT, DecoderSource
from tailrace.wire.codec.encoding import EncoderSource
from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.model.ports import Bytes, FileSlice

M = TypeVar("M", bound=Message)
M_co = TypeVar("M_co", bound=Message, covariant=True)


class Decoder(Protocol[M_co]):
    def __call__(self, buffer: Bytes, position: int, items_max: int = ..., /) -> tuple[M_co, int]:
        """The message that starts at `position`, and its end. With `items_max`, it may list so many in all."""


# Where in the output a part belongs that is sent without being copied into it.
Detached = list[tuple[int, "Bytes | FileSlice"]]
# (message, output, detached) -> None
Encoder = Callable[[M, bytearray, Detached], None]

_decoders: dict[tuple[type[Message], int], Decoder[Any]] = {}
_encoders: dict[tuple[type[Message], int], Encoder[Any]] = {}


def decode(cls: type[M], version: int, buffer: Bytes, position: int = 0) -> M:
    """The message that starts at `position`. Bytes after it are no error: Kafka ignores them too."""
    return decoder(cls, version)(buffer, position)[0]


def decode_from(
    cls: type[M], version: int, buffer: Bytes, position: int, *, items_max: int = NO_LIMIT
) -> tuple[M, int]:
    """The message and the position behind it. It may list `items_max` items in all."""
    return decoder(cls, version)(buffer, position, items_max)


def encode(message: Message, version: int) -> bytearray:
    """The whole message in one buffer; slices of files are read into it."""
    output = bytearray()
    detached: Detached = []
    encoder(type(message), version)(message, output, detached)
    if not detached:
        return output
    return bytearray().join(
        part if isinstance(part, (bytes, bytearray, memoryview)) else part.read() for part in cut(output, detached)
    )


def cut(output: bytearray, detached: Detached) -> list[Bytes | FileSlice]:
    """What an encoder has written in parts that are ready to be sent: the detached ones, in their places, uncopied."""
    if not detached:
        return [output]
    view, start = memoryview(output), 0
    parts: list[Bytes | FileSlice] = []
    for position, part in detached:
        if position > start:
            parts.append(view[start:position])
        parts.append(part)
        start = position
    if start < len(view):
        parts.append(view[start:])
    return parts


def decoder(cls: type[M], version: int) -> Decoder[M]:
    """The compiled function, for paths that decode the same message often."""
    found = _decoders.get((cls, version))
    if found is None:
        if version not in cls.versions:
            raise ProtocolError(
                f"{cls.__name__} has no version {version}: {cls.versions.start}-{cls.versions.stop - 1} exist"
            )
        found = _decoders[cls, version] = DecoderSource(cls, version).compile()
    return found


def encoder(cls: type[M], version: int) -> Encoder[M]:
    """The compiled function, for paths that encode the same message often. It appends to the output, but only notes
    the place of what is better sent uncopied: see `cut`."""
    found = _encoders.get((cls, version))
    if found is None:
        if version not in cls.versions:
            raise ValueError(
                f"{cls.__name__} has no version {version}: {cls.versions.start}-{cls.versions.stop - 1} exist"
            )
        found = _encoders[cls, version] = EncoderSource(cls, version).compile()
    return found
