"""Whether disks fill up with segments that only wait to be copied: told before they are full.

Local retention does not hold for what is not in the store yet. So while the store is away, or slower than producers
are, disks fill, and nothing that an operator sets at the topic helps.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tailrace.model import events
from tailrace.tier.keeping.decisions import uncopied_bytes

if TYPE_CHECKING:
    from tailrace.broker.tier.room import Room
    from tailrace.replica.directories import LogDirectories

_log = events.logger("tier")

_PERCENT = 100
_CHUNK_PARTS = 64


class DiskWatch:
    failure = "it cannot be seen whether disks fill up with what waits to be copied"

    def __init__(self, tier: Room, directories: LogDirectories) -> None:
        self.problem = ""  # What an operator should know of; empty if all is well.
        self._tier = tier
        self._directories = directories

    @property
    def pause_seconds(self) -> float:
        return self._tier.config.log_retention_check_interval_ms / 1000

    async def round(self) -> None:
        before, self.problem = self.problem, await self._look()
        if self.problem and not before:
            _log.error("a disk fills up with what could not be copied to the store", cause=self.problem)
        elif before and not self.problem:
            _log.info("the disk has room again for what waits to be copied")

    async def _look(self) -> str:
        short = self._short_of_room()
        if not short:
            return ""
        waiting = dict.fromkeys(short, 0)
        now_ms = self._tier.node.ports.clock.wall_ms()
        for number, part in enumerate(list(self._tier.parts.values())):
            log = part.partition.log
            folder = log.folder.rpartition("/")[0]
            if folder in waiting and part.is_ready and not log.is_offline:
                waiting[folder] += uncopied_bytes(part.local_view(), part.config, now_ms=now_ms)
            if number % _CHUNK_PARTS == _CHUNK_PARTS - 1:
                await asyncio.sleep(0)
        told = [
            f"{folder} has {short[folder]} % free, and {size_bytes} bytes there wait to be copied to remote storage "
            "before local retention may take them: see why they are not, or make room"
            for folder, size_bytes in waiting.items()
            if size_bytes
        ]
        return "; ".join(told)

    def _short_of_room(self) -> dict[str, int]:
        """Folders, and what is free there, in percent."""
        disk, least = self._tier.node.ports.disk, self._tier.config.remote_log_disk_warning_percent
        found = {}
        for directory in self._directories.online:
            try:
                total_bytes, free_bytes = disk.total_bytes(directory.path), disk.free_bytes(directory.path)
            except OSError:
                continue  # It fails, and is told of as that.
            if free_bytes * _PERCENT < total_bytes * least:
                found[directory.path] = free_bytes * _PERCENT // total_bytes
        return found
