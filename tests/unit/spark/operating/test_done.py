"""How far a pipeline came, by what Spark has written into its checkpoint."""

import json

import pytest

from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.spark.operating.done import CheckpointError, Done, read_done


def partition(topic, index):
    return TopicPartition(topic, PartitionIndex(index))


def write(folder, *, planned, committed):
    for name in ("offsets", "commits"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "metadata").write_text('{"id":"1"}')
    for number in range(planned + 1):
        lines = ["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps({"a": {"0": number * 10, "1": 3}}), "-"]
        (folder / "offsets" / str(number)).write_text("\n".join(lines))
        (folder / "offsets" / f".{number}.crc").write_bytes(b"\0")
    for number in range(committed + 1):
        (folder / "commits" / str(number)).write_text("v1\n{}")
    (folder / "commits" / f".{committed + 1}.tmp").write_text("")


def test_what_is_done_is_told_by_the_last_commit(tmp_path):
    write(tmp_path, planned=12, committed=11)
    expected = Done(11, 12, {partition("a", 0): 110, partition("a", 1): 3})
    assert read_done(str(tmp_path)) == read_done(f"file://{tmp_path}") == expected


def test_nothing_is_done_yet(tmp_path):
    write(tmp_path, planned=0, committed=-1)
    assert read_done(str(tmp_path)) == Done(-1, 0, {})


def test_two_sources_that_read_one_partition(tmp_path):
    write(tmp_path, planned=0, committed=0)
    lines = ["v1", "{}", '{"a": {"0": 7}}', '{"a": {"0": 4}, "b": {"0": 1}}']
    (tmp_path / "offsets" / "0").write_text("\n".join(lines))
    assert read_done(str(tmp_path)).offsets == {partition("a", 0): 4, partition("b", 0): 1}


@pytest.mark.parametrize("damage", ["metadata", "offsets/0", "text"])
def test_what_cannot_be_read_is_said(tmp_path, damage):
    write(tmp_path, planned=0, committed=0)
    if damage == "text":
        (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"a": {"zero": 1}}')
    else:
        (tmp_path / damage).unlink()
    with pytest.raises(CheckpointError, match=f"the checkpoint {tmp_path} cannot be read from here: "):
        read_done(str(tmp_path))


def test_storage_that_nobody_knows():
    with pytest.raises(CheckpointError, match="cannot be read from here"):
        read_done("nowhere://bucket/cp")
