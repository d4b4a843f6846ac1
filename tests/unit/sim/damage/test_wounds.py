"""Wounds hit what they say, and whether a node can see one by itself is judged rightly."""

import pytest

from tailrace.log import checkpoints
from tailrace.model.ids import TopicPartition
from tailrace.sim.damage.wounds import Wounds
from tailrace.sim.disk import SimDisk
from tailrace.sim.random import SimRandom
from tailrace.wire.records import build_batch, set_base_offset

PARTITION = TopicPartition("orders", 0)
FOLDER = "/data/orders-0"
SEEDS = range(400)


def batch(offset: int) -> bytes:
    data = bytearray(build_batch([(0, 1000, None, b"value of some length", ())]))
    set_base_offset(data, 0, offset)
    return bytes(data)


def write(disk, path, data):
    file = disk.open(path, create=True)
    file.append([data])
    file.sync()


@pytest.fixture
def disk():
    """Two closed segments of two batches each, and an active one of four; the stored high watermark is 6."""
    disk = SimDisk()
    disk.make_folder(FOLDER)
    for base, end in ((0, 2), (2, 4), (4, 8)):
        write(disk, f"{FOLDER}/{base:020d}.log", b"".join(batch(offset) for offset in range(base, end)))
        write(disk, f"{FOLDER}/{base:020d}.index", b"index")
    checkpoints.write_offsets(disk, "/data", checkpoints.HIGH_WATERMARKS, {PARTITION: 6})
    checkpoints.write_offsets(disk, "/data", checkpoints.RECOVERY_POINTS, {PARTITION: 2})
    return disk


def content(disk):
    return {name: disk.read(f"{FOLDER}/{name}") for name in disk.list(FOLDER)}


def pick(disk, how):
    for seed in SEEDS:
        wound = how(Wounds(disk, ["/data"], SimRandom(seed)))
        assert wound is not None
        yield wound


def test_nothing_is_damaged_before_it_is_inflicted_and_one_file_then(disk):
    before = content(disk)
    wound = next(pick(disk, lambda wounds: wounds.of_log(PARTITION)))
    assert content(disk) == before
    wound.inflict()
    after = content(disk)
    assert len({*before.items()} ^ {*after.items()}) in (1, 2)


def test_hidden_are_only_ends_that_no_checkpoint_reaches_beyond(disk):
    wounds = list(pick(disk, lambda wounds: wounds.of_log(PARTITION)))
    hidden = [wound.text for wound in wounds if wound.is_hidden]
    assert hidden, "there are such"
    assert all("00000000000000000004.log" in text for text in hidden)
    assert all(text.endswith((" 6 is the first that is gone", " 7 is the first that is gone", "offset 6", "offset 7"))
               for text in hidden)  # fmt: skip
    seen = [wound.text for wound in wounds if not wound.is_hidden]
    assert any("loses" in text and "00000000000000000004.log" in text for text in seen), "the end would be 4, below 6"


def test_after_a_clean_stop_nothing_is_hidden(disk):
    checkpoints.write_offsets(disk, "/data", checkpoints.RECOVERY_POINTS, {PARTITION: 8})
    assert not any(wound.is_hidden for wound in pick(disk, lambda wounds: wounds.of_log(PARTITION)))


def test_closed_segments_end_below_the_offset(disk):
    texts = {wound.text for wound in pick(disk, lambda wounds: wounds.of_closed_segment(PARTITION, 3))}
    assert all("00000000000000000000.log" in text for text in texts)
    assert Wounds(disk, ["/data"], SimRandom(1)).of_closed_segment(PARTITION, 1) is None


def test_where_there_is_nothing_nothing_is_picked(disk):
    other = TopicPartition("events", 0)
    wounds = Wounds(disk, ["/data"], SimRandom(1))
    assert wounds.of_log(other) is None
    assert wounds.of_side_file(other) is None
    assert wounds.of_partition_folder(other) is None
    assert wounds.of_metadata() is None
