"""What is written and not yet synced is counted, synced in time, and bounded."""

import asyncio

from tests.unit.replica.replicas import HeldBackground, batch, make_partition

SIZE = len(batch(b"x" * 100))


async def _turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_from_half_the_bound_on_logs_are_synced_and_above_it_producers_wait():
    background = HeldBackground()
    partition = make_partition(background=background, unsynced_max_bytes=10 * SIZE)
    flusher = partition._flusher
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
    await background.release()
    assert not flusher.is_saturated
    assert resumed == [1]
    assert flusher.unsynced_bytes == 0


async def test_what_is_written_during_a_sync_is_not_counted_as_synced():
    background = HeldBackground()
    partition = make_partition(background=background)
    flusher = partition._flusher
    partition.append(batch(b"x" * 100), required_acks=1)
    flusher.request(partition)
    await _turn()
    partition.append(batch(b"x" * 100), required_acks=1)
    await background.release()
    assert flusher.unsynced_bytes == SIZE


async def test_deleted_segments_and_closed_partitions_are_not_counted():
    partition = make_partition()
    flusher = partition._flusher
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
    flusher = partition._flusher
    flusher.request(partition)
    await _turn()
    flusher.request(partition)
    partition.close()
    await background.release()
    assert background.held == []
    await flusher.wait_idle()
