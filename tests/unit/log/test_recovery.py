"""What a log is after a crash, a power loss, a clean stop, and with damaged files."""

import logging

import pytest

from tailrace.log.log import Log
from tailrace.model.config import TopicConfig
from tailrace.model.errors import StorageError
from tailrace.model.ids import Uuid
from tailrace.sim.random import SimRandom

from .storage import FOLDER, PARTITION, World, append, make_batch, offsets_in, read_all, sync


@pytest.fixture
def world():
    return World(TopicConfig(index_interval_bytes=200, internal_segment_bytes=1500))


def fill(log, batches=40, *, batches_per_epoch=10):
    for number in range(batches):
        log.append_as_leader(
            make_batch(2, timestamp=1000 + number, producer_id=number % 3, sequence=number // 3 * 2),
            leader_epoch=number // batches_per_epoch,
        )


def corrupt(world, name, position, data=b"\xff"):
    """Overwrites bytes of a file, as a failing device would."""
    file = world.disk.open(f"{FOLDER}/{name}")
    old = file.read(0, file.size)
    file.truncate(0)
    file.append([old[:position] + data + old[position + len(data) :]])


def states(log):
    return {
        producer_id: (state.epoch, state.last_sequence, state.last_data_offset)
        for producer_id, state in log.producers.states.items()
    }


def index_files(world):
    return {name: world.disk.read(f"{FOLDER}/{name}") for name in world.names("index")}


def assert_same(log, other):
    assert read_all(log) == read_all(other)
    assert log.log_end_offset == other.log_end_offset
    assert log.epochs.entries == other.epochs.entries
    assert states(log) == states(other)
    end_offset = log.log_end_offset
    for timestamp in range(990, 1050, 7):
        found = log.offset_by_timestamp(timestamp, end_offset=end_offset)
        assert found == other.offset_by_timestamp(timestamp, end_offset=end_offset)


class Twin:
    """The same appends in a world where nothing goes wrong, to compare with."""

    def __init__(self, world, batches):
        self.world = World(world.config)
        self.log = self.world.open()
        fill(self.log, batches)


# Crashes


def test_a_killed_process_loses_nothing(world):
    log = world.open()
    fill(log)
    reopened = world.reopen_after_crash(log)
    assert_same(reopened, Twin(world, 40).log)
    assert append(reopened) == 80


def test_indexes_are_the_same_whether_rebuilt_or_written_as_the_log_grew(world):
    log = world.open()
    fill(log)
    log.close(clean=True)
    written = index_files(world)
    world.disk.crash()
    world.open().close(clean=True)
    assert index_files(world) == written
    for name in written:
        world.disk.remove(f"{FOLDER}/{name}")
    log = world.open(is_clean=True, recovery_point=80)
    assert read_all(log) == list(range(80))
    log.offset_by_timestamp(0, end_offset=80)
    log.max_timestamp_offset(end_offset=80)
    assert index_files(world) == written


def test_a_torn_tail_is_cut_and_reported(world, caplog):
    log = world.open()
    fill(log, 5)
    active, size = log.active.path(".log"), log.active.size_bytes
    world.disk.open(active).append([bytes(make_batch(2, base_offset=10))[:-3]])
    with caplog.at_level(logging.WARNING):
        reopened = world.reopen_after_crash(log)
    facts = next(record.facts for record in caplog.records if "cut" in record.message)
    assert (facts["partition"], facts["position"], facts["log_end_offset"]) == (PARTITION, size, 10)
    assert facts["bytes"] == len(make_batch(2)) - 3
    assert "middle" in facts["cause"]
    assert_same(reopened, Twin(world, 5).log)
    assert world.disk.size(active) == size


@pytest.mark.parametrize(
    ("tail", "cause"),
    [
        (bytes(200), "no batch"),
        (b"\x00" * 30, "middle"),
        (b"garbage" * 20, "no batch"),
        (bytes(make_batch(1, base_offset=3)), "offset 3 follows 9"),
        (bytes(make_batch(1, base_offset=2**32)), "too far"),
    ],
)
def test_what_is_no_batch_of_this_log_is_cut(world, caplog, tail, cause):
    log = world.open()
    fill(log, 5)
    world.disk.open(log.active.path(".log")).append([tail])
    with caplog.at_level(logging.WARNING):
        reopened = world.reopen_after_crash(log)
    assert cause in str([record.facts.get("cause") for record in caplog.records])
    assert_same(reopened, Twin(world, 5).log)


def test_a_damaged_batch_ends_the_log_and_later_segments_go(world, caplog):
    log = world.open()
    fill(log)
    damaged = log.segments[1]
    corrupt(world, f"{damaged.base_offset:020d}.log", damaged.size_bytes - 1)
    with caplog.at_level(logging.WARNING):
        reopened = world.reopen_after_crash(log)
    assert len(reopened.segments) == 2
    assert reopened.log_end_offset == log.segments[2].base_offset - 2
    assert_same(reopened, Twin(world, reopened.log_end_offset // 2).log)
    assert {"cut a torn or damaged tail", "dropped segments after the end of the log"} <= {
        record.message for record in caplog.records
    }
    assert all(int(name[:20]) <= reopened.log_end_offset for name in world.names("index") + world.names(".snapshot"))


def test_below_the_recovery_point_nothing_is_scanned(world):
    log = world.open()
    fill(log)
    sync(log)
    first = log.segments[0]
    corrupt(world, f"{first.base_offset:020d}.log", first.size_bytes - 1)
    reopened = world.reopen_after_crash(log)
    assert reopened.log_end_offset == 80
    assert reopened.recovery_point == 80


def test_a_gap_before_an_unsynced_segment_is_a_lost_tail(world):
    log = world.open()
    fill(log)
    second = log.segments[1]
    world.disk.open(second.path(".log")).truncate(0)
    reopened = world.reopen_after_crash(log)
    assert read_all(reopened) == list(range(second.base_offset))


def test_gaps_that_kafkas_compaction_left_are_kept_below_the_offset_of_its_cleaner(world):
    world.config = TopicConfig(cleanup_policy=frozenset({"compact"}), index_interval_bytes=200)
    log = world.open()
    log.append_as_follower(make_batch(2, base_offset=0))
    log.roll()
    log.append_as_follower(make_batch(2, base_offset=2))
    log.roll()
    log.append_as_follower(make_batch(2, base_offset=4))
    for suffix in (".log", ".index", ".timeindex"):  # With entries in an index it would be a file that was lost.
        world.disk.open(log.segments[1].path(suffix)).truncate(0)
    world.disk.crash()
    assert read_all(world.open(cleaned_offset=4)) == [0, 1, 4, 5]
    # Elsewhere a gap is a loss, also in a compacted log whose recovery point was never stored.
    world.disk.crash()
    assert read_all(world.open(cleaned_offset=2)) == [0, 1]


def test_a_crash_right_after_a_roll_leaves_an_empty_segment_that_is_used(world):
    log = world.open()
    fill(log, 3)
    log.roll()
    reopened = world.reopen_after_crash(log)
    assert len(reopened.segments) == 2
    assert append(reopened) == 6
    assert read_all(world.reopen_after_crash(reopened)) == list(range(7))


def test_a_start_offset_above_what_survived_begins_the_log_there(world):
    log = world.open()
    append(log, 10)
    world.disk.crash()
    reopened = world.open(log_start_offset=50)
    assert (reopened.log_start_offset, reopened.log_end_offset, reopened.size_bytes) == (50, 50, 0)
    assert append(reopened) == 50


def test_producers_of_a_log_that_did_not_survive_do_not_come_back(world):
    log = world.open()
    append(log, producer_id=7, sequence=0)
    log.roll()
    append(log, producer_id=7, sequence=1)
    for _ in range(2):
        world.disk.crash()
        log = world.open(log_start_offset=50)
        assert len(log.producers) == 0


# Power losses


@pytest.mark.parametrize("seed", range(5))
def test_segments_that_recovery_has_dropped_do_not_come_back(world, seed):
    """They would follow on what was written in the place of the tail before them."""
    log = world.open()
    append(log)
    append(log, value=b"lost")
    log.roll()
    append(log)
    sync(log)
    active = world.disk.open(f"{FOLDER}/{0:020d}.log")
    active.truncate(active.size - 1)
    active.sync()
    world.disk.crash()
    log = world.open()
    assert (log.log_end_offset, len(log.segments)) == (1, 1)
    append(log, value=b"next")
    log.active.sync()  # As the kernel does by itself now and then; nobody has synced the folder.
    world.disk.power_loss(SimRandom(seed))
    assert read_all(world.open()) == [0, 1]


@pytest.mark.parametrize("seed", range(60))
def test_after_a_power_loss_all_that_was_synced_is_there_and_the_rest_is_a_prefix(seed):
    world = World(TopicConfig(index_interval_bytes=200, internal_segment_bytes=900 + 400 * (seed % 4)))
    random = SimRandom(seed)
    log = world.open()
    work, end_offset = log.begin_sync()
    work()
    log.mark_synced(end_offset)
    world.disk.sync_folder("/data")
    batches = 0
    for _ in range(4):
        for _ in range(5 + random.randrange(30)):
            number = batches
            log.append_as_leader(
                make_batch(2, timestamp=1000 + number, producer_id=number % 3, sequence=number // 3 * 2),
                leader_epoch=number // 10,
            )
            batches += 1
            if random.random() < 0.04:
                sync(log)
        synced_end, written_end = log.recovery_point, log.log_end_offset
        world.disk.power_loss(random)
        log = world.open(recovery_point=synced_end)
        assert synced_end <= log.log_end_offset <= written_end
        assert read_all(log) == list(range(log.log_end_offset))
        batches = log.log_end_offset // 2
        assert_same(log, Twin(world, batches).log)


# Clean stops


def test_a_clean_start_reads_the_end_of_the_last_segment_and_no_more(world):
    """Of a log with one leader epoch, as most have."""
    log = world.open()
    fill(log, batches_per_epoch=40)
    log.close(clean=True)
    world.disk.crash()
    for segment in log.segments[:-1]:
        world.disk.fail("read", f"*/{segment.base_offset:020d}.*")
    world.disk.fail("map", "*")
    reopened = world.open(is_clean=True, recovery_point=log.recovery_point)
    assert reopened.log_end_offset == 80
    assert not any(segment.is_open for segment in reopened.segments)


def test_a_clean_close_syncs(world):
    log = world.open()
    world.disk.sync_folder("/data")
    fill(log)
    log.close(clean=True)
    world.disk.power_loss(SimRandom(1))
    assert_same(world.open(is_clean=True, recovery_point=80), Twin(world, 40).log)


@pytest.mark.parametrize(
    ("change", "operation", "path"),
    [
        (append, "sync", f"{FOLDER}/*.log"),
        (lambda log: log.roll(), "sync_folder", FOLDER),
        (lambda log: log.advance_start(75), "replace", f"{FOLDER}/leader-epoch-checkpoint"),
    ],
)
def test_a_clean_close_syncs_what_has_changed_since_the_last_sync(world, change, operation, path):
    log = world.open()
    fill(log)
    sync(log)
    change(log)
    world.disk.fail(operation, path)
    with pytest.raises(StorageError):
        log.close(clean=True)


def test_a_log_that_did_not_change_costs_nothing_to_close(world):
    log = world.open()
    fill(log)
    log = world.reopen_after_clean_close(log)
    read_all(log)
    world.disk.is_read_only = True
    log.close(clean=True)


def test_appends_go_on_after_a_clean_start(world):
    log = world.open()
    for number in range(30):
        append(log, 2, timestamp=1000 + number)
        log = world.reopen_after_clean_close(log)
    assert read_all(log) == list(range(60))
    for number in range(30):
        assert log.offset_by_timestamp(1000 + number, end_offset=60)[0] >= 1000 + number
    assert len(world.names(".snapshot")) <= len(log.segments) + 1


def test_a_clean_start_without_the_log_end_finds_it_in_the_last_batches(world):
    log = world.open()
    fill(log)
    log.close(clean=True)
    world.disk.crash()
    for hint in (None, 0, log.active.base_offset - 1):
        reopened = Log.open(
            world.disk,
            world.clock,
            FOLDER,
            world.config,
            topic_partition=PARTITION,
            is_clean=True,
            log_end_hint=hint,
        )
        assert reopened.log_end_offset == 80


# Damaged files


@pytest.mark.parametrize("kind", ["index", "timeindex"])
@pytest.mark.parametrize("damage", ["missing", "odd size", "wild entry", "empty"])
def test_a_damaged_index_is_rebuilt_when_it_is_needed(world, kind, damage):
    log = world.open()
    fill(log)
    log.close(clean=True)
    world.disk.crash()
    name = f"{log.segments[1].base_offset:020d}.{kind}"
    file = world.disk.open(f"{FOLDER}/{name}")
    written = file.read(0, file.size)
    match damage:
        case "missing":
            world.disk.remove(f"{FOLDER}/{name}")
        case "odd size":
            file.append([b"x"])
        case "wild entry":
            file.append([b"\x00" * 4 + b"\x7f" * 4 if kind == "index" else bytes(12)])
        case "empty":
            file.truncate(0)
    reopened = world.open(is_clean=True, recovery_point=80)
    assert_same(reopened, Twin(world, 40).log)
    if (kind, damage) != ("index", "empty"):
        assert world.disk.read(f"{FOLDER}/{name}") == written


def test_a_damaged_snapshot_is_passed_over(world, caplog):
    log = world.open()
    fill(log)
    log.close(clean=True)
    world.disk.crash()
    snapshots = world.names(".snapshot")
    corrupt(world, snapshots[-1], 10)
    world.disk.remove(f"{FOLDER}/{snapshots[-2]}")
    with caplog.at_level(logging.WARNING):
        reopened = world.open(is_clean=True, recovery_point=80)
    assert "a producer snapshot is passed over" in caplog.text
    assert_same(reopened, Twin(world, 40).log)
    for name in world.names(".snapshot"):
        world.disk.remove(f"{FOLDER}/{name}")
    assert_same(world.open(is_clean=True, recovery_point=80), Twin(world, 40).log)


def test_a_torn_snapshot_of_an_unsynced_segment_is_written_anew(world):
    log = world.open()
    fill(log)
    world.disk.crash()
    written = {name: world.disk.read(f"{FOLDER}/{name}") for name in world.names(".snapshot")}
    assert len(written) > 1
    for name in written:
        corrupt(world, name, 10)
    world.open()
    assert {name: world.disk.read(f"{FOLDER}/{name}") for name in world.names(".snapshot")} == written


@pytest.mark.parametrize(
    "content", [None, b"", b"0\n", b"0\n1\n", b"9\n0\n", b"0\n2\n5 5\n4 6\n", b"0\n1\nx y\n", b"\xff"]
)
@pytest.mark.parametrize("is_clean", [False, True])
def test_damaged_leader_epochs_are_rebuilt(world, content, is_clean):
    log = world.open()
    fill(log)
    log.close(clean=True)
    world.disk.crash()
    path = f"{FOLDER}/leader-epoch-checkpoint"
    if content is None:
        world.disk.remove(path)
    else:
        world.disk.replace(path, content)
    assert_same(world.open(is_clean=is_clean, recovery_point=80), Twin(world, 40).log)


def test_files_that_belong_to_nothing_are_removed(world):
    log = world.open()
    append(log)
    log.close(clean=True)
    world.disk.crash()
    for name in ("00000000000000000099.index", "00000000000000000099.timeindex", "leader-epoch-checkpoint.tmp"):
        world.disk.open(f"{FOLDER}/{name}", create=True)
    reopened = world.open(is_clean=True, recovery_point=1)
    assert read_all(reopened) == [0]
    assert not [name for name in world.names() if "99" in name or name.endswith(".tmp")]


def test_a_segment_that_cannot_be_opened_is_a_storage_error(world):
    log = world.open()
    append(log)
    world.disk.crash()
    world.disk.fail("list", FOLDER)
    with pytest.raises(StorageError, match="cannot be opened"):
        world.open()


def test_the_folder_of_another_topic_is_refused(world):
    def open_as(topic_id):
        return Log.open(
            world.disk, world.clock, FOLDER, world.config, topic_partition=PARTITION, topic_id=Uuid(topic_id)
        )

    open_as(b"a" * 16)
    assert open_as(b"a" * 16).topic_id == b"a" * 16
    assert world.open().topic_id == b"a" * 16
    with pytest.raises(StorageError, match="deleted and made again"):
        open_as(b"b" * 16)


def test_batches_larger_than_a_chunk_are_recovered(world):
    world.config = TopicConfig(max_message_bytes=1 << 23)
    log = world.open()
    for _ in range(3):
        append(log, 2, value=b"x" * 800_000)
    append(log, 1)
    reopened = world.reopen_after_crash(log)
    assert read_all(reopened) == list(range(7))
    assert offsets_in(reopened.read(5, 10, end_offset=7)) == [4, 5]


def test_the_indexes_of_closed_segments_are_synced_with_their_data(world):
    world.config = TopicConfig(index_interval_bytes=1, internal_segment_bytes=1 << 20)
    log = world.open()
    for number in range(1500):
        append(log, timestamp=1000 + number)
    log.roll()
    sync(log)
    written = index_files(world)
    assert all(len(data) > 8192 for data in written.values())
    for seed in range(5):
        world.disk.power_loss(SimRandom(seed))
        assert index_files(world) == written


def test_recovery_leaves_no_closed_segment_without_its_indexes(world):
    log = world.open()
    fill(log)
    for name in world.names("index"):
        world.disk.remove(f"{FOLDER}/{name}")
    reopened = world.reopen_after_crash(log)
    closed = [f"{segment.base_offset:020d}" for segment in reopened.segments[:-1]]
    assert [name[:20] for name in world.names(".index")] == closed
    assert [name[:20] for name in world.names(".timeindex")] == closed
