"""How soon brokers are ready, and what memory they take: idle, at work, and for each connection."""

import socket
import time
from contextlib import ExitStack

from bench import librdkafka
from bench.canned import produce_request, produce_response_bytes
from bench.versus.processes import DEADLINE_S, Running, receive
from bench.versus.rows import Effort, Row
from bench.versus.workloads.produce import BASE, write
from bench.versus.workloads.topics import topic

SECTION = "Start and memory"
IDLE = "memory, idle MB"
_IDLE_S = 3.0
_LOADED_S = 10.0
_CONSUMED_MESSAGES = 200_000
_CONNECTIONS = 1_000


def start(running: Running, _effort: Effort) -> dict[str, float]:
    """Seconds from the start of the processes until each answers with all brokers in its Metadata; and the memory of
    all of them, some seconds later."""
    time.sleep(_IDLE_S)
    return {"": running.ready_after_s, IDLE: running.usage().resident_bytes / 1e6}


def loaded(running: Running, effort: Effort) -> float:
    """MB of all processes together, at most, while librdkafka writes as fast as it can, and then reads."""
    ends = time.perf_counter() + min(_LOADED_S, 4 * effort.seconds)
    replicas = len(running.brokers)
    with running.watched() as peak:
        while time.perf_counter() < ends:
            with topic(running, BASE.partitions, replicas=replicas) as name:
                written, _rate = write(running, name, effort.seconds, BASE)
                # A warm topic may have lost what was written first.
                count = min(written // 2, _CONSUMED_MESSAGES)
                librdkafka.consumed_in_group_per_second(
                    name, count, bootstrap_servers=running.bootstrap, group_id="versus"
                )
    return peak.resident_bytes / 1e6


def connections(running: Running, _effort: Effort) -> float:
    """KB of memory for each connection, all open and each of which has written a record. Brokers are new: memory that
    other work left behind would hide it."""
    with topic(running, 1, replicas=1) as name, ExitStack() as stack:
        request = produce_request(name, records=1, value_bytes=100, acks=-1)
        response_bytes = produce_response_bytes(name)

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


def _rows(brokers: int) -> tuple[Row, ...]:
    what = "one broker" if brokers == 1 else f"{brokers} brokers"
    common = {"section": SECTION, "brokers": brokers, "lower_is_better": True, "fresh": True}
    return (
        # As a broker is, without the settings of warm topics.
        Row(f"start-{brokers}", f"{what}: start to ready", unit="s", measure=start, **common | {"settings": ()}),
        Row(f"memory-load-{brokers}", f"{what}: memory, under load", unit="MB", measure=loaded, rounds_max=2, **common),
    )


START = (
    *_rows(1),
    *_rows(3),
    Row(
        "connections-memory",
        f"memory of a connection, {_CONNECTIONS:,} of them",
        SECTION,
        "KB",
        connections,
        lower_is_better=True,
        settings=(),
        fresh=True,
        rounds_max=2,
    ),
)
