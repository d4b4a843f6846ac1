"""What remote storage keeps on the local disk.

    DATA FOLDER/remote-log-start-offset-checkpoint                        topic id, partition, offset
    METADATA FOLDER/remote-log-metadata/<topic id>-<partition>.snapshot   see `tier.metadata.snapshot`

The checkpoint of log starts has where logs begin here. Without the one of remote storage a restart would take that for
the beginning of the whole: so no local segment goes before it is stored, and no answer to DeleteRecords.

Snapshots hold what was replayed of __remote_log_metadata, and a start goes on from there. They are written at
the end, and while it runs once many records have come; in Background, while nobody replays into the machine. What is
damaged or missing is replayed instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailrace.log.checkpoints import format_entries
from tailrace.log.directory import LogDirectory
from tailrace.model import events
from tailrace.model.errors import StorageError
from tailrace.model.ids import PartitionIndex, TopicPartition, Uuid, parse_uuid, uuid_text
from tailrace.model.ports import Background, Disk
from tailrace.tier.format.names import TieredPartition
from tailrace.tier.metadata.machine import TierMachine
from tailrace.tier.metadata.snapshot import read_snapshot, write_snapshot

_log = events.logger("tier")

FILE_NAME = "remote-log-start-offset-checkpoint"


class StartOffsets:
    def __init__(self, disk: Disk, background: Background, directories: Sequence[LogDirectory]) -> None:
        self._disk = disk
        self._background = background
        self._directories = directories
        self._forgotten: set[TieredPartition] = set()
        # What the file of each folder has: of logs that cannot be opened now, too.
        self._files = {directory.path: self._read(directory.path) for directory in directories}

    def find(self, owner: TieredPartition) -> int | None:
        """The largest: a log may have been moved from one folder to another, and a start never goes back."""
        return max((file[owner] for file in self._files.values() if owner in file), default=None)

    def forget(self, owner: TieredPartition) -> None:
        """Its topic is deleted, or has no remote storage any more: if it gets it again, it begins where the local log
        does then."""
        self._forgotten.add(owner)

    async def store(self, offsets: Mapping[TopicPartition, tuple[TieredPartition, int]]) -> None:
        """Raises OSError if a folder refuses."""
        forgotten, self._forgotten = self._forgotten, set()
        for directory in self._directories:
            if directory.is_offline:
                continue
            path, stored = directory.path, self._files[directory.path]
            found = dict(offsets[key] for key in directory.logs if key in offsets)
            wanted = {owner: offset for owner, offset in stored.items() if owner not in forgotten} | found
            if wanted == stored:
                continue
            entries = [(uuid_text(owner.topic_id), owner.partition, offset) for owner, offset in wanted.items()]
            content = format_entries(entries)
            try:
                await self._background.run(lambda: self._disk.replace(f"{path}/{FILE_NAME}", content))  # noqa: B023
            except OSError:
                self._forgotten |= forgotten
                raise
            self._files[path] = wanted

    def _read(self, folder: str) -> dict[TieredPartition, int]:
        try:
            lines = self._disk.read(f"{folder}/{FILE_NAME}").decode().split("\n")[2:]
            entries = [line.split(" ") for line in lines if line]
            return {
                TieredPartition(Uuid(parse_uuid(topic_id)), PartitionIndex(int(partition))): int(offset)
                for topic_id, partition, offset in entries
            }
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            _log.error("it cannot be read where logs with remote storage begin", folder=folder, cause=error)
            return {}


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
