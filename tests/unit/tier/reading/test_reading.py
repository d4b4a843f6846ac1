"""Reading from the tier: by offset, by time, at read_committed; few requests; nothing that is damaged."""

import asyncio

import pytest

from tailrace.sim.objects import StoreFaults
from tailrace.tier.format.layout import DamagedObjectError
from tailrace.tier.keeping.throttle import Throttle
from tailrace.tier.reading.cache import PieceCache
from tailrace.tier.reading.pieces import ReadLimits
from tailrace.tier.reading.reader import GapError
from tailrace.wire.records import iterate_headers
from tests.unit.log.storage import make_batch
from tests.unit.log.test_recovery_of_transactions import end as end_transaction
from tests.unit.simulated import simulated
from tests.unit.tier.room import CHUNK_BYTES, OWNER, Room


async def filled_room(*, batches: int = 60, value: bytes = b"x" * 60) -> Room:
    room = Room()
    for number in range(batches):
        room.produce(make_batch(2, timestamp=1000 + 10 * number, value=value))
    await room.copy_all()
    await room.cache.open()
    return room


def offsets(batches: bytes) -> list[int]:
    return [header.base_offset for _, header in iterate_headers(batches)]


@simulated
async def test_every_offset_is_found_in_its_batch() -> None:
    room = await filled_room()
    coverage = room.coverage
    for offset in range(coverage.pieces[-1].end_offset):
        batches = await room.reader.read(OWNER, coverage, offset, 1)
        assert offsets(batches) == [offset // 2 * 2], "one batch at least, and no more than was asked for"


@simulated
async def test_a_read_gives_what_the_log_has() -> None:
    room = await filled_room()
    coverage, offset, read = room.coverage, 0, b""
    while offset < coverage.pieces[-1].end_offset:
        batches = await room.reader.read(OWNER, coverage, offset, 700)
        assert len(batches) <= 700
        read += batches
        offset = offsets(batches)[-1] + 2
    local = b"".join(each.file.read(0, each.size_bytes) for each in room.log.segments[:-1])
    assert read == local


@simulated
async def test_a_batch_larger_than_a_read_comes_whole() -> None:
    room = Room(segment_bytes=20_000, max_message_bytes=10_000)
    for _ in range(4):
        room.produce(make_batch(1, value=b"y" * 7000))
    await room.copy_all()
    batches = await room.reader.read(OWNER, room.coverage, 1, 10)
    assert offsets(batches) == [1]
    assert len(batches) > 7000


@simulated
async def test_the_first_byte_takes_two_requests_and_the_next_reads_few() -> None:
    room = await filled_room()
    room.bucket.calls["get"] = 0
    await room.reader.read(OWNER, room.coverage, 0, CHUNK_BYTES)
    assert room.bucket.calls["get"] == 2, "the footer, and the records"


@simulated
async def test_many_readers_cost_one_download() -> None:
    room = await filled_room()
    coverage = room.coverage
    room.bucket.faults = StoreFaults(delay_ms=(20, 40))
    room.bucket.got_bytes = 0

    async def read_all() -> None:
        offset = 0
        while offset < coverage.pieces[-1].end_offset:
            offset = offsets(await room.reader.read(OWNER, coverage, offset, 600))[-1] + 2

    await asyncio.gather(*(read_all() for _ in range(10)))
    stored = sum(len(each.data) for each in room.bucket.objects.values())
    assert room.bucket.got_bytes <= stored
    await room.cache.open()  # Whoever comes after a restart finds it all on the disk.
    room.open_reader()
    room.bucket.got_bytes = 0
    await read_all()
    assert room.bucket.got_bytes <= stored - sum(piece.segment.size_bytes for piece in coverage.pieces), "footers alone"


@simulated
async def test_a_sequential_reader_gets_most_of_what_a_far_store_gives() -> None:
    """30 ms a call and 200 MB/s, made smaller by 2048 like pieces and segments: 512 bytes here are 1 MiB there."""
    room = Room(segment_bytes=32_000)
    for _ in range(1600):
        room.produce(make_batch(1, value=b"x" * 40))
    await room.copy_all()
    await room.cache.open()
    room.read_limits = ReadLimits(piece_bytes=512, ahead_bytes=8 * 512)
    room.open_reader()
    rate = 200e6 / 2048
    room.bucket.faults = StoreFaults(delay_ms=(30, 30), bytes_per_second=rate)
    coverage, offset, size = room.coverage, 0, 0
    assert len(coverage.pieces) >= 5
    began_ms = room.clock.monotonic_ms()
    while offset < coverage.pieces[-1].end_offset:
        batches = await room.reader.read(OWNER, coverage, offset, 512)
        size += len(batches)
        offset = offsets(batches)[-1] + 1
    took_s = (room.clock.monotonic_ms() - began_ms) / 1000
    assert size / took_s >= 0.85 * rate, f"{size / took_s / rate:.0%} of what it gives"


@simulated
async def test_who_reads_on_is_read_ahead_of() -> None:
    room = Room(segment_bytes=100_000)
    for _ in range(300):
        room.produce(make_batch(2, value=b"x" * 60))
    room.log.roll()
    await room.copy_all()
    await room.cache.open()
    room.bucket.faults = StoreFaults(delay_ms=(30, 30))
    coverage, offset, waits = room.coverage, 0, []
    await room.reader.read(OWNER, coverage, 0, 1)
    for _ in range(12):
        before = room.clock.monotonic_ms()
        offset = offsets(await room.reader.read(OWNER, coverage, offset, 500))[-1] + 2
        waits.append(room.clock.monotonic_ms() - before)
        await asyncio.sleep(0.1)
    assert waits[2:] == [0] * 10, "later reads find it here"
    room.bucket.got_bytes = 0
    for offset in (580, 400, 500, 350):
        await room.reader.read(OWNER, coverage, offset, 500)
        await asyncio.sleep(0.1)
    assert 0 < room.bucket.got_bytes <= 4 * 3 * room.read_limits.piece_bytes, "who jumps about is not"


@simulated
async def test_times_are_found_as_in_the_log() -> None:
    room = await filled_room()
    coverage = room.coverage
    end_offset = coverage.pieces[-1].end_offset
    for timestamp in range(990, 1000 + 5 * end_offset, 3):
        found = await room.reader.find_time(OWNER, coverage, timestamp)
        local = room.log.offset_by_timestamp(timestamp, end_offset=end_offset)
        assert (None if found is None else (found.timestamp, found.offset, found.leader_epoch)) == local


@simulated
async def test_what_was_aborted_is_told_wherever_its_marker_is() -> None:
    room = Room()
    for number in range(30):
        room.produce(make_batch(1, value=b"x" * 80, producer_id=1, sequence=number, transactional=True))
    end_transaction(room.log, is_commit=False)
    for _ in range(20):
        room.produce(make_batch(2, value=b"x" * 80))
    await room.copy_all()
    assert [piece.segment.has_aborted for piece in room.coverage.pieces].count(True) == 1
    entries, is_all = await room.reader.aborted(OWNER, room.coverage, 0, 10)
    assert [(each.producer_id, each.first_offset, each.last_offset) for each in entries] == [(1, 0, 30)]
    assert is_all
    assert await room.reader.aborted(OWNER, room.coverage, 31, 35) == ([], False), "the local log is asked next"


@simulated
async def test_damage_is_named_and_never_given_out() -> None:
    room = await filled_room()
    segment = room.coverage.pieces[1].segment
    room.damage(segment, 300)
    with pytest.raises(DamagedObjectError, match=rf"{segment.base_offset:020d}.*offsets {segment.base_offset} to"):
        await room.reader.read(OWNER, room.coverage, segment.base_offset, 1000)
    assert await room.reader.read(OWNER, room.coverage, 0, 100), "other segments are read"
    other = room.coverage.pieces[2].segment
    room.damage(other, other.object_bytes - 40)
    with pytest.raises(DamagedObjectError, match="directory is wrong"):
        await room.reader.read(OWNER, room.coverage, other.base_offset, 1000)


@simulated
async def test_a_damaged_cache_is_fetched_again() -> None:
    room = await filled_room()
    good = await room.reader.read(OWNER, room.coverage, 0, 1000)
    for name in room.disk.list("/cache"):
        room.disk.flip(f"/cache/{name}", 17, 3)
    room.open_reader()
    assert await room.reader.read(OWNER, room.coverage, 0, 1000) == good


@simulated
async def test_a_cache_is_bounded_and_survives_what_is_not_its_own() -> None:
    room = await filled_room()
    small = PieceCache(room.disk, room.background, "/small", 1000)
    room.disk.make_folder("/small")
    room.disk.replace("/small/half.tmp", b"torn")
    await small.open()
    assert room.disk.list("/small") == []
    segment = room.coverage.pieces[0].segment
    for position in range(5):
        await small.put(segment.segment_id, position * 300, bytes([position]) * 300)
        await asyncio.sleep(0.01)
    assert small.size_bytes == 900
    assert not small.holds(segment.segment_id, 0, 300), "the oldest went"
    assert await small.get(segment.segment_id, 1200, 10, 30, lambda _: None) == bytes([4]) * 20
    again = PieceCache(room.disk, room.background, "/small", 600)
    await again.open()
    assert again.size_bytes == 600
    assert again.holds(segment.segment_id, 1200, 300)
    assert await again.get(segment.segment_id, 1200, 0, 300, lambda _: None) == bytes([4]) * 300


@simulated
async def test_what_is_kept_while_the_folder_is_looked_through_counts_once() -> None:
    room = await filled_room()
    await room.cache.put(room.coverage.pieces[0].segment.segment_id, 0, b"x" * 300)
    await room.cache.open()
    assert room.cache.size_bytes == 300


@simulated
async def test_a_full_disk_costs_downloads_not_answers() -> None:
    room = await filled_room()
    room.disk.is_read_only = True
    expected = room.log.segments[0].file.read(0, 100)
    for _ in range(2):
        assert (await room.reader.read(OWNER, room.coverage, 0, 1000))[:100] == expected
    assert room.cache.is_failing


@simulated
async def test_a_gap_is_an_error() -> None:
    room = await filled_room()
    first = room.coverage.pieces[1].segment
    del room.tier.visible[first.segment_id]
    with pytest.raises(GapError, match=f"no copy holds offset {first.base_offset}"):
        await room.reader.read(OWNER, room.coverage, first.base_offset, 1000)


@simulated
async def test_cold_readers_keep_to_their_rate() -> None:
    room = await filled_room()
    room.throttle = Throttle(room.clock, bytes_per_second=1000)
    room.open_reader()
    before = room.clock.monotonic_ms()
    await room.reader.read(OWNER, room.coverage, 0, 1400)
    assert room.clock.monotonic_ms() > before
