"""A node that is alone: what was synced is there, or it does not start, and says what is wrong and what helps."""

import asyncio

import pytest

from tailrace.broker.quorum.damage.rebuilding import finish, read_damage, rebuild
from tailrace.broker.quorum.damage.report import read_lost
from tailrace.broker.quorum.damage.synced_end import FILE_NAME, read_synced_end
from tailrace.broker.quorum.quorum import Quorum
from tailrace.model.errors import StorageError
from tailrace.sim.disk import SimDisk
from tailrace.sim.random import SimRandom
from tailrace.wire.records import iterate_headers
from tests.unit.broker.quorum_world import FOLDER, LOG_FILE, World, create, turns

TOPICS = [f"topic-{number}" for number in range(6)]


async def written(world: World, *, is_clean: bool = True) -> None:
    quorum = await world.start()
    for name in TOPICS:
        await create(quorum, name, partitions=2)
    await turns()
    if is_clean:
        await quorum.close()
    world.disk.crash()


def edit(disk: SimDisk, path: str, position: int, *, mask: int = 0x04) -> None:
    data = bytearray(disk.read(path))
    data[position] ^= mask
    disk.replace(path, bytes(data))


def cut(disk: SimDisk, path: str, size: int) -> None:
    disk.replace(path, disk.read(path)[:size])


def starts(disk: SimDisk, path: str = LOG_FILE) -> list[int]:
    """Where each batch begins."""
    return [position for position, _ in iterate_headers(disk.read(path))]


def names(quorum: Quorum) -> set[str]:
    return {topic.name for topic in quorum.image.topics.values()}


@pytest.mark.parametrize("is_clean", [True, False])
async def test_no_flipped_byte_takes_a_topic_in_silence(is_clean: bool) -> None:
    """Every byte of the log, headers and offsets and epochs too."""
    world = World()
    await written(world, is_clean=is_clean)
    sound = world.disk.read(LOG_FILE)
    for position in range(len(sound)):
        edit(world.disk, LOG_FILE, position)
        found = read_damage(world.disk, "/data")
        if found.must_be_rebuilt:
            assert found.is_lossy
            assert found.problems()[0].path == LOG_FILE
            assert found.rest.end_offset < (found.synced_end or 0)
        else:
            # One bit of an epoch that is as good as the one that was written: it is Raft's own, and no topic goes.
            assert found.rest.end_offset == found.synced_end
        world.disk.replace(LOG_FILE, sound)


@pytest.mark.parametrize("is_clean", [True, False])
async def test_a_damaged_log_refuses_the_start_with_file_offset_and_remedy(is_clean: bool) -> None:
    world = World()
    await written(world, is_clean=is_clean)
    at = starts(world.disk)[-3]
    edit(world.disk, LOG_FILE, at + 70)
    before = {name: world.disk.read(f"{FOLDER}/{name}") for name in world.disk.list(FOLDER)}
    for _ in range(2):
        with pytest.raises(StorageError) as refused:
            await world.restart()
    shown = str(refused.value)
    assert f"{LOG_FILE} at position {at}, offset " in shown
    assert "checksum" in shown
    assert "tailrace repair --data /data" in shown
    after = {name: world.disk.read(f"{FOLDER}/{name}") for name in world.disk.list(FOLDER)}
    assert after == before, "a start that is refused changes nothing"


@pytest.mark.parametrize("batches", [1, 3])
async def test_a_log_that_ends_too_early_is_refused(batches: int) -> None:
    """At the edge of a batch: nothing in the file itself shows it."""
    world = World()
    await written(world)
    cut(world.disk, LOG_FILE, starts(world.disk)[-batches])
    with pytest.raises(StorageError, match="was synced up to offset"):
        await world.restart()


async def test_a_log_that_ends_in_the_middle_of_what_was_synced_is_refused() -> None:
    world = World()
    await written(world)
    cut(world.disk, LOG_FILE, world.disk.size(LOG_FILE) - 1)
    with pytest.raises(StorageError, match="in the middle of a batch"):
        await world.restart()


@pytest.mark.parametrize("path", [LOG_FILE, FOLDER])
async def test_a_log_that_is_gone_is_refused(path: str) -> None:
    world = World()
    await written(world)
    if path == FOLDER:
        world.disk.remove_folder(path)
    else:
        world.disk.remove(path)
    with pytest.raises(StorageError, match="was synced up to offset"):
        await world.restart()


async def test_a_write_that_a_kill_has_torn_is_cut() -> None:
    world = World()
    await written(world, is_clean=False)
    data = world.disk.read(LOG_FILE)
    at = starts(world.disk)[-1]
    world.disk.open(LOG_FILE).append([data[at : at + 50]])
    quorum = await world.restart()
    assert names(quorum) == set(TOPICS)


async def test_zeros_behind_what_was_synced_are_cut() -> None:
    """What a power loss leaves of a write that nobody was told of."""
    world = World()
    await written(world, is_clean=False)
    world.disk.open(LOG_FILE).append([bytes(5000)])
    assert names(await world.restart()) == set(TOPICS)


@pytest.mark.parametrize("seed", range(40))
async def test_a_power_loss_is_never_taken_for_damage(seed: int) -> None:
    """Whatever it leaves of large batches that were written and not synced: zeros, holes, halves. Several in a row, so
    that what one of them left is what the next one finds."""
    world, chance = World(), SimRandom(seed)
    quorum = await world.start()
    answered: set[str] = set()
    for loss in range(4):
        for number in range(chance.randrange(4)):
            await create(quorum, f"small-{loss}-{number}")
            answered.add(f"small-{loss}-{number}")
        world.background.is_holding = True
        waiting = [
            asyncio.ensure_future(create(quorum, f"large-{loss}-{number}", partitions=150)) for number in range(3)
        ]
        await turns()
        for _ in range(chance.randrange(3)):
            if world.background.held:
                world.background.release()
                await turns()
        answered.update(f"large-{loss}-{number}" for number, each in enumerate(waiting) if each.done())
        for each in waiting:
            each.cancel()
        world.background.held.clear()
        world.background.is_holding = False
        world.disk.power_loss(chance)
        quorum = await world.start()
        assert answered <= names(quorum)


async def test_without_the_mark_only_an_incomplete_end_is_a_torn_write() -> None:
    """The folder was written by an earlier version, or by Kafka."""
    world = World()
    await written(world)
    world.disk.remove(f"/data/{FILE_NAME}")
    sound = world.disk.read(LOG_FILE)
    edit(world.disk, LOG_FILE, starts(world.disk)[-1] + 70)
    with pytest.raises(StorageError, match="checksum"):
        await world.restart()
    # A length that reaches beyond the end, with sound batches behind it.
    world.disk.replace(LOG_FILE, sound)
    edit(world.disk, LOG_FILE, starts(world.disk)[-2] + 9, mask=0x40)
    with pytest.raises(StorageError, match="middle of a batch"):
        await world.restart()
    world.disk.replace(LOG_FILE, sound)
    world.disk.open(LOG_FILE).append([sound[: len(sound) // 2][-30:]])
    quorum = await world.restart()
    assert names(quorum) == set(TOPICS)
    assert read_synced_end(world.disk, "/data") == quorum.log.end_offset


# ---- snapshots


async def snapshotted(world: World) -> Quorum:
    """Some topics before a snapshot, some behind it."""
    quorum = await world.start()
    for name in TOPICS[:4]:
        await create(quorum, name, partitions=2)
    quorum._start_snapshot()
    while quorum.log.latest_snapshot is None:
        await turns()
    for name in TOPICS[4:]:
        await create(quorum, name, partitions=2)
    return quorum


def checkpoint(world: World) -> str:
    return next(f"{FOLDER}/{name}" for name in world.disk.list(FOLDER) if name.endswith(".checkpoint"))


async def test_a_damaged_snapshot_costs_nothing_while_the_log_holds_the_same() -> None:
    world = World()
    await (await snapshotted(world)).close()
    edit(world.disk, checkpoint(world), 200)
    quorum = await world.restart()
    assert names(quorum) == set(TOPICS)
    assert any(name.endswith("-stray") for name in world.disk.list("/data")), "the damaged one is kept"


async def test_a_damaged_snapshot_without_the_log_before_it_is_refused() -> None:
    world = World(metadata_log_segment_bytes=400)
    quorum = await snapshotted(world)
    latest = quorum.log.latest_snapshot
    assert latest is not None
    quorum.log.remove_before(latest)()
    await quorum.close()
    assert LOG_FILE.rpartition("/")[2] not in world.disk.list(FOLDER)
    edit(world.disk, checkpoint(world), 200)
    with pytest.raises(StorageError, match=f"{checkpoint(world)}.*damaged"):
        await world.restart()


async def test_damage_before_a_snapshot_costs_nothing() -> None:
    world = World()
    await (await snapshotted(world)).close()
    edit(world.disk, LOG_FILE, starts(world.disk)[2] + 70)
    quorum = await world.restart()
    assert names(quorum) == set(TOPICS)
    await create(quorum, "another")
    await quorum.close()
    assert names(await world.restart()) == {*TOPICS, "another"}


# ---- repair


async def test_what_would_be_lost_is_told_and_the_rest_starts() -> None:
    world = World()
    await written(world)
    # In the header, in a time that nobody needs.
    edit(world.disk, LOG_FILE, starts(world.disk)[-2] + 30)
    found = read_damage(world.disk, "/data")
    lost = read_lost(world.disk, found)
    assert {record.topic for record in lost if record.topic is not None} == set(TOPICS[-2:])
    assert [record.is_sound for record in lost if record.text == f"topic {TOPICS[-1]}"] == [True]
    assert any(record.text == f"partition 1 of topic {TOPICS[-1]}" for record in lost)
    damaged = world.disk.read(LOG_FILE)
    kept = rebuild(world.disk, SimRandom(1), "/data", found, must_catch_up=False, keeps_one=False)
    assert world.disk.read(f"{kept}/{LOG_FILE.rpartition('/')[2]}") == damaged
    quorum = await world.restart()
    assert names(quorum) == set(TOPICS[:-2])
    await create(quorum, "another")
    await quorum.close()
    assert names(await world.restart()) == {*TOPICS[:-2], "another"}


@pytest.mark.parametrize("operations", range(40))
async def test_a_repair_that_dies_leaves_the_damage_or_a_whole_log(operations: int) -> None:
    world = World()
    await written(world)
    at = starts(world.disk)[-2]
    edit(world.disk, LOG_FILE, at + 70)
    found = read_damage(world.disk, "/data")
    died = []
    world.disk.die_after(operations, torn_bytes=3, on_death=lambda: died.append(1))
    try:
        rebuild(world.disk, SimRandom(1), "/data", found, must_catch_up=False, keeps_one=False)
    except BaseException:
        assert died
    world.disk.power_loss(SimRandom(operations))
    finish(world.disk, "/data")
    again = read_damage(world.disk, "/data")
    assert again.rest.end_offset == found.rest.end_offset
    if again.must_be_rebuilt:
        assert again.is_lossy
        rebuild(world.disk, SimRandom(2), "/data", again, must_catch_up=False, keeps_one=False)
    assert names(await world.restart()) == set(TOPICS[:-2])
