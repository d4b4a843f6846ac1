"""When the quorum writes snapshots of its image, what they replace, and that a start from one gives the same image."""

import asyncio

from tailrace.broker.quorum.snapshots import SnapshotId
from tailrace.sim.random import SimRandom
from tailrace.wire.apis.admin import DeleteTopicsRequest
from tests.unit.broker.quorum_world import FOLDER, World, create, turns


def checkpoints(world: World) -> list[str]:
    return [name for name in world.disk.list(FOLDER) if ".checkpoint" in name]


async def test_a_log_that_has_grown_gets_a_snapshot() -> None:
    world = World(metadata_log_max_record_bytes_between_snapshots=5000)
    quorum = await world.start()
    number = 0
    while quorum.log.latest_snapshot is None:
        await create(quorum, f"topic-{number}", partitions=3)
        await turns()
        number += 1
        assert number < 100, "no snapshot was written"
    assert quorum.log.unsnapshotted_bytes < 5000
    await create(quorum, "after")
    before = quorum.image
    world.disk.power_loss(SimRandom(3))
    quorum = await world.start(previous_broker_epoch=before.brokers[1].epoch)
    assert quorum.image.topics == before.topics
    assert list(quorum.image.topics) == list(before.topics)
    assert quorum.image.features == before.features
    assert quorum.image.configs == before.configs


async def test_a_start_loads_the_snapshot_and_not_the_log_below() -> None:
    world = World(
        metadata_log_max_record_bytes_between_snapshots=5000,
        metadata_max_retention_bytes=0,
        metadata_log_segment_bytes=20_000,
    )
    quorum = await world.start()
    for number in range(100):
        await create(quorum, f"topic-{number}", partitions=3)
        await turns()
    assert len(quorum.log.snapshots.ids) == 1, "only the latest is kept where retention allows none"
    assert quorum.log.start_offset == quorum.log.latest_snapshot.offset  # type: ignore[union-attr]
    assert quorum.log.start_offset > 100
    before = quorum.image
    world.disk.crash()
    quorum = await world.start(previous_broker_epoch=before.brokers[1].epoch)
    assert quorum.image.topics == before.topics
    await quorum.submit_local(DeleteTopicsRequest(topic_names=["topic-1"]))
    assert len(quorum.image.topics) == 99


async def test_an_hour_with_changes_makes_a_snapshot() -> None:
    world = World(metadata_log_max_snapshot_interval_ms=20)
    quorum = await world.start()
    await create(quorum, "orders")
    offset = quorum.image.next_offset
    async with asyncio.timeout(5):
        while quorum.log.latest_snapshot is None:
            await asyncio.sleep(0.005)
    assert quorum.log.latest_snapshot == SnapshotId(offset, 1)
    await asyncio.sleep(0.05)
    assert len(checkpoints(world)) == 1, "nothing has changed since"
    await quorum.close()


async def test_a_snapshot_that_cannot_be_written_costs_nothing() -> None:
    world = World(metadata_log_max_record_bytes_between_snapshots=2000)
    quorum = await world.start()
    world.disk.fail("sync", "*.part")
    for number in range(20):
        await create(quorum, f"topic-{number}", partitions=3)
        await turns()
    assert quorum.log.latest_snapshot is None
    assert len(quorum.image.topics) == 20
    world.disk.heal()
    for number in range(20, 40):
        await create(quorum, f"topic-{number}", partitions=3)
        await turns()
    assert quorum.log.latest_snapshot is not None


async def test_a_close_ends_a_snapshot_that_is_being_written() -> None:
    world = World(metadata_log_max_record_bytes_between_snapshots=50_000)
    quorum = await world.start()
    while not any(name.endswith(".part") for name in checkpoints(world)):
        await create(quorum, f"topic-{len(quorum.image.topics)}", partitions=100)
        assert len(quorum.image.topics) < 100, "no snapshot was begun"
        await asyncio.sleep(0)
    await quorum.close()
    assert not any(name.endswith(".part") for name in checkpoints(world))
    assert len((await world.restart()).image.topics) > 0


async def test_a_snapshot_holds_the_image_that_it_is_named_after() -> None:
    """Though the next one is published in the same turn. What came later is replayed upon it, and not twice."""
    world = World(metadata_log_max_record_bytes_between_snapshots=1)
    quorum = await world.start()
    await turns()
    world.background.is_holding = True
    requests = []
    ends = []
    for name in ("one", "two"):
        requests.append(asyncio.create_task(create(quorum, name)))
        await asyncio.sleep(0)
        ends.append(quorum.log.end_offset)
    for end_offset in ends:
        quorum._on_committed(end_offset)  # As two followers do that fetch in one turn.
    world.background.is_holding = False
    while world.background.held:
        world.background.release()
    await asyncio.gather(*requests)
    await turns()
    latest = quorum.log.latest_snapshot
    assert latest is not None
    assert latest.offset == ends[0]
    restarted = await world.restart()
    assert sorted(restarted.image.topics) == ["one", "two"]
