"""A closed segment becomes an object, and leaves the store again: what is recorded, and what is left when it fails."""

import asyncio
import dataclasses

import pytest

from tailrace.log.checkpoints import parse_entries
from tailrace.log.files.damaged import DamagedRange
from tailrace.log.producers import ProducerStates
from tailrace.model.errors import KafkaError, StorageError
from tailrace.model.ports import StoreAwayError
from tailrace.sim.background import HeldBackground
from tailrace.sim.objects import StoreFaults
from tailrace.tier.format.layout import SegmentFooter
from tailrace.tier.keeping.throttle import Throttle
from tailrace.tier.metadata.records import SegmentState
from tests.unit.log.storage import make_batch
from tests.unit.simulated import simulated
from tests.unit.tier.room import DELAY_MS, OWNER, Room


async def filled_room() -> Room:
    room = Room()
    for number in range(40):
        room.produce(make_batch(2, timestamp=1000 + number, value=b"x" * 60, producer_id=5, sequence=2 * number))
    assert len(room.log.segments) > 3
    return room


@simulated
async def test_the_object_is_the_segment_and_all_that_belongs_to_it() -> None:
    room = await filled_room()
    copied = await room.copy(1)
    local = room.log.segments[1]
    data = room.bucket.objects[room.name(copied)].data
    assert data[: local.size_bytes] == local.file.read(0, local.size_bytes)
    assert len(data) == copied.object_bytes
    footer = SegmentFooter("o", data[local.size_bytes :], len(data))
    assert (footer.facts.base_offset, footer.facts.end_offset) == (local.base_offset, room.log.segments[2].base_offset)
    assert footer.facts.max_timestamp == local.max_timestamp
    assert parse_entries(footer.leader_epochs, columns=2) == [[0, 0]]
    footer.check(0, data[: local.size_bytes])
    producers = ProducerStates(expiration_ms=1 << 60)
    producers.load(footer.producers)
    assert producers.states[5].last_data_offset == footer.facts.end_offset - 1
    assert room.tier.visible == {copied.segment_id: copied}
    assert not copied.has_aborted


@simulated
async def test_neither_sums_nor_footers_are_made_on_the_loop() -> None:
    """Of a segment of 1 GiB with a full index a footer takes 50 ms."""
    room = await filled_room()
    held = HeldBackground()
    room.copier = dataclasses.replace(room.copier, background=held)
    copy = asyncio.ensure_future(room.copy(0))
    await asyncio.sleep(0.3)
    assert (len(held.held), len(room.tier.copying)) == (1, 0), "its footer's size"
    held.release()
    await asyncio.sleep(0.3)
    assert (len(held.held), len(room.tier.copying)) == (1, 1), "the sums of its first piece"
    held.release()
    await asyncio.sleep(0.3)
    assert (len(held.held), len(room.tier.visible)) == (1, 0), "its footer"
    held.release_all()
    copied = await copy
    assert room.bucket.objects[room.name(copied)].data


@simulated
async def test_nothing_is_visible_before_the_object_is_there() -> None:
    room = await filled_room()
    room.bucket.faults = StoreFaults(delay_ms=(500, 500))
    copy = asyncio.ensure_future(room.copy(0))
    await asyncio.sleep(0.3)
    assert (len(room.tier.copying), len(room.tier.visible)) == (1, 0)
    assert room.copier.under_way == set(room.tier.copying)
    await copy
    assert (len(room.tier.copying), len(room.tier.visible)) == (0, 1)
    assert not room.copier.under_way


@simulated
async def test_a_put_that_fails_is_taken_back_and_its_object_goes_even_if_it_comes() -> None:
    room = await filled_room()
    room.bucket.faults = StoreFaults(lie_share=1.0)
    with pytest.raises(StoreAwayError):
        await room.copy(0)
    states = [record.remote_log_segment_state for record in room.written]
    assert states == [SegmentState.COPY_STARTED, SegmentState.DELETE_STARTED]
    assert len(room.bucket.objects) == 1, "it said no, and is there"
    room.bucket.faults = StoreFaults()
    assert await room.remover.finish(room, OWNER, room.tier, leader_epoch=0) == 0, "it waits"
    await asyncio.sleep(DELAY_MS / 1000)
    assert await room.remover.finish(room, OWNER, room.tier, leader_epoch=0) == 1
    assert not room.bucket.objects
    assert not room.tier.deleting


@simulated
async def test_who_was_replaced_uploads_nothing() -> None:
    room = await filled_room()
    room.machine.partitions[OWNER] = room.tier
    room.machine.partitions[OWNER].leader_epoch = 7
    with pytest.raises(KafkaError, match="FENCED_LEADER_EPOCH"):
        await room.copy(0)
    assert room.bucket.calls["put"] == 0
    assert not room.copier.under_way


@simulated
async def test_orphans_are_collected_after_a_while_and_not_those_under_way() -> None:
    room = await filled_room()
    room.bucket.faults = StoreFaults(delay_ms=(900, 900))
    copy = asyncio.ensure_future(room.copy(0))
    await asyncio.sleep(0.5)
    killed = set(room.tier.copying)
    copy.cancel()  # A killed process takes nothing back.
    room.bucket.faults = StoreFaults()
    options = {"under_way": room.copier.under_way, "leader_epoch": 1}
    await room.remover.begin_orphans(room, OWNER, room.machine, **options)
    assert set(room.tier.copying) == killed, "too young"
    await asyncio.sleep(DELAY_MS / 1000 + 1)
    await room.remover.begin_orphans(room, OWNER, room.machine, **{**options, "under_way": killed})
    assert set(room.tier.copying) == killed, "somebody works at it"
    await room.remover.begin_orphans(room, OWNER, room.machine, **options)
    assert (set(room.tier.copying), set(room.tier.deleting)) == (set(), killed)


@simulated
async def test_a_sweep_takes_old_objects_that_no_record_names_and_nothing_else() -> None:
    room = await filled_room()
    copied = await room.copy(0)
    folder = room.name(copied).rpartition("/")[0]
    lost = f"{folder}/00000000000000000077-AAAAAAAAAAAAAAAAAAAAAA.segment"
    other = f"{folder}/somebody-elses.txt"
    for name in (lost, other):
        room.bucket.store(name, b"x")

    async def catch_up() -> None:
        pass

    assert await room.remover.sweep(OWNER, room.machine, catch_up) == [], "too young"
    await asyncio.sleep(DELAY_MS / 1000 + 1)
    assert await room.remover.sweep(OWNER, room.machine, catch_up) == [lost]
    assert set(room.bucket.objects) == {room.name(copied), other}


@simulated
async def test_a_segment_that_is_damaged_is_not_copied() -> None:
    room = await filled_room()
    segment = room.log.segments[0]
    segment.damaged_ranges = (DamagedRange("0.log", 0, 100, 0, 2, "a bit has flipped"),)
    with pytest.raises(StorageError, match="not copied before it is repaired"):
        await room.copy(0)


@simulated
async def test_copies_keep_to_their_rate() -> None:
    room = await filled_room()
    throttle = Throttle(room.clock, bytes_per_second=1000)
    before = room.clock.monotonic_ms()
    for _ in range(6):
        await throttle.take(500)
    assert room.clock.monotonic_ms() - before == pytest.approx(2000), "a second's worth at once, then at the rate"
