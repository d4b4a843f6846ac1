"""A thousand connections, and thousands of partitions."""

import socket
import time
from contextlib import ExitStack

from confluent_kafka.admin import NewTopic

from bench.blaster import answered_in_turns_per_second
from bench.canned import produce_request, produce_response_bytes
from bench.versus.processes import DEADLINE_S, Running, receive
from bench.versus.rows import Effort, Row
from bench.versus.workloads.produce import BASE, write
from bench.versus.workloads.topics import admin, create, grow, topic, wait_known

SECTION = "Connections and partitions"
_CONNECTIONS = 1_000
_CREATED_AT_ONCE = 1_000
# All that is queued has to be acknowledged in the end, also by brokers that do a few MB/s.
_QUEUED_BYTES = 32 << 20


def requests(running: Running, effort: Effort) -> float:
    """Requests of one record a second, one in flight on each connection."""
    with topic(running, 1, replicas=1) as name:
        request, response_bytes = _canned(name)
        return answered_in_turns_per_second(
            running.port, request, response_bytes, effort.seconds, connections=_CONNECTIONS
        )


def connections(running: Running, _effort: Effort) -> float:
    """KB of memory for each connection, all open and each of which has written a record. Brokers are new: memory that
    other work left behind would hide it."""
    with topic(running, 1, replicas=1) as name, ExitStack() as stack:
        request, response_bytes = _canned(name)

        def connect() -> None:
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", running.port), DEADLINE_S))
            connection.sendall(request)
            receive(connection, response_bytes)

        # The first of all take memory that has nothing to do with their number.
        for _ in range(_CONNECTIONS // 10):
            connect()
        before = running.usage().resident_bytes
        for _ in range(_CONNECTIONS):
            connect()
        return (running.usage().resident_bytes - before) / _CONNECTIONS / 1e3


def partitions(running: Running, effort: Effort, count: int) -> dict[str, float]:
    """MB/s into all partitions in turn, a full batch for each; how long their creation took; memory after it all.
    Brokers are new, for the sake of that figure, and have to be warmed up here."""
    warm = time.perf_counter() + effort.warm_up_s
    while time.perf_counter() < warm:
        with topic(running, BASE.partitions, replicas=1) as name:
            write(running, name, effort.seconds, BASE)
    begun = time.perf_counter()
    _create(running, "many", count)
    created_s = time.perf_counter() - begun
    case = BASE._replace(partitions=count)
    full_batch = case.batch_bytes // case.value_bytes
    _written, rate = write(
        running, "many", 2 * effort.seconds, case, call_messages=full_batch, queued_bytes=_QUEUED_BYTES
    )
    return {
        "": rate * case.value_bytes / 1e6,
        "created after s": created_s,
        "memory MB": running.usage().resident_bytes / 1e6,
    }


def _canned(name: str) -> tuple[bytes, int]:
    return produce_request(name, records=1, value_bytes=100, acks=-1), produce_response_bytes(name)


def _create(running: Running, name: str, count: int) -> None:
    """In steps: Kafka's controller refuses a request that makes more than 10,000 of its records."""
    client = admin(running)
    create(client, NewTopic(name, min(count, _CREATED_AT_ONCE), 1))
    for total in range(2 * _CREATED_AT_ONCE, count + 1, _CREATED_AT_ONCE):
        grow(client, name, total)
    # A producer that was told of fewer refuses what goes to the others.
    wait_known(client, name, count)


MANY = (
    Row(
        "connections-1000",
        "1,000 connections, one request of one record in flight on each",
        SECTION,
        "requests/s",
        requests,
    ),
    Row(
        "connections-memory",
        "memory of a connection, 1,000 of them",
        SECTION,
        "KB",
        connections,
        lower_is_better=True,
        settings=(),
        fresh=True,
        rounds_max=2,
    ),
    *(
        Row(
            f"partitions-{count}",
            f"{count:,} partitions, 1 KB, 64 KB batches to each in turn",
            SECTION,
            "MB/s",
            lambda running, effort, count=count: partitions(running, effort, count),
            settings=(),
            fresh=True,
            rounds_max=rounds_max,
        )
        for count, rounds_max in ((1_000, 2), (10_000, 1))
    ),
)
