"""The small text files, byte for byte, and what becomes of damaged ones."""

import logging

import pytest

from tailrace.log import checkpoints
from tailrace.model.errors import StorageError
from tailrace.model.ids import TopicPartition, Uuid
from tailrace.sim.disk import SimDisk

FOLDER = "/data"
NAME = checkpoints.RECOVERY_POINTS


@pytest.fixture
def disk():
    disk = SimDisk()
    disk.make_folder(FOLDER)
    return disk


def test_offsets_are_written_as_kafka_does(disk):
    offsets = {TopicPartition("a-b", 0): 5, TopicPartition("c", 12): 2**40}
    checkpoints.write_offsets(disk, FOLDER, NAME, offsets)
    assert disk.read(f"{FOLDER}/{NAME}") == b"0\n2\na-b 0 5\nc 12 1099511627776\n"
    assert checkpoints.read_offsets(disk, FOLDER, NAME) == offsets


def test_a_missing_checkpoint_is_empty(disk):
    assert checkpoints.read_offsets(disk, FOLDER, NAME) == {}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"1\n0\n",
        b"0",
        b"0\n",
        b"0\nx\n",
        b"0\n2\na 0 5\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 x\n",
        b"\xff\xfe",
        b"0\n1\n\x00",
    ],
)
def test_a_damaged_checkpoint_is_reported_and_read_as_missing(disk, caplog, content):
    disk.replace(f"{FOLDER}/{NAME}", content)
    with caplog.at_level(logging.WARNING):
        assert checkpoints.read_offsets(disk, FOLDER, NAME) == {}
    assert "damaged checkpoint" in caplog.text


def test_a_topic_id_is_written_as_kafka_does(disk):
    topic_id = Uuid(bytes(range(16)))
    checkpoints.write_topic_id(disk, FOLDER, topic_id)
    assert disk.read(f"{FOLDER}/partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert checkpoints.read_topic_id(disk, FOLDER) == topic_id


@pytest.mark.parametrize("content", [b"", b"version: 0\n", b"topic_id: short", b"no separator", b"\xff"])
def test_a_damaged_topic_id_is_read_as_missing(disk, content):
    disk.replace(f"{FOLDER}/partition.metadata", content)
    assert checkpoints.read_topic_id(disk, FOLDER) is None


def test_meta_properties_are_read_as_java_writes_them(disk):
    assert checkpoints.read_meta_properties(disk, FOLDER) is None
    disk.replace(f"{FOLDER}/meta.properties", b"#\n#Sat Nov 15 2026\nversion=1\nnode.id=3\ncluster.id=x=y\n")
    assert checkpoints.read_meta_properties(disk, FOLDER) == {"version": "1", "node.id": "3", "cluster.id": "x=y"}
    disk.replace(f"{FOLDER}/meta.properties", b"\x00garbage")
    with pytest.raises(StorageError):
        checkpoints.read_meta_properties(disk, FOLDER)


def test_changed_meta_properties_are_noticed(disk):
    properties = {"version": "1", "node.id": "3", "cluster.id": "abc"}
    checkpoints.write_meta_properties(disk, FOLDER, properties)
    assert checkpoints.read_meta_properties(disk, FOLDER) == properties
    written = disk.read(f"{FOLDER}/meta.properties")
    disk.replace(f"{FOLDER}/meta.properties", written.replace(b"abc", b"abb"))
    with pytest.raises(StorageError, match=r"removes tailrace\.cluster\.id\.sum too"):
        checkpoints.read_meta_properties(disk, FOLDER)
    by_hand = b"".join(line for line in written.splitlines(True) if b"sum" not in line).replace(b"abc", b"abb")
    disk.replace(f"{FOLDER}/meta.properties", by_hand)
    assert checkpoints.read_meta_properties(disk, FOLDER) == properties | {"cluster.id": "abb"}


def test_snapshots_are_kept_for_segments_and_the_newest(disk):
    snapshots = checkpoints.ProducerSnapshots(disk, FOLDER)
    for offset in (10, 15, 20, 25, 27, 40):
        snapshots.write(offset, b"state")
    snapshots.prune({0, 10, 20}, end_offset=30)
    assert snapshots.offsets == [10, 20, 27]
    assert disk.list(FOLDER) == [f"{offset:020d}.snapshot" for offset in (10, 20, 27)]
    assert snapshots.newest_first(26) == [20, 10]
