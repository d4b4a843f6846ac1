"""The metadata log as Raft sees it: ends of epochs, what is synced, what a snapshot replaces, starts after kills."""

import asyncio

import pytest

from tailrace.broker.quorum.control_records import KRAFT_VERSION, KRAFT_VOTERS, LEADER_CHANGE
from tailrace.broker.quorum.metadata_log import MetadataLog
from tailrace.broker.quorum.snapshots import SnapshotId, write_snapshot
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.sim.random import SimRandom
from tailrace.wire.apis.stored_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    NoOpRecord,
    TopicRecord,
    VotersRecord,
)
from tailrace.wire.records import build_batch
from tests.unit.broker import quorum_world
from tests.unit.broker.quorum_world import FOLDER, turns

VERSION = KRaftVersionRecord(kraft_version=1)


class World(quorum_world.World):
    def open(self) -> MetadataLog:
        return MetadataLog.open(self.config, self.ports, cluster_id="AAAAAAAAAAAAAAAAAAAAAA")

    async def snapshot(self, log: MetadataLog, snapshot: SnapshotId) -> None:
        """As a leader's would arrive, or a node's own."""
        await write_snapshot(
            log.snapshots, self.ports, snapshot, [[topic("kept")]], control=log.control_before(snapshot.offset)
        )


@pytest.fixture
def world() -> World:
    return World()


def topic(name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=b"0123456789abcdef")


def voters(*node_ids: int) -> VotersRecord:
    voter = VotersRecord.Voter
    return VotersRecord(voters=[voter(voter_id=each, voter_directory_id=bytes(16)) for each in node_ids])


def fetched(offset: int, epoch: int, count: int = 1) -> memoryview:
    records = [(offset + index, 0, None, b"x", ()) for index in range(count)]
    return memoryview(build_batch(records, base_offset=offset, leader_epoch=epoch))


async def test_an_empty_log(world: World) -> None:
    log = world.open()
    assert (log.start_offset, log.end_offset, log.last_epoch, log.start_epoch) == (0, 0, 0, 0)
    assert log.end_offset_for(3) == (0, 0)
    assert log.latest_snapshot is None
    assert await log.sync() == 0
    assert log.read(0, 1000, 0) is None


async def test_ends_of_epochs(world: World) -> None:
    log = world.open()
    assert log.append([NoOpRecord()] * 3, epoch=2) == (0, 3)
    assert log.append([NoOpRecord()] * 2, epoch=5) == (3, 5)
    assert log.last_epoch == 5
    assert [log.end_offset_for(epoch) for epoch in (1, 2, 4, 5, 9)] == [(0, 0), (3, 2), (3, 2), (5, 5), (5, 5)]
    assert [log.epoch_at(offset) for offset in (0, 1, 3, 4, 5)] == [0, 2, 2, 5, 5]


async def test_what_is_fetched_has_to_follow(world: World) -> None:
    log = world.open()
    assert log.append_fetched(fetched(0, 3, 2)) == 2
    for view in (fetched(3, 3), fetched(1, 3), fetched(2, 2)):
        with pytest.raises(KafkaError) as refusal:
            log.append_fetched(view)
        assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.append_fetched(memoryview(bytes(fetched(2, 3)) + bytes(fetched(3, 4))[:-1])) == 3


async def test_a_sync_is_shared(world: World) -> None:
    log = world.open()
    world.background.is_holding = True
    log.append([NoOpRecord()], epoch=1)
    first = asyncio.create_task(log.sync())
    await turns()
    log.append([NoOpRecord()], epoch=1)
    others = [asyncio.create_task(log.sync()) for _ in range(3)]
    await turns()
    assert len(world.background.held) == 1
    assert log.synced_end_offset == 0
    world.background.release()
    assert await first == 1
    await turns()
    assert len(world.background.held) == 1
    world.background.release()
    assert await asyncio.gather(*others) == [2, 2, 2]
    assert world.background.held == []


async def test_a_failed_sync_is_final(world: World) -> None:
    log = world.open()
    log.append([NoOpRecord()], epoch=1)
    world.disk.fail("sync", "*.log")
    with pytest.raises(StorageError, match="could not be synced"):
        await log.sync()
    world.disk.heal()
    for change in (log.sync, lambda: log.append([NoOpRecord()], epoch=1), lambda: log.truncate(0)):
        with pytest.raises(StorageError, match="could not be synced"):
            await change()  # type: ignore[operator]
    assert log.failure is not None
    await log.close()


async def test_a_truncation_takes_the_sync_back(world: World) -> None:
    log = world.open()
    log.append([NoOpRecord()] * 2, epoch=1)
    log.append([NoOpRecord()] * 2, epoch=2)
    assert await log.sync() == 4
    assert log.truncate(2) == 2
    assert (log.end_offset, log.last_epoch) == (2, 1)
    assert log.synced_end_offset <= 2
    assert await log.sync() == 2


async def test_a_truncation_during_a_sync_leaves_less_to_wait_for(world: World) -> None:
    log = world.open()
    log.append([NoOpRecord()], epoch=1)
    await log.sync()
    world.background.is_holding = True
    log.append([NoOpRecord()], epoch=1)
    syncing = asyncio.create_task(log.sync())
    await turns()
    log.truncate(1)
    world.background.is_holding = False
    world.background.release()
    assert await syncing == 1


async def test_batches_are_read_from_any_offset_to_any_end(world: World) -> None:
    log = world.open()
    for epoch in range(1, 6):
        log.append([NoOpRecord()] * 2, epoch=epoch)
    read = [(header.base_offset, header.leader_epoch) async for header, _ in log.batches(2, 8)]
    assert read == [(2, 2), (4, 3), (6, 4)]


async def test_control_records_are_those_that_count(world: World) -> None:
    log = world.open()
    log.append_control([(LEADER_CHANGE, LeaderChangeMessage(leader_id=1))], epoch=1)
    log.append_control([(KRAFT_VERSION, VERSION), (KRAFT_VOTERS, voters(1))], epoch=1)
    log.append([NoOpRecord()], epoch=1)
    log.append_control([(KRAFT_VOTERS, voters(1, 2))], epoch=1)
    records = [(1, VERSION), (2, voters(1)), (4, voters(1, 2))]
    assert log.control_records() == records
    assert log.control_before(4) == [VERSION, voters(1)]
    assert log.control_before(5) == [VERSION, voters(1, 2)]
    await log.close()
    assert world.open().control_records() == records
    log = world.open()
    log.truncate(4)
    assert log.control_records() == records[:2], "a voter that was added in vain is none"


async def test_control_records_come_with_fetches(world: World) -> None:
    leader, follower = world.open(), World().open()
    leader.append_control([(LEADER_CHANGE, LeaderChangeMessage(leader_id=1))], epoch=1)
    leader.append([NoOpRecord()], epoch=1)
    leader.append_control([(KRAFT_VOTERS, voters(1, 2))], epoch=1)
    piece = leader.read(0, 1 << 20, leader.end_offset)
    assert piece is not None
    assert follower.append_fetched(memoryview(piece.read())) == leader.end_offset
    assert follower.control_records() == leader.control_records() == [(2, voters(1, 2))]


async def test_a_snapshot_replaces_the_log(world: World) -> None:
    log = world.open()
    log.append_control([(KRAFT_VERSION, VERSION), (KRAFT_VOTERS, voters(1))], epoch=1)
    await world.snapshot(log, SnapshotId(100, 7))
    log.install_snapshot(SnapshotId(100, 7))
    assert (log.start_offset, log.end_offset, log.last_epoch, log.start_epoch) == (100, 100, 7, 7)
    assert log.end_offset_for(7) == (100, 7)
    assert log.end_offset_for(3) == (100, 7)
    assert log.control_records() == [(99, VERSION), (99, voters(1))]
    assert log.append_fetched(fetched(100, 7)) == 101
    assert await log.sync() == 101
    world.disk.power_loss(SimRandom(1))
    log = world.open()
    assert (log.start_offset, log.end_offset, log.last_epoch) == (100, 101, 7)
    assert log.control_records() == [(99, VERSION), (99, voters(1))]


@pytest.mark.parametrize("snapshot", [SnapshotId(100, 7), SnapshotId(3, 7), SnapshotId(100, 2), SnapshotId(100, 1)])
async def test_a_kill_before_the_log_was_replaced(world: World, snapshot: SnapshotId) -> None:
    log = world.open()
    log.append([NoOpRecord()] * 5, epoch=2)
    await log.sync()
    await world.snapshot(log, snapshot)
    world.disk.crash()
    log = world.open()
    assert (log.start_offset, log.end_offset, log.last_epoch) == (snapshot.offset, snapshot.offset, snapshot.epoch)


async def test_a_snapshot_within_the_log_leaves_it(world: World) -> None:
    log = world.open()
    log.append([NoOpRecord()] * 5, epoch=1)
    assert log.unsnapshotted_bytes > 0
    written = log.unsnapshotted_bytes
    await world.snapshot(log, SnapshotId(5, 1))
    log.append([NoOpRecord()], epoch=1)
    log.note_snapshot(SnapshotId(5, 1), written)
    left = log.unsnapshotted_bytes
    assert 0 < left < written
    world.disk.crash()
    log = world.open()
    assert (log.start_offset, log.end_offset) == (0, 6)
    assert log.unsnapshotted_bytes == left
    assert log.latest_snapshot == SnapshotId(5, 1)


async def test_what_a_snapshot_covers_is_removed() -> None:
    world = World(metadata_log_segment_bytes=1000)
    log = world.open()
    for number in range(20):
        log.append([topic(f"topic-{number}") for _ in range(10)], epoch=1)
    for offset in (50, 100):
        await world.snapshot(log, SnapshotId(offset, 1))
    size_before = log.size_bytes
    log.remove_before(SnapshotId(100, 1))()
    assert (log.start_offset, log.start_epoch, log.end_offset) == (100, 1, 200)
    assert log.snapshots.ids == (SnapshotId(100, 1),)
    assert log.size_bytes < size_before
    with pytest.raises(KafkaError):
        log.read(99, 1000, 200)
    assert [header.base_offset async for header, _ in log.batches(100, 200)] == list(range(100, 200, 10))
    await log.sync()
    world.disk.crash()
    log = world.open()
    assert (log.start_offset, log.end_offset, log.latest_snapshot) == (100, 200, SnapshotId(100, 1))


async def test_a_log_without_its_beginning_is_refused() -> None:
    world = World(metadata_log_segment_bytes=1000)
    log = world.open()
    for number in range(20):
        log.append([topic(f"topic-{number}") for _ in range(10)], epoch=1)
    await world.snapshot(log, SnapshotId(100, 1))
    log.remove_before(SnapshotId(100, 1))()
    await log.sync()
    world.disk.crash()
    world.disk.remove(f"{FOLDER}/00000000000000000100-0000000001.checkpoint")
    with pytest.raises(StorageError, match="no snapshot holds what was before"):
        world.open()


async def test_a_batch_too_large(world: World) -> None:
    log = World(metadata_max_batch_bytes=1000).open()
    with pytest.raises(KafkaError) as refusal:
        log.append([topic("x" * 2000)], epoch=1)
    assert refusal.value.code is ErrorCode.POLICY_VIOLATION
    assert log.end_offset == 0
