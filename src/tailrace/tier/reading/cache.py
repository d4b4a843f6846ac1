"""Pieces of objects on the local disk, so that many readers of the same history cost one download.

    FOLDER/<segment id>-<position>    whole chunks of a segment, as they are in the object

Bounded: what was not used for longest goes first. It survives a restart, since what is read is checked by the sums of
the footer anyway. A disk that is full or fails costs downloads, never an answer: then nothing is kept.

Files are written and read in Background, and what is known of them is changed on the loop only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from tailrace.model import events
from tailrace.model.errors import StorageError
from tailrace.model.ids import Uuid, parse_uuid, uuid_text
from tailrace.model.ports import Background, Bytes, Disk

events_log = events.logger("tier")


class PieceCache:
    def __init__(self, disk: Disk, background: Background, folder: str, max_bytes: int) -> None:
        self.size_bytes = 0
        self._disk = disk
        self._background = background
        self._folder = folder
        self.max_bytes = max_bytes
        self._sizes: OrderedDict[str, int] = OrderedDict()  # Least used first.
        self.is_failing = False  # The last piece was not kept.

    async def open(self) -> None:
        """Finds what earlier runs have left."""
        for name, size_bytes in await self._background.run(self._list):
            if name not in self._sizes:  # It may have been put meanwhile.
                self._sizes[name] = size_bytes
                self.size_bytes += size_bytes
        await self._make_room(0)

    def _list(self) -> list[tuple[str, int]]:
        found = []
        with suppress(OSError):
            self._disk.make_folder(self._folder)
            for name in self._disk.list(self._folder):
                path = f"{self._folder}/{name}"
                if _is_piece(name):
                    found.append((self._disk.modified_ms(path), name, self._disk.size(path)))
                else:
                    self._disk.remove(path)  # A temporary file of a run that was killed.
        return [(name, size_bytes) for _, name, size_bytes in sorted(found)]

    def holds(self, segment_id: Uuid, position: int, size_bytes: int) -> bool:
        return self._sizes.get(_name(segment_id, position)) == size_bytes

    async def get(
        self, segment_id: Uuid, position: int, start: int, end: int, check: Callable[[bytes], None]
    ) -> bytes | None:
        """The bytes from `start` to `end` of what it `holds`; None, and it goes, if they are not all there or `check`
        raises StorageError."""
        name = _name(segment_id, position)
        self._sizes.move_to_end(name)

        def read() -> bytes | None:
            try:
                data = self._disk.open(f"{self._folder}/{name}").read(start, end - start)
                if len(data) == end - start:
                    check(data)
                    return data
            except (OSError, StorageError):
                pass
            return None

        data = await self._background.run(read)
        if data is None:
            await self._remove(name)
        return data

    async def put(self, segment_id: Uuid, position: int, data: Bytes) -> None:
        name = _name(segment_id, position)
        if name in self._sizes or len(data) > self.max_bytes:
            return
        await self._make_room(len(data))
        try:
            await self._background.run(lambda: self._disk.replace(f"{self._folder}/{name}", data, sync=False))
        except OSError as error:
            if not self.is_failing:
                self.is_failing = True
                events_log.warning("what is read from the tier is not kept: the disk refuses it", cause=error)
            return
        self.is_failing = False
        if name not in self._sizes:
            self._sizes[name] = len(data)
            self.size_bytes += len(data)

    async def _make_room(self, size_bytes: int) -> None:
        while self._sizes and self.size_bytes + size_bytes > self.max_bytes:
            await self._remove(next(iter(self._sizes)))

    async def _remove(self, name: str) -> None:
        self.size_bytes -= self._sizes.pop(name, 0)

        def remove() -> None:
            with suppress(OSError):
                self._disk.remove(f"{self._folder}/{name}")

        await self._background.run(remove)


def _name(segment_id: Uuid, position: int) -> str:
    return f"{uuid_text(segment_id)}-{position}"


def _is_piece(name: str) -> bool:
    segment, dash, position = name.rpartition("-")
    try:
        parse_uuid(segment)
    except ValueError:
        return False
    return bool(dash) and position.isdecimal()
