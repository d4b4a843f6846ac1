"""Manifests as a leader writes them and as readers find them, with listings that are late and puts that lie."""

import asyncio

import pytest

from tailrace.model.ids import PartitionIndex, Uuid
from tailrace.model.ports import StoreAwayError, StoreRefusalError
from tailrace.sim.objects import StoreFaults
from tailrace.tier.format.layout import DamagedObjectError
from tailrace.tier.format.marker import Marker, write_marker
from tailrace.tier.format.names import MARKER_NAME, TieredPartition
from tailrace.tier.keeping.manifests import LogFacts, PartitionManifests
from tailrace.tier.metadata.records import PartitionState
from tailrace.tier.reading.bucket import Bucket, newest_of_each_name
from tests.unit.log.storage import make_batch
from tests.unit.simulated import simulated
from tests.unit.tier.room import CLUSTER, DELAY_MS, OWNER, Room


class Keeping:
    """A leader of a partition, and what readers find."""

    def __init__(self, room: Room, *, leader_epoch: int = 0, owner: TieredPartition = OWNER) -> None:
        self.room = room
        self.manifests = PartitionManifests(
            CLUSTER, 0, owner, leader_epoch, room.store, room.clock, room.background, delay_ms=DELAY_MS
        )

    async def write(self) -> str | None:
        room = self.room
        lineage = [(entry.epoch, entry.start_offset) for entry in room.log.epochs.entries]
        log = LogFacts(lineage, room.log.log_start_offset, room.log.log_end_offset, 1, {"retention.ms": "1"})
        return await self.manifests.write(room.tier, metadata_offset=room.machine.next_offset, log=log)


async def opened(room: Room) -> Bucket:
    room.bucket.store(MARKER_NAME, write_marker(Marker(CLUSTER)))
    return await Bucket.open(room.store)


def filled_room() -> Room:
    room = Room()
    for number in range(40):
        room.produce(make_batch(2, timestamp=1000 + number, value=b"x" * 60))
    assert len(room.log.segments) > 3
    return room


@simulated
async def test_a_reader_finds_what_the_leader_knows() -> None:
    room = filled_room()
    await room.copy_all()
    await Keeping(room).write()
    (found,) = await (await opened(room)).manifests("orders")
    assert (found.topic, found.owner, found.settings) == ("orders", OWNER, {"retention.ms": "1"})
    assert found.coverage().pieces == room.coverage.pieces
    assert await Bucket(room.store, Marker(CLUSTER)).manifests("order") == [], "a name is not a prefix"
    assert await Bucket(room.store, Marker("another")).manifests() == []


@simulated
async def test_one_is_due_at_the_beginning_and_after_changes_but_not_too_often() -> None:
    room = filled_room()
    keeping = Keeping(room)
    assert keeping.manifests.due_ms(room.tier) == 0, "the leader before may have died before it wrote one"
    await keeping.write()
    assert keeping.manifests.due_ms(room.tier) is None
    await room.copy(0)
    assert keeping.manifests.due_ms(room.tier) == 10_000
    await asyncio.sleep(11)
    assert keeping.manifests.due_ms(room.tier) == 0
    await keeping.write()
    assert keeping.manifests.due_ms(room.tier) is None


@simulated
async def test_what_changes_while_one_is_written_is_told_by_the_next() -> None:
    room = filled_room()
    keeping = Keeping(room)
    room.bucket.faults = StoreFaults(delay_ms=(500, 500))
    writing = asyncio.ensure_future(keeping.write())
    await asyncio.sleep(0.1)
    await room.copy(0)
    await writing
    assert keeping.manifests.due_ms(room.tier) is not None


@simulated
async def test_a_leader_that_was_replaced_and_one_of_a_deleted_topic_write_none() -> None:
    room = filled_room()
    await room.copy(0)
    late = Keeping(room, leader_epoch=0)
    room.tier.leader_epoch = 1
    assert late.manifests.due_ms(room.tier) is None
    assert await late.write() is None
    assert await Keeping(room, leader_epoch=1).write() is not None
    room.tier.deletion = PartitionState.DELETE_MARKED
    deleted = Keeping(room, leader_epoch=1)
    assert deleted.manifests.due_ms(room.tier) is None
    assert await deleted.write() is None


@simulated
async def test_a_try_that_takes_effect_late_does_not_stand_in_for_the_next() -> None:
    room = filled_room()
    keeping = Keeping(room)
    room.bucket.faults = StoreFaults(late_share=1.0, late_effect_ms=50_000)
    with pytest.raises(StoreAwayError):
        await keeping.write()
    assert keeping.manifests.due_ms(room.tier) is not None
    room.bucket.faults = StoreFaults()
    await asyncio.sleep(2)
    await room.copy(0)
    name = await keeping.write()
    await asyncio.sleep(60)
    bucket = await opened(room)
    (found,) = await bucket.manifests()
    assert found.name == name, "of both the later one"
    assert len(found.segments) == 1


@simulated
async def test_old_ones_go_when_nobody_can_be_reading_them() -> None:
    room = filled_room()
    keeping = Keeping(room)
    names = []
    for number in range(3):
        await room.copy(number)
        names.append(await keeping.write())
        await asyncio.sleep(DELAY_MS / 2000 - 1)
    assert await keeping.manifests.remove_old("orders") == []
    await asyncio.sleep(3)
    # The second came before the delay; so the first is old, and the third came only just.
    assert await keeping.manifests.remove_old("orders") == names[:1]
    await asyncio.sleep(10 * DELAY_MS / 1000)
    another = Keeping(room, leader_epoch=4)
    assert await another.manifests.remove_old("orders") == [names[1]], "whoever wrote it; the newest stays for ever"
    (found,) = await (await opened(room)).manifests()
    assert found.name == names[2]


@simulated
async def test_a_late_listing_gives_an_older_one_and_a_listing_of_what_is_gone_is_asked_for_again() -> None:
    room = filled_room()
    keeping = Keeping(room)
    bucket = await opened(room)
    first = await keeping.write()
    await asyncio.sleep(20)
    room.bucket.faults = StoreFaults(listing_lag_ms=10_000)
    await room.copy(0)
    second = await keeping.write()
    (found,) = await bucket.manifests()
    assert found.name == first
    # The first is gone, and the listing shows it alone: until it shows the second.
    assert first is not None
    room.bucket.remove(first)
    await asyncio.sleep(8)
    (found,) = await bucket.manifests()
    assert found.name == second
    room.bucket.faults = StoreFaults(listing_lag_ms=10_000_000)
    room.bucket.remove(str(second))
    with pytest.raises(StoreAwayError, match="names some that are not there"):
        await bucket.manifests()


@simulated
async def test_a_damaged_one_is_passed_over_if_an_older_one_is_there() -> None:
    room = filled_room()
    keeping = Keeping(room)
    first = await keeping.write()
    second = str(await keeping.write())
    room.bucket.store(second, room.bucket.objects[second].data[:-1])
    bucket = await opened(room)
    (found,) = await bucket.manifests()
    assert found.name == first
    room.bucket.store(str(first), b"")
    with pytest.raises(DamagedObjectError, match="it has 0 bytes"):
        await bucket.manifests()


@simulated
async def test_of_two_topics_of_one_name_the_later_is_the_topic() -> None:
    room = filled_room()
    another = TieredPartition(Uuid(bytes([1] * 16)), PartitionIndex(0))
    await room.copy(0)
    room.machine.partitions[another] = room.tier
    await Keeping(room).write()
    await asyncio.sleep(1)
    await Keeping(room, owner=another).write()
    found = await (await opened(room)).manifests("orders")
    assert {each.owner for each in found} == {OWNER, another}
    assert [each.owner for each in newest_of_each_name(found)] == [another]


@simulated
async def test_a_store_of_nobody_or_of_another_program_says_so() -> None:
    room = filled_room()
    with pytest.raises(StoreRefusalError, match=r"no cluster keeps its tier there. Give the address"):
        await Bucket.open(room.store)
    room.bucket.store(MARKER_NAME, b"hello")
    with pytest.raises(StoreRefusalError, match="another program"):
        await Bucket.open(room.store)
