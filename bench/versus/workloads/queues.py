"""How fast the members of a share group empty one partition, counted from when all of them have had records."""

import itertools
import subprocess
import time
from functools import cache
from pathlib import Path

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from bench.machine import note_client
from bench.versus.processes import DEADLINE_S, Running
from bench.versus.rivals import kafka_class_path
from bench.versus.rows import Effort, Row
from bench.versus.workloads.tools import produced
from bench.versus.workloads.topics import admin, create_topic

SECTION = "Queues (share groups)"
NOTE = (
    "Kafka's own share consumers, one in each thread of one JVM that all rounds on both brokers share. Every record is "
    "accepted by the next poll. A round is a new group, and counts from when each member has joined, has been given "
    "records and has accepted them. Members ask every second, on both, so that joining, which is not counted, is short."
)
_MEMBERS = 10
_RECORDS_PER_SECOND = 200_000
# What members take before the last of them has joined: the rest has to be there for the round.
_TAKEN_BEFORE = 20_000
_SETTINGS = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.min.heartbeat.interval.ms": "1000",
    "group.share.heartbeat.interval.ms": "1000",
    "log.initial.task.delay.ms": "0",
}
_PROGRAM = Path(__file__).with_name("QueueMembers.java")
_serial = itertools.count()


def empty(running: Running, effort: Effort) -> dict[str, float]:
    """Records a second until the last one is accepted."""
    records = int(_RECORDS_PER_SECOND * effort.seconds)
    name, group = _written(running, records + _TAKEN_BEFORE), f"queue-{next(_serial)}-{time.monotonic_ns()}"
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[entry])
    client = admin(running)
    for altered in client.incremental_alter_configs([resource]).values():
        altered.result(DEADLINE_S)
    taken_before = int(_told(f"join {running.bootstrap} {name} {group} {_MEMBERS}"))
    if taken_before > _TAKEN_BEFORE:
        raise RuntimeError(f"{taken_before} records were taken before all had joined")
    brokers_s = running.stopwatch()
    seconds = _told(f"empty {records}")
    return {"": records / seconds, "broker CPU us/record": brokers_s() / records * 1e6}


@cache
def _members() -> "subprocess.Popen[str]":
    """Ends with its input, and so with this process."""
    command = ["java", "-Xmx512M", "-cp", kafka_class_path(), str(_PROGRAM)]
    members = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    note_client(members.pid)
    return members


def _told(line: str) -> float:
    """The number of the answer."""
    members = _members()
    assert members.stdin is not None
    assert members.stdout is not None
    print(line, file=members.stdin, flush=True)
    for answer in members.stdout:
        if answer.startswith(("joined ", "emptied ")):
            return float(answer.split()[1])
    raise RuntimeError(f"the members ended with {members.wait()}")


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
