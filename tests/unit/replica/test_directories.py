"""Several data folders: what one that fails takes with it, and what all of them together prove."""

import errno

import pytest

from tailrace.log.directory import LogDirectory
from tailrace.model.config import TopicConfig
from tailrace.model.errors import StorageError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.replica.directories import LogDirectories
from tailrace.sim.clock import SimClock
from tailrace.sim.disk import SimDisk
from tailrace.sim.random import SimRandom
from tests.unit.replica.replicas import batch

PATHS = ("disks/a", "disks/b", "disks/c")
A, B = TopicPartition("t", PartitionIndex(0)), TopicPartition("t", PartitionIndex(1))


class Node:
    def __init__(self, paths=PATHS):
        self.disk = SimDisk(SimClock())
        self.random = SimRandom(1)
        self.paths = paths

    def start(self, *, required=PATHS[0], cluster_id="c" * 22):
        self.disk.crash()
        return LogDirectories.open(
            self.disk, self.disk.clock, self.random, self.paths, node_id=1, cluster_id=cluster_id, required=required
        )


@pytest.fixture
def node():
    return Node()


def fill(directory, partition):
    log = directory.open_log(partition, TopicConfig())
    log.append_as_leader(batch(b"x"), leader_epoch=0)
    return log


# A start


def test_a_copy_beside_its_original_is_refused_and_both_are_named(node):
    for directory in node.start():
        directory.close()
    node.disk.replace("disks/c/meta.properties", node.disk.read("disks/a/meta.properties"))
    with pytest.raises(StorageError, match=r"disks/a and disks/c have the same directory\.id: one is a copy"):
        node.start()
    assert [node.disk.lock(f"{path}/.lock") for path in PATHS], "none of them is left open"


def test_a_folder_that_cannot_be_used_is_left_out(node, caplog):
    node.disk.fail("lock", "disks/b*")
    directories = node.start()
    assert [each.path for each in directories] == ["disks/a", "disks/c"]
    assert list(directories.unusable) == ["disks/b"]
    assert "a data folder cannot be used" in caplog.text
    assert len(directories.online_directory_ids()) == 2
    assert directories.offline_directory_ids() == []


def test_the_folder_of_the_metadata_must_be_sound(node):
    node.disk.fail("lock", "disks/b*")
    with pytest.raises(StorageError, match="disks/b cannot be used"):
        node.start(required="disks/b")
    assert not node.disk.locked
    node.start(required="disks/c")


def test_the_last_folder_must_be_sound(node):
    node.disk.fail("lock", "disks/*")
    with pytest.raises(StorageError, match="disks/c cannot be used"):
        node.start(required="elsewhere")


def test_the_folder_of_another_cluster_or_process_is_refused(node):
    directory = LogDirectory.open(node.disk, node.disk.clock, node.random, "disks/b", node_id=1, cluster_id="d" * 22)
    with pytest.raises(StorageError, match=r"disks/b belongs to cluster\.id=d"):
        node.start()
    assert not node.disk.locked
    directory.close()
    node.paths = ("disks/b", "disks/new", "disks/b")
    with pytest.raises(StorageError, match="disks/b is in use by another process"):
        node.start(cluster_id="d" * 22)
    assert not node.disk.locked


# A failure


@pytest.mark.parametrize(
    ("operation", "use"),
    [
        ("append", lambda log: log.append_as_leader(batch(b"y"), leader_epoch=0)),
        ("read", lambda log: log.offset_by_timestamp(0, end_offset=1)),
        ("create", lambda log: log.roll()),
        ("truncate", lambda log: log.truncate(0)),
    ],
)
def test_a_device_that_fails_takes_its_folder_and_no_other(node, operation, use):
    directories = node.start()
    failed, sound = directories[1], directories[2]
    logs = [fill(failed, A), fill(failed, B)]
    other = fill(sound, TopicPartition("u", PartitionIndex(0)))
    told = []
    directories.on_offline.append(told.append)
    node.disk.fail(operation, "disks/b/*")
    with pytest.raises(StorageError):
        use(logs[0])
    assert told == [failed]
    assert all(log.is_offline for log in logs)
    assert directories.offline_directory_ids() == [failed.directory_id]
    assert directories.online_directory_ids() == [directories[0].directory_id, sound.directory_id]
    assert not directories.are_all_offline
    node.disk.heal()
    with pytest.raises(StorageError, match="is offline"):
        logs[1].append_as_leader(batch(b"y"), leader_epoch=0)
    with pytest.raises(StorageError, match="the data folder disks/b is offline"):
        failed.open_log(TopicPartition("v", PartitionIndex(0)), TopicConfig())
    other.append_as_leader(batch(b"y"), leader_epoch=0)
    assert directories.choose() is directories[0]


def test_a_failed_sync_takes_the_folder(node):
    directories = node.start()
    log = fill(directories[0], A)
    node.disk.fail("sync", "disks/a/*")
    work, end_offset = log.begin_sync()
    with pytest.raises(OSError, match="EIO") as failure:
        work()
    log.mark_sync_failed(end_offset, failure.value)
    assert directories[0].is_offline


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE, errno.EDQUOT])
def test_what_passes_by_itself_takes_nothing(node, error):
    directories = node.start()
    log = fill(directories[0], A)
    node.disk.fail("append", "disks/a/*", error=error, count=1)
    with pytest.raises(StorageError):
        log.append_as_leader(batch(b"y"), leader_epoch=0)
    assert not directories[0].is_offline
    log.append_as_leader(batch(b"y"), leader_epoch=0)


def test_the_only_folder_of_a_broker_alone_goes_on_as_well_as_it_can():
    node = Node(PATHS[:1])
    directories = node.start()
    log, other = fill(directories[0], A), fill(directories[0], B)
    node.disk.fail("append", "*", count=1)
    with pytest.raises(StorageError):
        log.append_as_leader(batch(b"y"), leader_epoch=0)
    assert not directories[0].is_offline
    log.append_as_leader(batch(b"y"), leader_epoch=0)
    directories.fail_as_whole()
    node.disk.fail("append", "*", count=1)
    with pytest.raises(StorageError):
        log.append_as_leader(batch(b"y"), leader_epoch=0)
    assert other.is_offline
    assert directories.are_all_offline


def test_all_failed(node):
    directories = node.start()
    for directory in directories:
        directory.fail("the test says so")
    assert directories.are_all_offline
    with pytest.raises(StorageError, match="all data folders are offline"):
        directories.choose()


def test_a_folder_that_fails_while_it_is_closed_costs_its_mark_alone(node):
    directories = node.start()
    told = []
    directories.on_offline.append(told.append)
    fill(directories[0], A)
    fill(directories[1], B)
    node.disk.fail("sync", "disks/b/*")
    for directory in directories:
        for work in directory.begin_storing():
            work()
        directory.close(broker_epoch=5)
    node.disk.heal()
    assert told == []
    assert [each.previous_broker_epoch for each in node.start()] == [5, -1, 5]


# What is proved


def test_every_folder_must_prove_the_same_epoch(node):
    directories = node.start()
    assert directories.previous_broker_epoch == -1
    directories.note_running(5)
    directories = node.start()
    assert directories.previous_broker_epoch == 5
    directories[1].proof.note_running(6)
    assert node.start().previous_broker_epoch == -1


def test_a_folder_that_is_new_or_missing_proves_nothing(node):
    node.start().note_running(5)
    node.paths = (*PATHS, "disks/d")
    assert node.start().previous_broker_epoch == -1
    node.paths = PATHS
    assert node.start().previous_broker_epoch == 5
    node.disk.fail("lock", "disks/b*")
    assert node.start().previous_broker_epoch == -1


def test_a_mark_that_cannot_be_written_keeps_no_broker_from_starting(node, caplog):
    directories = node.start()
    node.disk.fail("replace", "disks/b/*")
    directories.note_running(5)
    assert "the run mark cannot be written" in caplog.text
    node.disk.heal()
    assert [each.previous_broker_epoch for each in node.start()] == [5, -1, 5]


def test_a_folder_that_failed_proves_nothing_at_the_next_start(node):
    directories = node.start()
    directories.note_running(5)
    log = fill(directories[1], A)
    node.disk.fail("append", "disks/b/*", count=1)
    with pytest.raises(StorageError):
        log.append_as_leader(batch(b"y"), leader_epoch=0)
    assert node.start().previous_broker_epoch == -1
