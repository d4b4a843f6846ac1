"""What is known, written once more: whoever begins there knows what those know who have replayed everything."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.ids import PartitionIndex, Uuid
from tailrace.tier.format.names import TieredPartition
from tailrace.tier.metadata.coverage import RemoteSegment
from tailrace.tier.metadata.machine import TierMachine
from tailrace.tier.metadata.records import (
    PartitionState,
    SegmentState,
    copy_started,
    partition_delete,
    segment_update,
)
from tailrace.tier.metadata.restated import restate
from tailrace.wire.apis.stored_records import REMOTE_LOG_RECORDS
from tailrace.wire.record_envelopes import decode_metadata_record, encode_metadata_record
from tailrace.wire.schema import Message

OWNERS = [TieredPartition(Uuid(bytes(15) + b"\1"), PartitionIndex(number)) for number in range(3)]
FINISHED, DELETED = SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED


def segment(number: int) -> RemoteSegment:
    return RemoteSegment(
        Uuid((number + 1).to_bytes(16, "big")),
        10 * number,
        10 * number + 10,
        7,
        9,
        number,
        1,
        ((0, 0), (2, 5)),
        number % 2 == 0,
    )


def told(machine: TierMachine) -> dict:
    return {
        owner: (
            tier.topic,
            tier.leader_epoch,
            tier.log_start_offset,
            tier.copying,
            tier.visible,
            tier.deleting,
            tier.deletion,
        )
        for owner, tier in machine.partitions.items()
    }


def restatement(machine: TierMachine, owner: TieredPartition) -> list[Message]:
    return list(restate(owner, machine.partitions[owner].copy(), broker_id=9, now_ms=5))


def replay(machine: TierMachine, records: list[Message], start: int) -> None:
    for offset, record in enumerate(records, start):
        machine.replay(decode_metadata_record(encode_metadata_record(record), REMOTE_LOG_RECORDS), offset)


@st.composite
def logs(draw) -> list[Message]:
    records: list[Message] = []
    for number in range(draw(st.integers(0, 12))):
        owner, one = draw(st.sampled_from(OWNERS)), segment(number)
        epoch = draw(st.integers(0, 3))
        records.append(copy_started("t", owner, one, leader_epoch=epoch, now_ms=number))
        for state in draw(st.sampled_from([(), (FINISHED,), (FINISHED, DELETED), (DELETED,)])):
            start = draw(st.integers(0, 100))
            update = segment_update(
                "t", owner, one, state, broker_id=1, leader_epoch=epoch, now_ms=number, log_start_offset=start
            )
            records.append(update)
    if draw(st.booleans()):
        owner = draw(st.sampled_from(OWNERS))
        records.append(partition_delete("t", owner, PartitionState.DELETE_MARKED, broker_id=1, now_ms=1))
    return records


@settings(max_examples=200, deadline=None)
@given(before=logs(), after=logs(), begin=st.integers(0, 40))
def test_who_begins_late_knows_the_same(before: list[Message], after: list[Message], begin: int) -> None:
    whole = TierMachine()
    replay(whole, before, 0)
    log = list(before)
    changes = {owner: tier.changes for owner, tier in whole.partitions.items()}
    for owner in list(whole.partitions):
        records = restatement(whole, owner)
        known = told(whole)
        replay(whole, records, len(log))
        log += records
        assert told(whole) == known, "who knows it learns nothing new"
    assert {owner: tier.changes for owner, tier in whole.partitions.items()} == changes
    log += after
    replay(whole, after, len(log) - len(after))
    late = TierMachine()
    late.next_offset = begin = min(begin, len(before))
    replay(late, log[begin:], begin)
    # Of partitions that were deleted before the restatement the one that begins late may have heard of some end.
    assert {owner: each for owner, each in told(late).items() if owner in whole.partitions} == told(whole)


def test_what_is_cut_short_changes_nothing() -> None:
    machine, owner = TierMachine(), OWNERS[0]
    for number in range(3):
        start = machine.next_offset
        one = segment(number)
        update = segment_update("t", owner, one, FINISHED, broker_id=1, leader_epoch=1, now_ms=0)
        replay(machine, [copy_started("t", owner, one, leader_epoch=1, now_ms=0), update], start)
    known, records = told(machine), restatement(machine, owner)
    assert len(records) == 3
    replay(machine, records[:2], machine.next_offset)
    assert machine.is_restating
    late = TierMachine()
    replay(late, records[:2], 0)
    replay(late, records[2:], 5)
    assert told(late) == {}, "a record came between"
    one = segment(7)
    replay(machine, [copy_started("t", owner, one, leader_epoch=1, now_ms=0)], machine.next_offset)
    assert not machine.is_restating
    replay(machine, records[2:], machine.next_offset)
    assert told(machine)[owner][4] == known[owner][4]
    assert one.segment_id in machine.partitions[owner].copying


def test_a_partition_without_segments_keeps_its_log_start_and_its_epoch() -> None:
    machine, owner, one = TierMachine(), OWNERS[1], segment(0)
    states = (FINISHED, DELETED, SegmentState.DELETE_FINISHED)
    updates = [
        segment_update("t", owner, one, state, broker_id=1, leader_epoch=4, now_ms=0, log_start_offset=10)
        for state in states
    ]
    replay(machine, [copy_started("t", owner, one, leader_epoch=4, now_ms=0), *updates], 0)
    late = TierMachine()
    replay(late, restatement(machine, owner), 0)
    assert told(late) == told(machine)
    assert (late.partitions[owner].leader_epoch, late.partitions[owner].log_start_offset) == (4, 10)
