"""Which segment serves an offset, compared with logs that were really cut and led by others."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.ids import Uuid
from tailrace.tier.metadata.coverage import RemoteSegment, cover, usable_end


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


@settings(max_examples=400)
@given(histories())
def test_the_next_copy_is_added_as_if_all_were_computed_anew(history) -> None:
    log, _, lineage, copies, _ = history
    segments = [copy for copy, _ in copies if copy.end_offset <= len(log)]
    for count in range(len(segments)):
        before = cover(segments[:count], lineage, log_start_offset=0, log_end_offset=len(log))
        longer = before.and_then(segments[count], lineage)
        whole = cover(segments[: count + 1], lineage, log_start_offset=0, log_end_offset=len(log))
        assert longer is None or longer.pieces == whole.pieces


def test_the_next_copy_of_a_leader_is_added_without_computing_all() -> None:
    before = cover([segment(1, 0, 10), segment(2, 10, 20)], [(0, 0)], log_start_offset=0, log_end_offset=50)
    longer = before.and_then(segment(3, 20, 30), [(0, 0)])
    assert longer is not None
    assert longer.end_from(0) == 30
    assert before.end_from(0) == 20
    assert before.and_then(segment(3, 25, 30), [(0, 0)]) is None, "a gap"
    assert before.and_then(segment(3, 20, 30, ((1, 20),)), [(0, 0)]) is None, "another history"
