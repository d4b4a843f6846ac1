"""The simulated Disk: files in memory, in two layers, with faults on demand.

    written   what a process sees: every write, rename and removal, at once
    durable   what a power loss leaves: what was synced, and a part of the rest that chance picks

`crash()` is the death of the process: written data stays, handles and locks are gone. `power_loss(random)` is the
death of the machine. Of each file the synced bytes stay; of what was written since, a prefix of chance length whose
pages (4 KB) may never have arrived and then read as zeros. Of the names changed in each folder since its last sync,
those of folders among them, a prefix of the changes holds, as in the journal of a file system. Only the folders at
the top are there for good.

Faults are set from outside: `disk.capacity_bytes`, `disk.is_read_only`, `disk.fail(...)`, and `disk.die_after(...)`,
which lets the process die in the middle of an operation. `flip`, `cut` and `lose` damage what is there, in both layers,
and nobody is told: whoever has a file open sees the change, except that a lost file stays readable for it. Holds no
broker logic.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from tailrace.model.ports import Bytes, Clock, Random
from tailrace.sim.clock import SimClock
from tailrace.sim.loop import DeadError

_PAGE_BYTES = 4096
_UNLIMITED_BYTES = 1 << 50


@dataclass(slots=True, eq=False)
class _Content:
    """What a name points to. Only appending and truncating change it, so a size tells what is durable."""

    modified_ms: int
    data: bytearray = field(default_factory=bytearray)
    durable_size: int = 0
    # The synced bytes, kept apart once a truncation has cut into them and until the next sync.
    durable_before_cut: bytes | None = None


@dataclass(slots=True)
class Fault:
    """Every `operation` (append, read, sync, open, rename, remove, replace, truncate, ...) on a path that matches
    fails, `count` times."""

    operation: str
    pattern: str
    error: int
    count: int


@dataclass(slots=True, eq=False)
class _Folder:
    names: "dict[str, _Content | _Folder]" = field(default_factory=dict)
    durable_names: "dict[str, _Content | _Folder]" = field(default_factory=dict)
    # Changes of names since the last sync, in order: each name with what it points to from then on, or None.
    unsynced: "list[dict[str, _Content | _Folder | None]]" = field(default_factory=list)

    def change(self, names: "dict[str, _Content | _Folder | None]") -> None:
        _apply(self.names, names)
        self.unsynced.append(names)

    def sync(self) -> None:
        for change in self.unsynced:
            _apply(self.durable_names, change)
        self.unsynced.clear()


class SimFile:
    def __init__(self, disk: "SimDisk", path: str, content: _Content) -> None:
        self._disk = disk
        self._path = path
        self._content = content
        self._incarnation = disk.incarnation

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return len(self._content.data)

    def append(self, views: Sequence[Bytes]) -> None:
        try:
            self._check("append")
        except DeadError:
            self._content.data += b"".join(views)[: self._disk.torn_bytes]
            raise
        for view in views:
            room = self._disk.free_bytes(self._path)
            self._content.data += view[:room]
            self._content.modified_ms = self._disk.clock.wall_ms()
            if room < len(view):
                raise _error(errno.ENOSPC, self._path)

    def read(self, position: int, size: int) -> bytes:
        self._check("read")
        return bytes(self._content.data[position : position + size])

    def read_once(self, position: int, size: int) -> bytes:
        return self.read(position, size)

    def is_resident(self, position: int, size: int) -> bool:  # noqa: ARG002 - memory is always resident
        return True

    def map(self) -> memoryview:
        self._check("map")
        return memoryview(bytes(self._content.data))

    def truncate(self, size: int) -> None:
        self._check("truncate")
        content = self._content
        if size < content.durable_size:
            if content.durable_before_cut is None:
                content.durable_before_cut = bytes(content.data[: content.durable_size])
            content.durable_size = size
        del content.data[size:]

    def sync(self) -> None:
        self._check("sync")
        self._content.durable_size = len(self._content.data)
        self._content.durable_before_cut = None

    def _check(self, operation: str) -> None:
        if self._incarnation != self._disk.incarnation:
            raise OSError(errno.EBADF, "the process that opened this file is dead", self._path)
        self._disk.check(operation, self._path)


class SimLock:
    def __init__(self, disk: "SimDisk", path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locked.discard(self._path)


class SimDisk:
    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SimClock()
        self.incarnation = 0
        self.capacity_bytes = _UNLIMITED_BYTES
        self.is_read_only = False
        self.locked: set[str] = set()
        self.torn_bytes = 0  # how much is written of the append in which the process dies
        self._operations_left = -1  # before it dies; never, if negative
        self._on_death: Callable[[], None] = lambda: None
        self._is_dead = False
        self._is_observed = False
        self._boots = 0
        self._faults: list[Fault] = []
        self._root = _Folder()

    # Faults

    def fail(self, operation: str, pattern: str = "*", *, error: int = errno.EIO, count: int = 1 << 30) -> Fault:
        """Fails matching operations until `heal`; `pattern` is a shell pattern for the whole path."""
        fault = Fault(operation, pattern, error, count)
        self._faults.append(fault)
        return fault

    def fill(self, *, left_bytes: int) -> None:
        """No more than so many bytes have room until `heal`."""
        self.capacity_bytes = sum(len(content.data) for content in _contents(self._root)) + left_bytes

    def die_after(self, operations: int, *, torn_bytes: int, on_death: Callable[[], None]) -> None:
        """The process dies in the middle of an operation that changes something, after so many others."""
        self._operations_left, self.torn_bytes, self._on_death = operations, torn_bytes, on_death

    def heal(self) -> None:
        """No fault is left: space, permissions and device are back."""
        self._operations_left = -1
        self._faults.clear()
        self.is_read_only = False
        self.capacity_bytes = _UNLIMITED_BYTES

    @property
    def is_faulty(self) -> bool:
        return bool(self._faults) or self.is_read_only or self.capacity_bytes != _UNLIMITED_BYTES

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Meanwhile no fault shows, nor is it used up: whoever looks on from outside sees what is there."""
        self._is_observed = True
        try:
            yield
        finally:
            self._is_observed = False

    def crash(self) -> None:
        """The process dies: its handles and locks are gone, all it wrote is there."""
        self.incarnation += 1
        self.locked.clear()
        self._operations_left = -1
        self._is_dead = False

    def power_loss(self, random: Random) -> None:
        """The machine dies. Handles, locks and a part of what was not synced are gone."""
        self.crash()
        self._boots += 1
        survivors = {id(content): content for content in _lose_names(self._root, random)}
        for content in survivors.values():
            _lose_unsynced(content, random)

    def flip(self, path: str, position: int, bit: int) -> None:
        """Bit rot."""
        content = self._get(path)
        content.data[position] ^= 1 << bit
        content.durable_before_cut = None

    def cut(self, path: str, size: int) -> None:
        """What is behind `size` is gone, synced or not."""
        content = self._get(path)
        del content.data[size:]
        content.durable_size = min(content.durable_size, size)
        content.durable_before_cut = None

    def lose(self, path: str) -> None:
        """A file, or a folder with all that is in it."""
        folder, name = self._get_folder(_parent(path)), _name(path)
        folder.names.pop(name, None)
        folder.durable_names.pop(name, None)
        for change in folder.unsynced:
            change.pop(name, None)

    def check(self, operation: str, path: str) -> None:
        """Raises what was asked for by `fail`, and EROFS for every change of a read-only disk."""
        if self._is_observed:
            return
        if self._is_dead:
            raise DeadError
        if self._operations_left >= 0 and operation not in ("read", "map", "list"):
            self._operations_left -= 1
            if self._operations_left < 0:
                self._is_dead = True
                self._on_death()
                raise DeadError
        if self.is_read_only and operation not in ("read", "map", "list"):
            raise _error(errno.EROFS, path)
        for fault in self._faults:
            if fault.count > 0 and fault.operation == operation and fnmatchcase(path, fault.pattern):
                fault.count -= 1
                raise _error(fault.error, path)

    # Disk

    def open(self, path: str, *, create: bool = False) -> SimFile:
        if create and self._find(path) is None:
            self.check("create", path)
            self._get_folder(_parent(path)).change({_name(path): _Content(self.clock.wall_ms())})
        return SimFile(self, path, self._get(path))

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def list(self, folder: str) -> list[str]:
        self.check("list", folder)
        return sorted(self._get_folder(folder).names)

    def is_folder(self, path: str) -> bool:
        return isinstance(self._find(path), _Folder)

    def size(self, path: str) -> int:
        return len(self._get(path).data)

    def modified_ms(self, path: str) -> int:
        return self._get(path).modified_ms

    def make_folder(self, path: str) -> None:
        folder = self._root
        for name in _parts(path):
            inner = folder.names.get(name)
            if inner is None:
                self.check("make_folder", path)
                inner = _Folder()
                folder.change({name: inner})
                if folder is self._root:
                    folder.sync()
            if not isinstance(inner, _Folder):
                raise _error(errno.ENOTDIR, path)
            folder = inner

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source)
        moved = self._find(source)
        if moved is None:
            raise _error(errno.ENOENT, source)
        if _parent(source) == _parent(target):
            self._get_folder(_parent(source)).change({_name(source): None, _name(target): moved})
        else:
            self._get_folder(_parent(target)).change({_name(target): moved})
            self._get_folder(_parent(source)).change({_name(source): None})

    def remove(self, path: str) -> None:
        self.check("remove", path)
        self._get(path)
        self._get_folder(_parent(path)).change({_name(path): None})

    def remove_folder(self, path: str) -> None:
        self.check("remove_folder", path)
        _empty(self._get_folder(path))
        self._get_folder(_parent(path)).change({_name(path): None})

    def read(self, path: str) -> bytes:
        self.check("read", path)
        return bytes(self._get(path).data)

    def replace(self, path: str, data: Bytes, *, sync: bool = True) -> None:
        self.check("replace", path)
        temporary = self.open(path + ".tmp", create=True)
        temporary.truncate(0)
        temporary.append([data])
        if sync:
            temporary.sync()
        self.rename(path + ".tmp", path)
        if sync:
            self.sync_folder(_parent(path))

    def sync_folder(self, path: str) -> None:
        self.check("sync_folder", path)
        self._get_folder(path).sync()

    def lock(self, path: str) -> SimLock:
        self.check("lock", path)
        if path in self.locked:
            raise _error(errno.EWOULDBLOCK, path)
        file = self.open(path, create=True)
        file.truncate(0)
        file.append([b"%d\n" % (self.incarnation + 1)])
        self.locked.add(path)
        return SimLock(self, path)

    def free_bytes(self, path: str) -> int:  # noqa: ARG002 - one device for all paths
        if self.capacity_bytes == _UNLIMITED_BYTES:
            return _UNLIMITED_BYTES
        used = sum(len(content.data) for content in _contents(self._root))
        return max(0, self.capacity_bytes - used)

    def total_bytes(self, path: str) -> int:  # noqa: ARG002 - one device for all paths
        return self.capacity_bytes

    def boot_id(self) -> str:
        return f"boot-{self._boots}"

    # Names

    def _find(self, path: str) -> _Content | _Folder | None:
        found: _Content | _Folder | None = self._root
        for name in _parts(path):
            found = found.names.get(name) if isinstance(found, _Folder) else None
        return found

    def _get(self, path: str) -> _Content:
        found = self._find(path)
        if not isinstance(found, _Content):
            raise _error(errno.ENOENT if found is None else errno.EISDIR, path)
        return found

    def _get_folder(self, path: str) -> _Folder:
        found = self._find(path)
        if not isinstance(found, _Folder):
            raise _error(errno.ENOENT if found is None else errno.ENOTDIR, path)
        return found


def _apply(names: dict[str, _Content | _Folder], change: dict[str, _Content | _Folder | None]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _contents(folder: _Folder) -> Iterator[_Content]:
    for node in folder.names.values():
        if isinstance(node, _Folder):
            yield from _contents(node)
        else:
            yield node


def _empty(folder: _Folder) -> None:
    """File by file, as a recursive removal goes."""
    for name, node in list(folder.names.items()):
        if isinstance(node, _Folder):
            _empty(node)
        folder.change({name: None})


def _lose_names(folder: _Folder, random: Random) -> Iterator[_Content]:
    """Leaves a prefix of the changes since the last sync; gives the files that are left."""
    for change in folder.unsynced[: random.randrange(len(folder.unsynced) + 1)]:
        _apply(folder.durable_names, change)
    folder.unsynced.clear()
    folder.names = dict(folder.durable_names)
    for node in folder.names.values():
        if isinstance(node, _Folder):
            yield from _lose_names(node, random)
        else:
            yield node


def _lose_unsynced(content: _Content, random: Random) -> None:
    """Leaves the synced bytes, then a prefix of the rest in which whole pages may be zero."""
    if content.durable_before_cut is not None and random.random() < 0.5:
        # Neither the truncation nor what was written after it has reached the device.
        content.data = bytearray(content.durable_before_cut)
    else:
        start = content.durable_size
        end = start + random.randrange(len(content.data) - start + 1)
        del content.data[end:]
        page_start = start
        while page_start < end:
            page_end = min(end, (page_start // _PAGE_BYTES + 1) * _PAGE_BYTES)
            if random.random() < 0.25:
                content.data[page_start:page_end] = bytes(page_end - page_start)
            page_start = page_end
    content.durable_size = len(content.data)
    content.durable_before_cut = None


def _error(code: int, path: str) -> OSError:
    """As the kernel's: OSError picks FileNotFoundError and the like by the code."""
    return OSError(code, errno.errorcode[code], path)


def _parts(path: str) -> list[str]:
    """Relative paths begin at the top, as absolute ones do."""
    return [name for name in path.split("/") if name not in ("", ".")]


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _name(path: str) -> str:
    return path.rpartition("/")[2]
