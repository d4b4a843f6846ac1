"""What was replayed of __remote_log_metadata, as files: a start goes on from there.

    FOLDER/<topic id>-<partition>.snapshot    see `tier.metadata.snapshot`

They are written when a broker stops, and while it runs once many records have come. A machine is read in Background
while nobody replays into it. What is damaged or missing is replayed instead.
"""

from __future__ import annotations

from tailrace.model import events
from tailrace.model.errors import StorageError
from tailrace.model.ids import Uuid, uuid_text
from tailrace.model.ports import Background, Disk
from tailrace.tier.metadata.machine import TierMachine
from tailrace.tier.metadata.snapshot import read_snapshot, write_snapshot

_log = events.logger("tier")


class Snapshots:
    def __init__(self, disk: Disk, background: Background, folder: str) -> None:
        self._disk = disk
        self._background = background
        self._folder = folder

    async def read(self, topic_id: Uuid, index: int) -> TierMachine | None:
        path = self._path(topic_id, index)
        try:
            return await self._background.run(lambda: read_snapshot(self._disk.read(path)))
        except FileNotFoundError:
            return None
        except (OSError, StorageError) as error:
            _log.warning("a snapshot of the tier is not used: its records are replayed", file=path, cause=error)
            return None

    async def write(self, topic_id: Uuid, index: int, machine: TierMachine) -> None:
        def write() -> None:
            self._disk.make_folder(self._folder)
            self._disk.replace(self._path(topic_id, index), write_snapshot(machine))

        try:
            await self._background.run(write)
        except OSError as error:
            _log.warning("a snapshot of the tier is not written", folder=self._folder, cause=error)

    def _path(self, topic_id: Uuid, index: int) -> str:
        return f"{self._folder}/{uuid_text(topic_id)}-{index}.snapshot"
