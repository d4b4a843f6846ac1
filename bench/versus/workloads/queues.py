"""How fast a share group empties one partition, by Kafka's own ShareConsumerPerformance with its own client."""

import itertools
import subprocess
import time

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from bench.versus.processes import DEADLINE_S, Running
from bench.versus.rivals import kafka_class_path
from bench.versus.rows import Effort, Row
from bench.versus.workloads.tools import produced
from bench.versus.workloads.topics import admin, create_topic

SECTION = "Queues (share groups)"
NOTE = (
    "Kafka's ShareConsumerPerformance: one process, a client in each thread, every record accepted by the next poll. "
    "Each round is a new JVM and a new group, and the time to join is in it, for the tool does not tell it apart."
)
_MEMBERS = 10
_RECORDS_PER_SECOND = 60_000
# Without records a member gives up after that: some wait longer than the 10 s of the tool on a machine that is busy.
_PATIENCE_MS = 60_000
_SETTINGS = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "log.initial.task.delay.ms": "0",
}
_serial = itertools.count()


def empty(running: Running, effort: Effort) -> dict[str, float]:
    """Records a second, from when the first member asks to join to when the last record is there."""
    records = max(100_000, int(_RECORDS_PER_SECOND * effort.seconds))
    name, group = _written(running, records), f"queue-{next(_serial)}-{time.monotonic_ns()}"
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[entry])
    client = admin(running)
    for altered in client.incremental_alter_configs([resource]).values():
        altered.result(DEADLINE_S)
    brokers_s = running.stopwatch()
    words = ["--bootstrap-server", running.bootstrap, "--topic", name, "--group", group]
    words += ["--num-records", str(records), "--threads", str(_MEMBERS), "--hide-header"]
    words += ["--timeout", str(_PATIENCE_MS)]
    command = ["java", "-Xmx512M", "-cp", kafka_class_path(), "org.apache.kafka.tools.ShareConsumerPerformance", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    spent_s = brokers_s()
    if done.returncode:
        raise RuntimeError(
            f"ShareConsumerPerformance ended with {done.returncode}: {(done.stdout + done.stderr)[-500:]}"
        )
    # start, end, MB, MB/s, records/s, records, fetch ms
    fields = done.stdout.strip().splitlines()[-1].split(", ")
    if int(fields[5]) < records:
        raise RuntimeError(f"{fields[5]} of {records} records came")
    return {"": float(fields[4]), "broker CPU us/record": spent_s / records * 1e6}


def _written(running: Running, records: int) -> str:
    key = (SECTION, records)
    if key not in running.kept:
        name = create_topic(running, 1, replicas=1, warm=False)
        produced(running, name, records)
        running.kept[key] = name
    found: str = running.kept[key]
    return found


QUEUES = (
    Row(
        name="queue-10-members",
        title="one partition, 10 members, 1 KB",
        section=SECTION,
        unit="records/s",
        measure=empty,
        settings=tuple(_SETTINGS.items()),
        note=NOTE,
    ),
)
