"""What a disk refuses: told as StorageError, and judged by whether the device itself has failed.

A full disk, a missing permission or too few handles pass, and the next try may succeed. A device that has failed takes
its whole data folder with it, as Kafka's log directory failures do (`log.directory`).
"""

import errno
from collections.abc import Callable

from tailrace.model.errors import StorageError

_DEVICE_ERRORS = frozenset(
    {
        errno.EIO,
        errno.EROFS,  # The kernel mounts a file system read-only when it finds it damaged.
        errno.ENODEV,
        errno.ENXIO,
        errno.ESTALE,
        errno.EBADMSG,  # How XFS and ext4 report a checksum that does not match.
        errno.EREMOTEIO,
        errno.EUCLEAN,
    }
)


def is_device_error(error: BaseException | None) -> bool:
    """Also of a StorageError that tells of one."""
    if isinstance(error, StorageError):
        error = error.__cause__
    return isinstance(error, OSError) and error.errno in _DEVICE_ERRORS


class disk_errors:  # noqa: N801 - reads as a statement
    """`with disk_errors("x cannot be read"):` turns what the disk refuses into a StorageError that says so; `tell`
    hears of it first."""

    __slots__ = ("_problem", "_tell")

    def __init__(self, problem: str, tell: Callable[[OSError], None] | None = None) -> None:
        self._problem = problem
        self._tell = tell

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            if self._tell is not None:
                self._tell(error)
            raise StorageError(f"{self._problem}: {error}") from error
