"""A segment as one object: what was written is read, and whatever was changed is noticed."""

import dataclasses
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.ids import PartitionIndex, Uuid
from tailrace.tier.format.layout import (
    TRAILER,
    ChunkSums,
    DamagedObjectError,
    SegmentFacts,
    SegmentFiles,
    SegmentFooter,
    build_footer,
    footer_size,
    footer_start,
)
from tailrace.tier.format.names import TieredPartition

CHUNK = 64
LOG = bytes(range(256)) * 2 + b"end"
OFFSETS = Struct(">ii")
TIMES = Struct(">qi")
ABORTED = Struct(">hqqqq")
FACTS = SegmentFacts(
    cluster_id="c",
    topic="orders",
    owner=TieredPartition(Uuid(bytes(range(16))), PartitionIndex(3)),
    segment_id=Uuid(bytes(range(16, 32))),
    base_offset=1000,
    end_offset=1100,
    size_bytes=len(LOG),
    max_timestamp=990,
)
FILES = SegmentFiles(
    offset_index=b"".join(OFFSETS.pack(number, number * 5) for number in range(1, 100)),
    time_index=b"".join(TIMES.pack(number * 10, number) for number in range(1, 100)),
    aborted=ABORTED.pack(0, 7, 1010, 1020, 1021) + ABORTED.pack(0, 8, 1030, 1040, 1041),
    producers=b"snapshot",
    leader_epochs=b"0\n1\n0 0\n",
)


def make_object(facts: SegmentFacts = FACTS, files: SegmentFiles = FILES) -> bytes:
    sums = ChunkSums(CHUNK)
    for at in range(0, len(LOG), 100):
        sums.feed(LOG[at : at + 100])
    return LOG + build_footer(facts, files, sums.finish(), CHUNK)


def read(data: bytes, *, start: int = len(LOG)) -> SegmentFooter:
    return SegmentFooter("the object", data[start:], len(data))


def test_all_parts_come_back() -> None:
    data = make_object()
    assert len(data) == len(LOG) + footer_size(FACTS, FILES, CHUNK)
    footer = read(data)
    assert footer.facts == FACTS
    assert (footer.producers, footer.leader_epochs) == (b"snapshot", b"0\n1\n0 0\n")
    assert read(data, start=0).facts == FACTS, "more than the footer may be given"


def test_the_trailer_leads_to_the_footer() -> None:
    data = make_object()
    assert footer_start("o", data[-TRAILER.size :], len(data)) == len(LOG)


def test_places_are_at_or_before_what_is_looked_for_and_near() -> None:
    footer = read(make_object())
    for number in range(1, 100):
        position = footer.position_for(1000 + number)
        assert position <= number * 5, "the batch that holds it is not passed over"
        assert position > number * 5 - CHUNK - 5, "a chunk before it at most"
        assert position % 5 == 0, "a batch begins there"
    assert footer.position_for(1000) == 0


def test_times_lead_to_an_offset_before_which_all_is_older() -> None:
    footer = read(make_object())
    for timestamp in range(0, 1000, 7):
        newer = next(number for number in range(1, 101) if number * 10 >= timestamp)
        found = footer.offset_for_time(timestamp) - 1000
        assert found < newer or found == 0
    assert footer.offset_for_time(10**9) == 1099, "the last entry is kept"


def test_aborted_transactions_that_reach_into_a_range() -> None:
    footer = read(make_object())
    assert [each.producer_id for each in footer.aborted(1000, 1100)] == [7, 8]
    assert [each.producer_id for each in footer.aborted(1021, 1100)] == [8]
    assert [each.producer_id for each in footer.aborted(1000, 1030)] == [7]
    assert list(footer.aborted(1041, 1100)) == []


def test_shares_end_where_batches_do() -> None:
    splits = read(make_object()).split_offsets()
    assert splits == sorted(splits)
    assert len(splits) >= len(LOG) // (CHUNK + 5)


@given(st.integers(0, len(LOG) - 1), st.integers(1, len(LOG)))
def test_chunks_are_checked_wherever_a_read_begins(start: int, size: int) -> None:
    footer = read(make_object())
    first, end = footer.whole_chunks(start, min(start + size, len(LOG)))
    assert first <= start < end <= len(LOG)
    footer.check(first, LOG[first:end])
    damaged = bytearray(LOG[first:end])
    damaged[size % len(damaged)] ^= 1
    with pytest.raises(DamagedObjectError, match=r"the object is damaged.*offsets 1000 to 1099"):
        footer.check(first, damaged)


def test_every_bit_of_the_footer_counts() -> None:
    """No byte of it may change without being noticed."""
    data = make_object()
    for at in range(len(LOG), len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        with pytest.raises(DamagedObjectError, match="the object"):
            read(bytes(changed))


@pytest.mark.parametrize("end", [0, 5, TRAILER.size, len(LOG), -1, -TRAILER.size])
def test_an_object_that_was_cut_is_noticed(end: int) -> None:
    data = make_object()[:end]
    with pytest.raises(DamagedObjectError, match="the object"):
        SegmentFooter("the object", data, len(data))


def test_a_newer_version_is_named() -> None:
    data = bytearray(make_object())
    data[-9] += 1
    with pytest.raises(DamagedObjectError, match="version 2 of the format"):
        read(bytes(data))


def test_a_segment_without_indexes() -> None:
    files = dataclasses.replace(FILES, offset_index=b"", time_index=b"", aborted=b"")
    footer = read(make_object(files=files))
    assert footer.position_for(1050) == 0
    assert footer.offset_for_time(50) == 1000
    assert footer.split_offsets() == []
