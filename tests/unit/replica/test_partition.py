"""One partition: leadership, the high watermark, and what waits for it."""

import errno

import pytest

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.replica.leading.deletion import delete_records
from tailrace.sim.background import HeldBackground
from tailrace.sim.clock import SimClock
from tailrace.sim.disk import SimDisk
from tests.unit.replica.replicas import ME, OTHER, batch, lead, make_partition, release


def code_of(raised) -> ErrorCode:
    return raised.value.code


async def test_with_one_replica_the_high_watermark_follows_the_log():
    partition = make_partition()
    result = partition.append(batch(b"a", b"b"), required_acks=-1)
    assert (result.base_offset, partition.high_watermark, partition.last_stable_offset) == (0, 2, 2)
    assert not partition.must_wait(result, -1)


async def test_only_the_leader_appends():
    partition = make_partition()
    lead(partition, leader=OTHER, epoch=1, isr=(OTHER,), replicas=2)
    with pytest.raises(KafkaError) as raised:
        partition.append(batch(b"a"), required_acks=1)
    assert code_of(raised) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not partition.takes_plain


@pytest.mark.parametrize(
    ("leader", "told"),
    [(OTHER, f"broker {OTHER} does"), (-1, "no broker does"), (ME, "it was elected, but cannot be sure any more")],
)
async def test_who_leads_instead_is_told_as_far_as_it_is_known(leader, told):
    """A leader that is past its lease must not name itself as the one to ask."""
    partition = make_partition()
    lead(partition, leader=leader, epoch=1, isr=(OTHER,), replicas=2)
    assert f"Broker {ME} does not lead {partition.topic_partition}: {told}" in partition.not_leader().message


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(-1, None), (4, None), (3, ErrorCode.FENCED_LEADER_EPOCH), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
async def test_a_client_that_knows_another_epoch_is_refused(epoch, code):
    partition = make_partition()
    lead(partition, epoch=4)
    if code is None:
        partition.check_leader(epoch)
    else:
        with pytest.raises(KafkaError) as raised:
            partition.check_leader(epoch)
        assert code_of(raised) == code


async def test_lost_leadership_ends_the_waits():
    partition = make_partition()
    lead(partition, epoch=1, isr=(ME, OTHER), replicas=2)
    partition.append(batch(b"a"), required_acks=-1)
    told = []
    partition.wait_for_high_watermark(1, told.append)
    lead(partition, leader=OTHER, epoch=2, isr=(ME, OTHER), replicas=2)
    assert [error.code for error in told] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    # One who comes after it is told at once: nobody would tell it later.
    partition.wait_for_high_watermark(1, told.append)
    assert [error.code for error in told] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    partition.wait_for_high_watermark(0, told.append)
    assert told[2:] == [None]
    assert not partition.produces


async def test_a_new_epoch_is_remembered_with_its_first_offset():
    partition = make_partition()
    partition.append(batch(b"a"), required_acks=1)
    lead(partition, epoch=7)
    partition.append(batch(b"b"), required_acks=1)
    assert partition.leader_epoch_start_offset == 1
    assert partition.log.epochs.end_offset_for(0, 2) == (0, 1)


async def test_flush_messages_bounds_what_is_acknowledged_unsynced():
    background = HeldBackground()
    partition = make_partition(background=background, flush_messages=3)
    for expected in (1, 2):
        result = partition.append(batch(b"a"), required_acks=1)
        assert not partition.must_wait(result, 1)
        assert partition.high_watermark == expected
    result = partition.append(batch(b"a"), required_acks=1)
    assert partition.must_wait(result, 1)
    assert partition.high_watermark == 2
    told = []
    partition.wait_for_high_watermark(result.next_offset, told.append)
    await _turn()
    await release(background)
    assert (partition.high_watermark, told) == (3, [None])


async def test_one_sync_covers_all_that_came_before_it():
    background = HeldBackground()
    partition = make_partition(background=background, flush_messages=1)
    partition.append(batch(b"a"), required_acks=1)
    await _turn()
    for _ in range(5):
        partition.append(batch(b"b"), required_acks=1)
    assert len(background.held) == 1
    await release(background)
    assert partition.high_watermark == 1
    assert len(background.held) == 1
    await release(background)
    assert partition.high_watermark == 6
    assert background.held == []


async def test_a_duplicate_is_confirmed_only_when_its_original_is():
    background = HeldBackground()
    partition = make_partition(background=background, flush_messages=1)
    first = partition.append(batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0), required_acks=1)
    again = partition.append(batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0), required_acks=1)
    assert (again.duplicate, again.base_offset) == (True, first.base_offset)
    assert partition.must_wait(again, 1)
    await _turn()
    await release(background)
    assert not partition.must_wait(again, 1)


async def test_a_failed_sync_is_told_to_all_who_wait():
    background = HeldBackground()
    disk = SimDisk(SimClock())
    partition = make_partition(background=background, disk=disk, flush_messages=1)
    partition.append(batch(b"a"), required_acks=1)
    told = []
    partition.wait_for_high_watermark(1, told.append)
    disk.fail("sync", error=errno.EIO)
    await _turn()
    await release(background)
    assert [error.code for error in told] == [ErrorCode.KAFKA_STORAGE_ERROR]
    disk.heal()
    for attempt in (
        lambda: partition.append(batch(b"a"), required_acks=1),
        lambda: partition.read(0, 100, isolation_level=0, at_least_one_batch=True),
    ):
        with pytest.raises(KafkaError) as raised:
            attempt()
        assert code_of(raised) == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_reader_is_told_once_and_never_sees_above_the_high_watermark():
    background = HeldBackground()
    partition = make_partition(background=background, flush_messages=1)

    class Reader:
        calls = 0

        def on_readable(self) -> None:
            self.calls += 1

    reader = Reader()
    partition.readers.add(reader)
    partition.append(batch(b"a"), required_acks=1)
    assert reader.calls == 0
    assert partition.read(0, 1000, isolation_level=0, at_least_one_batch=True) is None
    await _turn()
    await release(background)
    assert reader.calls == 1
    assert partition.read(0, 1000, isolation_level=0, at_least_one_batch=True) is not None
    partition.append(batch(b"b"), required_acks=1)
    await _turn()
    await release(background)
    assert reader.calls == 1


async def test_settings_decide_which_way_batches_go():
    assert make_partition().takes_plain
    assert not make_partition(flush_messages=1).takes_plain
    assert not make_partition(compression_type="gzip").takes_plain
    partition = make_partition()
    partition.log.reconfigure(partition.log.config.replace(message_timestamp_type="LogAppendTime"))
    partition.reconfigure()
    assert not partition.takes_plain
    partition.close()
    assert not partition.takes_plain


async def test_delete_records():
    partition = make_partition()
    for _ in range(3):
        partition.append(batch(b"a"), required_acks=1)
    assert delete_records(partition, 2) == 2
    assert delete_records(partition, -1) == 3
    with pytest.raises(KafkaError) as raised:
        delete_records(partition, 4)
    assert code_of(raised) == ErrorCode.OFFSET_OUT_OF_RANGE


async def _turn() -> None:
    import asyncio

    for _ in range(3):
        await asyncio.sleep(0)
