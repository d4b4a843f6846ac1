"""A thousand connections, and thousands of partitions."""

import time

from confluent_kafka.admin import NewTopic

from bench import librdkafka
from bench.blaster import answered_in_turns_per_second
from bench.canned import produce_request, produce_response_bytes
from bench.versus.processes import Running
from bench.versus.rows import Effort, Row
from bench.versus.workloads.topics import admin, create, topic

SECTION = "Connections and partitions"
_CONNECTIONS = 1_000
_VALUE_BYTES = 1_000
_BATCH_BYTES = 64 << 10


def connections(running: Running, effort: Effort) -> dict[str, float]:
    """Requests of one record a second, one in flight on each connection, and what memory these take. Brokers are new:
    memory that other work left behind would hide it."""
    with topic(running, 1, replicas=1) as name:
        request = produce_request(name, records=1, value_bytes=100, acks=-1)
        settings = {"request": request, "response_bytes": produce_response_bytes(name), "seconds": effort.seconds}
        # The first work of all takes memory that has nothing to do with connections.
        answered_in_turns_per_second(running.port, connections=10, **settings)
        before = running.usage().resident_bytes
        with running.watched() as peak:
            rate = answered_in_turns_per_second(running.port, connections=_CONNECTIONS, **settings)
        return {"": rate, "memory KB each": (peak.resident_bytes - before) / _CONNECTIONS / 1e3}


def partitions(running: Running, effort: Effort, count: int) -> dict[str, float]:
    """MB/s into all partitions in turn, a full batch for each; how long their creation took; memory after it all."""
    begun = time.perf_counter()
    create(admin(running), NewTopic("many", count, 1))
    created_s = time.perf_counter() - begun
    _written, rate = librdkafka.produced_per_second(
        "many",
        _VALUE_BYTES,
        2 * effort.seconds,
        partitions=count,
        call_messages=_BATCH_BYTES // _VALUE_BYTES,
        bootstrap_servers=running.bootstrap,
        acks="all",
        batch_size=_BATCH_BYTES,
        message_max_bytes=2_000_000,
    )
    return {
        "": rate * _VALUE_BYTES / 1e6,
        "created after s": created_s,
        "memory MB": running.usage().resident_bytes / 1e6,
    }


MANY = (
    Row(
        "connections-1000",
        "1,000 connections, one request of one record in flight on each",
        SECTION,
        "requests/s",
        connections,
        fresh=True,
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
            rounds_max=2,
        )
        for count in (1_000, 10_000)
    ),
)
