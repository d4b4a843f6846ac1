"""Nodes that stall, trickle, die in mid-answer or tell too much: each is a node that cannot be read, and soon."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

from tailrace.apps import scrape
from tailrace.apps.scrape import Scraper, parse_text

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
WHOLE = HEAD + b"4\r\nm 1\n\r\n0\r\n\r\n"
Speak = Callable[[asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def node(speak: Speak) -> AsyncIterator[str]:
    speaking: list[asyncio.Task[None] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        speaking.append(asyncio.current_task())
        try:
            await reader.readuntil(b"\r\n\r\n")
            await speak(writer)
        except (OSError, asyncio.CancelledError):
            return  # Nobody listens any more.
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in speaking:
            assert task is not None
            task.cancel()
        await asyncio.gather(*(task for task in speaking if task is not None))


async def well(writer: asyncio.StreamWriter) -> None:
    writer.write(WHOLE)


async def silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def trickling(writer: asyncio.StreamWriter) -> None:
    """Never silent for long, and never at an end."""
    writer.write(HEAD)
    for _ in range(600):
        writer.write(b"4\r\nm 1\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.05)


async def trickling_in_its_head(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nX: ")
    for _ in range(600):
        writer.write(b"y")
        await writer.drain()
        await asyncio.sleep(0.05)


async def dying(writer: asyncio.StreamWriter) -> None:
    writer.write(WHOLE[:-5])


async def dying_in_its_head(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD[:-20])


async def resetting(writer: asyncio.StreamWriter) -> None:
    writer.write(WHOLE[:-5])
    await writer.drain()
    writer.transport.abort()


async def large(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"c8\r\n" + b"m 1\n" * 50 + b"\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    ("speak", "problem"),
    [
        (silent, "timed out"),
        (trickling, "no whole answer in 1 s"),
        (trickling_in_its_head, "no whole answer in 1 s"),
        (dying, ""),
        (dying_in_its_head, "broke off"),
        (resetting, ""),
        (large, "more than"),
    ],
)
async def test_who_cannot_be_read_as_a_whole_is_not_read(
    speak: Speak, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrape, "_TEXT_MAX_BYTES", 100)
    async with node(speak) as bad, node(well) as good:
        async with asyncio.timeout(30):  # The servers speak for that long.
            found = await Scraper(timeout_seconds=0.5, whole_seconds=1.0).read([bad, good])
    assert [each.samples is None for each in found] == [True, False]
    assert problem in found[0].problem


async def test_many_that_are_stuck_keep_the_others_waiting_no_longer_than_one() -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    async with node(silent) as stuck, node(well) as good:
        began = time.monotonic()
        found = await Scraper(timeout_seconds=1.0).read([*[stuck] * 40, good])
        assert time.monotonic() - began < 20, "one after the other they take forty seconds"
    assert [each.samples is None for each in found] == [True] * 40 + [False]


async def test_clocks_are_compared_with_when_the_answer_began() -> None:
    """A long page takes its time to be told, and its clock was read before."""

    async def slowly(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        writer.write(b"%x\r\nclock %.3f\n\r\n" % (17 + 4, time.time()))
        await writer.drain()
        await asyncio.sleep(2.0)
        writer.write(b"0\r\n\r\n")

    async with node(slowly) as url:
        (found,) = await Scraper().read([url])
    assert found.samples is not None
    assert abs(found.samples[0].value - found.at.wall) < 1.0


def test_some_names_of_a_page_are_what_they_are_in_the_whole() -> None:
    lines = ["# HELP a x", 'a{b="a 1"} 1', "a 2", "ab 3", "b_a 4", 'ab{c="\\"d"} NaN', "c", " a 5", "a{}x", "a\t6"]
    text = "\n".join(lines) + "\n"
    whole = parse_text(text)
    for names in ({"a"}, {"ab", "c"}, {"b.a"}, {"a", "ab", "b_a"}):
        found = parse_text(text, frozenset(names))
        assert repr(found) == repr(tuple(each for each in whole if each.name in names))
