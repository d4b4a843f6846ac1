"""Kafka's own measuring programs, with its own client: ProducerPerformance, ConsumerPerformance, EndToEndLatency."""

import itertools
import re
import subprocess

from bench.versus.processes import Running
from bench.versus.rivals import kafka_class_path
from bench.versus.rows import Effort, Row
from bench.versus.workloads.topics import create_topic, topic

SECTION = "Kafka's own tools"
NOTE = "Each round is a new JVM of the client's, the same for both; only the brokers are warm."
_PARTITIONS = 6
_VALUE_BYTES = 1_000
# About what a JVM that has just started writes in a second on two cores which it shares with the broker.
_RECORDS_PER_SECOND = 150_000
_LATENCIES_PER_SECOND = 2_000
_DEADLINE_S = 120.0
_serial = itertools.count()


def produce(running: Running, effort: Effort) -> dict[str, float]:
    """MB/s, acks=all, 64 KB batches; the first third of the records warms the client up."""
    records = _records(effort)
    with topic(running, _PARTITIONS, replicas=len(running.brokers)) as name:
        brokers_s = running.stopwatch()
        return {"": produced(running, name, records), "broker CPU s/GB": brokers_s() / _gigabytes(records)}


def consume(running: Running, effort: Effort) -> dict[str, float]:
    """MB/s of what was written once, by a new group each time, the time to join it left out."""
    records = _records(effort)
    name = _written(running, records)
    words = ["--bootstrap-server", running.bootstrap, "--topic", name, "--num-records", str(records)]
    brokers_s = running.stopwatch()
    printed = _run("ConsumerPerformance", *words, "--hide-header", "--group", f"tools-{next(_serial)}")
    spent_s = brokers_s()
    # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetched MB/s, fetched records/s
    fields = printed.strip().splitlines()[-1].split(", ")
    if int(fields[4]) < records:
        raise RuntimeError(f"{fields[4]} of {records} records came")
    return {"": float(fields[8]) * (1 << 20) / 1e6, "broker CPU s/GB": spent_s / _gigabytes(records)}


def _written(running: Running, records: int) -> str:
    """A topic to read, of at least so many records, for all rounds."""
    key = (SECTION, records)
    if key not in running.kept:
        name = create_topic(running, _PARTITIONS, replicas=len(running.brokers), warm=False)
        produced(running, name, records)
        running.kept[key] = name
    found: str = running.kept[key]
    return found


def end_to_end(running: Running, effort: Effort) -> dict[str, float]:
    """Milliseconds from send to poll of one record after the other, on average; the tool's own percentiles are whole
    milliseconds."""
    with topic(running, 1, replicas=len(running.brokers)) as name:
        count = int(_LATENCIES_PER_SECOND * effort.seconds)
        brokers_s = running.stopwatch()
        printed = _run("EndToEndLatency", running.bootstrap, name, str(count), "all", str(_VALUE_BYTES))
        spent_s = brokers_s()
        found = re.search(r"Avg latency: ([\d.]+) ms.*99th = ([\d.]+), 99.9th = ([\d.]+)", printed, re.DOTALL)
        if found is None:
            raise RuntimeError(f"EndToEndLatency said: {printed[-500:]}")
        latencies = dict(zip(("", "p99", "p99.9"), map(float, found.groups()), strict=True))
        return latencies | {"broker CPU us": spent_s / count * 1e6}


def _records(effort: Effort) -> int:
    return int(_RECORDS_PER_SECOND * effort.seconds)


def _gigabytes(records: int) -> float:
    return records * _VALUE_BYTES / 1e9


def produced(running: Running, name: str, records: int) -> float:
    words = ["--topic", name, "--num-records", str(records), "--record-size", str(_VALUE_BYTES), "--throughput", "-1"]
    settings = [f"bootstrap.servers={running.bootstrap}", "acks=all", "batch.size=65536", "linger.ms=5"]
    warm_up = ["--warmup-records", str(records // 3)]
    printed = _run("ProducerPerformance", *words, *warm_up, "--command-property", *settings)
    found = re.search(r"^\d+ steady state records sent, ([\d.]+) records/sec", printed, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"ProducerPerformance said: {printed[-500:]}")
    return float(found[1]) * _VALUE_BYTES / 1e6


def _run(program: str, *words: str) -> str:
    command = ["java", "-Xmx512M", "-cp", kafka_class_path(), f"org.apache.kafka.tools.{program}", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{program} ended with exit code {done.returncode}: {(done.stdout + done.stderr)[-500:]}")
    return done.stdout


TOOLS = tuple(
    Row(
        name=f"tools-rf{brokers}-{word}",
        title=f"{title}, rf={brokers}",
        section=SECTION,
        unit=unit,
        measure=measure,
        brokers=brokers,
        lower_is_better=unit == "ms",
        note=NOTE,
    )
    for brokers, word, title, unit, measure in (
        (1, "produce", "ProducerPerformance, 1 KB", "MB/s", produce),
        (1, "consume", "ConsumerPerformance, 1 KB", "MB/s", consume),
        (1, "end-to-end", "EndToEndLatency, 1 KB", "ms", end_to_end),
        (3, "produce", "ProducerPerformance, 1 KB", "MB/s", produce),
        (3, "end-to-end", "EndToEndLatency, 1 KB", "ms", end_to_end),
    )
)
