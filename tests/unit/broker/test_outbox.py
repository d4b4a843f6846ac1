"""What is put in comes out, in order, however little the socket takes; small slices travel with what is around them."""

import asyncio
import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest

from tailrace.broker.serving.outbox import JOINED_BYTES, WINDOW_BYTES, Outbox
from tailrace.broker.serving.turns import Turns
from tailrace.model.ports import Bytes, File, FileSlice
from tailrace.model.security import ANONYMOUS
from tailrace.sim.background import SimBackground
from tailrace.sim.clock import SimClock
from tailrace.sim.disk import SimDisk


class Socket:
    """Takes as many bytes as it is told to, and says when there is room again. It keeps how the parts of each call were
    cut, which a simulated stream does not tell."""

    peer = "peer:1"

    def __init__(self, room: Callable[[], int]) -> None:
        self._room = room
        self.taken = bytearray()
        self.calls: list[list[type]] = []
        self.on_taken: Callable[[], None] = lambda: None
        self._on_room: Callable[[], None] | None = None

    def recv_into(self, buffer: memoryview) -> int:
        raise BlockingIOError

    def send(self, parts: Sequence[Bytes | FileSlice]) -> int:
        self.calls.append([type(part) for part in parts])
        whole = b"".join(part.read() if isinstance(part, FileSlice) else part for part in parts)
        taken = whole[: self._room()]
        self.taken += taken
        self.on_taken()
        return len(taken)

    def left_bytes(self) -> int | None:
        return None

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        pass

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        if callback is not None:
            asyncio.get_running_loop().call_soon(self._tell)
        self._on_room = callback

    def _tell(self) -> None:
        if self._on_room is not None:
            self._on_room()

    def close(self) -> None:
        pass


CONTENT = random.Random(1).randbytes(4 << 20)


@pytest.fixture
def file() -> File:
    file = SimDisk(SimClock()).open("file", create=True)
    file.append([CONTENT])
    return file


class World:
    def __init__(self, room: Callable[[], int] = lambda: 1 << 30) -> None:
        self.socket = Socket(room)
        self.drained = 0
        self.broken: list[OSError] = []
        self.clock = SimClock()
        self.turns = Turns(self.clock, asyncio.get_running_loop().call_soon)
        self.outbox = Outbox(
            self.socket,
            SimBackground(),
            self.turns,
            SimpleNamespace(address="an address", principal=ANONYMOUS),
            on_drained=self._on_drained,
            on_broken=self.broken.append,
        )

    def _on_drained(self) -> None:
        self.drained += 1

    async def send(self, parts: list[Bytes | FileSlice]) -> bytes:
        self.outbox.put(parts)
        self.outbox.flush()
        async with asyncio.timeout(5):
            while not self.outbox.is_empty and not self.broken:
                await asyncio.sleep(0)
        return bytes(self.socket.taken)


def whole(parts: list[Bytes | FileSlice]) -> bytes:
    return b"".join(part.read() if isinstance(part, FileSlice) else part for part in parts)


async def test_a_small_slice_goes_out_in_one_piece_with_its_answer(file):
    world = World()
    parts: list[Bytes | FileSlice] = [b"head", FileSlice(file, 10, 1000), b"between", FileSlice(file, 0, 50), b"tail"]
    expected = whole(parts)
    assert await world.send(parts) == expected
    assert world.socket.calls == [[bytes] * 5]


async def test_a_large_slice_is_never_read(file):
    world = World()
    parts: list[Bytes | FileSlice] = [b"head", FileSlice(file, 0, JOINED_BYTES + 1), b"tail"]
    expected = whole(parts)
    assert await world.send(parts) == expected
    assert world.socket.calls == [[bytes, FileSlice], [bytes]]


async def test_many_small_slices_are_joined_up_to_a_bound(file):
    world = World()
    parts: list[Bytes | FileSlice] = [FileSlice(file, number, 1000) for number in range(100)]
    expected = whole(parts)
    assert await world.send(parts) == expected
    assert max(len(call) for call in world.socket.calls) <= 1 + JOINED_BYTES // 1000
    assert len(world.socket.calls) <= 1 + 100_000 // JOINED_BYTES


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_the_sizes_and_however_little_is_taken(file, seed, monkeypatch):
    dice = random.Random(seed)
    monkeypatch.setattr(type(file), "is_resident", lambda self, position, size: dice.random() < 0.7)
    world = World(lambda: dice.choice([0, 1, 100, 5000, 100_000, 1 << 20]))
    parts: list[Bytes | FileSlice] = []
    for _ in range(12):
        size = dice.choice([1, 60, 900, 20_000, 40_000, 1_500_000])
        is_slice = dice.random() < 0.5
        parts.append(FileSlice(file, dice.randrange(1000), size) if is_slice else CONTENT[: size % 3000])
    expected = whole(parts)
    assert await world.send(parts) == expected
    assert not world.broken


async def test_a_file_that_ends_too_early_breaks_the_connection(file):
    world = World()
    await world.send([b"head", FileSlice(file, len(CONTENT) - 10, 50)])
    assert len(world.broken) == 1
    assert not world.socket.taken


async def test_large_pieces_of_many_stand_in_line(file):
    """And what else there is to do has its turn between them."""
    worlds = [World() for _ in range(6)]
    order: list[str] = []

    def note(number: int) -> None:
        order.append(str(number))
        worlds[0].clock.advance_ms(0.2)

    for number, world in enumerate(worlds):
        world.outbox._turns = worlds[0].turns
        world.socket.on_taken = lambda number=number: note(number)
        world.outbox.put([b"head", FileSlice(file, 0, WINDOW_BYTES)])
        world.outbox.flush()
    asyncio.get_running_loop().call_soon(order.append, "other")
    assert order == ["0", "1"]
    assert worlds[2].outbox.is_blocked
    worlds[5].outbox.close()
    async with asyncio.timeout(5):
        while len(order) < 6:
            await asyncio.sleep(0)
    assert order[:2] == ["0", "1"]
    assert sorted(order[2:]) == ["2", "3", "4", "other"]
    assert [world.drained for world in worlds] == [0, 0, 1, 1, 1, 0]
