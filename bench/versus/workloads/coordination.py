"""Topic creation, offset commits and transactions: what is small and has to be agreed on."""

import itertools
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
from bench.versus.workloads.topics import admin, create, delete, topic

SECTION = "Topics and groups"
TRANSACTIONS_SECTION = "Transactions"
_TOPICS = 100
_COMMITS = 200
_GROUP = "versus"
_serial = itertools.count()


def topics(running: Running, _effort: Effort) -> dict[str, float]:
    """Milliseconds until a new topic of one partition is confirmed, one after the other."""
    client = admin(running)
    client.list_topics(timeout=DEADLINE_S)
    names = [f"created-{next(_serial)}" for _ in range(_TOPICS)]
    took_ms = []
    for name in names:
        begun = time.perf_counter()
        create(client, NewTopic(name, 1, len(running.brokers)))
        took_ms.append((time.perf_counter() - begun) * 1e3)
    delete(client, names)
    return percentiles(took_ms, ("p50", "p99"))


def commits(running: Running, effort: Effort, connections: int) -> float:
    """Commits of one offset a second: on so many connections, each of which waits for its answer; or, for none, on one
    with many in flight."""
    with topic(running, 1, replicas=1) as name:
        request = commit_request(_GROUP, name, 0, 1)
        with Connection(running.port) as connection:
            connection.find_coordinator(_GROUP)
            connection.commit(_GROUP, name, 1)
            response_bytes = connection.ask_raw(request)
        if connections:
            return answered_in_turns_per_second(
                running.port, request, response_bytes, effort.seconds, connections=connections
            )
        return answered_per_second(running.port, request, response_bytes, effort.seconds, in_flight_max=IN_FLIGHT)


def transactions(running: Running, effort: Effort, interval_ms: int) -> float:
    """MB/s of a producer that commits so often; for an interval of 0, of one that is idempotent only."""
    with topic(running, 1, replicas=len(running.brokers)) as name:
        rate = librdkafka.committed_per_second(
            name, 1_000, effort.seconds, interval_ms=interval_ms, bootstrap_servers=running.bootstrap, acks="all"
        )
        return rate * 1_000 / 1e6


def commit_latency(running: Running, _effort: Effort) -> dict[str, float]:
    """Milliseconds of librdkafka's commit_transaction, once the only record is acknowledged."""
    with topic(running, 1, replicas=len(running.brokers)) as name:
        settings = {"bootstrap.servers": running.bootstrap, "transactional.id": name, "linger.ms": 0, "log_level": 2}
        producer = Producer(settings)
        producer.init_transactions(DEADLINE_S)
        took_ms = []
        for _ in range(_COMMITS):
            producer.begin_transaction()
            producer.produce(name, bytes(100), partition=0)
            producer.flush(DEADLINE_S)
            begun = time.perf_counter()
            producer.commit_transaction(DEADLINE_S)
            took_ms.append((time.perf_counter() - begun) * 1e3)
        return percentiles(took_ms, ("p50", "p99"))


def _transaction_rows(brokers: int, intervals_ms: tuple[int, ...]) -> tuple[Row, ...]:
    rates = (
        Row(
            name=f"transactions-rf{brokers}-" + (f"{interval_ms}ms" if interval_ms else "none"),
            title=f"rf={brokers}, " + (f"a commit every {interval_ms} ms" if interval_ms else "idempotent only"),
            section=TRANSACTIONS_SECTION,
            unit="MB/s",
            measure=lambda running, effort, interval_ms=interval_ms: transactions(running, effort, interval_ms),
            brokers=brokers,
        )
        for interval_ms in intervals_ms
    )
    commit = Row(
        name=f"transactions-rf{brokers}-commit",
        title=f"rf={brokers}, one commit",
        section=TRANSACTIONS_SECTION,
        unit="ms",
        measure=commit_latency,
        brokers=brokers,
        lower_is_better=True,
    )
    return (*rates, commit)


COORDINATION = (
    *(
        Row(
            name=f"topics-rf{brokers}",
            title=f"a topic created, rf={brokers}",
            section=SECTION,
            unit="ms",
            measure=topics,
            brokers=brokers,
            lower_is_better=True,
        )
        for brokers in (1, 3)
    ),
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
TRANSACTIONS = (*_transaction_rows(1, (0, 100, 10, 1)), *_transaction_rows(3, (0, 100)))
