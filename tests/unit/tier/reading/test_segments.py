"""Segments read once, from an offset to another: every batch of the range and no other, each checked."""

from itertools import pairwise

import pytest

from tailrace.log.validation import Origin
from tailrace.tier.format.layout import DamagedObjectError
from tailrace.tier.metadata.coverage import Piece, RemoteSegment
from tailrace.tier.reading.segments import SegmentBlocks, SegmentObjects, stable_end
from tailrace.wire.markers import Marker, build_marker
from tests.unit.log.storage import make_batch
from tests.unit.simulated import simulated
from tests.unit.tier.room import CHUNK_BYTES, CLUSTER, OWNER, Room


async def copied_room() -> tuple[Room, SegmentObjects, RemoteSegment]:
    room = Room(segment_bytes=6000)
    for number in range(80):
        room.produce(make_batch(1 + number % 3, timestamp=1000 + number, value=b"x" * (20 + number * 7 % 400)))
    segment = await room.copy(0)
    return room, SegmentObjects(room.store, room.background, CLUSTER), segment


async def read(blocks: SegmentBlocks) -> list[tuple[int, int]]:
    found = []
    next_offset = 0
    while (block := await blocks.next()) is not None:
        for position, header in block.headers:
            assert int.from_bytes(block.records[position : position + 8], "big") == header.base_offset
            found.append((header.base_offset, header.next_offset))
        assert block.next_offset > next_offset
        next_offset = block.next_offset
    await blocks.close()
    return found


@simulated
async def test_every_range_gives_its_batches_whole_and_once() -> None:
    _, objects, segment = await copied_room()
    footer = await objects.footer(OWNER, segment)
    everything = await read(SegmentBlocks(objects, footer, segment.base_offset, segment.end_offset))
    assert everything[0][0] == segment.base_offset
    assert everything[-1][1] == segment.end_offset
    assert all(before[1] == after[0] for before, after in pairwise(everything))
    for block_bytes in (CHUNK_BYTES, 3 * CHUNK_BYTES):
        for start in range(segment.base_offset, segment.end_offset):
            for end in {start + 1, (start + segment.end_offset) // 2 + 1, segment.end_offset}:
                blocks = SegmentBlocks(objects, footer, start, end, block_bytes=block_bytes)
                expected = [batch for batch in everything if batch[0] < end and batch[1] > start]
                assert await read(blocks) == expected, (start, end, block_bytes)


@simulated
async def test_a_range_costs_little_more_than_its_bytes() -> None:
    room, objects, segment = await copied_room()
    footer = await objects.footer(OWNER, segment)
    room.bucket.got_bytes = 0
    offset = segment.end_offset // 2
    ((base, _),) = await read(SegmentBlocks(objects, footer, offset, offset + 1))
    assert base <= offset
    assert room.bucket.got_bytes <= 5 * CHUNK_BYTES


@simulated
async def test_damage_and_another_object_in_its_place_are_told() -> None:
    room, objects, segment = await copied_room()
    footer = await objects.footer(OWNER, segment)
    room.damage(segment, 3 * CHUNK_BYTES + 5)
    with pytest.raises(DamagedObjectError, match=f"the sum of the bytes from {3 * CHUNK_BYTES} on"):
        await read(SegmentBlocks(objects, footer, segment.base_offset, segment.end_offset, block_bytes=CHUNK_BYTES))
    other = await room.copy(0)
    room.bucket.store(room.name(segment), room.bucket.objects[room.name(other)].data)
    with pytest.raises(DamagedObjectError, match="holds another segment"):
        await objects.footer(OWNER, segment)


def end_transaction(room: Room, producer_id: int, *, is_commit: bool) -> None:
    marker = build_marker(Marker(is_commit, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=1000)
    room.produce(memoryview(bytearray(marker)), origin=Origin.COORDINATOR)


@simulated
async def test_the_end_is_stable_up_to_the_first_transaction_that_is_open_there() -> None:
    room = Room()
    for producer_id in (7, 8, 9):
        batch = make_batch(2, value=b"x" * 60, producer_id=producer_id, sequence=0, transactional=True)
        room.produce(batch, origin=Origin.CLIENT)
    end_transaction(room, 7, is_commit=True)
    sequence = 2
    while len(room.log.segments) < 3:
        room.produce(make_batch(2, value=b"x" * 60, producer_id=9, sequence=sequence, transactional=True))
        sequence += 2
    objects = SegmentObjects(room.store, room.background, CLUSTER)
    segment = await room.copy(0)
    footer = await objects.footer(OWNER, segment)
    assert stable_end(footer, Piece(0, segment.end_offset, segment)) == 2, "8 is open since offset 2, and 9 since 4"
    assert stable_end(footer, Piece(0, segment.end_offset - 1, segment)) is None, "of the middle nothing is kept"
    end_transaction(room, 8, is_commit=False)
    end_transaction(room, 9, is_commit=True)
    for _ in range(40):
        room.produce(make_batch(2, value=b"x" * 60))
    segment = await room.copy(len(room.log.segments) - 2)
    footer = await objects.footer(OWNER, segment)
    assert stable_end(footer, Piece(segment.base_offset, segment.end_offset, segment)) == segment.end_offset
