"""Cuts what a broker sends into frames: a size of four bytes, then so many bytes.

Small frames are received many at a time into one buffer and copied out of it. A frame that does not fit there gets a
buffer of its own and is received straight into it; that buffer is used again once nobody looks at the frame any more,
since a follower that fetches a megabyte at a time would spend a tenth of its time on fresh memory. A size that is
negative or above the bound raises ProtocolError before anything is allocated for it.
"""

from __future__ import annotations

from tailrace.model.errors import ProtocolError

_BUFFER_BYTES = 64 * 1024
# How the answer of a TLS port to a client without TLS begins: an alert (21) of version 3.x.
_TLS_ALERT = 0x1503
# The largest buffer that is kept for the next large frame. A fetch brings a megabyte of each partition.
_KEPT_MAX_BYTES = 4 * 1024 * 1024


class FrameReader:
    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._filled = 0
        # The large frame that is being received, and how much of it is there.
        self._large: memoryview | None = None
        self._large_filled = 0
        self._kept = bytearray()  # The buffer of the last large frame; perhaps still in use.

    def room(self) -> memoryview:
        """Where to receive next; never empty."""
        return self._buffer[self._filled :] if self._large is None else self._large[self._large_filled :]

    def take(self, received: int) -> list[memoryview]:
        """The frames that are complete now that so many bytes were received into `room()`, each in memory of its
        own, without its size."""
        if self._large is not None:
            self._large_filled += received
            if self._large_filled < len(self._large):
                return []
            frame, self._large = self._large, None
            return [frame]
        self._filled += received
        return self._cut()

    def _cut(self) -> list[memoryview]:
        frames = []
        start = 0
        while self._filled - start >= 4:
            size = int.from_bytes(self._buffer[start : start + 4], "big", signed=True)
            if not 0 <= size <= self._frame_bytes_max:
                if size >> 16 == _TLS_ALERT:
                    raise ProtocolError("a TLS alert where a frame is due: set security.protocol to SSL or SASL_SSL")
                raise ProtocolError(f"a frame that claims {size} bytes, where at most {self._frame_bytes_max} may come")
            end = start + 4 + size
            if end > self._filled:
                if 4 + size > _BUFFER_BYTES:
                    self._begin_large(start + 4, size)
                    start = self._filled
                break
            frames.append(memoryview(bytes(self._buffer[start + 4 : end])))
            start = end
        rest = self._filled - start
        if start and rest:
            self._buffer[:rest] = bytes(self._buffer[start : self._filled])
        self._filled = rest
        return frames

    def _begin_large(self, start: int, size: int) -> None:
        self._large = memoryview(self._room_for(size))[:size]
        self._large_filled = self._filled - start
        self._large[: self._large_filled] = self._buffer[start : self._filled]

    def _room_for(self, size: int) -> bytearray:
        if size > _KEPT_MAX_BYTES:
            return bytearray(size)
        if not self._is_free(size):
            self._kept = bytearray(1 << (size - 1).bit_length())  # Rounded, so that it fits the next one too.
        return self._kept

    def _is_free(self, size: int) -> bool:
        if len(self._kept) < size:
            return False
        try:
            self._kept.append(0)  # Refused as long as a view of it exists.
            self._kept.pop()
        except BufferError:
            return False
        return True
