"""What grows: each dimension is a generator of points, a value of the quantity and the figures at it.

A point takes seconds, a dimension a few minutes at most.
"""

import socket
import statistics
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from confluent_kafka.admin import AdminClient

from bench import blaster, librdkafka
from bench.canned import produce_request, produce_response_bytes
from bench.growth import Point
from bench.growth.broker import Measured, running
from bench.growth.logs import log_length
from bench.growth.turns import answered_in_order
from bench.machine import warm_memory
from bench.measures import Plan

Points = Iterator[Point]

_VALUE_BYTES = 1_000
_BATCH_BYTES = 64 << 10
_SETTLE_S = 0.5
# The rate of a client whose acknowledgements are timed while something else grows.
_STEADY_RATE = 2_000


class Dimension(NamedTuple):
    title: str
    over: str
    charts: tuple[str, ...]  # units of figures that are drawn
    measure: Callable[[Plan], Points]


def partitions(plan: Plan) -> Points:
    for count in (1, 10, 100, 1_000, 10_000):
        with running() as subject:
            before = subject.resident_bytes()
            start = time.perf_counter()
            subject.create_topics(["grown"], count, warm=False)
            created_s = time.perf_counter() - start
            figures = _produced(subject, "grown", plan, _VALUE_BYTES, partitions=count)
            p50, p99 = _steady(subject, "grown", plan, partitions=count)
            resident = subject.resident_bytes()
            yield Point(
                count,
                {
                    "produce MB/s": figures["produce MB/s"],
                    "produce CPU s/GB": figures["produce CPU s/GB"],
                    "ack p50 ms": p50,
                    "ack p99 ms": p99,
                    "memory MB": resident / 1e6,
                    **_each(resident - before, count),
                    "created s": created_s,
                    "back after kill s": _back_after_kill(subject),
                },
            )


def connections(plan: Plan) -> Points:
    for count in (1, 10, 100, 1_000, 5_000):
        with running() as subject:
            subject.create_topics(["grown"])
            before = subject.resident_bytes()
            idle = [socket.create_connection(("127.0.0.1", subject.port)) for _ in range(count)]
            time.sleep(_SETTLE_S)
            grown = subject.resident_bytes() - before
            p50, p99 = _steady(subject, "grown", plan)
            for connection in idle:
                connection.close()
            rate, cost_s = _all_busy(subject, "grown", plan, count)
            yield Point(
                count,
                {
                    "all busy requests/s": rate,
                    "a request us": cost_s * 1e6,
                    "ack p50 beside idle ones ms": p50,
                    "ack p99 beside idle ones ms": p99,
                    **_each(grown, count),
                },
            )


def topics(plan: Plan) -> Points:
    for count in (1, 10, 100, 1_000, 5_000):
        with running() as subject:
            before = subject.resident_bytes()
            names = [f"topic-{index:05d}" for index in range(count)]
            start = time.perf_counter()
            subject.create_topics(names)
            created_s = time.perf_counter() - start
            requests = [produce_request(name, records=1, value_bytes=100) for name in names]
            done = answered_in_order(subject, requests, produce_response_bytes(names[0]), plan)
            yield Point(
                count,
                {
                    "requests/s": done.per_second,
                    "a request us": done.cpu_us,
                    "metadata of all ms": _metadata_ms(subject, plan),
                    "created each ms": created_s / count * 1e3,
                    "memory MB": subject.resident_bytes() / 1e6,
                    **_each(subject.resident_bytes() - before, count),
                },
            )


def groups(plan: Plan) -> Points:
    from bench.coordinator import Connection, commit_request

    for count in (1, 10, 100, 1_000, 5_000):
        with running() as subject:
            subject.create_topics(["grown"])
            names = [f"group-{index:05d}" for index in range(count)]
            with Connection(subject.port) as connection:
                for name in names[:100]:
                    connection.find_coordinator(name)
                connection.commit(names[0], "grown", 1)
                before = subject.resident_bytes()
                for name in names:
                    connection.commit(name, "grown", 1)
                grown = subject.resident_bytes() - before
                requests = [commit_request(name, "grown", 0, 1) for name in names]
                response_bytes = len(connection.ask_raw(requests[0]))
            done = answered_in_order(subject, requests, response_bytes, plan)
            figures = {"commits/s": done.per_second, "a commit us": done.cpu_us}
            yield Point(count, figures | _each(grown, count))


def message_size(plan: Plan) -> Points:
    for size in (10, 100, 1_000, 10_000, 100_000, 900_000):
        with running() as subject:
            subject.create_topics(["grown"], 6)
            figures = _produced(subject, "grown", plan, size, partitions=6)
            subject.create_topics(["read"], 6, warm=False)
            count, _ = librdkafka.produced_per_second(
                "read", size, 0.7, partitions=6, **subject.servers, batch_size=_BATCH_BYTES, message_max_bytes=2_000_000
            )
            cpu_s = subject.cpu_s()
            rates = [
                librdkafka.consumed_per_second(
                    "read", count, partitions=6, **subject.servers, group_id="growth", enable_auto_commit="false"
                )
                for _ in range(plan.rounds)
            ]
            read_gb = count * size * plan.rounds / 1e9
            yield Point(
                size,
                figures
                | {
                    "consume MB/s": statistics.median(rates) * size / 1e6,
                    "consume CPU s/GB": (subject.cpu_s() - cpu_s) / read_gb,
                },
            )


def batch_size(plan: Plan) -> Points:
    """Canned requests on one connection: what a client costs is not in it."""
    with running() as subject:
        for size in (1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20):
            name = f"batches-{size}"
            subject.create_topics([name])
            kept = f"{name}-kept"
            subject.create_topics([kept], warm=False)
            blaster.produced_bytes_per_second(subject.port, kept, size, 0.2)
            warm_memory()
            cpu_s = subject.cpu_s()
            rates = [
                blaster.produced_bytes_per_second(subject.port, name, size, plan.seconds) for _ in range(plan.rounds)
            ]
            produce_s, cpu_s = subject.cpu_s() - cpu_s, subject.cpu_s()
            read = [
                blaster.fetched_bytes_per_second(subject.port, kept, size, plan.seconds) for _ in range(plan.rounds)
            ]
            fetch_s = subject.cpu_s() - cpu_s
            yield Point(
                size,
                {
                    "produce MB/s": statistics.median(rates) / 1e6,
                    "fetch MB/s": statistics.median(read) / 1e6,
                    "produce CPU s/GB": produce_s / (sum(rates) * plan.seconds) * 1e9,
                    "fetch CPU s/GB": fetch_s / (sum(read) * plan.seconds) * 1e9,
                },
            )


DIMENSIONS = {
    "partitions": Dimension("Partitions of one topic", "partitions", ("MB/s", "ms", "MB"), partitions),
    "connections": Dimension("Connections", "connections", ("requests/s", "ms"), connections),
    "topics": Dimension("Topics of one partition", "topics", ("us", "ms"), topics),
    "groups": Dimension("Groups that commit", "groups", ("us",), groups),
    "log-length": Dimension("Length of a log", "MB, in segments of 16 MB", ("ms", "s"), log_length),
    "message-size": Dimension("Size of a message", "bytes of a message", ("MB/s", "s/GB"), message_size),
    "batch-size": Dimension("Size of a batch", "bytes of a batch", ("MB/s", "s/GB"), batch_size),
}


def _produced(subject: Measured, topic: str, plan: Plan, size: int, *, partitions: int) -> dict[str, float]:
    """By librdkafka, acks=all, a batch for each partition in turn."""
    cpu_s: list[float] = []
    rates, count = [], 0
    for _ in range(plan.rounds):
        warm_memory()
        written, rate = librdkafka.produced_per_second(
            topic,
            size,
            plan.seconds,
            partitions=partitions,
            call_messages=max(1, _BATCH_BYTES // size),
            on_start=lambda: cpu_s.append(-subject.cpu_s()),
            **subject.servers,
            acks="all",
            batch_size=max(_BATCH_BYTES, size + 1_000),
            message_max_bytes=2_000_000,
        )
        cpu_s.append(subject.cpu_s())
        rates.append(rate)
        count += written - partitions
    return {
        "produce MB/s": statistics.median(rates) * size / 1e6,
        "produce messages/s": statistics.median(rates),
        "produce CPU s/GB": sum(cpu_s) / (count * size) * 1e9,
    }


def _all_busy(subject: Measured, topic: str, plan: Plan, connections: int) -> tuple[float, float]:
    """Requests of one record a second, one in flight on each connection, and the broker's seconds for each."""

    def answered(seconds: float) -> float:
        request, response_bytes = produce_request(topic, records=1, value_bytes=100), produce_response_bytes(topic)
        return blaster.answered_in_turns_per_second(
            subject.port, request, response_bytes, seconds, connections=connections
        )

    # To connect costs more than to ask: a round that ends at once tells how much of it is that.
    cpu_s = subject.cpu_s()
    answered(0.0)
    connecting_s, cpu_s = subject.cpu_s() - cpu_s, subject.cpu_s()
    rates = [answered(plan.seconds) for _ in range(plan.rounds)]
    busy_s = subject.cpu_s() - cpu_s - connecting_s * plan.rounds
    return statistics.median(rates), busy_s / (sum(rates) * plan.seconds)


def _steady(subject: Measured, topic: str, plan: Plan, *, partitions: int = 1) -> tuple[float, float]:
    """p50 and p99 in ms of a client's acknowledgements at a modest rate."""
    times = librdkafka.ack_latencies_ms(
        topic,
        rate=_STEADY_RATE,
        seconds=plan.seconds * plan.rounds,
        value_bytes=_VALUE_BYTES,
        partitions=partitions,
        **subject.servers,
    )
    return times[len(times) // 2], times[len(times) * 99 // 100]


def _metadata_ms(subject: Measured, plan: Plan) -> float:
    admin = AdminClient(subject.client)
    admin.list_topics(timeout=30)

    def once() -> float:
        start = time.perf_counter()
        admin.list_topics(timeout=30)
        return (time.perf_counter() - start) * 1e3

    return plan.median(once)


def _each(grown_bytes: float, count: int) -> dict[str, float]:
    """What one of them takes; of a few it is lost in what a broker's first work takes."""
    return {"memory of each KB": grown_bytes / count / 1e3} if count >= 1_000 else {}


def _back_after_kill(subject: Measured) -> float:
    subject.broker.kill()
    start = time.perf_counter()
    subject.broker.start()
    return time.perf_counter() - start
