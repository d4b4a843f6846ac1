"""Filters at work: records go to child processes (`chooser`), of which there are a few for all visitors.

A child that needs more time or memory than it may have is ended by the system, and the next question begins another.
"""

from __future__ import annotations

import asyncio
import marshal
import sys
from collections.abc import Iterator, Sequence

from tailrace.apps.console.reading.chooser import CPU_MAX_S, LENGTH_BYTES, MEMORY_MAX_BYTES, Answer
from tailrace.apps.console.reading.filters import parse_filter
from tailrace.wire.payload import Record

_PROCESSES_MAX = 2
# One question: others wait meanwhile.
_RECORDS_MAX = 200
_BYTES_MAX = 4 << 20
# A child that is alive answers long before: its processor time is bounded. On a machine that stands still it may not.
_PATIENCE_S = 60.0


class FilterCostError(Exception):
    """A filter was stopped; the message says where and why."""


class Choosers:
    """The children, begun when they are first needed. `aclose` ends them; they also end with this process."""

    def __init__(self) -> None:
        self._idle: list[asyncio.subprocess.Process] = []
        self._places = asyncio.Semaphore(_PROCESSES_MAX)

    async def ask(self, text: str, partition: int, records: Sequence[Record]) -> Answer:
        """Raises FilterCostError."""
        question = marshal.dumps((text, [(partition, *record) for record in records]))
        async with self._places:
            child = self._idle.pop() if self._idle else await _begin()
            try:
                answer = await asyncio.wait_for(_exchange(child, question), _PATIENCE_S)
            except (OSError, EOFError, TimeoutError) as error:
                _end(child)
                raise FilterCostError(
                    f"it needed more than {CPU_MAX_S:.0f} s of processor time or {MEMORY_MAX_BYTES >> 20} MB for "
                    f"{len(records)} records from offset {records[0].offset} of partition {partition}: ask for less"
                ) from error
            except BaseException:
                _end(child)
                raise
            self._idle.append(child)
        return answer

    async def aclose(self) -> None:
        while self._idle:
            child = self._idle.pop()
            _end(child)
            await child.wait()


class Filter:
    """What a visitor asked for, checked. Raises FilterError."""

    def __init__(self, text: str, choosers: Choosers) -> None:
        parse_filter(text)
        self._text = text
        self._choosers = choosers
        self.too_large = 0  # Records that there was no memory to look into.

    async def choose(self, partition: int, records: Sequence[Record]) -> list[int]:
        """The places of those that it takes. Raises FilterCostError."""
        taken: list[int] = []
        for start, end in _parts(records):
            found, too_large = await self._choosers.ask(self._text, partition, records[start:end])
            taken += [start + place for place in found]
            self.too_large += len(too_large)
        return taken


def _parts(records: Sequence[Record]) -> Iterator[tuple[int, int]]:
    start = size_bytes = 0
    for place, record in enumerate(records):
        size_bytes += len(record.key or b"") + len(record.value or b"")
        if place > start and (size_bytes > _BYTES_MAX or place - start == _RECORDS_MAX):
            yield start, place
            start, size_bytes = place, len(record.key or b"") + len(record.value or b"")
    if start < len(records):
        yield start, len(records)


async def _begin() -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    words = (sys.executable, "-m", "tailrace.apps.console.reading.chooser")
    return await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL)


async def _exchange(child: asyncio.subprocess.Process, question: bytes) -> Answer:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(len(question).to_bytes(LENGTH_BYTES, "big"))
    child.stdin.write(question)
    await child.stdin.drain()
    length = int.from_bytes(await child.stdout.readexactly(LENGTH_BYTES), "big")
    answer: Answer = marshal.loads(await child.stdout.readexactly(length))  # noqa: S302 (of our own process)
    return answer


def _end(child: asyncio.subprocess.Process) -> None:
    if child.stdin is not None:
        child.stdin.close()
    if child.returncode is None:
        child.kill()
