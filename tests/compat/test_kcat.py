"""kcat, the command: an older librdkafka (Debian's), files and pipes."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .clients import DEADLINE_S
from .clients.confluent import Confluent
from .clients.corpus import SIZES_BYTES, START_MS, STEP_MS, records, small

pytestmark = pytest.mark.needs("kcat")


def _kcat(*arguments: str, given: bytes = b"") -> bytes:
    done = subprocess.run(["kcat", *arguments], input=given, capture_output=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_lines_are_written_and_read(bootstrap: str, topic: str, codec: str, acks: str):
    lines = b"".join(b"key-%d:value %d %s\n" % (number, number, b"x" * 200) for number in range(200))
    _kcat("-P", "-b", bootstrap, "-t", topic, "-K:", "-z", codec, "-X", f"acks={acks}", given=lines)
    assert _kcat("-C", "-b", bootstrap, "-t", topic, "-p0", "-o", "beginning", "-c", "200", "-K:", "-q") == lines


def test_an_idempotent_write_of_files_of_every_size(bootstrap: str, topic: str, tmp_path: Path):
    files = []
    for size in SIZES_BYTES:
        files.append(tmp_path / str(size))
        files[-1].write_bytes(b"x" * size)
    _kcat("-P", "-b", bootstrap, "-t", topic, "-X", "enable.idempotence=true", "-H", "made=by kcat", *map(str, files))
    count = str(len(files))
    read = _kcat("-C", "-b", bootstrap, "-t", topic, "-o", "beginning", "-c", count, "-q", "-f", "%o %S %h\\n")
    assert read.decode().splitlines() == [f"{index} {size} made=by kcat" for index, size in enumerate(SIZES_BYTES)]


def test_null_keys_and_values(bootstrap: str, topic: str):
    _kcat("-P", "-b", bootstrap, "-t", topic, "-K:", "-Z", given=b"key:\n:value\n")
    read = _kcat("-C", "-b", bootstrap, "-t", topic, "-o", "beginning", "-c", "2", "-q", "-f", "%K %S\\n")
    assert read.decode().splitlines() == ["3 -1", "-1 5"]


def test_what_another_wrote_is_read_by_offset_and_by_time(bootstrap: str, topic: str):
    Confluent().produce(bootstrap, topic, small(500), codec="lz4")

    def offsets(start: str) -> list[int]:
        read = _kcat("-C", "-b", bootstrap, "-t", topic, "-p0", "-o", start, "-e", "-q", "-f", "%o\\n")
        return [int(line) for line in read.split()]

    assert offsets("beginning") == list(range(500))
    assert offsets("123") == list(range(123, 500))
    assert offsets("-3") == [497, 498, 499]
    assert offsets(f"s@{START_MS + 400 * STEP_MS}") == list(range(400, 500))
    assert offsets("end") == []


def test_every_shape_of_record_is_read(bootstrap: str, topic: str):
    Confluent().produce(bootstrap, topic, records(), codec="zstd")
    read = _kcat("-C", "-b", bootstrap, "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%K %S %T\\n")
    expected = [
        (
            -1 if record.key is None else len(record.key),
            -1 if record.value is None else len(record.value),
            record.timestamp_ms,
        )
        for record in records()
    ]
    assert [tuple(map(int, line.split())) for line in read.splitlines()] == expected


def test_the_cluster_is_listed(bootstrap: str, create_topic: Callable[..., str]):
    topic = create_topic(partitions=3)
    listed = _kcat("-L", "-b", bootstrap, "-t", topic).decode()
    assert f'topic "{topic}" with 3 partitions' in listed
    assert bootstrap in listed
