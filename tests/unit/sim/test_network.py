"""The simulated network keeps what TCP promises, and nothing more."""

import asyncio
import errno

import pytest

from tailrace.model.ports import FileSlice
from tailrace.sim.disk import SimDisk
from tailrace.sim.loop import SimLoop
from tailrace.sim.network import SimNetwork
from tailrace.sim.random import SimRandom


class World:
    def __init__(self, seed=1):
        self.loop = SimLoop(SimRandom(seed))
        self.network = SimNetwork(self.loop, SimRandom(seed + 1))
        self.server, self.client = self.loop.process("server"), self.loop.process("client")
        self.accepted = []

    def run(self, story):
        async def tell():
            port = self.network.port("server", self.server)
            listen = port.listen("server", 9092, self.accepted.append)
            await self.server.spawn(listen, name="listen")
            return await self.client.spawn(story(self), name="story")

        try:
            return self.loop.run_until_complete(tell())
        finally:
            self.loop.close()

    async def connect(self):
        stream = await self.network.port("client", self.client).connect("server", 9092)
        await asyncio.sleep(0.01)
        return stream, self.accepted[-1]


async def send_all(stream, data):
    room = asyncio.Event()
    stream.watch_writes(room.set)
    while data:
        sent = stream.send([data])
        data = data[sent:]
        if not sent:
            room.clear()
            await room.wait()
    stream.watch_writes(None)


async def receive(stream, size):
    """Up to the end if the stream ends first."""
    data, buffer = b"", memoryview(bytearray(1000))
    ready = asyncio.Event()
    stream.watch_reads(ready.set)
    try:
        while len(data) < size:
            try:
                received = stream.recv_into(buffer)
            except BlockingIOError:
                ready.clear()
                await ready.wait()
                continue
            if not received:
                break
            data += buffer[:received]
        return data
    finally:
        stream.watch_reads(None)


@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_in_order_and_whole(seed):
    data = bytes(range(256)) * 4000  # Several windows.

    async def story(world):
        ours, theirs = await world.connect()
        sending = asyncio.create_task(send_all(ours, data))
        received = await receive(theirs, len(data))
        await sending
        return received

    assert World(seed).run(story) == data


def test_file_slices_are_read_when_they_are_sent():
    disk = SimDisk()
    disk.make_folder("/data")
    file = disk.open("/data/file", create=True)
    file.append([b"0123456789"])

    async def story(world):
        ours, theirs = await world.connect()
        parts = [b"<", FileSlice(file, 2, 5), b">"]
        while parts and (sent := ours.send(parts)) < sum(map(len, parts)):
            whole = b"<23456>"[-sum(map(len, parts)) :]
            parts = [whole[sent:]]
        with pytest.raises(OSError, match="ends before"):
            ours.send([FileSlice(file, 8, 5)] * 100)
        return await receive(theirs, 7)

    assert World().run(story) == b"<23456>"


def test_a_cut_holds_what_is_sent_and_healing_lets_it_through():
    async def story(world):
        ours, theirs = await world.connect()
        world.network.cut("client", "server")
        await send_all(ours, b"held")
        buffer = memoryview(bytearray(10))
        await asyncio.sleep(100)
        with pytest.raises(BlockingIOError):
            theirs.recv_into(buffer)
        await send_all(theirs, b"answer")
        assert await receive(ours, 6) == b"answer"
        world.network.heal()
        return await receive(theirs, 4)

    assert World().run(story) == b"held"


def test_a_cut_in_one_direction_stops_the_other_once_its_window_is_full():
    async def story(world):
        ours, theirs = await world.connect()
        world.network.cut("server", "client")
        data = bytes(2_000_000)
        sending = asyncio.create_task(send_all(ours, data))
        reading = asyncio.create_task(receive(theirs, len(data)))
        await asyncio.sleep(100)
        assert not sending.done()
        world.network.heal()
        await sending
        return len(await reading)

    assert World().run(story) == 2_000_000


def test_a_connection_over_a_cut_link_waits_for_it():
    async def story(world):
        world.network.cut("server", "client")
        connecting = asyncio.create_task(world.connect())
        await asyncio.sleep(0.5)
        assert not connecting.done()
        world.network.heal()
        ours, theirs = await connecting
        await send_all(ours, b"x")
        return await receive(theirs, 1)

    assert World().run(story) == b"x"


def test_nobody_listens():
    async def story(world):
        with pytest.raises(ConnectionRefusedError):
            await world.network.port("client", world.client).connect("server", 1)
        with pytest.raises(OSError, match="in use") as caught:
            await world.network.port("server", world.server).listen("server", 9092, print)
        assert caught.value.errno == errno.EADDRINUSE

    World().run(story)


def test_a_close_is_the_end_of_the_stream_after_what_was_sent():
    async def story(world):
        ours, theirs = await world.connect()
        await send_all(ours, b"last")
        ours.close()
        return await receive(theirs, 100)

    assert World().run(story) == b"last"


def test_the_death_of_a_process_resets_its_connections():
    async def story(world):
        ours, _theirs = await world.connect()
        world.server.kill()
        world.network.end_process(world.server)
        with pytest.raises(ConnectionResetError):
            await receive(ours, 1)
        with pytest.raises(ConnectionRefusedError):
            await world.network.port("client", world.client).connect("server", 9092)

    World().run(story)


def test_the_death_of_a_host_tells_nobody_until_it_is_up_again():
    async def story(world):
        ours, _theirs = await world.connect()
        world.server.kill()
        world.network.end_host("server")
        await send_all(ours, b"is anybody there?")
        await asyncio.sleep(100)
        assert ours.is_open
        world.network.begin_host("server")
        await send_all(ours, b"and now?")
        with pytest.raises(ConnectionResetError):
            await receive(ours, 1)

    World().run(story)


def test_a_reset_comes_in_the_middle_of_a_message():
    sizes = set()
    for seed in range(20):

        async def story(world):
            ours, theirs = await world.connect()
            world.network.reset(ours)
            ours.send([b"0123456789" * 10])
            received = 0
            try:
                while True:
                    received += len(await receive(theirs, 1))
            except ConnectionResetError:
                pass
            with pytest.raises(ConnectionResetError):
                ours.send([b"more"])
            return received

        sizes.add(World(seed).run(story))
    assert len(sizes) > 3, "it is cut at many places"


def test_a_slow_link_takes_its_time():
    async def story(world):
        ours, theirs = await world.connect()
        world.network.slow("client", "server", latency_ms=300, bytes_per_ms=10)
        start = world.loop.now
        await send_all(ours, bytes(10_000))
        await receive(theirs, 10_000)
        return world.loop.now - start

    assert 1.2 < World().run(story) < 1.8
