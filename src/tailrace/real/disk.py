"""The real Disk: plain files through the system calls that fit them.

Rules: a file is opened for appending and read by position, so that handles share no file offset; a short write is
continued; what the kernel refuses is raised as it is (OSError) and `size` then tells how far a write came. Nothing
here decides, retries or buffers: when `append` returns, the bytes are the kernel's and outlive the process.
"""

import contextlib
import errno
import fcntl
import itertools
import mmap
import os
import shutil
import sys
from collections.abc import Sequence

from tailrace.model.ports import Bytes

# writev refuses more (IOV_MAX on Linux).
_BUFFERS_PER_WRITE_MAX = 1024
# The kernel reads ahead in windows of at least this size, so one probe a window tells of the whole window.
_PROBE_STEP_BYTES = 128 * 1024
_NEW_FILE_MODE = 0o644
_NEW_FOLDER_MODE = 0o755
_BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"
_temporaries = itertools.count()
_NO_WAIT = getattr(os, "RWF_NOWAIT", 0)
# What was appended last is kept, if it is no longer than this: followers, and consumers at the end, ask for just that.
_KEPT_BYTES = 2 * 1024
# Where it begins, and its bytes: one object, since helper threads read while the loop appends.
_NOTHING_KEPT = (sys.maxsize, b"")


class RealFile:
    """An open file; the descriptor is closed when the last holder lets go of it."""

    __slots__ = ("_descriptor", "_kept", "_path", "_size")

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size
        self._kept = _NOTHING_KEPT  # Up to the end.

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return self._size

    def fileno(self) -> int:
        return self._descriptor

    def append(self, views: Sequence[Bytes]) -> None:
        self._kept = _NOTHING_KEPT
        if len(views) == 1:
            written = os.write(self._descriptor, views[0])
            self._size += written
            if written == len(views[0]):
                if written <= _KEPT_BYTES:
                    self._kept = (self._size - written, bytes(views[0]))
                return
            views = [memoryview(views[0])[written:]]
        while views:
            pieces = views[:_BUFFERS_PER_WRITE_MAX]
            written = os.writev(self._descriptor, pieces)
            self._size += written
            if written == sum(map(len, pieces)):
                views = views[_BUFFERS_PER_WRITE_MAX:]
            else:
                views = _without_prefix(views, written)

    def read(self, position: int, size: int) -> bytes:
        kept_from, kept = self._kept
        if position >= kept_from:
            return kept[position - kept_from : position - kept_from + size]
        data = os.pread(self._descriptor, size, position)
        if len(data) == size or not data:
            return data
        chunks = [data]
        missing = size - len(data)
        # One pread may stop early (at most 2 GB, or on a signal); only an empty answer is the end of the file.
        while missing:
            data = os.pread(self._descriptor, missing, position + size - missing)
            if not data:
                break
            chunks.append(data)
            missing -= len(data)
        return b"".join(chunks)

    def read_once(self, position: int, size: int) -> bytes:
        if not _NO_WAIT:
            return self.read(position, size)  # Nobody tells what is resident, so nothing is thrown out.
        # This is set for the whole handle, so use one of your own. Without it the kernel reads ahead, for the probe
        # already, and that would look resident to the next call.
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        was_resident = self.is_resident(position, size)
        data = self.read(position, size)
        if was_resident:
            return data
        os.posix_fadvise(self._descriptor, position, size, os.POSIX_FADV_DONTNEED)
        return data

    def is_resident(self, position: int, size: int) -> bool:
        if not _NO_WAIT or size <= 0 or position >= min(self._size, self._kept[0]):
            return True
        probe = [bytearray(1)]
        try:
            for offset in range(position, position + size, _PROBE_STEP_BYTES):
                os.preadv(self._descriptor, probe, offset, _NO_WAIT)
            os.preadv(self._descriptor, probe, position + size - 1, _NO_WAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            # A filesystem that cannot tell is read as if it were memory, which is what it would be without the probe.
            if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                return True
            raise
        return True

    def map(self) -> memoryview:
        if self._size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(self._descriptor, self._size, prot=mmap.PROT_READ))

    def truncate(self, size: int) -> None:
        self._kept = _NOTHING_KEPT
        os.ftruncate(self._descriptor, size)
        self._size = size

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def __del__(self) -> None:
        # Missing when opening failed half-way.
        descriptor = getattr(self, "_descriptor", None)
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _without_prefix(views: Sequence[Bytes], size: int) -> list[Bytes]:
    """What is left of the views after a short write."""
    for number, view in enumerate(views):
        if size < len(view):
            return [memoryview(view)[size:], *views[number + 1 :]]
        size -= len(view)
    return []


class RealLock:
    """An advisory lock (flock) that the kernel drops with the process, however it ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class RealDisk:
    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(path, os.open(path, flags, _NEW_FILE_MODE))

    def list(self, folder: str) -> list[str]:
        return sorted(os.listdir(folder))

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def make_folder(self, path: str) -> None:
        os.makedirs(path, _NEW_FOLDER_MODE, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_folder(self, path: str) -> None:
        shutil.rmtree(path)

    def read(self, path: str) -> bytes:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            chunks = []
            while chunk := os.read(descriptor, 1 << 20):
                chunks.append(chunk)
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        finally:
            os.close(descriptor)

    def replace(self, path: str, data: Bytes, *, sync: bool = True) -> None:
        # Helper threads may replace the same file at the same time: each has its own temporary.
        temporary = f"{path}.{next(_temporaries)}.tmp"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _NEW_FILE_MODE)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                if sync:
                    os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.remove(temporary)
            raise
        if sync:
            self.sync_folder(os.path.dirname(path) or ".")

    def sync_folder(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> RealLock:
        """The holder's process id is written into the file, for the message that a second process shows."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _NEW_FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        except OSError:
            os.close(descriptor)
            raise
        return RealLock(descriptor)

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def total_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize

    def boot_id(self) -> str:
        try:
            return self.read(_BOOT_ID_PATH).decode("ascii").strip()
        except FileNotFoundError:
            # No Linux: an id that is never equal to a stored one is the safe answer.
            return ""
