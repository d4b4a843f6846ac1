"""The simulated Objects: a bucket in memory, as unhelpful as the contract of the port allows.

    delay      every call takes a while
    errors     a call fails and had no effect; or fails, and had it; or fails, and has it later (`late_effect_ms`)
    listings   lack what is new, and have what is gone, for `listing_lag_ms`
    short      a read gives less than there is, as a cut connection does
    away       nobody answers until a moment
    rate       so many bytes a second are given, to all readers together

The bucket outlives the processes that use it. What a call was to change happens even if its caller is killed: the
request was on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass

from tailrace.model.ports import (
    Bytes,
    Clock,
    NoObjectError,
    ObjectFacts,
    StoreAwayError,
    StoreLimits,
    StoreRefusalError,
)
from tailrace.sim.random import SimRandom

_LIST_PIECE = 7


@dataclass(slots=True)
class StoreFaults:
    delay_ms: tuple[float, float] = (0.0, 0.0)
    error_share: float = 0.0
    lie_share: float = 0.0  # Of changes: done, and said to have failed.
    late_share: float = 0.0  # Of changes: said to have failed, and done later.
    late_effect_ms: float = 60_000.0
    short_share: float = 0.0  # Of reads.
    listing_lag_ms: float = 0.0
    away_until_ms: float = 0.0  # Of the bucket's clock, monotonic.
    refusal: str = ""  # Why every call is refused,
    refused: tuple[str, ...] = ()  # or only those of some kinds.
    bytes_per_second: float = 0.0  # Of reads; no bound.


@dataclass(frozen=True, slots=True)
class _Stored:
    data: bytes
    since_ms: float
    wall_ms: int


class SimBucket:
    """What is stored. Calls are counted by their kind, for those who look at what a read or a copy costs."""

    def __init__(self, clock: Clock, random: SimRandom, faults: StoreFaults | None = None) -> None:
        self.faults = faults or StoreFaults()
        self.objects: dict[str, _Stored] = {}
        self.calls: dict[str, int] = {"put": 0, "get": 0, "head": 0, "list": 0, "delete": 0}
        self.got_bytes = 0
        self._free_at_ms = 0.0  # When all that was read is given.
        self._gone: dict[str, tuple[float, _Stored]] = {}  # Deleted not long ago.
        self._clock = clock
        self._random = random

    def store(self, name: str, data: bytes) -> None:
        self.objects[name] = _Stored(data, self._clock.monotonic_ms(), self._clock.wall_ms())

    def remove(self, name: str) -> None:
        stored = self.objects.pop(name, None)
        if stored is not None:
            self._gone[name] = (self._clock.monotonic_ms(), stored)

    def seen(self, prefix: str) -> list[ObjectFacts]:
        """As a listing shows it."""
        now_ms, lag_ms = self._clock.monotonic_ms(), self.faults.listing_lag_ms
        self._gone = {name: each for name, each in self._gone.items() if now_ms - each[0] < lag_ms}
        shown = {name: each for name, (_, each) in self._gone.items()}
        shown |= {name: each for name, each in self.objects.items() if now_ms - each.since_ms >= lag_ms}
        folder = f"{prefix.rstrip('/')}/" if prefix else ""
        return [
            ObjectFacts(name, len(each.data), each.wall_ms) for name, each in shown.items() if name.startswith(folder)
        ]

    async def ask(self, kind: str, effect: Callable[[], None] | None = None) -> None:
        """The way to the store and back, with what may happen on it."""
        self.calls[kind] += 1
        faults, random = self.faults, self._random
        await asyncio.sleep(random.between(*faults.delay_ms) / 1000)
        if faults.refusal and (not faults.refused or kind in faults.refused):
            raise StoreRefusalError(faults.refusal)
        if self._clock.monotonic_ms() < faults.away_until_ms:
            raise StoreAwayError("nobody answers")
        chance = random.random()
        if chance < faults.error_share:
            raise StoreAwayError("503 Slow Down")
        if effect is None:
            return
        chance = random.random()
        if chance < faults.late_share:
            asyncio.get_running_loop().call_later(random.random() * faults.late_effect_ms / 1000, effect)
            raise StoreAwayError("the connection broke before the answer")
        effect()
        if chance < faults.late_share + faults.lie_share:
            raise StoreAwayError("the connection broke after the effect")

    def read(self, name: str, start: int, end: int) -> bytes:
        stored = self.objects.get(name)
        if stored is None:
            raise NoObjectError(f"there is no {name}")
        if start >= len(stored.data):
            raise StoreRefusalError(f"{name} has {len(stored.data)} bytes, not one at {start}")
        data = stored.data[start:end]
        if self._random.random() < self.faults.short_share:
            data = data[: self._random.randrange(len(data) + 1)]
        self.got_bytes += len(data)
        return data

    async def give(self, size_bytes: int) -> None:
        """As long as it takes at the rate that there is."""
        if self.faults.bytes_per_second:
            now_ms = self._clock.monotonic_ms()
            self._free_at_ms = max(self._free_at_ms, now_ms) + 1000 * size_bytes / self.faults.bytes_per_second
            await asyncio.sleep((self._free_at_ms - now_ms) / 1000)

    def facts(self, name: str) -> ObjectFacts:
        stored = self.objects.get(name)
        if stored is None:
            raise NoObjectError(f"there is no {name}")
        return ObjectFacts(name, len(stored.data), stored.wall_ms)


class SimObjects:
    """A way to a bucket, below a prefix."""

    def __init__(self, bucket: SimBucket, prefix: str = "") -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    async def put(self, name: str, parts: AsyncIterator[Bytes], size_bytes: int) -> None:
        data = b"".join([bytes(part) async for part in parts])
        assert len(data) == size_bytes, f"{name} has {len(data)} bytes and not {size_bytes}"
        await self._bucket.ask("put", lambda: self._bucket.store(self._prefix + name, data))

    async def get(self, name: str, start: int, end: int) -> Bytes:
        await self._bucket.ask("get")
        data = self._bucket.read(self._prefix + name, start, end)
        await self._bucket.give(len(data))
        return data

    async def head(self, name: str) -> ObjectFacts:
        await self._bucket.ask("head")
        return self._named(self._bucket.facts(self._prefix + name))

    async def list(self, prefix: str) -> AsyncIterator[Sequence[ObjectFacts]]:
        await self._bucket.ask("list")
        found = [self._named(each) for each in self._bucket.seen(self._prefix + prefix)]
        for at in range(0, len(found), _LIST_PIECE):
            yield found[at : at + _LIST_PIECE]

    async def delete(self, names: Sequence[str]) -> None:
        def remove() -> None:
            for name in names:
                self._bucket.remove(self._prefix + name)

        await self._bucket.ask("delete", remove)

    def _named(self, facts: ObjectFacts) -> ObjectFacts:
        return ObjectFacts(facts.name.removeprefix(self._prefix), facts.size_bytes, facts.modified_ms)


class SimObjectStores:
    """Every address leads to one bucket; what follows the bucket's name is a prefix in it."""

    def __init__(self, bucket: SimBucket) -> None:
        self._bucket = bucket

    async def open(self, url: str, options: Mapping[str, str], limits: StoreLimits) -> SimObjects:  # noqa: ARG002
        return SimObjects(self._bucket, url.partition("://")[2].partition("/")[2])
