"""Topic creation, offset commits and transactions: what is small and has to be agreed on."""

import itertools
import statistics
import time

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from bench import librdkafka
from bench.blaster import answered_in_turns_per_second, answered_per_second
from bench.coordinator import Connection, commit_request
from bench.versus.processes import DEADLINE_S, Running
from bench.versus.rows import Effort, Row
from bench.versus.workloads.latency import percentiles
from bench.versus.workloads.requests import IN_FLIGHT
from bench.versus.workloads.topics import admin, create, delete, end_offset, topic

SECTION = "Topics and groups"
TRANSACTIONS_SECTION = "Transactions"
_GROUP = "versus"
_serial = itertools.count()


def topics(running: Running, effort: Effort) -> dict[str, float]:
    """Milliseconds until a new topic of one partition is confirmed, one after the other: the median."""
    client = admin(running)
    client.list_topics(timeout=DEADLINE_S)
    names: list[str] = []
    took_ms = []
    brokers_s = running.stopwatch()
    ends = time.perf_counter() + effort.seconds
    while time.perf_counter() < ends:
        names.append(f"created-{next(_serial)}")
        begun = time.perf_counter()
        create(client, NewTopic(names[-1], 1, len(running.brokers)))
        took_ms.append((time.perf_counter() - begun) * 1e3)
    spent_s = brokers_s()
    delete(client, names)
    return {"": statistics.median(took_ms), "broker CPU ms": spent_s / len(names) * 1e3}


def commits(running: Running, effort: Effort, connections: int) -> dict[str, float]:
    """Commits of one offset a second: on so many connections, each of which waits for its answer; or, for none, on one
    with many in flight."""
    with topic(running, 1, replicas=1) as name:
        request = commit_request(_GROUP, name, 0, 1)
        with Connection(running.port) as connection:
            connection.find_coordinator(_GROUP)
            connection.commit(_GROUP, name, 1)
            response_bytes = len(connection.ask_raw(request))
        brokers_s = running.stopwatch()
        if connections:
            rate = answered_in_turns_per_second(
                running.port, request, response_bytes, effort.seconds, connections=connections
            )
        else:
            rate = answered_per_second(running.port, request, response_bytes, effort.seconds, in_flight_max=IN_FLIGHT)
        # Those in flight when the time is over are waited for.
        count = rate * effort.seconds + (0 if connections else IN_FLIGHT)
        return {"": rate, "broker CPU us": brokers_s() / count * 1e6}


def transactions(running: Running, effort: Effort, interval_ms: int) -> dict[str, float]:
    """MB/s of a producer that commits so often, and what the brokers spent on each GB."""
    with topic(running, 1, replicas=len(running.brokers)) as name:
        brokers_s = running.stopwatch()
        rate = librdkafka.committed_per_second(
            name, 1_000, effort.seconds, interval_ms=interval_ms, bootstrap_servers=running.bootstrap, acks="all"
        )
        spent_s = brokers_s()
        return {"": rate * 1_000 / 1e6, "broker CPU s/GB": spent_s / (end_offset(running, name) * 1_000 / 1e9)}


def commit_latency(running: Running, effort: Effort) -> dict[str, float]:
    """Milliseconds of librdkafka's commit_transaction, once the only record is acknowledged."""
    with topic(running, 1, replicas=len(running.brokers)) as name:
        settings = {"bootstrap.servers": running.bootstrap, "transactional.id": name, "linger.ms": 0, "log_level": 2}
        producer = Producer(settings)
        producer.init_transactions(DEADLINE_S)
        took_ms = []
        brokers_s = running.stopwatch()
        ends = time.perf_counter() + effort.seconds
        while time.perf_counter() < ends:
            producer.begin_transaction()
            producer.produce(name, bytes(100), partition=0)
            producer.flush(DEADLINE_S)
            begun = time.perf_counter()
            producer.commit_transaction(DEADLINE_S)
            took_ms.append((time.perf_counter() - begun) * 1e3)
        return percentiles(took_ms, ("p50", "p99")) | {"broker CPU us": brokers_s() / len(took_ms) * 1e6}


def _transaction_rows(brokers: int, interval_ms: int) -> tuple[Row, Row]:
    return (
        Row(
            name=f"transactions-rf{brokers}-{interval_ms}ms",
            title=f"rf={brokers}, a commit every {interval_ms} ms",
            section=TRANSACTIONS_SECTION,
            unit="MB/s",
            measure=lambda running, effort: transactions(running, effort, interval_ms),
            brokers=brokers,
        ),
        Row(
            name=f"transactions-rf{brokers}-commit",
            title=f"rf={brokers}, one commit",
            section=TRANSACTIONS_SECTION,
            unit="ms",
            measure=commit_latency,
            brokers=brokers,
            lower_is_better=True,
        ),
    )


COORDINATION = (
    Row("topics-rf1", "a topic created, rf=1", SECTION, "ms", topics, lower_is_better=True),
    *(
        Row(
            name=f"commits-{word}",
            title=f"commit of one offset, {title}",
            section=SECTION,
            unit="commits/s",
            measure=lambda running, effort, connections=connections: commits(running, effort, connections),
        )
        for word, title, connections in (
            ("pipelined", f"one connection, {IN_FLIGHT} in flight", 0),
            ("100-connections", "100 connections, one in flight on each", 100),
        )
    ),
)
TRANSACTIONS = (*_transaction_rows(1, 100), *_transaction_rows(3, 100))
