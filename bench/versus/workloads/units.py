"""Small requests to a machine that runs two brokers of ours (`--processes 2`), and to Kafka's one: the same cores.

Half of the connections are to each of our brokers, as those of clients would be: to the leader of their partition, and
to the coordinator of their group.
"""

import itertools
import time

from confluent_kafka.admin import NewTopic

from bench.blaster import answered_by_several_per_second
from bench.canned import produce_request, produce_response_bytes
from bench.coordinator import Connection, commit_request
from bench.versus.processes import DEADLINE_S, Running
from bench.versus.rivals import KAFKA, TWO_PROCESSES
from bench.versus.rows import Effort, Row
from bench.versus.workloads.topics import admin, create, delete
from tailrace.wire.apis.groups import FindCoordinatorRequest

_CONNECTIONS = 100
_PARTITIONS = 2
_ALL = -1
_serial = itertools.count()


def produces(running: Running, effort: Effort) -> dict[str, float]:
    """Requests of one record a second, to two partitions."""
    name = _create(running)
    targets = [
        (running.port_of(leader), produce_request(name, records=1, value_bytes=100, acks=_ALL, partition=partition))
        for partition, leader in _leaders(running, name).items()
    ]
    figures = _rate(running, effort, targets, produce_response_bytes(name))
    delete(admin(running), [name])
    return figures


def commits(running: Running, effort: Effort) -> dict[str, float]:
    """Commits of one offset a second, of two groups."""
    name = _create(running)
    targets = []
    for node in running.addresses:
        group = _group_of(running, node)
        with Connection(running.port_of(node)) as connection:
            connection.commit(group, name, 1)
            request = commit_request(group, name, 0, 1)
            response_bytes = len(connection.ask_raw(request))
        targets.append((running.port_of(node), request))
    figures = _rate(running, effort, targets, response_bytes)
    delete(admin(running), [name])
    return figures


def _rate(running: Running, effort: Effort, targets: list[tuple[int, bytes]], response_bytes: int) -> dict[str, float]:
    brokers_s = running.stopwatch()
    rate = answered_by_several_per_second(targets, response_bytes, effort.seconds, connections=_CONNECTIONS)
    return {"": rate, "broker CPU us": brokers_s() / (rate * effort.seconds) * 1e6}


def _create(running: Running) -> str:
    name = f"unit-{next(_serial)}"
    create(admin(running), NewTopic(name, _PARTITIONS, 1, config={"file.delete.delay.ms": "0"}))
    return name


def _leaders(running: Running, name: str) -> dict[int, int]:
    """By partition; all our brokers are among them."""
    deadline = time.perf_counter() + DEADLINE_S
    while time.perf_counter() < deadline:
        found = admin(running).list_topics(name, DEADLINE_S).topics[name].partitions
        leaders = {partition: each.leader for partition, each in found.items()}
        if len(leaders) == _PARTITIONS and set(leaders.values()) == set(running.addresses):
            return leaders
        time.sleep(0.05)
    raise TimeoutError(f"{name} is not led by all brokers")


def _group_of(running: Running, node: int) -> str:
    """A group that this broker coordinates."""
    with Connection(running.port) as connection:
        for number in itertools.count():
            group = f"unit-{number}"
            connection.find_coordinator(group)
            answer = connection.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 6)
            if answer.coordinators[0].node_id == node:
                return group
    raise AssertionError("it does not end before")


UNITS = (
    Row(
        name="unit-requests-100-connections",
        title="1 record of 100 B, rf=1, 100 connections, one in flight on each, two processes of Tailrace",
        section="Requests",
        unit="requests/s",
        measure=produces,
        rivals=(TWO_PROCESSES, KAFKA),
    ),
    Row(
        name="unit-commits-100-connections",
        title="commit of one offset, 100 connections, one in flight on each, two processes of Tailrace",
        section="Topics and groups",
        unit="commits/s",
        measure=commits,
        rivals=(TWO_PROCESSES, KAFKA),
    ),
)
