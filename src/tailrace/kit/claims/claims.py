"""`Claims`: values that are too large for a topic, in an object store.

    async with Claims("s3://bucket/claims", {...}) as claims:
        await claims.produce(producer, "scans", scan)           # the object first, then the record
        value = await claims.resolve(message)                   # or: await claims.save(message, path)

A value is checked when it is read: an object that is not there, and one that is not what was written, are told apart.
Both are for good, unlike a store that is away (StoreError).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from tailrace.kit.claims.reference import (
    Reference,
    day_of,
    last_day_gone,
    moved,
    read_reference,
    refer,
    write_reference,
)
from tailrace.kit.messages import Delivered, Headers, Message, headers_of
from tailrace.kit.producer import Producer
from tailrace.model.ports import Bytes, Clock, NoObjectError, StoreLimits
from tailrace.real.ports import real_ports
from tailrace.tier.store.guard import GuardedObjects, GuardLimits

_DAY_MS = 86_400_000
_PIECE_BYTES = 4 * 1024 * 1024


class ClaimMissingError(Exception):
    """The object is not there: it was deleted before its record."""


class ClaimDamagedError(Exception):
    """The object is not what was written, or the record does not say what to fetch."""


class Claims:
    """Use it as an async context manager. `url` and `options` as of tiered storage: s3://, gs://, az:// or file:///.
    Values of more than `threshold_bytes` go to the store."""

    def __init__(
        self,
        url: str,
        options: Mapping[str, str] | None = None,
        *,
        threshold_bytes: int = 512 * 1024,
        limits: GuardLimits | None = None,
        clock: Clock | None = None,
    ) -> None:
        if threshold_bytes < 0:
            raise ValueError("threshold_bytes is 0 or more")
        self._url = url
        self._options = dict(options or {})
        self._threshold_bytes = threshold_bytes
        self._limits = limits or GuardLimits()
        self._ports = real_ports()
        self._clock = clock or self._ports.clock
        self._store: GuardedObjects | None = None

    async def __aenter__(self) -> Claims:
        assert self._ports.objects is not None, "the real ports have stores"
        objects = await self._ports.objects.open(self._url, self._options, StoreLimits())
        self._store = GuardedObjects(objects, self._ports.clock, self._ports.random, self._limits)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._ports.background.close)

    # --- writing

    async def check_in(self, topic: str, value: bytes | None) -> tuple[bytes | None, tuple[tuple[str, bytes], ...]]:
        """The value to write, and the headers to add: as it is, or a reference once the object is there."""
        if value is None or len(value) <= self._threshold_bytes:
            return value, ()
        reference = refer(topic, value, self._clock.wall_ms())
        await self._put(reference, value)
        reduced, header = write_reference(reference)
        return reduced, (header,)

    async def produce(
        self, producer: Producer, topic: str, value: bytes | None, *, headers: Headers = (), **given: Any
    ) -> Delivered:
        """As `Producer.produce`. Without the record nobody refers to the object, and its day takes it away."""
        reduced, added = await self.check_in(topic, value)
        return await producer.produce(topic, reduced, headers=(*headers_of(headers), *added), **given)

    async def move(self, topic: str, value: bytes | None, headers: Headers) -> bytes | None:
        """For a record that goes to another topic, which may keep it longer than the first one keeps its objects: the
        value to write there, after the object was copied."""
        reference = self._read(value, headers_of(headers))
        if reference is None:
            return value
        copy = moved(reference, topic, self._clock.wall_ms())
        if copy.name != reference.name:
            await self._put(copy, await self.fetch(reference))
        return write_reference(copy)[0]

    async def _put(self, reference: Reference, value: bytes) -> None:
        async def parts() -> AsyncIterator[Bytes]:
            for start in range(0, len(value), _PIECE_BYTES):
                yield value[start : start + _PIECE_BYTES]

        try:
            if (await self._opened.head(reference.name)).size_bytes == reference.size_bytes:
                return  # An attempt before has written it, or another record of the day.
        except NoObjectError:
            pass
        await self._opened.put(reference.name, parts, reference.size_bytes)

    # --- reading

    async def resolve(self, message: Message) -> bytes | None:
        """The value. Raises ClaimMissingError, ClaimDamagedError, or StoreError if the store is away."""
        reference = self._read(message.raw_value, message.headers)
        return message.raw_value if reference is None else await self.fetch(reference)

    async def save(self, message: Message, path: str | os.PathLike[str]) -> None:
        """The value into a file, piece by piece. The file appears once it is whole and right."""
        reference = self._read(message.raw_value, message.headers)
        unfinished = Path(f"{os.fspath(path)}.part")
        digest = hashlib.sha256()
        try:
            with await asyncio.to_thread(unfinished.open, "wb") as file:
                if reference is None:
                    await asyncio.to_thread(file.write, message.raw_value or b"")
                else:
                    async for piece in self._pieces(reference):
                        digest.update(piece)
                        await asyncio.to_thread(file.write, piece)
                    _check(reference, digest.hexdigest())
            await asyncio.to_thread(unfinished.replace, path)
        finally:
            await asyncio.to_thread(unfinished.unlink, missing_ok=True)

    async def fetch(self, reference: Reference) -> bytes:
        """As `resolve`, of a reference that was read already."""
        value = b"".join([bytes(piece) async for piece in self._pieces(reference)])
        _check(reference, hashlib.sha256(value).hexdigest())
        return value

    async def _pieces(self, reference: Reference) -> AsyncIterator[Bytes]:
        """Raises ClaimMissingError; ClaimDamagedError if it has another size."""
        try:
            size = (await self._opened.head(reference.name)).size_bytes
            if size != reference.size_bytes:
                raise ClaimDamagedError(f"{reference.name} has {size} bytes, and {reference.size_bytes} were written")
            for start in range(0, size, _PIECE_BYTES):
                yield await self._opened.get(reference.name, start, min(start + _PIECE_BYTES, size))
        except NoObjectError as error:
            raise ClaimMissingError(
                f"{reference.name} is not in {self._url}: it was deleted before its record. Keep objects "
                f"longer than the topics that refer to them ({error})"
            ) from error

    @staticmethod
    def _read(value: bytes | None, headers: Iterable[tuple[str, bytes | None]]) -> Reference | None:
        try:
            return read_reference(value, tuple(headers))
        except ValueError as error:
            raise ClaimDamagedError(str(error)) from None

    # --- what nobody refers to any more

    async def sweep(self, topic: str, *, retention_ms: int, margin_ms: int = _DAY_MS) -> int:
        """Deletes the days before the retention of the topic and a margin. How many objects."""
        return await self._delete(topic, last_day_gone(self._clock.wall_ms(), retention_ms + margin_ms), frozenset())

    async def sweep_unreferenced(
        self, topic: str, messages: AsyncIterator[Message], *, margin_ms: int = _DAY_MS
    ) -> int:
        """For a topic that is compacted, or kept for ever: deletes what none of its messages refers to. They have to be
        all, from its beginning to an end that was asked for just before. What is younger than the margin is kept: its
        record may be on its way."""
        before = last_day_gone(self._clock.wall_ms(), margin_ms)
        found = [self._read(message.raw_value, message.headers) async for message in messages]
        return await self._delete(topic, before, frozenset(each.name for each in found if each is not None))

    async def _delete(self, topic: str, before: date, kept: frozenset[str]) -> int:
        names: list[str] = []
        for facts in await self._opened.list(topic):
            day = day_of(facts.name)
            if day is not None and day <= before and facts.name not in kept:
                names.append(facts.name)
        await self._opened.delete(names)
        return len(names)

    @property
    def _opened(self) -> GuardedObjects:
        assert self._store is not None, "use Claims as an async context manager"
        return self._store


def _check(reference: Reference, digest: str) -> None:
    if digest != reference.sha256:
        raise ClaimDamagedError(
            f"{reference.name} has the SHA-256 {digest}, and {reference.sha256} was written: the object was changed"
        )
