"""What is written and not yet synced is counted, synced in time, and bounded."""

import asyncio
import errno

from tailrace.model.errors import ErrorCode
from tailrace.sim.background import HeldBackground
from tailrace.sim.clock import SimClock
from tailrace.sim.disk import SimDisk
from tests.unit.replica.replicas import batch, make_partition, release

SIZE = len(batch(b"x" * 100))


async def _turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_from_half_the_bound_on_logs_are_synced_and_above_it_producers_wait():
    background = HeldBackground()
    partition = make_partition(background=background, unsynced_max_bytes=10 * SIZE)
    flusher = partition.flusher
    resumed = []
    for _ in range(5):
        partition.append(batch(b"x" * 100), required_acks=1)
    await _turn()
    assert background.held == []
    for _ in range(6):
        partition.append(batch(b"x" * 100), required_acks=1)
    await _turn()
    assert len(background.held) == 1
    assert flusher.unsynced_bytes == 11 * SIZE
    assert flusher.is_saturated
    flusher.wait(lambda: resumed.append(1))
    await release(background)
    assert not flusher.is_saturated
    assert resumed == [1]
    assert flusher.unsynced_bytes == 0


async def test_what_is_written_during_a_sync_is_not_counted_as_synced():
    background = HeldBackground()
    partition = make_partition(background=background)
    flusher = partition.flusher
    partition.append(batch(b"x" * 100), required_acks=1)
    flusher.request(partition)
    await _turn()
    partition.append(batch(b"x" * 100), required_acks=1)
    await release(background)
    assert flusher.unsynced_bytes == SIZE


async def test_deleted_segments_and_closed_partitions_are_not_counted():
    partition = make_partition()
    flusher = partition.flusher
    for _ in range(4):
        partition.append(batch(b"x" * 100), required_acks=1)
    flusher.note_deleted(partition, 3 * SIZE)
    assert flusher.unsynced_bytes == 3 * SIZE
    flusher.note_deleted(partition, 10 * SIZE)
    assert flusher.unsynced_bytes == 3 * SIZE
    partition.close()
    assert flusher.unsynced_bytes == 0


async def test_a_partition_that_closes_during_a_sync_is_not_synced_again():
    background = HeldBackground()
    partition = make_partition(background=background)
    partition.append(batch(b"x"), required_acks=1)
    flusher = partition.flusher
    flusher.request(partition)
    await _turn()
    flusher.request(partition)
    partition.close()
    await release(background)
    assert background.held == []
    await flusher.wait_idle()


async def test_a_partition_that_closes_while_it_waits_for_its_turn_is_not_synced():
    background = HeldBackground()
    first = make_partition(background=background)
    flusher = first.flusher
    others = [make_partition(background=background, flusher=flusher) for _ in range(8)]
    for partition in (first, *others):
        partition.append(batch(b"x"), required_acks=1)
        flusher.request(partition)
    await _turn()
    under_way = len(background.held)
    assert under_way < len(others)
    others[-1].close()
    while background.held:
        await release(background)
    assert others[-1].log.recovery_point == 0
    assert all(partition.log.recovery_point == 1 for partition in others[:-1])
    await asyncio.wait_for(flusher.wait_idle(), 5)


async def test_a_full_disk_at_a_new_leader_epoch_is_waited_out():
    disk = SimDisk(SimClock())
    partition = make_partition(disk=disk, flush_messages=1)
    disk.fail("replace", "*leader-epoch-checkpoint", error=errno.ENOSPC)
    answers = []
    result = partition.append(batch(b"x"), required_acks=-1)
    partition.wait_for_high_watermark(result.next_offset, answers.append)
    await _turn()
    assert (partition.log.is_offline, partition.log.recovery_point, answers) == (False, 0, [])
    assert partition.flusher.unsynced_bytes == len(batch(b"x"))
    disk.heal()
    async with asyncio.timeout(5):
        await partition.flusher.wait_idle()
    assert (partition.log.recovery_point, partition.high_watermark, answers) == (1, 1, [None])
    assert partition.flusher.unsynced_bytes == 0
    assert disk.read("data/t-0/leader-epoch-checkpoint") == b"0\n1\n0 0\n"


async def test_a_broken_disk_at_a_new_leader_epoch_takes_the_log_offline():
    disk = SimDisk(SimClock())
    partition = make_partition(disk=disk, flush_messages=1)
    disk.fail("replace", "*leader-epoch-checkpoint", error=errno.EIO, count=1)
    answers = []
    result = partition.append(batch(b"x"), required_acks=-1)
    partition.wait_for_high_watermark(result.next_offset, answers.append)
    async with asyncio.timeout(5):
        await partition.flusher.wait_idle()
    assert partition.log.is_offline
    assert [answer.code for answer in answers] == [ErrorCode.KAFKA_STORAGE_ERROR]
