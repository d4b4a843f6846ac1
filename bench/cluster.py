"""What three brokers do together: every record three times, acknowledged by all that are in sync."""

import time

from bench import librdkafka
from bench.baselines import copied_bytes_per_second
from bench.measures import KILOBYTE, MEGABYTE, Figure, Plan
from bench.subject import Subject, running

_BROKERS = 3
# One for each leader, so that all three brokers work.
_PARTITIONS = 3


def cluster(plan: Plan) -> list[Figure]:
    """Three brokers, each a process, with three controllers beside them."""
    with running(_BROKERS) as subject:
        figures = _start(subject)
        figures += _latency(subject, plan)
        figures += _throughput(subject, plan)
    return figures


def _start(subject: Subject) -> list[Figure]:
    time.sleep(1.0)
    sizes = subject.resident_bytes_of_nodes()
    brokers = [size / MEGABYTE for name, size in sizes.items() if name.startswith("broker")]
    controllers = [size / MEGABYTE for name, size in sizes.items() if name.startswith("controller")]
    ready_ms = subject.ready_after_s * 1000
    return [
        Figure("three brokers: start to ready", ready_ms, "ms", 2000, None, "", lower_is_better=True),
        Figure("three brokers: memory of each, idle", max(brokers), "MB", 60, None, "", lower_is_better=True),
        Figure("three brokers: memory of a controller", max(controllers), "MB", 40, None, "", lower_is_better=True),
    ]


def _throughput(subject: Subject, plan: Plan) -> list[Figure]:
    copy = plan.median(lambda: copied_bytes_per_second(plan.seconds)) / MEGABYTE

    def rate(topic: str, value_bytes: int) -> float:
        subject.create_topic(topic, warm=True, partitions=_PARTITIONS, replicas=_BROKERS)
        return plan.median_warm(
            lambda: librdkafka.produced_per_second(
                topic,
                value_bytes,
                plan.seconds,
                partitions=_PARTITIONS,
                bootstrap_servers=subject.bootstrap,
                acks="all",
                batch_size=256 << 10,
                message_max_bytes=2_000_000,
            )[1]
        )

    large, small = rate("replicated-1k", KILOBYTE), rate("replicated-100", 100)
    return [
        Figure("three replicas, acks=all, 1 KB, warm", large / 1_000, "MB/s", 300, copy, "loopback copy"),
        Figure("three replicas, acks=all, 100 B, warm", small, "messages/s", 2_000_000, copy * 10_000, "loopback copy"),
    ]


def _latency(subject: Subject, plan: Plan) -> list[Figure]:
    """One partition, as where a single broker is measured."""
    topic = subject.create_topic("replicated-latency", warm=True, replicas=_BROKERS)
    times = librdkafka.ack_latencies_ms(
        topic,
        rate=20_000,
        seconds=plan.seconds * plan.rounds,
        value_bytes=KILOBYTE,
        bootstrap_servers=subject.bootstrap,
        acks="all",
    )
    p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
    name = "three replicas, acks=all, 20k msg/s of 1 KB, linger 1"
    return [
        Figure(f"{name}, p50", p50, "ms", None, None, "", lower_is_better=True),
        Figure(f"{name}, p99", p99, "ms", 4.0, None, "", lower_is_better=True),
    ]
