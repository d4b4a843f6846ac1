"""What this process has taken of its machine, as the kernel tells it: a few microseconds to ask."""

from __future__ import annotations

import os
import resource
import time

from tailrace.model.ports import Usage

_STATM = "/proc/self/statm"
_OPEN_FILES = "/proc/self/fd"
_IO = "/proc/self/io"


class RealProcess:
    def usage(self) -> Usage:
        virtual_bytes, resident_bytes = _memory()
        disk = _disk()
        limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return Usage(
            cpu_seconds=time.process_time(),
            resident_bytes=resident_bytes,
            virtual_bytes=virtual_bytes,
            open_files=_open_files(),
            open_files_max=None if limit == resource.RLIM_INFINITY else limit,
            disk_read_bytes=disk.get(b"read_bytes"),
            disk_written_bytes=disk.get(b"write_bytes"),
        )


def _memory() -> tuple[int, int] | tuple[None, None]:
    """Virtual and resident. There is no such file but on Linux."""
    try:
        with open(_STATM, "rb") as file:
            pages = file.read().split()
    except OSError:
        return None, None
    page_bytes = resource.getpagesize()
    return int(pages[0]) * page_bytes, int(pages[1]) * page_bytes


def _disk() -> dict[bytes, int]:
    """There is no such file but on Linux, and a container may hide it."""
    try:
        with open(_IO, "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return {}
    return {name: int(value) for name, _, value in (line.partition(b": ") for line in lines)}


def _open_files() -> int | None:
    """Their number is the size of their folder, since Linux 6.2. Before that it takes a list, which is as long as there
    are files: some milliseconds for ten thousand."""
    try:
        return os.stat(_OPEN_FILES).st_size or len(os.listdir(_OPEN_FILES)) - 1  # Without the list itself.
    except OSError:
        return None
