"""What a follower writes and cuts: damage, gaps, epochs, starts amid a batch; producers and the cleaner after a cut."""

import errno

import pytest

from tailrace.log.compaction.cleaner import Cleaner
from tailrace.log.compaction.run import Limits
from tailrace.log.directory import LogDirectory
from tailrace.log.files.segment import Segment
from tailrace.log.log import Log
from tailrace.log.producers import ProducerStates
from tailrace.model.config import TopicConfig
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.sim.clock import SimClock
from tailrace.sim.disk import SimDisk
from tailrace.sim.random import SimRandom
from tailrace.wire.records import iterate_headers

from .storage import CONFIG, FOLDER, PARTITION, World, append, make_batch, read_all, sync

LIMITS = Limits(map_bytes=1 << 20, read_bytes=1 << 16, max_decompressed_bytes=1 << 20)


@pytest.fixture
def world():
    return World()


def joined(*batches):
    return memoryview(bytearray(b"".join(bytes(batch) for batch in batches)))


def numbered(offset, epoch=0, count=2, **options):
    return make_batch(count, base_offset=offset, leader_epoch=epoch, **options)


# Appending


@pytest.mark.parametrize(
    ("batches", "problem"),
    [
        ([numbered(0), numbered(1)], "offsets only grow"),
        ([numbered(2), numbered(0)], "offsets only grow"),
        ([numbered(0, 3), numbered(2, 2)], "epochs only grow"),
        ([numbered(0, 3), numbered(2, -1)], "epochs only grow"),
    ],
)
def test_batches_out_of_order_are_refused_as_a_whole(world, batches, problem):
    log = world.open()
    with pytest.raises(KafkaError, match=problem) as raised:
        log.append_as_follower(joined(*batches))
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    assert (log.log_end_offset, log.size_bytes, log.epochs.entries) == (0, 0, ())


def test_one_damaged_byte_is_enough_to_refuse_all(world):
    log = world.open()
    size = len(numbered(0))
    for position in (21, 40, size - 1, size + 21, 2 * size - 1):
        view = joined(numbered(0), numbered(2))
        view[position] ^= 1
        with pytest.raises(KafkaError) as raised:
            log.append_as_follower(view)
        assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.size_bytes == 0


def test_an_older_epoch_than_the_last_one_is_refused(world):
    log = world.open()
    log.append_as_follower(numbered(0, 5))
    with pytest.raises(KafkaError, match="epoch 4 but the log of orders-0 is in epoch 5: the logs have parted"):
        log.append_as_follower(numbered(2, 4))
    assert log.log_end_offset == 2
    log.append_as_follower(numbered(2, 5))
    assert log.log_end_offset == 4


def test_batches_of_a_later_epoch_than_the_fetch_are_left_out(world):
    log = world.open()
    view = joined(numbered(0, 3), numbered(2, 4), numbered(4, 5))
    assert log.append_as_follower(view, leader_epoch=4).next_offset == 4
    assert (read_all(log), log.epochs.latest) == ([0, 1, 2, 3], 4)
    assert log.append_as_follower(numbered(4, 5), leader_epoch=4).next_offset == 4
    assert log.append_as_follower(numbered(4, 5), leader_epoch=5).next_offset == 6


def test_an_empty_log_may_begin_amid_a_batch(world):
    """The leader's log starts at 7, after DeleteRecords, and it sends the batch that holds 7."""
    log = world.open()
    log.truncate_fully_and_start_at(7)
    log.append_as_follower(joined(numbered(5, count=5), numbered(10)))
    assert (log.log_start_offset, log.log_end_offset) == (7, 12)
    assert read_all(log) == [7, 8, 9, 10, 11]
    assert log.epochs.entries == ((0, 7),)
    log = world.reopen_after_crash(log)
    assert (log.log_start_offset, read_all(log)) == (7, [7, 8, 9, 10, 11])


def test_a_log_with_records_never_begins_anew(world):
    log = world.open()
    log.append_as_follower(numbered(0, count=5))
    with pytest.raises(KafkaError, match="offset 3 but the log of orders-0 ends at 5"):
        log.append_as_follower(numbered(3, count=5))
    assert read_all(log) == [0, 1, 2, 3, 4]


def test_an_empty_log_does_not_take_what_lies_before_it(world):
    log = world.open()
    log.truncate_fully_and_start_at(7)
    with pytest.raises(KafkaError, match="offset 5 but the log of orders-0 ends at 7"):
        log.append_as_follower(numbered(5, count=2))


def test_a_start_amid_a_batch_that_the_disk_refuses_changes_nothing(world):
    log = world.open()
    log.truncate_fully_and_start_at(7)
    world.disk.fail("append", "*00005.log", error=errno.ENOSPC, count=1)
    with pytest.raises(StorageError):
        log.append_as_follower(numbered(5, count=5))
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    log.append_as_follower(numbered(5, count=5))
    assert read_all(log) == [7, 8, 9]


def test_what_one_fetch_brings_may_fill_several_segments(world):
    world.config = TopicConfig(internal_segment_bytes=300, index_interval_bytes=100)
    log = world.open()
    log.append_as_follower(joined(*[numbered(offset) for offset in range(0, 40, 2)]))
    assert read_all(log) == list(range(40))
    assert len(log.segments) > 5
    assert all(segment.size_bytes <= 300 for segment in log.segments)


def test_a_batch_that_fits_into_no_segment_any_more_gets_one_of_its_own(world):
    """segment.bytes was lowered after the leader had taken it."""
    world.config = TopicConfig(internal_segment_bytes=300)
    log = world.open()
    large = numbered(2, value=b"x" * 1000)
    log.append_as_follower(joined(numbered(0), large, numbered(4)))
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    assert read_all(log) == list(range(6))


# Cutting


def test_an_epoch_that_began_without_a_record_goes_with_a_truncation_to_the_end(world):
    log = world.open()
    log.append_as_leader(make_batch(2), leader_epoch=1)
    log.epochs.assign(2, 2)
    log.truncate(5)
    assert (log.epochs.entries, log.log_end_offset) == (((1, 0),), 2)
    log.append_as_follower(numbered(2, 1))
    assert log.log_end_offset == 4


def states_of(producers):
    return {
        producer_id: (state.epoch, state.last_sequence, state.last_data_offset)
        for producer_id, state in producers.states.items()
    }


def scanned(log):
    """The producers as a scan of the whole log finds them."""
    producers = ProducerStates()
    for segment in log.segments:
        for _, header in segment.headers():
            producers.update(header)
    return producers


@pytest.mark.parametrize("kept_every_bytes", [1, 300, 1 << 30])
@pytest.mark.parametrize("cut", [1, 4, 9, 10, 16, 27, 39])
def test_producers_are_what_the_batches_that_are_left_tell(world, monkeypatch, cut, kept_every_bytes):
    monkeypatch.setattr("tailrace.log.producers.KEPT_EVERY_BYTES", kept_every_bytes)
    world.config = TopicConfig(internal_segment_bytes=700, message_timestamp_before_max_ms=1 << 60)
    log = world.open()
    for number in range(20):
        producer_id = 10 + number % 3
        log.append_as_follower(numbered(2 * number, producer_id=producer_id, sequence=number // 3 * 2))
    log.truncate(cut)
    assert log.log_end_offset == cut // 2 * 2
    assert states_of(log.producers) == states_of(scanned(log))
    log.append_as_follower(numbered(log.log_end_offset, 1, producer_id=99, sequence=0))
    log = world.reopen_after_crash(log)
    assert states_of(log.producers) == states_of(scanned(log))


def test_a_truncation_reads_only_what_came_after_the_last_snapshot_in_memory(world, monkeypatch):
    monkeypatch.setattr("tailrace.log.producers.KEPT_EVERY_BYTES", 2000)
    log = world.open()
    for number in range(100):
        log.append_as_follower(numbered(2 * number, producer_id=7, sequence=2 * number))
    read = []
    headers = Segment.headers

    def watch(segment, start=0):
        for position, header in headers(segment, start):
            read.append(position)
            yield position, header

    monkeypatch.setattr(Segment, "headers", watch)
    log.truncate(190)
    assert len(read) < 25
    assert states_of(log.producers) == {7: (0, 189, 189)}


def test_a_damaged_snapshot_leaves_the_one_in_memory(world, monkeypatch):
    monkeypatch.setattr("tailrace.log.producers.KEPT_EVERY_BYTES", 1)
    log = world.open()
    log.append_as_follower(numbered(0, producer_id=7, sequence=0))
    monkeypatch.setattr("tailrace.log.producers.KEPT_EVERY_BYTES", 1 << 30)
    log.append_as_follower(numbered(2, producer_id=8, sequence=0))
    log.roll()
    log.append_as_follower(numbered(4, producer_id=9, sequence=0))
    world.disk.replace(f"{FOLDER}/{4:020d}.snapshot", b"damaged")
    log.truncate(4)
    assert states_of(log.producers) == {7: (0, 1, 1), 8: (0, 1, 3)}


def test_a_snapshot_of_a_history_that_was_cut_off_is_not_believed(world):
    """A power loss brings back the file; recovery has read the batches, and knows better."""
    log = world.open()
    log.append_as_follower(numbered(0, producer_id=7, sequence=0))
    log.append_as_follower(numbered(2, producer_id=7, sequence=2))
    log.store()
    stale = world.disk.read(f"{FOLDER}/{4:020d}.snapshot")
    log.truncate(2)
    log.append_as_follower(numbered(2, 1, producer_id=8, sequence=0))
    log.append_as_follower(numbered(4, 1, producer_id=8, sequence=2))
    world.disk.replace(f"{FOLDER}/{4:020d}.snapshot", stale)
    log = world.reopen_after_crash(log)
    log.truncate(5)
    assert states_of(log.producers) == {7: (0, 1, 1), 8: (0, 1, 3)}


class Folder:
    """A data folder with a compacted log, cleaned up to an offset."""

    def __init__(self, cleaned_offset):
        self.disk = SimDisk(SimClock())
        self.disk.make_folder("data")
        self.disk.replace("data/meta.properties", b"version=1\nnode.id=1\ncluster.id=cluster-a\n")
        self.disk.replace("data/cleaner-offset-checkpoint", b"0\n1\norders 0 %d\n" % cleaned_offset)
        self.disk.make_folder("data/orders-0")
        self.open()

    def open(self):
        self.disk.crash()
        self.directory = LogDirectory.open(
            self.disk, self.disk.clock, SimRandom(1), "data", node_id=1, cluster_id="cluster-a"
        )
        config = TopicConfig(cleanup_policy=("compact",), message_timestamp_before_max_ms=1 << 60)
        self.log = self.directory.open_log(PARTITION, config)

    def stored(self):
        return self.disk.read("data/cleaner-offset-checkpoint")


@pytest.mark.parametrize("has_cleaner", [False, True])
def test_a_truncation_lowers_the_checkpoint_of_the_cleaner_first(has_cleaner):
    folder = Folder(cleaned_offset=10)
    if has_cleaner:
        folder.directory.lower_cleaned_offset = Cleaner(folder.disk, "data", LIMITS).lower
    for _ in range(10):
        append(folder.log, 2)
    folder.log.truncate(14)
    assert folder.stored() == b"0\n1\norders 0 10\n"
    folder.disk.fail("replace", "*cleaner-offset-checkpoint", count=1)
    with pytest.raises(StorageError, match="cannot be truncated"):
        folder.log.truncate(6)
    assert folder.log.log_end_offset == 14
    folder.log.truncate(6)
    assert folder.stored() == b"0\n1\norders 0 6\n"
    folder.log.truncate_fully_and_start_at(3)
    assert folder.stored() == b"0\n1\norders 0 3\n"


def test_a_run_of_the_cleaner_ends_with_a_truncation_and_calls_nothing_clean():
    folder = Folder(cleaned_offset=0)
    cleaner = Cleaner(folder.disk, "data", LIMITS)
    folder.directory.lower_cleaned_offset = cleaner.lower
    for _ in range(10):
        append(folder.log, 2)
    folder.log.roll()
    sync(folder.log)
    steps = cleaner.begin([(folder.log, 20)], folder.disk.clock.wall_ms())
    assert steps is not None
    late = []
    for work in steps:
        if work is not None:
            late.append(work)
            if getattr(work, "__name__", "") == "_store":
                break
            work()
    folder.log.truncate(6)
    assert next(steps, None) is None
    late[-1]()  # it was on its way to a helper thread
    assert folder.stored() == b"0\n1\norders 0 6\n"


def test_many_logs_are_truncated_with_one_checkpoint():
    folder = Folder(cleaned_offset=0)
    logs: list[Log] = [folder.log]
    logs += [folder.directory.open_log(PARTITION._replace(partition=number), CONFIG) for number in (1, 2)]
    for log in logs:
        for _ in range(10):
            append(log, 2)
        sync(log)
    folder.directory.begin_checkpoint()()
    logs[0].truncate(6)
    folder.disk.fail("replace", "data/*-checkpoint")
    for log in logs[1:]:
        log.truncate(6)
        assert log.log_end_offset == 6
    folder.disk.heal()
    folder.open()
    assert read_all(folder.log) == list(range(6))


def test_headers_that_a_follower_keeps_are_those_of_the_leader(world):
    leader, follower = world.open(), World().open()
    for epoch in (0, 0, 1, 3):
        leader.append_as_leader(make_batch(3), leader_epoch=epoch)
    found = leader.read(0, 1 << 20, end_offset=leader.log_end_offset)
    follower.append_as_follower(memoryview(found.read()))
    copied = follower.read(0, 1 << 20, end_offset=12)
    assert copied.read() == found.read()
    assert [header.leader_epoch for _, header in iterate_headers(copied.read())] == [0, 0, 1, 3]
    assert follower.epochs.entries == leader.epochs.entries


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
def test_nothing_is_cut_before_the_checkpoints_have_fallen(name):
    folder = Folder(cleaned_offset=0)
    for _ in range(10):
        append(folder.log, 2)
    sync(folder.log)
    folder.log.advance_start(14)
    folder.directory.begin_checkpoint()()
    folder.disk.fail("replace", f"data/{name}")
    for _ in range(2):  # A second try must not take the first for done.
        with pytest.raises(StorageError, match="cannot be truncated"):
            folder.log.truncate_fully_and_start_at(6)
        assert folder.log.log_end_offset == 20
    folder.disk.heal()
    folder.log.truncate_fully_and_start_at(6)
    folder.log.append_as_follower(numbered(6))
    folder.open()
    assert read_all(folder.log) == [6, 7]


def test_a_truncation_above_what_is_stored_writes_no_checkpoint():
    folder = Folder(cleaned_offset=0)
    for _ in range(10):
        append(folder.log, 2)
    sync(folder.log)
    folder.disk.fail("replace", "data/*-checkpoint")
    folder.log.truncate(6)
    assert folder.log.log_end_offset == 6


def test_a_checkpoint_on_its_way_counts_as_stored():
    folder = Folder(cleaned_offset=0)
    for _ in range(10):
        append(folder.log, 2)
    sync(folder.log)
    late = folder.directory.begin_recovery_point_checkpoint()
    folder.log.truncate(6)
    late()
    assert folder.disk.read("data/recovery-point-offset-checkpoint") == b"0\n1\norders 0 0\n"
