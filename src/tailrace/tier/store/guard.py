"""A store behind limits: what everybody who wants objects uses, never the port itself.

Rules
- Every try has a time limit, and there are only so many tries, with pauses that grow and differ (jitter). A refusal and
  an object that is not there are not tried again.
- At most so many calls are under way, and so many bytes of them in memory; others wait for their turn.
- After several failures in a row the circuit opens: then calls fail at once, and `on_circuit` is told.
- A read gives all the bytes that were asked for, or raises: a store that cuts an answer short is asked again.
- A call that is cancelled returns at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tailrace.model import events
from tailrace.model.ports import (
    Bytes,
    Clock,
    NoObjectError,
    ObjectFacts,
    Objects,
    Random,
    StoreAwayError,
    StoreError,
    StoreRefusalError,
)
from tailrace.tier.store.budget import Budget
from tailrace.tier.store.circuit import Circuit, CircuitLimits

T = TypeVar("T")

# What S3 deletes in one request.
_DELETE_MAX = 1000

events_log = events.logger("tier")


@dataclass(frozen=True, slots=True)
class GuardLimits:
    call_timeout_ms: float = 10_000.0  # Of one try.
    put_timeout_ms: float = 600_000.0  # Of one try of an upload: a segment of 1 GiB at 2 MB/s.
    tries: int = 4
    backoff_ms: float = 200.0  # Before the second try; each later one waits twice as long.
    backoff_max_ms: float = 5_000.0
    reads_in_flight: int = 16
    read_bytes_max: int = 64 << 20
    uploads_in_flight: int = 2
    upload_bytes_max: int = 32 << 20  # The parts of all uploads that are in memory.
    circuit: CircuitLimits = field(default_factory=CircuitLimits)


class GuardedObjects:
    def __init__(
        self,
        objects: Objects,
        clock: Clock,
        random: Random,
        limits: GuardLimits,
        *,
        upload_memory_bytes: int = 16 << 20,
        on_circuit: Callable[[bool, str], None] | None = None,
    ) -> None:
        """`upload_memory_bytes` is what one upload has in memory: its parts in flight."""
        self.circuit = Circuit(limits.circuit)
        self.reads = Budget(calls_max=limits.reads_in_flight, bytes_max=limits.read_bytes_max)
        self.uploads = Budget(calls_max=limits.uploads_in_flight, bytes_max=limits.upload_bytes_max)
        self._objects = objects
        self._clock = clock
        self._random = random
        self._limits = limits
        self._upload_memory_bytes = upload_memory_bytes
        self._on_circuit = on_circuit

    async def put(self, name: str, make_parts: Callable[[], AsyncIterator[Bytes]], size_bytes: int) -> None:
        """`make_parts` gives the same bytes each time it is called: a try that failed may still have its effect. What
        the parts raise comes out here, unless it is a StoreError."""
        in_memory = min(size_bytes, self._upload_memory_bytes)
        await self.uploads.take(in_memory)
        try:
            await self._try(
                lambda: self._objects.put(name, make_parts(), size_bytes), timeout_ms=self._limits.put_timeout_ms
            )
        finally:
            self.uploads.give(in_memory)

    async def put_bytes(self, name: str, data: bytes) -> None:
        async def parts() -> AsyncIterator[Bytes]:
            yield data

        await self.put(name, parts, len(data))

    async def get(self, name: str, start: int, end: int) -> Bytes:
        """Exactly `end - start` bytes. NoObjectError."""
        assert 0 <= start < end, f"bytes {start} to {end} of {name}"

        async def whole() -> Bytes:
            data = await self._objects.get(name, start, end)
            if len(data) != end - start:
                raise StoreAwayError(f"{name}: {len(data)} of the {end - start} bytes from {start} on were given")
            return data

        await self.reads.take(end - start)
        try:
            return await self._try(whole)
        finally:
            self.reads.give(end - start)

    async def get_whole(self, name: str, max_bytes: int) -> bytes:
        """A small object. NoObjectError; StoreRefusalError if it has more than `max_bytes`."""
        size_bytes = (await self.head(name)).size_bytes
        if size_bytes > max_bytes:
            raise StoreRefusalError(f"{name} has {size_bytes} bytes, more than the {max_bytes} that are expected")
        return bytes(await self.get(name, 0, size_bytes)) if size_bytes else b""

    async def head(self, name: str) -> ObjectFacts:
        """NoObjectError."""
        return await self._try(lambda: self._objects.head(name))

    async def list(self, prefix: str) -> list[ObjectFacts]:
        async def collect() -> list[ObjectFacts]:
            return [each async for piece in self._objects.list(prefix) for each in piece]

        return await self._try(collect)

    async def delete(self, names: Sequence[str]) -> None:
        for at in range(0, len(names), _DELETE_MAX):
            piece = names[at : at + _DELETE_MAX]
            await self._try(lambda piece=piece: self._objects.delete(piece))  # type: ignore[misc]

    async def _try(self, call: Callable[[], Awaitable[T]], *, timeout_ms: float | None = None) -> T:
        timeout_ms = self._limits.call_timeout_ms if timeout_ms is None else timeout_ms
        for number in range(1, self._limits.tries + 1):
            if number > 1:
                await asyncio.sleep(self._pause_ms(number) / 1000)
            try:
                return await self._call(call, timeout_ms)
            except StoreAwayError:
                if number == self._limits.tries or self.circuit.is_open:
                    raise
        raise AssertionError("the last try gives or raises")

    async def _call(self, call: Callable[[], Awaitable[T]], timeout_ms: float) -> T:
        if not self.circuit.may_call(self._clock.monotonic_ms()):
            raise StoreAwayError(f"the store is not asked for a while, since it has failed: {self.circuit.cause}")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                result = await call()
        except NoObjectError:
            self._succeed()
            raise
        except StoreError as error:
            self._fail(str(error))
            raise
        except TimeoutError:
            problem = f"no answer within {timeout_ms:.0f} ms"
            self._fail(problem)
            raise StoreAwayError(problem) from None
        except BaseException:
            self.circuit.give_back()
            raise
        self._succeed()
        return result

    def _succeed(self) -> None:
        if self.circuit.succeed():
            events_log.info("the object store answers again")
            self._tell(is_open=False)

    def _fail(self, cause: str) -> None:
        if self.circuit.fail(self._clock.monotonic_ms(), cause):
            events_log.error(
                "the object store fails: what lies in it cannot be read, and nothing is copied, until it answers again",
                cause=cause,
            )
            self._tell(is_open=True)

    def _tell(self, *, is_open: bool) -> None:
        if self._on_circuit is not None:
            self._on_circuit(is_open, self.circuit.cause)

    def _pause_ms(self, number: int) -> float:
        """Between half of the pause and all of it."""
        limits = self._limits
        pause_ms: float = min(limits.backoff_ms * (1 << (number - 2)), limits.backoff_max_ms)
        return pause_ms * (0.5 + self._random.random() / 2)
