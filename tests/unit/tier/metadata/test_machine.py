"""The machine of __remote_log_metadata: what is visible when, whose records count, and the same from a snapshot."""

import time
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.errors import StorageError
from tailrace.model.ids import PartitionIndex, Uuid
from tailrace.tier.format.names import TieredPartition
from tailrace.tier.metadata.coverage import RemoteSegment
from tailrace.tier.metadata.machine import TierMachine
from tailrace.tier.metadata.records import (
    PartitionState,
    SegmentState,
    copy_started,
    partition_delete,
    read_custom,
    segment_update,
)
from tailrace.tier.metadata.snapshot import read_snapshot, write_snapshot

OWNER = TieredPartition(Uuid(bytes(16)), PartitionIndex(0))
OTHER = TieredPartition(Uuid(bytes(16)), PartitionIndex(1))


def segment(number: int, *, end: int = 10) -> RemoteSegment:
    return RemoteSegment(Uuid(number.to_bytes(16, "big")), 0, end, 100, 150, 7, 1, ((0, 0), (1, 5)))


class Story:
    """Replays what leaders write, offset by offset."""

    def __init__(self) -> None:
        self.machine = TierMachine()
        self._offsets = count()
        self.records = []

    def write(self, record) -> None:
        self.records.append(record)
        self.machine.replay(record, next(self._offsets))

    def start(self, number: int, *, epoch: int = 1, owner=OWNER, now_ms: int = 0) -> None:
        self.write(copy_started("orders", owner, segment(number), leader_epoch=epoch, now_ms=now_ms))

    def update(self, number: int, state: SegmentState, *, epoch: int = 1, owner=OWNER) -> None:
        self.write(segment_update("orders", owner, segment(number), state, broker_id=1, leader_epoch=epoch, now_ms=0))

    def delete_partition(self, state: PartitionState) -> None:
        self.write(partition_delete("orders", OWNER, state, broker_id=1, now_ms=0))

    def numbers(self, kind: str, owner=OWNER) -> list[int]:
        tier = self.machine.partitions.get(owner)
        return sorted(int.from_bytes(each, "big") for each in getattr(tier, kind)) if tier else []


def test_a_segment_is_visible_between_finished_and_delete_started() -> None:
    story = Story()
    story.start(1)
    assert (story.numbers("copying"), story.numbers("visible")) == ([1], [])
    story.update(1, SegmentState.COPY_FINISHED)
    assert (story.numbers("copying"), story.numbers("visible")) == ([], [1])
    assert story.machine.partitions[OWNER].visible[segment(1).segment_id] == segment(1)
    story.update(1, SegmentState.DELETE_STARTED)
    assert (story.numbers("visible"), story.numbers("deleting")) == ([], [1])
    story.update(1, SegmentState.DELETE_FINISHED)
    assert story.numbers("deleting") == []
    assert story.machine.passed_over == 0


@pytest.mark.parametrize(
    "state", [SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED]
)
def test_what_was_never_started_does_not_happen(state: SegmentState) -> None:
    story = Story()
    story.update(1, state)
    assert story.numbers("visible") == story.numbers("deleting") == []
    assert story.machine.passed_over == 1


def test_nothing_comes_back() -> None:
    story = Story()
    story.start(1)
    story.update(1, SegmentState.COPY_FINISHED)
    story.update(1, SegmentState.DELETE_STARTED)
    story.update(1, SegmentState.COPY_FINISHED)
    story.start(1)
    assert (story.numbers("visible"), story.numbers("copying"), story.numbers("deleting")) == ([], [], [1])


def test_a_leader_that_was_replaced_is_refused_and_leaves_an_orphan() -> None:
    story = Story()
    story.start(1, epoch=1)
    story.start(2, epoch=3)
    story.update(1, SegmentState.COPY_FINISHED, epoch=1)
    story.start(3, epoch=2)
    assert (story.numbers("visible"), story.numbers("copying")) == ([], [1, 2])
    assert story.machine.refused == 2
    story.update(2, SegmentState.COPY_FINISHED, epoch=3)
    assert story.numbers("visible") == [2]


def test_one_partition_does_not_fence_another() -> None:
    story = Story()
    story.start(1, epoch=1, owner=OTHER)
    story.start(2, epoch=9)
    story.update(1, SegmentState.COPY_FINISHED, epoch=1, owner=OTHER)
    assert story.numbers("visible", OTHER) == [1]


def test_orphans_are_copies_that_nobody_works_at_after_a_while() -> None:
    story = Story()
    story.start(1, epoch=1, now_ms=100)
    story.start(2, epoch=1, now_ms=900)
    story.start(3, epoch=2, now_ms=100)

    def orphans(before_ms: int, *under_way: int) -> list[int]:
        mine = {segment(number).segment_id for number in under_way}
        found = story.machine.orphans(OWNER, under_way=mine, before_ms=before_ms)
        return [each.segment.segment_id[-1] for each in found]

    assert orphans(500, 3) == [1]
    assert orphans(1000, 3) == [1, 2]
    assert orphans(1000) == [1, 2, 3]
    assert orphans(100) == []


def test_a_partition_that_is_deleted_is_not_read_from_the_mark_on() -> None:
    story = Story()
    for number in (1, 2):
        story.start(number)
    story.update(1, SegmentState.COPY_FINISHED)
    story.delete_partition(PartitionState.DELETE_MARKED)
    story.update(2, SegmentState.COPY_FINISHED)
    assert story.numbers("visible") == []
    assert (story.numbers("deleting"), story.numbers("copying")) == ([1], [2])
    story.delete_partition(PartitionState.DELETE_STARTED)
    story.delete_partition(PartitionState.DELETE_MARKED)
    assert story.machine.partitions[OWNER].deletion == PartitionState.DELETE_STARTED, "it never goes back"
    story.delete_partition(PartitionState.DELETE_FINISHED)
    assert OWNER not in story.machine.partitions


def test_a_record_twice_changes_nothing() -> None:
    story = Story()
    story.start(1)
    story.update(1, SegmentState.COPY_FINISHED)
    for offset, record in enumerate(story.records):
        story.machine.replay(record, offset)
    assert story.numbers("visible") == [1]
    assert story.machine.passed_over == 0


def test_what_kafka_wrote_has_no_custom_metadata_of_ours() -> None:
    assert read_custom(None).object_bytes == 0
    assert read_custom(b"whatever").leader_epoch == -1


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["start", *SegmentState, *PartitionState]),
        st.integers(1, 4),
        st.integers(0, 3),
        st.sampled_from([OWNER, OTHER]),
    ),
    max_size=40,
)


@settings(max_examples=200)
@given(ACTIONS, st.integers(0, 40))
def test_a_snapshot_at_any_place_leads_to_the_same(actions, cut: int) -> None:
    story = Story()
    for kind, number, epoch, owner in actions:
        if kind == "start":
            story.start(number, epoch=epoch, owner=owner, now_ms=number)
        elif isinstance(kind, SegmentState):
            story.update(number, kind, epoch=epoch, owner=owner)
        else:
            story.write(partition_delete("orders", owner, kind, broker_id=1, now_ms=0))
    early = TierMachine()
    for offset, record in enumerate(story.records[:cut]):
        early.replay(record, offset)
    late = read_snapshot(write_snapshot(early))
    assert late.next_offset == min(cut, len(story.records))
    for offset, record in enumerate(story.records):
        late.replay(record, offset)
    for tier in (*late.partitions.values(), *story.machine.partitions.values()):
        tier.changes = 0  # Counts what happened since it was made.
    assert late.partitions == story.machine.partitions


def test_a_damaged_snapshot_is_noticed() -> None:
    story = Story()
    story.start(1)
    data = write_snapshot(story.machine)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 4
        with pytest.raises(StorageError, match="snapshot"):
            read_snapshot(bytes(changed))
        with pytest.raises(StorageError, match="snapshot"):
            read_snapshot(data[:at])


def test_a_hundred_thousand_segments_are_read_and_found() -> None:
    machine = TierMachine()
    story = Story()
    story.start(1)
    tier = story.machine.partitions[OWNER]
    tier.copying.clear()
    for number in range(100_000):
        each = segment(number)
        tier.visible[each.segment_id] = each
    data = write_snapshot(story.machine)
    started = time.process_time()
    machine = read_snapshot(data)
    took_s = time.process_time() - started
    assert len(machine.partitions[OWNER].visible) == 100_000
    print(f"100,000 segments: {len(data)} bytes, {took_s * 1000:.0f} ms of CPU")
    lineages = {id(each.epochs) for each in machine.partitions[OWNER].visible.values()}
    assert len(lineages) == 1, "equal lineages are kept once"
