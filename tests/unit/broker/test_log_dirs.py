"""A broker with two data folders: what DescribeLogDirs shows, AlterReplicaLogDirs moves, and a failed folder leaves."""

import asyncio

import pytest

from tailrace.model.errors import ErrorCode, StorageError
from tailrace.wire.apis.admin import AlterReplicaLogDirsRequest, DescribeLogDirsRequest

from .world import PATIENCE_SECONDS, batch, create_topic, fetch, fetched, produce, produced, running

FOLDERS = ("disks/a", "disks/b")
SETTINGS = {"log.dirs": ",".join(FOLDERS)}


async def describe(peer, **request):
    response = await peer.request(DescribeLogDirsRequest(**request), 4)
    return {each.log_dir: each for each in response.results}


def shown(result):
    """(topic, partition, lag, whether it is a copy), in order."""
    return sorted(
        (topic.name, partition.partition_index, partition.offset_lag, partition.is_future_key)
        for topic in result.topics
        for partition in topic.partitions
    )


async def move(peer, path, *indexes, topic="t"):
    asked = AlterReplicaLogDirsRequest.AlterReplicaLogDir(
        path=path, topics=[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=list(indexes))]
    )
    response = await peer.request(AlterReplicaLogDirsRequest(dirs=[asked]), 2)
    return [partition.error_code for result in response.results for partition in result.partitions]


async def until(condition):
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


def partition_in(world, path):
    """The partition of topic t whose log lies there."""
    (directory,) = [each for each in world.broker.directories if each.path == path]
    (found,) = directory.logs
    return found.partition


def assigned(world):
    """By the metadata: the folder of each partition of topic t."""
    paths = {each.directory_id: each.path for each in world.broker.directories}
    states = world.broker.image.topics["t"].partitions
    return {index: paths.get(state.directory(1)) for index, state in states.items()}


async def test_new_logs_are_spread_and_the_controller_is_told_where_they_lie():
    async with running(SETTINGS) as world:
        peer = await world.connect()
        await create_topic(peer, "t", 4)
        results = await describe(peer, topics=None)
        assert sorted(results) == list(FOLDERS)
        places = {path: [index for _, index, _, _ in shown(result)] for path, result in results.items()}
        assert [len(indexes) for indexes in places.values()] == [2, 2]
        expected = {index: path for path, indexes in places.items() for index in indexes}
        await until(lambda: assigned(world) == expected)


async def test_a_partition_is_moved_under_the_feet_of_its_clients():
    async with running(SETTINGS) as world:
        peer = await world.connect()
        await create_topic(peer, "t", 2)
        index = partition_in(world, "disks/a")
        for number in range(5):
            produced(await peer.request(produce("t", batch(b"%d" % number), partition=index), 9))
        assert await move(peer, "disks/b", index) == [ErrorCode.NONE]
        await until(lambda: not world.broker.future_logs.is_moving(("t", index)))
        results = await describe(
            peer, topics=[DescribeLogDirsRequest.DescribableLogDirTopic(topic="t", partitions=[index])]
        )
        assert [shown(results[path]) for path in FOLDERS] == [[], [("t", index, 0, False)]]
        assert produced(await peer.request(produce("t", batch(b"5"), partition=index), 9)).base_offset == 5
        assert fetched(await peer.request(fetch("t", 0, partition=index), 12)).high_watermark == 6
        await until(lambda: assigned(world)[index] == "disks/b")
        await world.broker.stop()
        await world.start(SETTINGS)
        peer = await world.connect()
        results = await describe(peer, topics=None)
        assert [len(shown(results[path])) for path in FOLDERS] == [0, 2]
        assert fetched(await peer.request(fetch("t", 0, partition=index), 12)).high_watermark == 6


async def test_a_copy_under_way_is_shown_with_its_lag():
    settings = {**SETTINGS, "replica.alter.log.dirs.io.max.bytes.per.second": "1"}
    async with running(settings) as world:
        peer = await world.connect()
        await create_topic(peer, "t", 2)
        index = partition_in(world, "disks/a")
        await peer.request(produce("t", batch(b"x"), partition=index), 9)
        assert await move(peer, "disks/b", index) == [ErrorCode.NONE]
        await until(lambda: world.broker.directories[1].futures)
        await peer.request(produce("t", batch(b"x"), partition=index), 9)
        results = await describe(peer, topics=None)
        assert shown(results["disks/a"]) == [("t", index, 0, False)]
        assert ("t", index, 1, True) in shown(results["disks/b"])


async def test_what_cannot_be_moved_is_answered_with_the_reason():
    async with running(SETTINGS) as world:
        peer = await world.connect()
        await create_topic(peer, "t", 2)
        assert await move(peer, "disks/c", 0, 1) == [ErrorCode.LOG_DIR_NOT_FOUND] * 2
        assert await move(peer, "disks/a", 7) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_a_folder_that_fails_takes_its_partitions_and_leaves_the_others():
    async with running(SETTINGS) as world:
        peer = await world.connect()
        await create_topic(peer, "t", 2)
        lost, kept = partition_in(world, "disks/b"), partition_in(world, "disks/a")
        await until(lambda: assigned(world)[lost] == "disks/b")
        world.disk.fail("append", "disks/b/*")
        answer = produced(await peer.request(produce("t", batch(b"x"), partition=lost), 9))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        answer = produced(await peer.request(produce("t", batch(b"x"), partition=kept), 9))
        assert answer.error_code == ErrorCode.NONE
        results = await describe(peer, topics=None)
        assert (results["disks/b"].error_code, results["disks/b"].topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
        assert shown(results["disks/a"]) == [("t", kept, 0, False)]
        assert await move(peer, "disks/b", kept) == [ErrorCode.KAFKA_STORAGE_ERROR]
        # The controller knows, and nobody leads what is gone.
        await until(lambda: world.broker.image.topics["t"].partitions[lost].leader == -1)
        assert world.broker.image.topics["t"].partitions[kept].leader == 1


async def test_a_start_without_one_of_the_folders_makes_no_empty_logs_of_its_partitions():
    async with running(SETTINGS) as world:
        peer = await world.connect()
        await create_topic(peer, "t", 2)
        lost, kept = partition_in(world, "disks/b"), partition_in(world, "disks/a")
        await until(lambda: assigned(world)[lost] == "disks/b")
        for index in (lost, kept):
            await peer.request(produce("t", batch(b"x"), partition=index), 9)
        await world.broker.stop()
        world.disk.fail("lock", "disks/b/*")
        await world.start(SETTINGS)
        peer = await world.connect()
        results = await describe(peer, topics=None)
        assert results["disks/b"].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert shown(results["disks/a"]) == [("t", kept, 0, False)]
        assert fetched(await peer.request(fetch("t", 0, partition=kept), 12)).high_watermark == 1
        answer = produced(await peer.request(produce("t", batch(b"x"), partition=lost), 9))
        assert answer.error_code != ErrorCode.NONE
        await world.broker.stop()
        world.disk.heal()
        await world.start(SETTINGS)
        peer = await world.connect()
        await until(lambda: world.broker.image.topics["t"].partitions[lost].leader == 1)
        assert fetched(await peer.request(fetch("t", 0, partition=lost), 12)).high_watermark == 1


async def test_the_folder_of_the_metadata_must_be_there():
    async with running(SETTINGS) as world:
        await world.broker.stop()
        world.disk.fail("lock", "disks/a/*")
        with pytest.raises(StorageError, match="disks/a cannot be used"):
            await world.start(SETTINGS)
        world.disk.heal()
        await world.start(SETTINGS)
