"""Records of one partition that were read and are not committed: which may run now, and how far the group may go on.

    waiting --(nothing of its key is before it)--> runnable --> finished, with what it asks to be written

Handlers finish out of order. What may be committed is the longest finished range from the beginning: its offset, and
everything that its records ask to be written (outputs, retries, dead letters), which belongs into one transaction with
it. What a record behind an unfinished one asks for waits in memory, so that after a crash nothing is written twice.

An entry may stand for several records that are handled together. If they cannot be, it is split.

Pure: no clock, no client. The caller tells what came, what was finished and what was committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")
Write = TypeVar("Write")


class Order(StrEnum):
    KEY = "key"  # Records of one key run one after the other; those without a key in any order.
    PARTITION = "partition"
    NONE = "none"


@dataclass(slots=True, eq=False)
class Entry(Generic[Item, Write]):
    offset: int
    item: Item
    key: bytes | None  # None: no other record has to wait for it.
    size_bytes: int
    records: int = 1
    writes: Sequence[Write] | None = None  # Not None: it is finished.


class Part(NamedTuple, Generic[Item]):
    """Of an entry that is split."""

    offset: int
    item: Item
    size_bytes: int


class Finished(NamedTuple, Generic[Write]):
    """A range from the beginning of the window. `position` is the offset to commit: the first one not in the range."""

    position: int
    entries: int
    records: int
    writes: list[Write]


class Window(Generic[Item, Write]):
    def __init__(self, order: Order, *, records_max: int, bytes_max: int) -> None:
        self._order = order
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._entries: deque[Entry[Item, Write]] = deque()  # in the order of offsets, which ascend
        # Those that wait behind an unfinished record of their key; a key is in here while it has one.
        self._behind: dict[bytes, deque[Entry[Item, Write]]] = {}
        self._size_bytes = 0
        self._records = 0
        self._next_offset = -1
        self._finished_records = 0

    @property
    def is_full(self) -> bool:
        return self._records >= self._records_max or self._size_bytes >= self._bytes_max

    @property
    def has_room(self) -> bool:
        """Half of it is free: worth reading on for."""
        return self._records * 2 <= self._records_max and self._size_bytes * 2 <= self._bytes_max

    @property
    def first_offset(self) -> int | None:
        """Of what it holds."""
        return self._entries[0].offset if self._entries else None

    @property
    def is_worth_a_commit(self) -> bool:
        """Half of what it holds is finished, though perhaps not from its beginning on."""
        return self._finished_records * 2 >= self._records

    @property
    def unfinished(self) -> list[Entry[Item, Write]]:
        return [entry for entry in self._entries if entry.writes is None]

    def add(
        self,
        offset: int,
        item: Item,
        *,
        key: bytes | None,
        size_bytes: int,
        records: int = 1,
        last_offset: int | None = None,
    ) -> Entry[Item, Write] | None:
        """The entry if it may run now. It is taken even if the window is full: whoever reads on is to stop then."""
        assert offset >= self._next_offset, f"offset {offset} after {self._next_offset}"
        if self._order is not Order.KEY:
            key = b"" if self._order is Order.PARTITION else None
        entry: Entry[Item, Write] = Entry(offset, item, key, size_bytes, records)
        self._entries.append(entry)
        self._size_bytes += size_bytes
        self._records += records
        self._next_offset = (offset if last_offset is None else last_offset) + 1
        if key is None:
            return entry
        behind = self._behind.get(key)
        if behind is not None:
            behind.append(entry)
            return None
        self._behind[key] = deque()
        return entry

    def finish(self, entry: Entry[Item, Write], writes: Sequence[Write] = ()) -> Entry[Item, Write] | None:
        """The entry that may run now, as it has waited for this one."""
        assert entry.writes is None, f"offset {entry.offset} is finished already"
        entry.writes = writes
        self._finished_records += entry.records
        if entry.key is None:
            return None
        behind = self._behind[entry.key]
        if behind:
            return behind.popleft()
        del self._behind[entry.key]
        return None

    def split(self, entry: Entry[Item, Write], parts: Sequence[Part[Item]]) -> list[Entry[Item, Write]]:
        """One entry for each of its records instead, in their order. Those that may run now; the others wait for them
        as they would for it."""
        assert entry.writes is None, f"offset {entry.offset} is finished already"
        assert len(parts) == entry.records, "each of its records is a part"
        place = self._entries.index(entry)
        made: list[Entry[Item, Write]] = [Entry(part.offset, part.item, entry.key, part.size_bytes) for part in parts]
        self._entries.rotate(-place)
        self._entries.popleft()
        self._entries.extendleft(reversed(made))
        self._entries.rotate(place)
        self._size_bytes += sum(part.size_bytes for part in parts) - entry.size_bytes
        if entry.key is None:
            return made
        self._behind[entry.key].extendleft(reversed(made[1:]))
        return made[:1]

    def decide_commit(self, *, writes_max: int) -> Finished[Write] | None:
        """The longest range that is finished, with no more writes than that unless one record alone has more."""
        writes: list[Write] = []
        count = records = 0
        for entry in self._entries:
            if entry.writes is None or (writes and len(writes) + len(entry.writes) > writes_max):
                break
            writes += entry.writes
            count += 1
            records += entry.records
        if not count:
            return None
        position = self._entries[count].offset if count < len(self._entries) else self._next_offset
        return Finished(position, count, records, writes)

    def note_committed(self, finished: Finished[Write]) -> None:
        for _ in range(finished.entries):
            entry = self._entries.popleft()
            assert entry.writes is not None, "only what is finished is committed"
            assert entry.offset < finished.position, "the range ends before the position"
            self._size_bytes -= entry.size_bytes
        self._records -= finished.records
        self._finished_records -= finished.records
