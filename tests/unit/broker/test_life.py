"""Start and stop of a whole broker: a start that fails leaves nothing open, and an unclean stop is told of."""

import asyncio
import errno
import logging
import socket
import sys

import pytest

from tailrace.broker.broker import Broker
from tailrace.model.config import parse_broker_config
from tailrace.model.errors import KafkaError, StorageError

from .world import World, batch, create_topic, produce, produced

FOLDERS = {"log.dirs": "first,second", "metadata.log.dir": "meta"}


@pytest.mark.parametrize(
    ("operation", "pattern"),
    [
        ("lock", "*/.lock"),
        ("replace", "*/meta.properties"),
        ("lock", "meta/.lock"),
        ("list", "meta/__cluster_metadata-0"),
        ("replace", "meta/*/quorum-state"),
        ("append", "meta/__cluster_metadata-0/*.log"),
        ("sync", "meta/__cluster_metadata-0/*.log"),
        ("list", "*"),
    ],
)
async def test_a_start_that_fails_leaves_nothing_open(operation: str, pattern: str) -> None:
    world = World()
    world.disk.fail(operation, pattern, error=errno.EIO)
    with pytest.raises((OSError, StorageError, KafkaError)):
        await world.start(FOLDERS)
    assert world.disk.locked == set()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", world.broker.port)
    await world.broker.stop()
    assert [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
    world.disk.heal()
    await world.start(FOLDERS)
    await world.broker.stop()


async def test_a_folder_that_fails_at_the_start_is_left_out() -> None:
    world = World()
    world.disk.fail("lock", "second/.lock", error=errno.EIO)
    broker = await world.start(FOLDERS)
    assert [directory.path for directory in broker.directories] == ["first"]
    assert broker.image.brokers[1].log_dirs == (broker.directories[0].directory_id,)
    await broker.stop()
    world.disk.heal()
    broker = await world.start(FOLDERS)
    assert len(broker.image.brokers[1].log_dirs) == 2
    await broker.stop()


async def test_a_port_in_use_leaves_the_other_listeners_and_the_folders_alone() -> None:
    world = World()
    async with await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0) as taken:
        port = taken.sockets[0].getsockname()[1]
        listeners = f"A://127.0.0.1:0,B://127.0.0.1:{port}"
        broker = Broker(parse_broker_config({"node.id": "1", "listeners": listeners, "log.dirs": "data"}), world.ports)
        with pytest.raises(OSError, match="another process uses this port"):
            await broker.start()
    assert not world.disk.exists("data")


async def test_listeners_have_the_sizes_of_the_settings() -> None:
    world = World()
    sizes = {"receive.buffer.bytes": "30000", "send.buffer.bytes": "40000", "listen.backlog.size": "7"}
    broker = await world.start({f"socket.{name}": value for name, value in sizes.items()})
    (listener,) = broker.acceptors[0]._listeners
    assert listener._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * 30_000
    assert listener._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * 40_000
    information = listener._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
    assert int.from_bytes(information[28:32], sys.byteorder) == 7
    await broker.stop()


async def test_recovery_after_an_unclean_stop_is_one_line_a_folder(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    await world.start({"log.dirs": "first,second"})
    peer = await world.connect()
    await create_topic(peer, "t", partitions=3)
    records = batch(b"kept")
    for partition in range(3):
        assert produced(await peer.request(produce("t", records, partition=partition), 11)).error_code == 0
    await peer.close()
    world.disk.crash()
    killed = world.broker
    torn = next(path for path in ("first/t-0", "second/t-0") if world.disk.exists(path))
    world.disk.open(f"{torn}/{0:020d}.log").append([b"torn"])
    with caplog.at_level(logging.INFO):
        await world.start({"log.dirs": "first,second"})
    lines = [record.facts for record in caplog.records if record.message == "recovered after an unclean stop"]
    assert sorted((line["folder"], line["logs"]) for line in lines) in (
        [("first", 1), ("second", 2)],
        [("first", 2), ("second", 1)],
    )
    assert sum(line["scanned_bytes"] for line in lines) == 3 * len(records) + 4
    assert [line["cut_bytes"] for line in lines if torn.startswith(line["folder"])] == [4]
    assert sum(line["cut_bytes"] for line in lines) == 4
    assert all(0 <= line["ms"] < 10_000 for line in lines)
    caplog.clear()
    await world.broker.stop()
    with caplog.at_level(logging.INFO):
        await world.start({"log.dirs": "first,second"})
    assert "recovered" not in caplog.text
    await world.broker.stop()
    await killed.stop()
