"""Which segment serves an offset, compared with logs that were really cut and led by others."""

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.ids import Uuid
from tailrace.tier.metadata.coverage import Change, RemoteSegment, cover, usable_end


def segment(number: int, base: int, end: int, epochs: tuple[tuple[int, int], ...] = ((0, 0),)) -> RemoteSegment:
    return RemoteSegment(Uuid(number.to_bytes(16, "big")), base, end, 10, 20, 0, 1, epochs)


def ranges(segments, lineage, log_start=0, log_end=1000):
    return [
        (piece.start_offset, piece.end_offset, int.from_bytes(piece.segment.segment_id, "big"))
        for piece in cover(segments, lineage, log_start_offset=log_start, log_end_offset=log_end).pieces
    ]


def test_segments_that_follow_on_each_other() -> None:
    assert ranges([segment(2, 10, 20), segment(1, 0, 10)], [(0, 0)]) == [(0, 10, 1), (10, 20, 2)]


def test_overlaps_are_read_once() -> None:
    copies = [segment(1, 0, 10), segment(2, 5, 15), segment(3, 8, 12), segment(4, 15, 20)]
    assert ranges(copies, [(0, 0)]) == [(0, 10, 1), (10, 15, 2), (15, 20, 4)]


def test_everybody_chooses_the_same_of_two_equal_ones() -> None:
    assert ranges([segment(7, 0, 10), segment(3, 0, 10)], [(0, 0)]) == [(0, 10, 3)]


def test_what_lies_before_the_log_start_is_not_read() -> None:
    assert ranges([segment(1, 0, 10), segment(2, 10, 20)], [(0, 12)], 12) == [(12, 20, 2)]


def test_a_gap_is_known() -> None:
    coverage = cover([segment(1, 0, 10), segment(2, 15, 20)], [(0, 0)], log_start_offset=0, log_end_offset=20)
    assert coverage.find(12) is None
    assert coverage.find(15).segment.segment_id[-1] == 2
    assert coverage.end_from(0) == 10
    assert coverage.end_from(12) == 12
    assert coverage.end_from(15) == 20
    assert [piece.start_offset for piece in coverage.pieces_from(12)] == [15]


def test_after_an_unclean_election_the_lost_end_is_not_read() -> None:
    """Epoch 1 wrote from 10 on; a replica that knew nothing of it led in epoch 2, from 12 on."""
    lost = segment(1, 5, 20, ((0, 0), (1, 10)))
    log = [(0, 0), (1, 10), (2, 12)]
    assert usable_end(lost, log, 0) == 12
    assert ranges([lost, segment(2, 12, 30, ((2, 12),))], log) == [(5, 12, 1), (12, 30, 2)]
    assert usable_end(lost, [(0, 0), (2, 8)], 0) == 8
    assert usable_end(lost, [(2, 0)], 0) == 5, "nothing of it is in the log"


def test_a_log_that_was_cut_ends_where_it_ends() -> None:
    """Its new leader has written nothing yet, so no epoch tells that the rest is gone."""
    assert ranges([segment(1, 0, 20)], [(0, 0)], log_end=15) == [(0, 15, 1)]


@st.composite
def histories(draw):
    """Logs as leaders have them, with copies that each made of its own log before it was cut."""
    log: list[int] = []  # the epoch of each offset
    records: list[int] = []  # a name for each record, which no other has
    copies = []
    name = 0
    for epoch in range(draw(st.integers(1, 5))):
        keep = draw(st.integers(0, len(log)))  # A leader that misses the end of the log.
        del log[keep:], records[keep:]
        for _ in range(draw(st.integers(0, 6))):
            log.append(epoch)
            records.append(name)
            name += 1
        for _ in range(draw(st.integers(0, 3))):
            if log:
                base = draw(st.integers(0, len(log) - 1))
                end = draw(st.integers(base + 1, len(log)))
                lineage = tuple((e, log.index(e)) for e in dict.fromkeys(log[:end]))
                copies.append((segment(len(copies) + 1, base, end, lineage), tuple(records)))
    lineage = [(e, log.index(e)) for e in dict.fromkeys(log)]
    return log, records, lineage, copies, draw(st.integers(0, len(log)))


@settings(max_examples=400)
@given(histories())
def test_what_is_read_is_the_log_and_nothing_of_it_is_left_out(history) -> None:
    log, records, lineage, copies, log_start = history
    # A log forgets the epochs before its start.
    kept = [(epoch, max(start, log_start)) for epoch, start in lineage if log_start < len(log)]
    kept = [entry for at, entry in enumerate(kept) if at + 1 == len(kept) or kept[at + 1][1] > log_start]
    segments = [copy for copy, _ in copies]
    coverage = cover(segments, kept, log_start_offset=log_start, log_end_offset=len(log))
    contents = {copy.segment_id: content for copy, content in copies}
    for before, after in zip(coverage.pieces, coverage.pieces[1:], strict=False):
        assert before.end_offset <= after.start_offset, "each offset is read from one segment"
    for offset in range(log_start, len(log)):
        piece = coverage.find(offset)
        right = [
            copy
            for copy, content in copies
            if copy.base_offset <= offset < copy.end_offset and content[offset] == records[offset]
        ]
        if piece is None:
            assert not right, f"offset {offset} lies in {right}"
        else:
            assert contents[piece.segment.segment_id][offset] == records[offset], "never a record of another history"
    assert all(piece.end_offset <= len(log) for piece in coverage.pieces)


def forgotten(lineage: list[tuple[int, int]], log_start: int) -> list[tuple[int, int]]:
    """What a log that begins there still knows of its epochs."""
    kept = [(epoch, max(start, log_start)) for epoch, start in lineage]
    return [entry for at, entry in enumerate(kept) if at + 1 == len(kept) or kept[at + 1][1] > log_start]


@settings(max_examples=600)
@given(histories(), st.data())
def test_what_goes_on_from_before_is_as_if_all_were_computed_anew(history, data) -> None:
    log, _, lineage, copies, _ = history
    waiting, segments, log_start, log_end = [copy for copy, _ in copies], [], 0, len(log)
    coverage = cover([], lineage, log_start_offset=0, log_end_offset=log_end)
    for _ in range(data.draw(st.integers(1, 12))):
        changes = []
        for is_added in data.draw(st.lists(st.booleans(), max_size=3)):
            if is_added and waiting:
                changes.append(Change(waiting.pop(0), is_added=True))
                segments.append(changes[-1].segment)
            elif not is_added and segments:
                # Mostly as retention takes them: from the front, and the log begins after them.
                at = data.draw(st.sampled_from([0, 0, 0, len(segments) - 1]))
                changes.append(Change(segments.pop(at), is_added=False))
                if data.draw(st.sampled_from([True, True, False])):
                    log_start = max(log_start, min(changes[-1].segment.end_offset, len(log)))
        if data.draw(st.sampled_from([False, False, True])):
            log_start = data.draw(st.integers(log_start, len(log)))
        log_end = data.draw(st.integers(max(log_start, log_end - 1), len(log)))
        now = forgotten(lineage, log_start) + [(90, len(log))] * data.draw(st.integers(0, 1))
        whole = cover(segments, now, log_start_offset=log_start, log_end_offset=log_end)
        later = coverage.after(changes, now, log_start_offset=log_start, log_end_offset=log_end)
        if later is not None:
            assert later.pieces == whole.pieces
            assert later.unused == whole.unused
            assert (later.size_bytes, later.start_offset) == (whole.size_bytes, whole.start_offset)
            assert [later.find(at) for at in range(len(log))] == [whole.find(at) for at in range(len(log))]
        coverage = whole if later is None else later


def test_a_leader_copies_and_retention_takes_away_without_computing_all() -> None:
    count, lineage = 20, [(0, 0), (3, 5), (4, 1000)]
    copies = [segment(number + 1, 10 * number, 10 * number + 10, ((0, 0), (3, 5))) for number in range(3 * count)]
    coverage = cover(copies[:count], lineage, log_start_offset=0, log_end_offset=2000)
    before = coverage
    for number in range(count):
        start = 10 * (number + 1)
        changes = [Change(copies[count + number], is_added=True), Change(copies[number], is_added=False)]
        later = coverage.after(changes, forgotten(lineage, start), log_start_offset=start, log_end_offset=2000)
        assert later is not None
        assert (len(later), later.start_offset, later.end_from(start)) == (count, start, start + 10 * count)
        coverage = later
    assert before.end_from(0) == 10 * count, "who still has an older one reads by it as before"
    assert [piece.segment for piece in before.pieces] == copies[:count]
    assert (
        coverage.after(
            [Change(segment(99, 405, 420), is_added=True)], lineage, log_start_offset=200, log_end_offset=2000
        )
        is None
    ), "a gap"
    other = segment(99, 400, 410, ((1, 400),))
    assert coverage.after([Change(other, is_added=True)], lineage, log_start_offset=200, log_end_offset=2000) is None


def test_two_that_go_on_from_the_same_do_not_see_each_other() -> None:
    lineage = [(0, 0)]
    first = cover([segment(1, 0, 10)], lineage, log_start_offset=0, log_end_offset=100)
    one = first.after([Change(segment(2, 10, 20), is_added=True)], lineage, log_start_offset=0, log_end_offset=100)
    other = first.after([Change(segment(3, 10, 30), is_added=True)], lineage, log_start_offset=0, log_end_offset=100)
    assert one is not None
    assert other is not None
    assert (first.end_from(0), one.end_from(0), other.end_from(0)) == (10, 20, 30)


def test_a_hundred_thousand_segments_expire_in_small_steps() -> None:
    copies = [segment(number + 1, 10 * number, 10 * number + 10) for number in range(100_000)]
    coverage = cover(copies, [(0, 0)], log_start_offset=0, log_end_offset=1_000_000)
    longest_s = 0.0
    for number in range(200):
        start = 10 * number + 10
        began = time.thread_time()
        later = coverage.after(
            [Change(copies[number], is_added=False)], [(0, start)], log_start_offset=start, log_end_offset=1_000_000
        )
        longest_s = max(longest_s, time.thread_time() - began)
        assert later is not None
        coverage = later
    assert coverage.start_offset == 2000
    assert longest_s < 0.02, f"{longest_s * 1000:.1f} ms: all of it was gone through"
