"""Which offsets are read from the bucket and which from brokers: each from one place, in shares that are asked for."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.ids import PartitionIndex, TopicPartition, Uuid
from tailrace.spark.source.offsets import OffsetRange
from tailrace.spark.tier.planning import Run, decide_shares, divide
from tailrace.spark.tier.views import TierView
from tailrace.tier.format.layout import AbortedEntry
from tailrace.tier.format.names import TieredPartition
from tailrace.tier.metadata.coverage import Piece, RemoteSegment

P = TopicPartition("orders", PartitionIndex(0))
OWNER = TieredPartition(Uuid(bytes(16)), PartitionIndex(0))
MIB = 1 << 20
ALWAYS = float("-inf")


def view(*ends: int, size_bytes: int = 100 * MIB, end_offset: int | None = None) -> TierView:
    """Segments one after the other; the newest record of each has its end offset as its time."""
    pieces, start = [], 0
    for end in ends:
        segment = RemoteSegment(
            Uuid(end.to_bytes(16, "big")), start, end, size_bytes, size_bytes + 9, end, 1, ((0, 0),)
        )
        pieces.append(Piece(start, end, segment))
        start = end
    return TierView(P, OWNER, 0, 1, 0, start if end_offset is None else end_offset, tuple(pieces))


def shares_of(runs: list[Run], rest: list[OffsetRange], **limits: int) -> list[tuple[int, int, bool]]:
    found = decide_shares(runs, rest, **{"min_partitions": None, "records_max": None} | limits)
    return [(each.start, each.end, run is not None) for each, run in found]


def test_what_the_tier_has_is_read_there_and_the_rest_from_brokers() -> None:
    runs, rest = divide(OffsetRange(P, 150, 420), view(100, 200, 300), since_us=ALWAYS)
    assert shares_of(runs, rest) == [(150, 300, True), (300, 420, False)]
    runs, rest = divide(OffsetRange(P, 150, 420), view(100, 200, 300, end_offset=260), since_us=ALWAYS)
    assert shares_of(runs, rest) == [(150, 260, True), (260, 420, False)], "a transaction is open from 260 on"
    assert divide(OffsetRange(P, 300, 420), view(100, 200, 300), since_us=ALWAYS)[0] == []


def test_old_segments_are_left_out() -> None:
    runs, rest = divide(OffsetRange(P, 0, 420), view(100, 200, 300), since_us=201_000)
    assert shares_of(runs, rest) == [(200, 300, True), (300, 420, False)]


def test_small_segments_are_read_together_and_large_ones_in_parts() -> None:
    runs, rest = divide(OffsetRange(P, 0, 1000), view(*range(100, 1001, 100)), since_us=ALWAYS)
    assert shares_of(runs, rest) == [(0, 500, True), (500, 1000, True)]
    runs, rest = divide(OffsetRange(P, 0, 300), view(100, 300, size_bytes=1024 * MIB), since_us=ALWAYS)
    assert shares_of(runs, rest) == [(0, 50, True), (50, 100, True), (100, 200, True), (200, 300, True)]


def test_a_share_knows_its_pieces_and_what_was_aborted_in_it() -> None:
    (run,), _ = divide(OffsetRange(P, 0, 300), view(100, 200, 300), since_us=ALWAYS)
    aborted = [AbortedEntry(1, 240, 250, 260), AbortedEntry(2, 10, 120, 130), AbortedEntry(3, 90, 99, 130)]
    split = run.split(OffsetRange(P, 100, 240), aborted)
    assert [piece.end_offset for piece in split.pieces] == [200, 300]
    assert [entry.producer_id for entry in split.aborted] == [2], "its marker is in the share, or behind it"


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=8),
    st.integers(0, 300),
    st.integers(1, 300),
    st.integers(-5, 60),
    st.tuples(st.one_of(st.none(), st.integers(1, 9)), st.one_of(st.none(), st.integers(1, 90))),
)
def test_every_offset_is_in_one_share(
    sizes: list[int], start: int, size: int, short: int, limits: tuple[int | None, int | None]
) -> None:
    shares, most = limits
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    seen = view(*ends, size_bytes=300 * MIB, end_offset=ends[-1] - max(short, 0))
    runs, rest = divide(OffsetRange(P, start, start + size), seen, since_us=ALWAYS)
    found = decide_shares(runs, rest, min_partitions=shares, records_max=most)
    offsets = [offset for share, _ in found for offset in range(share.start, share.end)]
    assert offsets == list(range(start, start + size))
    for share, run in found:
        assert most is None or share.size <= most
        assert (run is not None) == (share.start < seen.end_offset)
        if run is not None:
            pieces = run.split(share, ()).pieces
            assert pieces[0].start_offset <= share.start
            assert pieces[-1].end_offset >= share.end
