"""A data folder: possession, identity, clean and unclean stops, deletion."""

import errno
import logging

import pytest

from tailrace.log.directory import LogDirectory
from tailrace.log.retention import expire_segments
from tailrace.model.config import TopicConfig
from tailrace.model.errors import StorageError
from tailrace.model.ids import PartitionIndex, TopicPartition, Uuid
from tailrace.sim.clock import SimClock
from tailrace.sim.disk import SimDisk
from tailrace.sim.random import SimRandom

from .storage import CONFIG, World, append, make_batch, read_all, sync

PATH = "/var/data"
ORDERS, PAYMENTS = TopicPartition("orders", PartitionIndex(0)), TopicPartition("pay-ments", PartitionIndex(3))


class Machine:
    def __init__(self):
        self.clock = SimClock()
        self.disk = SimDisk(self.clock)
        self.random = SimRandom(1)

    def start(self, *, node_id=1, cluster_id="cluster-a"):
        return LogDirectory.open(self.disk, self.clock, self.random, PATH, node_id=node_id, cluster_id=cluster_id)

    def exists(self, name):
        return self.disk.exists(f"{PATH}/{name}")


@pytest.fixture
def machine():
    return Machine()


def load(directory):
    for partition in directory.partitions_on_disk():
        directory.open_log(partition, CONFIG)
    return directory


def remove_due(machine, directory):
    work = directory.begin_removal(machine.clock.monotonic_ms())
    if work is not None:
        work()


# Possession


def test_a_folder_in_use_is_refused_with_the_process_that_has_it(machine):
    machine.start()
    with pytest.raises(StorageError, match=r"/var/data is in use by another process \(pid 1\).*Stop that broker"):
        machine.start()


def test_the_lock_is_gone_with_the_process_and_after_a_close(machine):
    machine.start()
    machine.disk.crash()
    machine.start().close()
    machine.start()


@pytest.mark.parametrize("operation", ["make_folder", "lock", "replace"])
def test_a_folder_that_cannot_be_written_is_refused(machine, operation):
    machine.disk.fail(operation, "*", error=errno.EACCES)
    with pytest.raises(StorageError, match=r"/var/data cannot be used.*EACCES.*may write to"):
        machine.start()
    machine.disk.heal()
    machine.start()


def test_the_folder_of_another_node_or_cluster_is_refused(machine):
    machine.start().close()
    with pytest.raises(StorageError, match=r"belongs to node.id=1, but this broker has node.id=2. Point log.dirs"):
        machine.start(node_id=2)
    with pytest.raises(StorageError, match=r"belongs to cluster.id=cluster-a, .* cluster.id=cluster-b"):
        machine.start(cluster_id="cluster-b")
    machine.start()


def test_a_damaged_identity_is_refused(machine):
    machine.start().close()
    machine.disk.replace(f"{PATH}/meta.properties", b"garbage")
    with pytest.raises(StorageError, match=r"meta\.properties is damaged"):
        machine.start()
    machine.disk.replace(f"{PATH}/meta.properties", b"version=1\nnode.id=1\ncluster.id=cluster-a\ndirectory.id=x\n")
    with pytest.raises(StorageError, match=r"meta\.properties is damaged"):
        machine.start()


@pytest.mark.parametrize(
    "evidence",
    [
        "orders-0/00000000000000000000.log",
        "orders-0.0123456789abcdef0123456789abcdef-stray/00000000000000000000.log",
        "__cluster_metadata-0/quorum-state",
        "recovery-point-offset-checkpoint",
        ".kafka_cleanshutdown",
        ".tailrace_running",
        ".tailrace_metadata_synced",
    ],
)
def test_data_that_does_not_say_whose_it_is_is_refused(machine, evidence):
    path, _, name = f"{PATH}/{evidence}".rpartition("/")
    machine.disk.make_folder(path)
    machine.disk.replace(f"{path}/{name}", b"")
    with pytest.raises(StorageError, match=r"holds data \(.*\) but no meta\.properties.*--directory-id"):
        machine.start()
    assert not machine.exists("meta.properties")


@pytest.mark.parametrize("name", ["lost+found", "__cluster_metadata-0", "notes.txt"])
def test_a_folder_without_data_is_made_the_nodes_own(machine, name):
    """A new disk, one that `format` was interrupted on, and one that somebody uses for more than this."""
    if name.endswith(".txt"):
        machine.disk.make_folder(PATH)
        machine.disk.replace(f"{PATH}/{name}", b"")
    else:
        machine.disk.make_folder(f"{PATH}/{name}")
    if name.startswith("__"):
        machine.disk.replace(f"{PATH}/{name}/00000000000000000000-0000000000.checkpoint", b"")
    machine.start()
    assert machine.exists("meta.properties")


def test_a_start_that_is_refused_leaves_the_clean_mark(machine):
    directory = machine.start()
    fill(directory)
    directory.close(broker_epoch=42)
    machine.start().close(clean=False)
    again = machine.start()
    assert again.was_clean
    assert again.previous_broker_epoch == 42
    again.open_log(ORDERS, CONFIG)
    again.close(clean=False)
    assert not machine.start().was_clean, "a log was open, and nobody has stored it"


def test_the_identity_is_kept(machine):
    assert LogDirectory.stored_cluster_id(machine.disk, PATH) is None
    first = machine.start()
    first.close()
    assert LogDirectory.stored_cluster_id(machine.disk, PATH) == "cluster-a"
    assert machine.start().directory_id == first.directory_id


@pytest.mark.parametrize("seed", range(8))
def test_a_new_folder_outlasts_a_power_loss(machine, seed):
    path = "/srv/node/data"
    opened = LogDirectory.open(machine.disk, machine.clock, machine.random, path, node_id=1, cluster_id="cluster-a")
    machine.disk.power_loss(SimRandom(seed))
    assert machine.disk.exists(f"{path}/meta.properties")
    again = LogDirectory.open(machine.disk, machine.clock, machine.random, path, node_id=1, cluster_id="cluster-a")
    assert again.directory_id == opened.directory_id


# Stops and starts


def fill(directory):
    for partition in (ORDERS, PAYMENTS):
        log = directory.open_log(partition, CONFIG, topic_id=Uuid(b"0123456789abcdef"))
        for _ in range(10):
            append(log, 3)
    directory.logs[PAYMENTS].advance_start(7)


def test_after_a_clean_stop_everything_is_there_unread(machine):
    directory = machine.start()
    fill(directory)
    directory.close(broker_epoch=42)
    assert machine.exists(".kafka_cleanshutdown")
    machine.disk.crash()
    directory = load(machine.start())
    assert directory.was_clean
    assert [each.recovery for each in directory.logs.values()] == [None, None]
    assert directory.previous_broker_epoch == 42
    assert not machine.exists(".kafka_cleanshutdown")
    assert set(directory.logs) == {ORDERS, PAYMENTS}
    assert [directory.logs[each].log_end_offset for each in (ORDERS, PAYMENTS)] == [30, 30]
    assert directory.logs[PAYMENTS].log_start_offset == 7
    assert directory.logs[PAYMENTS].topic_id == b"0123456789abcdef"
    assert read_all(directory.logs[PAYMENTS]) == list(range(7, 30))


def test_after_a_kill_everything_is_there_too(machine):
    directory = machine.start()
    fill(directory)
    directory.begin_log_start_checkpoint()()
    machine.disk.crash()
    directory = load(machine.start())
    assert not directory.was_clean
    assert read_all(directory.logs[ORDERS]) == list(range(30))
    assert read_all(directory.logs[PAYMENTS]) == list(range(7, 30))


def test_a_kill_after_a_clean_start_is_an_unclean_stop(machine):
    directory = machine.start()
    fill(directory)
    directory.close()
    directory = load(machine.start())
    append(directory.logs[ORDERS], 5)
    machine.disk.power_loss(machine.random)
    directory = load(machine.start())
    assert not directory.was_clean
    assert directory.logs[ORDERS].log_end_offset in (30, 35)


def test_logs_that_were_not_opened_keep_their_entries(machine):
    directory = machine.start()
    fill(directory)
    directory.close()
    directory = machine.start()
    directory.open_log(ORDERS, CONFIG)
    directory.close()
    directory = load(machine.start())
    assert [each.recovery for each in directory.logs.values()] == [None, None]
    assert [directory.logs[each].log_end_offset for each in (ORDERS, PAYMENTS)] == [30, 30]
    assert directory.logs[PAYMENTS].log_start_offset == 7


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
@pytest.mark.parametrize("content", [None, b"", b"0\n9\nx"])
def test_damaged_checkpoints_cost_no_record(machine, name, content):
    directory = machine.start()
    fill(directory)
    directory.close()
    for _ in range(3):
        if content is None:
            machine.disk.remove(f"{PATH}/{name}")
        else:
            machine.disk.replace(f"{PATH}/{name}", content)
        directory = load(machine.start())
        assert read_all(directory.logs[ORDERS]) == list(range(30))
        assert directory.logs[PAYMENTS].log_end_offset == 30
        directory.close()


def test_recovery_points_are_stored_as_they_were_when_asked(machine):
    directory = machine.start()
    fill(directory)
    sync(directory.logs[ORDERS])
    late = directory.begin_checkpoint()
    directory.logs[ORDERS].truncate(9)
    late()
    machine.disk.crash()
    directory = machine.start()
    assert directory.open_log(ORDERS, CONFIG).recovery_point == 0


def test_what_was_stored_before_is_closed_without_a_sync(machine):
    directory = machine.start()
    fill(directory)
    untouched = TopicPartition("untouched", PartitionIndex(0))
    directory.open_log(untouched, CONFIG)
    works = directory.begin_storing()
    assert len(works) == 2
    for work in works:
        work()
    machine.disk.fail("sync", "*-?/*")
    machine.disk.fail("sync_folder", "*-?")
    machine.disk.fail("replace", "*-?/*")
    directory.close()
    assert machine.exists(".kafka_cleanshutdown")
    machine.disk.heal()
    machine.disk.power_loss(machine.random)
    directory = load(machine.start())
    assert directory.was_clean
    assert read_all(directory.logs[ORDERS]) == list(range(30))
    assert directory.open_log(untouched, CONFIG).log_end_offset == 0


def test_a_failed_sync_is_not_made_good_by_a_second_one(machine, caplog):
    directory = machine.start()
    fill(directory)
    machine.disk.fail("sync", "*orders-0*", count=1)
    with caplog.at_level(logging.ERROR):
        for work in directory.begin_storing():
            work()
    assert "a log went offline" in caplog.text
    directory.close()
    assert not machine.exists(".kafka_cleanshutdown")


def test_a_log_that_is_synced_is_not_synced_again_when_it_is_closed(machine):
    directory = machine.start()
    fill(directory)
    sync(directory.logs[ORDERS])
    machine.disk.fail("sync", "*orders-0*.log")
    directory.close()
    assert machine.exists(".kafka_cleanshutdown")


def test_an_unclean_stop_is_reported_in_one_line(machine, caplog):
    directory = machine.start()
    fill(directory)
    directory.close()
    with caplog.at_level(logging.INFO):
        directory = load(machine.start())
        directory.report_recovery()
    assert not caplog.records
    size = directory.logs[ORDERS].size_bytes
    append(directory.logs[ORDERS], 1)
    machine.disk.crash()
    machine.disk.open(f"{PATH}/orders-0/{0:020d}.log").truncate(size + 10)
    directory = load(machine.start())
    directory.open_log(TopicPartition("new", PartitionIndex(0)), CONFIG)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        directory.report_recovery()
    (facts,) = [record.facts for record in caplog.records]
    assert facts == {
        "folder": PATH,
        "logs": 2,
        "scanned_bytes": 2 * size + 10,
        "cut_bytes": 10,
        "ms": 0,  # the simulated clock stands still
    }


def test_a_log_that_cannot_be_stored_costs_the_mark(machine, caplog):
    directory = machine.start()
    fill(directory)
    machine.disk.fail("sync", "*orders-0*")
    with caplog.at_level(logging.ERROR):
        directory.close()
    assert not machine.exists(".kafka_cleanshutdown")
    assert "could not be stored" in caplog.text
    machine.disk.heal()
    assert read_all(load(machine.start()).logs[ORDERS]) == list(range(30))


def test_a_log_that_cannot_be_opened_leaves_the_others_alone(machine):
    directory = machine.start()
    fill(directory)
    directory.close()
    machine.disk.fail("list", f"{PATH}/orders-0")
    directory = machine.start()
    with pytest.raises(StorageError, match="cannot be opened"):
        directory.open_log(ORDERS, CONFIG)
    directory.open_log(PAYMENTS, CONFIG)
    assert list(directory.logs) == [PAYMENTS]
    assert "cannot be opened" in directory.offline[ORDERS]
    directory.close()
    assert not machine.exists(".kafka_cleanshutdown")
    machine.disk.heal()
    assert read_all(load(machine.start()).logs[ORDERS]) == list(range(30))


def test_high_watermarks_are_kept(machine):
    directory = machine.start()
    directory.checkpoint_high_watermarks({ORDERS: 12})
    machine.disk.crash()
    assert machine.start().read_high_watermarks() == {ORDERS: 12}


# Deletion


def test_a_deleted_log_frees_its_name_at_once_and_its_space_later(machine):
    directory = machine.start()
    fill(directory)
    found = directory.logs[ORDERS].read(0, 1000, end_offset=30)
    directory.delete_log(ORDERS)
    assert not machine.exists("orders-0")
    again = directory.open_log(ORDERS, CONFIG)
    assert again.log_end_offset == 0
    machine.clock.advance_ms(CONFIG.file_delete_delay_ms - 1)
    remove_due(machine, directory)
    assert any(name.endswith("-delete") for name in machine.disk.list(PATH))
    machine.clock.advance_ms(1)
    remove_due(machine, directory)
    assert not any(name.endswith("-delete") for name in machine.disk.list(PATH))
    assert machine.exists("orders-0")
    assert len(found.read()) == found.size


def test_a_log_made_again_does_not_inherit_offsets(machine):
    directory = machine.start()
    fill(directory)
    directory.close()
    directory = load(machine.start())
    directory.delete_log(PAYMENTS)
    log = directory.open_log(PAYMENTS, CONFIG)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 0, 0)


def test_leftovers_of_deleted_logs_are_removed_at_the_next_start(machine):
    directory = machine.start()
    fill(directory)
    directory.delete_log(ORDERS)
    machine.disk.crash()
    directory = load(machine.start())
    assert list(directory.logs) == [PAYMENTS]
    remove_due(machine, directory)
    assert not any(name.endswith("-delete") for name in machine.disk.list(PATH))


def test_the_longest_topic_name_can_be_deleted(machine):
    directory = machine.start()
    partition = TopicPartition("t" * 249, PartitionIndex(12345))
    directory.open_log(partition, CONFIG)
    directory.delete_log(partition)
    assert max(len(name) for name in machine.disk.list(PATH)) <= 255


def test_expired_segments_are_removed_with_the_deleted_logs(machine):
    directory = machine.start()
    log = directory.open_log(ORDERS, TopicConfig(retention_ms=1, message_timestamp_before_max_ms=1 << 60))
    append(log)
    log.roll()
    assert expire_segments(log, now_ms=machine.clock.wall_ms(), high_watermark=log.log_end_offset) == 1
    assert log.delete_expired_segments() == 1
    assert directory.begin_removal(machine.clock.monotonic_ms()) is None
    machine.clock.advance_ms(log.config.file_delete_delay_ms)
    remove_due(machine, directory)
    assert not any(name.endswith(".deleted") for name in machine.disk.list(log.folder))


def test_checkpoints_that_were_being_written_are_removed(machine):
    machine.start().close()
    machine.disk.open(f"{PATH}/recovery-point-offset-checkpoint.7.tmp", create=True)
    machine.start()
    assert not any(name.endswith(".tmp") for name in machine.disk.list(PATH))


def test_other_things_in_the_folder_are_left_alone(machine):
    machine.disk.make_folder(f"{PATH}/lost+found")
    machine.disk.make_folder(f"{PATH}/no-number-x")
    directory = load(machine.start())
    assert directory.logs == {}
    assert machine.exists("lost+found")


def test_the_first_sync_of_a_log_covers_its_name_in_the_data_folder() -> None:
    world = World()
    log = world.open()
    log.append_as_leader(make_batch(), leader_epoch=0)
    world.disk.fail("sync_folder", "/data")
    work, _end_offset = log.begin_sync()
    with pytest.raises(OSError, match="data"):
        work()
