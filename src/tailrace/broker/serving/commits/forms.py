"""The form of a commit: the bytes that a client repeats, what they mean, and where the offsets stand among them.

The places are found by what was decoded, and proved: the same request with other offsets has to be the same bytes with
others in those places. What cannot be proved has no form: an encoding that is not ours, or tags that we do not know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING

from tailrace.coordinator.offsets.again import KnownCommit, know_commit
from tailrace.model.errors import ProtocolError
from tailrace.model.ports import Buffer, Bytes, FileSlice
from tailrace.wire.apis.groups import OffsetCommitRequest
from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.compile import decode_from
from tailrace.wire.frame import RequestHeader, decode_request_header, encode_request, encode_response
from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.broker.metrics.requests import Meter
    from tailrace.controller.image import MetadataImage

# Size, API key and version as one number, correlation id.
HEAD = Struct(">iIi")
PLACE = Struct(">qi")
_PLACE_OF_PARTITION = Struct(">iqi")
# Partitions and topics; and bytes of a request.
_ITEMS_MAX = 64
FORM_MAX_BYTES = 2048


class Form:
    """The bytes of a commit, and what they mean."""

    __slots__ = (
        "answer",
        "answer_size",
        "client_id",
        "known",
        "meter",
        "pack",
        "pieces",
        "places",
        "starts",
        "tail",
        "version",
    )

    def __init__(
        self, version: int, client_id: str, frame: memoryview, places: Sequence[int], known: KnownCommit
    ) -> None:
        """The frame begins with its size."""
        self.version = version
        self.client_id = client_id
        self.known = known
        self.meter: Meter | None = None  # Where the node has some.
        self.places = places
        # What lies around the places.
        self.starts = (HEAD.size, *[place + PLACE.size for place in places])
        self.pieces = [bytes(frame[start:end]) for start, end in zip(self.starts, (*places, len(frame)), strict=True)]
        self.tail = encoded_answer(version, 0, known.response)[8:]
        self.answer = (bytes(8) + self.tail,)  # As long as each of its answers is.
        self.answer_size = 4 + len(self.tail)
        self.pack: Callable[..., bytes] = Struct(f">ii{len(self.tail)}s").pack

    def fits(self, buffer: Buffer, position: int) -> bool:
        return all(map(buffer.startswith, self.pieces, [position + start for start in self.starts]))


def make_form(image: MetadataImage, frame: memoryview, version: int) -> Form | None:
    """For requests like this one, if that can be. The frame begins with its size."""
    try:
        header, position = decode_request_header(frame, 4)
        request, end = decode_from(OffsetCommitRequest, version, frame, position, items_max=_ITEMS_MAX)
    except ProtocolError:
        return None
    known = know_commit(image, request, version)
    places = _find_places(bytes(frame), version, header, request)
    if known is None or places is None or end != len(frame):
        return None
    return Form(version, header.client_id or "", frame, places, known)


def _find_places(frame: bytes, version: int, header: RequestHeader, request: OffsetCommitRequest) -> list[int] | None:
    """Where the offset and the leader epoch of each partition stand; None if that cannot be proved."""
    places, position, others = [], HEAD.size, bytearray(frame)
    partitions = [each for topic in request.topics for each in topic.partitions]
    for each in partitions:
        found = frame.find(
            _PLACE_OF_PARTITION.pack(each.partition_index, each.committed_offset, each.committed_leader_epoch), position
        )
        if found < 0:
            return None
        each.committed_offset, each.committed_leader_epoch = ~each.committed_offset, ~each.committed_leader_epoch
        places.append(found + 4)
        PLACE.pack_into(others, found + 4, each.committed_offset, each.committed_leader_epoch)
        position = found + _PLACE_OF_PARTITION.size
    again = encode_request(request.api_key, version, header.correlation_id, header.client_id, request)
    for each in partitions:
        each.committed_offset, each.committed_leader_epoch = ~each.committed_offset, ~each.committed_leader_epoch
    return places if _joined(again) == others else None


def encoded_answer(version: int, correlation_id: int, answer: Message) -> bytes:
    return _joined(encode_response(ApiKey.OFFSET_COMMIT, version, correlation_id, answer))


def _joined(parts: Sequence[Bytes | FileSlice]) -> bytes:
    (encoded,) = parts
    assert not isinstance(encoded, FileSlice), "neither a commit nor its answer carries records"
    return bytes(encoded)
