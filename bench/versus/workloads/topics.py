"""Topics of a workload's own, and what a cluster says of them."""

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from bench.versus.processes import DEADLINE_S, Running

# Warm topics keep a few segments and give their memory back soon: what is written next takes the same pages.
# `retention.bytes` counts for each partition: the whole topic keeps about as much whatever their number.
_WARM_BYTES = 768 << 20
_SEGMENT_BYTES_MIN = 1 << 20
_serial = itertools.count()


@contextmanager
def topic(
    running: Running, partitions: int, *, replicas: int, warm: bool = True, leader: int | None = None
) -> Iterator[str]:
    """A new one, deleted at the end unless the work failed: then its brokers are at their end too."""
    name = create_topic(running, partitions, replicas=replicas, warm=warm, leader=leader)
    yield name
    delete(admin(running), [name])


def create_topic(
    running: Running, partitions: int, *, replicas: int, warm: bool = True, leader: int | None = None
) -> str:
    """A new one, which goes with its brokers. Whoever is to lead its only partition can be named."""
    name = f"versus-{next(_serial)}"
    settings = {"file.delete.delay.ms": "0"}
    if warm:
        settings["retention.bytes"] = str(_WARM_BYTES // partitions)
        settings["segment.bytes"] = str(max(_SEGMENT_BYTES_MIN, _WARM_BYTES // 2 // partitions))
    if leader is None:
        new = NewTopic(name, partitions, replicas, config=settings)
    else:
        assignment = [[leader, *(node for node in running.addresses if node != leader)]]
        new = NewTopic(name, partitions, replica_assignment=assignment, config=settings)
    create(admin(running), new)
    return name


def admin(running: Running) -> AdminClient:
    return AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 2})


def create(client: AdminClient, new: NewTopic) -> None:
    timeouts = {"request_timeout": DEADLINE_S, "operation_timeout": DEADLINE_S}
    (created,) = client.create_topics([new], **timeouts).values()
    created.result(DEADLINE_S)


def delete(client: AdminClient, names: list[str]) -> None:
    for deleted in client.delete_topics(names, request_timeout=DEADLINE_S).values():
        deleted.result(DEADLINE_S)


def leader_port(running: Running, name: str) -> int:
    """The port of the broker that leads partition 0."""
    deadline = time.perf_counter() + DEADLINE_S
    client = admin(running)
    while time.perf_counter() < deadline:
        # A broker that has not heard of the topic yet tells of none of its partitions.
        partition = client.list_topics(name, DEADLINE_S).topics[name].partitions.get(0)
        if partition is not None and partition.leader in running.addresses:
            return running.port_of(partition.leader)
        time.sleep(0.05)
    raise TimeoutError(f"{name} has no leader")


def end_offset(running: Running, name: str) -> int:
    """The end offset of partition 0: how many records have been written."""
    # A client that nobody holds takes its answers with it.
    client = admin(running)
    (found,) = client.list_offsets({TopicPartition(name, 0): OffsetSpec.latest()}).values()
    return found.result(DEADLINE_S).offset


def in_sync(running: Running, name: str) -> int:
    """How many replicas of partition 0 are."""
    return len(admin(running).list_topics(name, DEADLINE_S).topics[name].partitions[0].isrs)
