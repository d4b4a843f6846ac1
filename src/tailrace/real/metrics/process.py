"""What this process has taken of its machine, as the kernel tells it: a few microseconds to ask."""

from __future__ import annotations

import os
import resource
import time

from tailrace.model.ports import Usage

_STATM = "/proc/self/statm"
_OPEN_FILES = "/proc/self/fd"


class RealProcess:
    def usage(self) -> Usage:
        virtual_bytes, resident_bytes = _memory()
        limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return Usage(
            cpu_seconds=time.process_time(),
            resident_bytes=resident_bytes,
            virtual_bytes=virtual_bytes,
            open_files=_open_files(),
            open_files_max=None if limit == resource.RLIM_INFINITY else limit,
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


def _open_files() -> int | None:
    """Their number is the size of their folder, since Linux 6.2. Before that it takes a list, which is as long as there
    are files: some milliseconds for ten thousand."""
    try:
        return os.stat(_OPEN_FILES).st_size or len(os.listdir(_OPEN_FILES)) - 1  # Without the list itself.
    except OSError:
        return None
