"""What `make demo` shows of tiered storage: most of a topic lies in a bucket (here a folder), every broker and disk is
deleted, and the topic comes back from the bucket alone: for an ordinary client, and for Spark.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tailrace.spark.session import JavaNotFoundError, find_java_home
from tailrace.testing import Broker

Show = Callable[[str], None]
Expect = Callable[[bool, str], None]

WAIT_S = 60.0
SPARK_WAIT_S = 300.0  # It starts a JVM and some Pythons, beside whatever else the machine does.
TOPIC = "clicks"
RECORDS = 40_000
COLD = 0.95
VALUE = b"x" * 200
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    # Shorter than anyone needs: a demo does not wait.
    "remote.log.manager.task.interval.ms": "100",
    "remote.log.manifest.interval.ms": "200",
    "remote.log.export.interval.ms": "500",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "100",
}
TOPIC_SETTINGS = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "100000",
    "local.retention.bytes": "100000",
}
COUNT_BY_SPARK = """\
import sys
from tailrace.spark.session import session
spark = session(settings={"spark.ui.enabled": "false"})
rows = (
    spark.read.format("tailrace").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", sys.argv[2])
    .option("tier", sys.argv[3]).load()
)
print(rows.count())
"""


def lose_everything(show: Show, expect: Expect) -> None:
    with tempfile.TemporaryDirectory(prefix="tailrace-demo-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        url = f"file://{folder}/bucket"
        settings = SETTINGS | {"remote.log.storage.url": url}
        with Broker(settings=settings, data=folder / "disks", log_level="error") as broker:
            show(f"$ tailrace up --data {folder}/disks --tier {url}")
            fill(broker.bootstrap, expect)
            local = wait_cold(folder, url, expect)
            show(f"{RECORDS:,} records are written, {local / RECORDS:.1%} of them lie in the bucket alone")
            broker.kill()
        shutil.rmtree(folder / "disks", ignore_errors=True)
        show("the broker is killed, and its disks are deleted")
        told = recover(folder, url, "--old-cluster-is-gone")
        for line in told.stderr.splitlines():
            show(f"  {line}")
        end = end_of(told.stdout)
        expect(end >= RECORDS * COLD, f"{end} of {RECORDS} records came back")
        with Broker(settings=settings, data=folder / "new", log_level="error") as broker:
            read = count(broker.bootstrap, end, expect)
            show(
                f"confluent-kafka reads {read:,} records, from offset 0 to {end - 1:,}: what was not copied yet is lost"
            )
            look_by_spark(broker.bootstrap, url, read, show, expect)


def fill(bootstrap: str, expect: Expect) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=TOPIC_SETTINGS)])[TOPIC].result(WAIT_S)
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 20_000, "log_level": 2})
    for number in range(RECORDS):
        producer.produce(TOPIC, VALUE, key=str(number).encode(), partition=0)
        producer.poll(0)
    expect(producer.flush(WAIT_S) == 0, "not every record was acknowledged")


def wait_cold(folder: Path, url: str, expect: Expect) -> int:
    """Until most of it is in the bucket alone, and a manifest tells of it. Gives where the local log begins."""
    deadline = time.monotonic() + WAIT_S
    local = 0
    while local < RECORDS * COLD:
        expect(time.monotonic() < deadline, f"only {local} records have left the disk")
        time.sleep(0.2)
        local = min(int(segment.stem) for segment in (folder / "disks" / f"{TOPIC}-0").glob("*.log"))
    while end_of(recover(folder, url, "--dry-run").stdout) < local:
        expect(time.monotonic() < deadline, "no manifest tells of what was copied")
    return local


def recover(folder: Path, url: str, option: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "tailrace", "tier", "recover", url, "--data", f"{folder}/new", option]
    return subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=True)


def end_of(rows: str) -> int:
    """A row has the topic, the partition, where it begins and where it ends."""
    return int(rows.split("\t")[3])


def count(bootstrap: str, end: int, expect: Expect) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "demo", "log_level": 2})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        keys: list[bytes] = []
        deadline = time.monotonic() + WAIT_S
        while len(keys) < end:
            expect(time.monotonic() < deadline, f"read {len(keys)} records, then nothing")
            keys += [message.key() or b"" for message in consumer.consume(10_000, timeout=0.5)]
        expect(keys == [str(number).encode() for number in range(end)], "what was read is not what was written")
        return len(keys)
    finally:
        consumer.close()


def look_by_spark(bootstrap: str, url: str, read: int, show: Show, expect: Expect) -> None:
    try:
        find_java_home()
    except JavaNotFoundError as error:
        show(f"Spark is left out. {error}")
        return
    words = [sys.executable, "-c", COUNT_BY_SPARK, bootstrap, TOPIC, url]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SPARK_WAIT_S, check=False)
    expect(done.returncode == 0, done.stderr)
    rows = int(done.stdout.split()[-1])
    expect(rows == read, f"Spark counts {rows} records, the client {read}")
    show(f"Spark reads the bucket itself, and counts {rows:,}")
