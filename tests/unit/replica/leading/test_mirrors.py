"""A mirror on its leader: what it takes, what it refuses, and what ends it."""

import pytest

from tailrace.log.log import Log
from tailrace.log.validation import Origin
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.replica.flusher import Flusher
from tailrace.replica.leading import mirrors
from tailrace.replica.leading.deletion import delete_records
from tailrace.replica.leading.mirrors import MirrorRole
from tailrace.replica.partition import Partition
from tailrace.sim.background import SimBackground
from tailrace.sim.clock import SimClock
from tailrace.sim.disk import SimDisk
from tailrace.wire.markers import Marker, build_marker, is_barrier, read_marker
from tailrace.wire.records import build_batch, iterate_headers
from tests.unit.replica.replicas import ME, TOPIC_ID, batch, led_by, make_partition

MIRRORED = MirrorRole("dc1", is_read_only=True, opening_epoch=-1)
OPENED = MirrorRole("dc1", is_read_only=False, opening_epoch=50)
BOTH = (ME, 2)


def lead(partition: Partition, epoch: int, role: MirrorRole | None, isr=(ME,)) -> None:
    partition.follow_image(led_by(ME, epoch=epoch, isr=isr, replicas=isr), mirror=role)


def mirror(epoch: int = 7) -> Partition:
    partition = make_partition()
    partition.log.epochs.clear()  # A topic is a mirror from its beginning.
    lead(partition, epoch, MIRRORED)
    return partition


def foreign(offset: int, epoch: int, count: int = 1, **options) -> memoryview:
    """A batch as the source has it."""
    records = [(offset + i, 1000 + i, None, b"v", ()) for i in range(count)]
    return memoryview(build_batch(records, base_offset=offset, leader_epoch=epoch, **options))


def transactional(offset: int, epoch: int, producer_id: int, sequence: int = 0, producer_epoch: int = 3) -> memoryview:
    return foreign(
        offset,
        epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        transactional=True,
    )


def end(offset: int, epoch: int, producer_id: int, *, commits: bool) -> memoryview:
    marker = Marker(commits, coordinator_epoch=4)
    made = bytearray(build_marker(marker, producer_id=producer_id, producer_epoch=3, timestamp_ms=1000))
    made[0:8] = offset.to_bytes(8, "big")
    made[12:16] = epoch.to_bytes(4, "big")
    return memoryview(made)


def take(partition: Partition, *batches: memoryview) -> None:
    mirrors.append_mirrored(partition, memoryview(b"".join(batches)), leader_epoch=partition.leader_epoch)


def stored(log: Log) -> bytes:
    return b"".join(segment.file.read(0, segment.size_bytes) for segment in log.segments)


def reopened(partition: Partition, disk: SimDisk, *, is_clean: bool) -> Partition:
    log = partition.log
    if is_clean:
        log.close(clean=True)
    known = {"is_clean": is_clean, "log_end_hint": log.log_end_offset if is_clean else None}
    new = Log.open(
        disk,
        disk.clock,
        "data/t-0",
        log.config,
        topic_partition=TopicPartition("t", PartitionIndex(0)),
        topic_id=TOPIC_ID,
        recovery_point=log.recovery_point,
        **known,
    )
    flusher = Flusher(SimBackground(), unsynced_max_bytes=1 << 30)
    return Partition(new, topic_id=TOPIC_ID, node_id=ME, flusher=flusher)


async def test_bytes_offsets_epochs_and_gaps_are_the_source_s():
    partition = mirror()
    batches = [foreign(0, 3), foreign(5, 3, count=2), foreign(9, 7)]
    take(partition, *batches[:2])
    take(partition, batches[2])
    assert stored(partition.log) == b"".join(batches)
    assert partition.log.epochs.entries == ((3, 0), (7, 9))
    assert (partition.high_watermark, partition.log.log_end_offset) == (10, 10)
    assert partition.log.epochs.end_offset_for(3, 10) == (3, 9), "as at the source"


async def test_a_new_leader_epoch_of_a_mirror_stands_in_no_history():
    partition = mirror()
    take(partition, foreign(0, 3))
    lead(partition, 8, MIRRORED)
    take(partition, foreign(1, 3))
    assert partition.log.epochs.entries == ((3, 0),)


@pytest.mark.parametrize("what", ["produce", "coordinator", "delete"])
async def test_nobody_but_the_source_changes_a_mirror(what):
    partition = mirror()
    take(partition, foreign(0, 3))
    before = stored(partition.log)
    acts = {
        "produce": lambda: partition.append(batch(b"own"), required_acks=1),
        "coordinator": lambda: partition.append(batch(b"own"), required_acks=1, origin=Origin.COORDINATOR),
        "delete": lambda: delete_records(partition, 1),
    }
    with pytest.raises(KafkaError) as raised:
        acts[what]()
    assert raised.value.code is ErrorCode.POLICY_VIOLATION
    assert "'dc1'" in raised.value.message
    assert not partition.takes_plain
    assert (stored(partition.log), partition.log_start_offset) == (before, 0)


async def test_what_was_fetched_in_another_leader_epoch_is_dropped():
    partition = mirror()
    with pytest.raises(KafkaError) as raised:
        mirrors.append_mirrored(partition, foreign(0, 3), leader_epoch=6)
    assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.log.log_end_offset == 0


@pytest.mark.parametrize("wrong", [foreign(0, 7), foreign(3, 6)], ids=["it is here already", "an older epoch"])
async def test_what_does_not_follow_is_refused(wrong):
    partition = mirror()
    take(partition, foreign(0, 7))
    with pytest.raises(KafkaError):
        take(partition, wrong)
    assert partition.log.log_end_offset == 1


async def test_the_log_start_follows_the_source_as_far_as_the_mirror_reaches():
    partition = mirror()
    take(partition, foreign(0, 3), foreign(1, 3))
    mirrors.follow_start(partition, 1)
    assert partition.log_start_offset == 1
    mirrors.follow_start(partition, 99)
    assert partition.log_start_offset == 2
    mirrors.follow_start(partition, 0)
    assert partition.log_start_offset == 2


async def test_a_mirror_begins_anew_where_the_source_does():
    partition = mirror()
    take(partition, foreign(0, 3))
    mirrors.begin_at(partition, 100, leader_epoch=7)
    assert (partition.log_start_offset, partition.high_watermark, partition.log.log_end_offset) == (100, 100, 100)
    take(partition, foreign(100, 5))
    assert partition.log.epochs.entries == ((5, 100),)


async def test_read_committed_ends_where_it_does_at_the_source():
    partition = mirror()
    take(partition, transactional(0, 3, 11), transactional(1, 3, 12), end(2, 3, 11, commits=False))
    assert (partition.last_stable_offset, partition.high_watermark) == (1, 3)
    slice_ = partition.read(0, 1 << 20, isolation_level=0, at_least_one_batch=True)
    assert [each[:3] for each in partition.log.files.find_aborted(slice_, 0, end_offset=3)] == [(11, 0, 2)]


async def test_opening_aborts_what_is_open_and_then_forgets_all_producers():
    partition = mirror()
    take(partition, transactional(0, 3, 11), transactional(1, 3, 12), end(2, 3, 11, commits=True))
    lead(partition, 60, OPENED)
    assert partition.must_open
    mirrors.open_mirror(partition)
    data = stored(partition.log)
    batches = [(header, data[at : at + header.size_bytes]) for at, header in iterate_headers(data)]
    (aborting, marker), (ending, barrier) = batches[3:]
    assert (aborting.producer_id, aborting.producer_epoch, aborting.leader_epoch) == (12, 4, 60)
    assert read_marker(aborting, marker) == Marker(is_commit=False, coordinator_epoch=0)
    assert (ending.producer_id, ending.leader_epoch, is_barrier(ending, barrier)) == (-1, 60, True)
    assert not partition.log.producers.states
    assert (partition.last_stable_offset, partition.high_watermark) == (5, 5)
    assert partition.log.epochs.entries == ((3, 0), (60, 3))


async def test_who_writes_first_opens_it():
    partition = mirror()
    take(partition, foreign(0, 3))
    lead(partition, 60, OPENED)
    assert partition.append(batch(b"own"), required_acks=1).base_offset == 2
    assert partition.takes_plain
    assert not partition.must_open


async def test_a_producer_with_an_id_of_the_source_is_taken_for_nobody_else():
    """Right after opening: neither refused nor taken for a duplicate, whatever its epoch and sequence."""
    partition = mirror()
    take(partition, transactional(0, 3, 11), end(1, 3, 11, commits=True))
    lead(partition, 60, OPENED)
    own = batch(b"own", producer_id=11, producer_epoch=0, base_sequence=0)
    result = partition.append(own, required_acks=1)
    assert (result.base_offset, result.duplicate) == (3, False)
    again = batch(b"own", producer_id=11, producer_epoch=0, base_sequence=0)
    assert partition.append(again, required_acks=1).duplicate, "from then on it is known"


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
async def test_producers_before_the_barrier_stay_forgotten_after_a_restart(is_clean):
    disk = SimDisk(SimClock())
    partition = make_partition(disk=disk)
    partition.log.epochs.clear()
    lead(partition, 7, MIRRORED)
    take(partition, transactional(0, 3, 11), end(1, 3, 11, commits=True), transactional(2, 3, 12))
    lead(partition, 60, OPENED)
    mirrors.open_mirror(partition)
    after = reopened(partition, disk, is_clean=is_clean)
    assert not after.log.producers.states
    lead(after, 61, OPENED)
    assert not after.must_open, "it was opened before"
    assert after.last_stable_offset == 5


async def test_a_follower_forgets_them_by_the_bytes():
    partition, follower = mirror(), make_partition()
    take(partition, transactional(0, 3, 11), transactional(1, 3, 12))
    lead(partition, 60, OPENED)
    mirrors.open_mirror(partition)
    follower.log.append_as_follower(memoryview(stored(partition.log)), leader_epoch=60)
    assert not follower.log.producers.states
    assert follower.log.last_stable_offset(2) == 0, "the markers may still be lost"
    assert follower.log.last_stable_offset(5) == 5


async def test_a_restart_before_the_markers_are_committed_forgets_no_transaction():
    disk = SimDisk(SimClock())
    partition = make_partition(disk=disk)
    partition.log.epochs.clear()
    lead(partition, 7, MIRRORED)
    take(partition, transactional(0, 3, 11))
    lead(partition, 60, OPENED, isr=BOTH)
    mirrors.open_mirror(partition)
    after = reopened(partition, disk, is_clean=True)
    assert after.log.last_stable_offset(1) == 0


async def test_a_leader_that_died_amid_opening_has_it_ended_by_the_next():
    partition = mirror()
    take(partition, transactional(0, 3, 11), transactional(1, 3, 12))
    lead(partition, 60, OPENED)
    marker = build_marker(Marker(False, 0), producer_id=11, producer_epoch=4, timestamp_ms=1000)
    partition.log.append_as_leader(memoryview(marker), leader_epoch=60, origin=Origin.COORDINATOR)
    lead(partition, 61, OPENED)
    assert partition.must_open
    mirrors.open_mirror(partition)
    lead(partition, 62, OPENED)
    assert not partition.must_open
    assert partition.log.log_end_offset == 5, "one marker more, and one barrier"


async def test_a_leader_that_never_wrote_in_its_epoch_leaves_the_opening_to_the_next():
    partition = mirror()
    take(partition, foreign(0, 3))
    lead(partition, 60, OPENED)
    lead(partition, 61, OPENED)
    assert partition.must_open


async def test_what_was_written_after_the_barrier_is_proof_enough():
    partition = mirror()
    lead(partition, 60, OPENED)
    partition.append(batch(b"own"), required_acks=1)
    partition.log.advance_start(2)
    lead(partition, 61, OPENED)
    assert partition.must_open, "nothing is left: nobody can be hurt by another barrier"
    partition.append(batch(b"own"), required_acks=1)
    lead(partition, 62, OPENED)
    assert not partition.must_open


async def test_a_full_disk_leaves_the_mirror_closed_until_there_is_room():
    disk = SimDisk(SimClock())
    partition = make_partition(disk=disk)
    lead(partition, 7, MIRRORED)
    lead(partition, 60, OPENED)
    disk.fill(left_bytes=0)
    with pytest.raises(KafkaError) as raised:
        partition.append(batch(b"own"), required_acks=1)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.must_open
    disk.heal()
    assert partition.append(batch(b"own"), required_acks=1).base_offset == 1
