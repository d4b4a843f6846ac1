"""`tailrace tier`: what lies in a bucket is listed, damage is named, and nothing but orphans is deleted."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import pytest

from tailrace.cli import main
from tailrace.log.log import Log
from tailrace.log.validation import Origin
from tailrace.model.config import TopicConfig
from tailrace.model.ids import PartitionIndex, TopicPartition, Uuid
from tailrace.real.ports import real_ports
from tailrace.tier.format.names import TieredPartition, segment_name
from tests.tier_bucket import TierWriter
from tests.unit.log.storage import make_batch
from tests.unit.real.test_objects import endpoint, options

__all__ = ["endpoint"]  # a fixture

OWNER = TieredPartition(Uuid(bytes(range(16))), PartitionIndex(0))
CONFIG = TopicConfig(segment_bytes=20_000, message_timestamp_before_max_ms=1 << 60)


def fill(folder: Path, url: str, settings: dict[str, str] | None = None) -> TierWriter:
    """Ten segments, of which nine are closed."""
    ports = real_ports()
    partition = TopicPartition("orders", PartitionIndex(0))
    log = Log.open(ports.disk, ports.clock, str(folder / "orders-0"), CONFIG, topic_partition=partition)
    for number in range(100):
        batch = make_batch(2, timestamp=1_700_000_000_000 + number, value=bytes(900))
        log.append_as_leader(batch, leader_epoch=0, origin=Origin.CLIENT)
    writer = TierWriter(url, "a-cluster", settings)
    asyncio.run(writer.copy(log, OWNER))
    log.close(clean=False)
    ports.background.close()
    return writer


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    fill(tmp_path, f"file://{tmp_path}/tier")
    return tmp_path / "tier"


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_what_lies_there_is_listed(bucket: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tier", "list", f"file://{bucket}"]) == 0
    (row,) = capsys.readouterr().out.splitlines()
    topic, partition, segments, _bytes, start, end, newest, _ = row.split("\t")
    assert (topic, partition, segments, start) == ("orders", "0", "9", "0")
    assert newest.startswith("2023-11-14 22:13:20.")
    assert main(["tier", "list", f"file://{bucket}", "--segments", "--json"]) == 0
    found = lines(capsys.readouterr().out)
    assert [found[0]["start_offset"], found[-1]["end_offset"]] == [0, int(end)]
    assert all((bucket / str(each["object"])).stat().st_size == each["bytes"] for each in found)
    assert main(["tier", "list", f"file://{bucket}", "--topic", "order"]) == 1
    assert "nothing of a topic order;" in capsys.readouterr().err


def test_the_same_in_a_bucket_of_s3(endpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = options(endpoint)
    url = f"s3://tier/{tmp_path.name}"
    fill(tmp_path, url, settings)
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    assert main(["tier", "list", url, "--json", *words]) == 0
    assert lines(capsys.readouterr().out)[0]["segments"] == 9
    assert main(["tier", "verify", url, "--json", *words]) == 0
    assert lines(capsys.readouterr().out)[0]["problems"] == 0
    assert main(["tier", "orphans", url, "--json", *words]) == 0
    assert capsys.readouterr().out == ""
    assert main(["tier", "list", f"s3://no-such-bucket/{tmp_path.name}", *words]) == 1
    assert "bucket does not exist: make it, or correct the address" in capsys.readouterr().err


def test_everything_is_read_and_all_damage_is_named(bucket: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"file://{bucket}"
    assert main(["tier", "verify", url, "--json"]) == 0
    (whole,) = lines(capsys.readouterr().out)
    assert whole["segments"] == 9
    names = sorted(bucket.rglob("*.segment"))
    assert whole["bytes"] == sum(int(each["bytes"]) for each in _segments(url, capsys)) - _footers(names)
    _flip(names[1], 5_000)  # in a record
    _flip(names[3], names[3].stat().st_size - 60)  # in the footer's directory
    os.truncate(names[5], 100)
    names[7].unlink()
    assert main(["tier", "verify", url]) == 1
    shown = capsys.readouterr()
    problems = shown.out.splitlines()
    expected = [
        "sum of the bytes from 0 on is wrong",
        "sum of its directory is wrong",
        "it has 100 bytes",
        "newest manifest names it",
    ]
    assert len(problems) == len(expected)
    for problem, number, text in zip(problems, (1, 3, 5, 7), expected, strict=True):
        base = int(names[number].name.partition("-")[0])
        assert problem.startswith(f"orders-0, offsets {base} to "), problem
        assert names[number].name in problem
        assert text in problem
    assert "5 segments of 1 partition are whole; 4 problems" in shown.err


def _flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def _segments(url: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, int]]:
    main(["tier", "list", url, "--segments", "--json"])
    return lines(capsys.readouterr().out)  # type: ignore[return-value]


def _footers(names: list[Path]) -> int:
    """By the trailer of each object: the position of its footer."""
    return sum(path.stat().st_size - int.from_bytes(path.read_bytes()[-28:-20], "big") for path in names)


def test_orphans_are_judged_with_care(bucket: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"file://{bucket}"
    old_s = time.time() - 7200
    objects = {
        "orphan": segment_name("a-cluster", OWNER, 5, Uuid(bytes([1] * 16))),
        "young": segment_name("a-cluster", OWNER, 6, Uuid(bytes([2] * 16))),
        "no manifest": segment_name(
            "a-cluster", TieredPartition(Uuid(bytes(16)), PartitionIndex(3)), 0, OWNER.topic_id
        ),
    }
    for verdict, name in objects.items():
        (bucket / name).parent.mkdir(parents=True, exist_ok=True)
        (bucket / name).write_bytes(b"?")
        if verdict != "young":
            os.utime(bucket / name, (old_s, old_s))
    (bucket / "a-cluster" / "notes.txt").write_text("of somebody else")
    named = set(bucket.rglob("*.segment")) - {bucket / name for name in objects.values()}
    for path in named:
        os.utime(path, (old_s, old_s))
    assert main(["tier", "orphans", url, "--json"]) == 0
    assert {each["verdict"]: each["object"] for each in lines(capsys.readouterr().out)} == objects
    assert main(["tier", "orphans", url, "--older-than", "3h", "--delete"]) == 0
    assert all((bucket / name).exists() for name in objects.values())
    assert main(["tier", "orphans", url, "--delete"]) == 0
    assert "1 object of others" in capsys.readouterr().err
    assert [verdict for verdict, name in objects.items() if (bucket / name).exists()] == ["young", "no manifest"]
    assert main(["tier", "orphans", url, "--delete", "--without-manifest"]) == 0
    assert [verdict for verdict, name in objects.items() if (bucket / name).exists()] == ["young"]
    assert all(path.exists() for path in named)
    assert main(["tier", "verify", url]) == 0


@pytest.mark.parametrize(
    ("url", "words", "problem"),
    [
        ("ftp://bucket/x", [], "is no address of a store: write s3://BUCKET/PREFIX"),
        ("file:///nowhere/at/all", [], "there is no such folder"),
        ("s3://user:secret@bucket/x", [], "credentials and options do not belong into the address"),
        ("s3://bucket/x", ["--set", "colour=blue"], "rsm.config.colour is no setting of the store"),
    ],
)
def test_an_address_that_cannot_be(
    url: str, words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tier", "list", url, *words]) == 1
    shown = capsys.readouterr().err
    assert problem in shown
    assert "secret" not in shown


def test_a_folder_without_a_tier_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tier", "list", f"file://{tmp_path}"]) == 1
    assert "no cluster keeps its tier there" in capsys.readouterr().err
    (tmp_path / "cluster.json").write_text("{}")
    assert main(["tier", "verify", f"file://{tmp_path}"]) == 1
    assert "another program" in capsys.readouterr().err
