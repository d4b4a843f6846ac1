"""What a disk refuses: told as StorageError, and judged by whether the device itself has failed. And what a failed
assertion does to a log (`trusted`).

A full disk, a missing permission or too few handles pass, and the next try may succeed. A device that has failed takes
its whole data folder with it, as Kafka's log directory failures do (`log.directory`).
"""

import errno
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from tailrace.model.errors import StorageError

P = ParamSpec("P")
R = TypeVar("R")

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


class GivesUp(Protocol):
    def give_up(self, error: AssertionError) -> StorageError:
        """Goes offline; gives what tells of it."""


L = TypeVar("L", bound=GivesUp)


def trusted(change: Callable[Concatenate[L, P], R]) -> Callable[Concatenate[L, P], R]:
    """A method of a log whose failed assertions take the log offline. Its caller hears of it as of a disk that failed.
    The appends of a leader are not wrapped, as each of them would pay for it: `replica.partition` does the same."""

    @wraps(change)
    def method(log: L, /, *args: P.args, **options: P.kwargs) -> R:
        try:
            return change(log, *args, **options)
        except AssertionError as error:
            raise log.give_up(error) from error

    return method


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
