"""What is measured, how, and against what: each measure is one function that gives a figure and its baseline."""

import os
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

from bench import blaster, librdkafka
from bench.baselines import copied_bytes_per_second, echo_server
from bench.canned import produce_request, produce_response_bytes
from bench.machine import warm_memory
from bench.subject import Subject, running

MOCK = {"test_mock_num_brokers": 1}
KILOBYTE = 1_000
MEGABYTE = 1_000_000
# A cold run writes this much at most: memory is filled for the first time, and the disk of a small machine is small.
_COLD_MESSAGES = 1_500_000


class Figure(NamedTuple):
    """One line of the table. `goal` and `baseline` are in the same unit as `value`."""

    name: str
    value: float
    unit: str
    goal: float | None
    baseline: float | None
    baseline_name: str
    lower_is_better: bool = False

    @property
    def to_goal(self) -> float | None:
        """Above 1 is better than the goal."""
        if not self.goal or not self.value:
            return None
        return self.goal / self.value if self.lower_is_better else self.value / self.goal

    @property
    def to_baseline(self) -> float | None:
        """The value as a multiple of the baseline's."""
        return self.value / self.baseline if self.baseline else None


class Plan(NamedTuple):
    """How long and how often; the median of the rounds is told."""

    seconds: float
    rounds: int

    def median(self, measure: Callable[[], float]) -> float:
        return statistics.median(measure() for _ in range(self.rounds))

    def median_warm(self, measure: Callable[[], float]) -> float:
        """For what fills gigabytes of page cache, and should not pay for memory that the machine has to find first."""

        def once() -> float:
            warm_memory()
            return measure()

        return self.median(once)


def requests(subject: Subject, plan: Plan) -> list[Figure]:
    """Pipelined requests of one record, on one core of broker."""
    topic = subject.create_topic("requests", warm=True)
    request = produce_request(topic, records=1, value_bytes=100)
    response = produce_response_bytes(topic)

    def echoed() -> float:
        canned = (response - 4).to_bytes(4, "big") + bytes(response - 4)
        with echo_server(len(request), canned) as port:
            return blaster.requests_per_second(port, topic, plan.seconds)

    return [
        Figure(
            "1-record Produce, pipelined, per core, warm",
            plan.median(lambda: blaster.requests_per_second(subject.port, topic, plan.seconds)),
            "requests/s",
            200_000,
            plan.median(echoed),
            "bare echo loop",
        )
    ]


def batches(subject: Subject, plan: Plan) -> list[Figure]:
    """Canned batches in and out of one core of broker."""
    copy = plan.median(lambda: copied_bytes_per_second(plan.seconds)) / MEGABYTE
    figures = []
    for size in (64 << 10, 256 << 10, 1 << 20):
        topic = subject.create_topic(f"batches-{size}", warm=True)
        rate = plan.median_warm(lambda: blaster.produced_bytes_per_second(subject.port, topic, size, plan.seconds))  # noqa: B023
        name = f"canned Produce of {size >> 10} KB batches, per core, warm"
        figures.append(Figure(name, rate / MEGABYTE, "MB/s", None, copy, "loopback copy"))
    topic = subject.create_topic("drained", warm=False)
    blaster.produced_bytes_per_second(subject.port, topic, 1 << 20, 0.2)
    for size in (64 << 10, 1 << 20):
        rate = plan.median(lambda: blaster.fetched_bytes_per_second(subject.port, topic, size, plan.seconds))  # noqa: B023
        name = f"canned Fetch of {size >> 10} KB, per core, in the page cache"
        figures.append(Figure(name, rate / MEGABYTE, "MB/s", None, copy, "loopback copy"))
    subject.delete_topic(topic)
    return figures


def throughput(subject: Subject, plan: Plan) -> list[Figure]:
    """librdkafka in, client included, on all cores."""
    ours = {"bootstrap_servers": subject.bootstrap, "acks": 1}

    def rate(topic: str, value_bytes: int, batch_bytes: int, settings: dict[str, object]) -> float:
        return plan.median_warm(
            lambda: librdkafka.produced_per_second(
                topic, value_bytes, plan.seconds, batch_size=batch_bytes, message_max_bytes=2_000_000, **settings
            )[1]
        )

    warm_1k = rate(subject.create_topic("warm-1k", warm=True), KILOBYTE, 256 << 10, ours)
    mock_1k = rate("mock", KILOBYTE, 256 << 10, MOCK)
    warm_100 = rate(subject.create_topic("warm-100", warm=True), 100, 256 << 10, ours)
    mock_100 = rate("mock", 100, 256 << 10, MOCK)
    mock = "librdkafka's mock broker"
    return [
        Figure("librdkafka, 1 KB, 256 KB batches, warm", warm_1k / 1_000, "MB/s", 1_000, mock_1k / 1_000, mock),
        Figure("librdkafka, 100 B, 256 KB batches, warm", warm_100, "messages/s", 4_000_000, mock_100, mock),
    ]


def cold_and_out(subject: Subject, plan: Plan) -> list[Figure]:
    """1 KB messages into memory that was never used, and out again to librdkafka."""
    copy = copied_bytes_per_second(plan.seconds) / MEGABYTE
    topic = subject.create_topic("cold", warm=False)
    seconds = min(plan.seconds, _COLD_MESSAGES / 1_000_000)
    count, cold = librdkafka.produced_per_second(
        topic, KILOBYTE, seconds, bootstrap_servers=subject.bootstrap, acks=1, batch_size=256 << 10
    )
    out = plan.median(
        lambda: librdkafka.consumed_per_second(
            topic, count, bootstrap_servers=subject.bootstrap, group_id="bench", enable_auto_commit="false"
        )
    )
    subject.delete_topic(topic)
    return [
        Figure("librdkafka, 1 KB, 256 KB batches, cold", cold / 1_000, "MB/s", 500, copy, "loopback copy"),
        Figure("consume by librdkafka, 1 KB, page cache", out / 1_000, "MB/s", 1_000, copy, "loopback copy"),
    ]


def latency(subject: Subject, plan: Plan) -> list[Figure]:
    """Acknowledgements at 20,000 messages of 1 KB a second."""
    topic = subject.create_topic("latency", warm=True)

    def percentiles(name: str, **settings: object) -> tuple[float, float]:
        times = librdkafka.ack_latencies_ms(
            name, rate=20_000, seconds=plan.seconds * plan.rounds, value_bytes=KILOBYTE, **settings
        )
        return times[len(times) // 2], times[len(times) * 99 // 100]

    p50, p99 = percentiles(topic, bootstrap_servers=subject.bootstrap)
    mock_p50, mock_p99 = percentiles("mock", **MOCK)
    mock = "librdkafka's mock broker"
    name = "ack at 20k msg/s of 1 KB, linger 1"
    return [
        Figure(f"{name}, p50", p50, "ms", None, mock_p50, mock, lower_is_better=True),
        Figure(f"{name}, p99", p99, "ms", 2.0, mock_p99, mock, lower_is_better=True),
    ]


def start(plan: Plan) -> list[Figure]:
    """From exec to ready, interpreter included, and the memory of an idle broker."""
    times, sizes = [], []
    for _ in range(max(3, plan.rounds)):
        with running() as subject:
            times.append(subject.ready_after_s * 1000)
            time.sleep(0.5)
            sizes.append(subject.resident_bytes() / MEGABYTE)
    return [
        Figure("start to ready", statistics.median(times), "ms", 300, None, "", lower_is_better=True),
        Figure("resident memory, idle", statistics.median(sizes), "MB", 60, None, "", lower_is_better=True),
    ]


def all_figures(plan: Plan, chosen: set[str]) -> list[Figure]:
    """The chosen groups of measures, in the order in which they disturb each other least."""
    figures = start(plan) if "start" in chosen else []
    cores = os.sched_getaffinity(0)
    with running() as subject:
        for name, measure, is_pinned in (
            ("latency", latency, False),
            ("requests", requests, True),
            ("batches", batches, True),
            ("throughput", throughput, False),
            ("cold", cold_and_out, False),
        ):
            if name in chosen:
                subject.pin({blaster.BROKER_CORE} if is_pinned and len(cores) > 1 else cores)
                figures += measure(subject, plan)
    return figures
