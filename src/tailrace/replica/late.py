"""Many partitions that change at once follow the image some a turn: a thousand would hold the loop for up to 40 ms
(decision 0032).

Each of them is as if the metadata had come to it a little later, which it may at any time. These are the rules:
- What is led here and will not be, or in another epoch, is never late: it hears of it in the turn of the image.
- Whoever asks for a partition by its name finds it up to date (`follow_now`): what a client was told of the newest
  metadata holds for what it asks next.
- The controller is told of nothing that has not been followed by all (`followed_offset`): it lets a broker lead again
  that has heard of everything, and a broker stop whose leaders have moved for everybody.
- Settings and in-sync sets never come apart, so an image with other settings is followed in one turn: by an older
  set and a newer min.insync.replicas a leader would confirm what an eligible replica does not have.
- A leader that is late counts more followers than it has to, never fewer: only its own proposals add to the in-sync
  set, and what it has proposed counts already.

New partitions may be as many, and each log takes a fraction of a millisecond, most of it in the kernel: they are made a
few a turn, too (`OwedLogs`). Whoever asks for one by its name has it made at once; who asks for many of them lets them
be made first.
"""

from __future__ import annotations

from asyncio import get_running_loop, sleep
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from tailrace.controller.image import MetadataImage, PartitionImage, TopicImage

Change = tuple[TopicImage, int, PartitionImage]
Key = tuple[str, int]
T = TypeVar("T")

# Logs that are made in the turn in which their topics are published, or in which somebody asks for them; and in each
# later one.
AT_ONCE_MAX = 16
_MADE_PER_TURN = 4


class LatePartitions:
    """`follow` brings a partition in line with the newest image, if it is still there."""

    def __init__(self, follow: Callable[[Key], None], *, per_turn: int) -> None:
        self.per_turn = per_turn
        self.on_followed: Callable[[], None] = lambda: None  # Told when the last of them has followed.
        self._follow = follow
        self._keys: dict[Key, None] = {}  # In order, for it is iterated over. Bounded by the partitions that are here.
        self._followed: MetadataImage | None = None  # The last image that all have followed, while some are late.

    def __bool__(self) -> bool:
        return bool(self._keys)

    def add(self, key: Key, followed: MetadataImage) -> None:
        if not self._keys:
            self._followed = followed
            get_running_loop().call_soon(self._follow_some)
        self._keys[key] = None

    def drop(self, key: Key) -> None:
        """It has followed already, or is gone."""
        self._keys.pop(key, None)

    def clear(self) -> None:
        self._keys.clear()

    def follow_now(self, key: Key) -> None:
        if key in self._keys:
            del self._keys[key]
            self._follow(key)

    def follow_all(self) -> None:
        for key in list(self._keys):
            self.follow_now(key)

    def followed_offset(self, image: MetadataImage) -> int:
        """The last offset of the metadata that everything here has followed; `image` is the newest."""
        followed = self._followed if self._keys else None
        return (followed or image).next_offset - 1

    def _follow_some(self) -> None:
        due = list(islice(self._keys, self.per_turn))
        if len(due) < len(self._keys):
            get_running_loop().call_soon(self._follow_some)
        for key in due:
            self.follow_now(key)
        if due and not self._keys:
            self.on_followed()


class OwedLogs:
    """`make` makes the log of a partition, if it still has to have one here."""

    def __init__(self, make: Callable[[Key], None]) -> None:
        self._make = make
        self._keys: dict[Key, None] = {}  # Bounded by what the image holds.

    def __bool__(self) -> bool:
        return bool(self._keys)

    def add(self, keys: Iterable[Key]) -> None:
        is_first = not self._keys
        self._keys.update(dict.fromkeys(keys))
        if self._keys and is_first:
            get_running_loop().call_soon(self._make_some)

    def clear(self) -> None:
        self._keys.clear()

    def among(self, wanted: Iterable[Key]) -> list[Key]:
        """Those of them that are owed, if these are more than may be made at once."""
        found = [key for key in wanted if key in self._keys]
        return found if len(found) > AT_ONCE_MAX else []

    async def make(self, wanted: Iterable[Key]) -> None:
        for number, key in enumerate(wanted):
            if number % _MADE_PER_TURN == 0:
                await sleep(0)
            self._make_now(key)

    async def then(self, wanted: Iterable[Key], answer: Callable[[], T]) -> T:
        """Makes them, and then answers whoever asked for them."""
        await self.make(wanted)
        return answer()

    def _make_some(self) -> None:
        due = list(islice(self._keys, _MADE_PER_TURN))
        if len(due) < len(self._keys):
            get_running_loop().call_soon(self._make_some)
        for key in due:
            self._make_now(key)

    def _make_now(self, key: Key) -> None:
        if key in self._keys:
            del self._keys[key]
            self._make(key)


def find_changes(old: MetadataImage | None, new: MetadataImage) -> Iterator[Change]:
    """The partitions that are not as they were."""
    for name, topic in new.topics.items():
        before = old.topics.get(name) if old is not None else None
        if before is topic:
            continue
        known = before.partitions if before is not None and before.id == topic.id else {}
        for index, state in topic.partitions.items():
            if known.get(index) is not state:
                yield topic, index, state
