"""Apache Kafka's kafka-dump-log over our own files: segments, indexes, snapshots and the metadata log.

The broker here is always ours, and always stopped when its files are read. Segments and index intervals are small, so
that there are many of each.
"""

import os
import random
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.cli import main

from .clients import DEADLINE_S, Sent
from .clients.corpus import START_MS, records, small
from .conftest import CLIENTS

pytestmark = pytest.mark.long

TOOL = "org.apache.kafka.tools.DumpLogSegments"
SETTINGS = {"segment.bytes": str(1 << 20), "index.interval.bytes": "1024"}
# The words with which the tool tells of something that it does not like.
COMPLAINTS = re.compile(r"(?i)mismatch|non-?monotonic|not found|corrupt|invalid|exception|error|misses|failed")


@pytest.fixture(scope="module", params=["stopped", "killed and recovered"])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data folder of a broker that every library wrote to, in every codec."""
    from tailrace.testing import Broker

    folder = tmp_path_factory.mktemp("dump") / "data"
    with Broker(data=folder) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topics = [NewTopic(name, 1, 1, config=SETTINGS) for name in ("mixed", "many")]
        topics.append(NewTopic("stamped", 1, 1, config=SETTINGS | {"message.timestamp.type": "LogAppendTime"}))
        for created in admin.create_topics(topics).values():
            created.result(DEADLINE_S)
        for client in CLIENTS:
            for codec in client.codecs:
                client.produce(broker.bootstrap, "mixed", records(), codec=codec, idempotent=True)
            client.produce(broker.bootstrap, "many", small(4_000, size_bytes=500), idempotent=True)
            client.produce(broker.bootstrap, "stamped", small(4_000, size_bytes=500))
        if request.param != "stopped":
            broker.kill()
            broker.start()
        broker.stop()
        yield folder


def _dump(class_path: str, files: list[Path], *options: str) -> str:
    command = ["java", "-cp", class_path, TOOL, *options, "--files", ",".join(map(os.fspath, files))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _complaints(output: str) -> list[str]:
    # A batch's line has "isvalid: true", and records have no content printed, so the words stand nowhere else.
    lines = [line.replace("isvalid: true", "") for line in output.splitlines() if not line.startswith("Dumping ")]
    return [line for line in lines if COMPLAINTS.search(line)]


@pytest.mark.parametrize(("topic", "count"), [("mixed", 15 * len(records())), ("many", 12_000), ("stamped", 12_000)])
def test_every_batch_and_record_is_sound(data: Path, kafka_class_path: str, topic: str, count: int):
    segments = sorted((data / f"{topic}-0").glob("*.log"))
    assert len(segments) > 3
    output = _dump(kafka_class_path, segments, "--deep-iteration")
    assert _complaints(output) == []
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+) ", output, re.MULTILINE)]
    assert offsets == list(range(count))


@pytest.mark.parametrize("topic", ["mixed", "many", "stamped"])
@pytest.mark.parametrize("option", ["--verify-index-only", "--index-sanity-check"])
def test_every_index_is_sound(data: Path, kafka_class_path: str, topic: str, option: str):
    folder = data / f"{topic}-0"
    indexes = sorted([*folder.glob("*.index"), *folder.glob("*.timeindex")])
    # The tool stumbles over the index of an empty segment, ours or Kafka's.
    indexes = [index for index in indexes if index.with_suffix(".log").stat().st_size]
    assert sum(index.stat().st_size for index in indexes) > 100
    assert _complaints(_dump(kafka_class_path, indexes, option)) == []


def test_the_entries_of_an_index_are_read(data: Path, kafka_class_path: str):
    index = data / "many-0" / "00000000000000000000.index"
    output = _dump(kafka_class_path, [index, index.with_suffix(".timeindex")])
    assert len(re.findall(r"^offset: \d+ position: \d+$", output, re.MULTILINE)) == index.stat().st_size // 8
    times = re.findall(r"^timestamp: \d+ offset: \d+$", output, re.MULTILINE)
    assert len(times) == index.with_suffix(".timeindex").stat().st_size // 12


def test_a_snapshot_of_producers_is_read(data: Path, kafka_class_path: str):
    snapshots = sorted((data / "many-0").glob("*.snapshot"))
    assert snapshots
    output = _dump(kafka_class_path, snapshots[-1:])
    assert _complaints(output) == []
    # A producer has a line for each of its last batches; Kafka takes the last.
    assert len(set(re.findall(r"^producerId: \d+ producerEpoch: 0 ", output, re.MULTILINE))) == len(CLIENTS)


def test_the_metadata_log_is_read(data: Path, kafka_class_path: str):
    segments = sorted((data / "__cluster_metadata-0").glob("*.log"))
    output = _dump(kafka_class_path, segments, "--cluster-metadata-decoder")
    for topic in ("mixed", "many", "stamped"):
        assert re.search(rf'"type":"TOPIC_RECORD".*"name":"{topic}"', output)
    assert output.count('"type":"PARTITION_RECORD"') >= 3
    assert output.count('"type":"REGISTER_BROKER_RECORD"') >= 1
    assert '"type":"CONFIG_RECORD"' in output


def test_a_rebuilt_metadata_log_is_read(data: Path, kafka_class_path: str, tmp_path: Path):
    """The log is damaged in its second half: what was before is still there, in Kafka's eyes too."""
    shutil.copytree(data, tmp_path / "data")
    (segment,) = (tmp_path / "data" / "__cluster_metadata-0").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    assert main(["repair", "--data", str(tmp_path / "data"), "--apply"]) == 0
    output = _dump(kafka_class_path, [segment], "--cluster-metadata-decoder")
    assert _complaints(output) == []
    assert len(re.findall(r"^baseOffset", output, re.MULTILINE)) > 1
    assert '"type":"REGISTER_BROKER_RECORD"' in output


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a topic that was written by every library and compacted since."""
    from tailrace.testing import Broker

    folder = tmp_path_factory.mktemp("compacted") / "data"
    with Broker({"log.cleaner.backoff.ms": 50}, data=folder) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        settings = SETTINGS | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        (created,) = admin.create_topics([NewTopic("compacted", 1, 1, config=settings)]).values()
        created.result(DEADLINE_S)
        for client, codec in zip(CLIENTS, ("lz4", "none", "zstd"), strict=True):
            client.produce(broker.bootstrap, "compacted", _keyed(client.name), codec=codec, idempotent=True)
        cleaned = folder / "cleaner-offset-checkpoint"
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline and not (cleaned.exists() and "compacted 0 119" in cleaned.read_text()):
            time.sleep(0.1)
        broker.stop()
    return folder / "compacted-0"


def _keyed(writer: str) -> list[Sent]:
    # Noise, so that no codec spares the log its segments.
    noise = random.Random(writer)
    return [Sent(b"%d" % (index % 100), noise.randbytes(500), (), START_MS + index) for index in range(4_000)]


def test_a_compacted_log_is_sound(compacted: Path, kafka_class_path: str):
    segments = sorted(compacted.glob("*.log"))
    output = _dump(kafka_class_path, segments, "--deep-iteration", "--print-data-log")
    assert _complaints(re.sub(r"payload: .*", "", output)) == []
    found = re.findall(r"^\| offset: (\d+) .*? key: (\d+)", output, re.MULTILINE)
    offsets = [int(offset) for offset, _ in found]
    assert offsets == sorted(set(offsets))
    assert len(offsets) < 12_000
    last = {key: int(offset) for offset, key in found}
    assert last == {str(key): 11_900 + key for key in range(100)}
    indexes = [*compacted.glob("*.index"), *compacted.glob("*.timeindex")]
    indexes = [index for index in indexes if index.with_suffix(".log").stat().st_size]
    assert _complaints(_dump(kafka_class_path, indexes, "--verify-index-only")) == []


def test_the_checkpoints_have_kafkas_form(data: Path):
    epochs = (data / "many-0" / "leader-epoch-checkpoint").read_text().splitlines()
    assert epochs[0] == "0"
    assert int(epochs[1]) == len(epochs) - 2
    assert epochs[2] == "0 0"
    points = (data / "recovery-point-offset-checkpoint").read_text().splitlines()
    assert points[0] == "0"
    assert "many 0 12000" in points
    assert re.fullmatch(r"version: 0\ntopic_id: [\w-]{22}\n?", (data / "many-0" / "partition.metadata").read_text())
    assert {"version=1", "node.id=1"} <= set((data / "meta.properties").read_text().splitlines())
