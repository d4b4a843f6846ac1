"""The real Memory: large pieces mapped by the kernel, and what is free is given back to it.

After a crowd of requests glibc keeps most of what they took: a single live piece above them pins the heap, and its
thresholds for giving memory back have grown with the pieces. So large buffers are mappings of their own, and for the
rest there is `malloc_trim`, which gives all whole free pages back, wherever they lie. Other C libraries have no such
call and are left alone.
"""

from functools import cache
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Any

from tailrace.model.ports import Buffer


class RealMemory:
    def allocate(self, size_bytes: int) -> Buffer:
        return _Mapping(-1, size_bytes, flags=MAP_PRIVATE | MAP_ANONYMOUS)

    def trim(self) -> None:
        """Takes about a millisecond for each 10 MB; other threads that allocate meanwhile wait."""
        trim = _find_malloc_trim()
        if trim is not None:
            trim(0)


class _Mapping(mmap):
    def startswith(self, prefix: bytes, start: int, /) -> bool:
        return self[start : start + len(prefix)] == prefix


@cache
def _find_malloc_trim() -> Any:
    import ctypes  # Loaded by the few processes that need it.

    return getattr(ctypes.CDLL(None), "malloc_trim", None)
