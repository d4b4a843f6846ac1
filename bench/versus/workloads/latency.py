"""From a producer's send to a consumer's hand: one process that does both, at a steady rate."""

import time
from collections.abc import Sequence

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from bench import librdkafka
from bench.versus.processes import Running
from bench.versus.rows import Effort, Row
from bench.versus.workloads.topics import topic

SECTION = "Latency"
_VALUE_BYTES = 1_000
_DEADLINE_S = 30.0
# The first records wait for connections and metadata.
_SKIPPED_S = 0.5


def acknowledged(running: Running, effort: Effort, rate: int, replicas: int) -> dict[str, float]:
    """From send to acknowledgement, linger 1 ms, acks=all, one partition."""
    with topic(running, 1, replicas=replicas) as name:
        brokers_s = running.stopwatch()
        times = librdkafka.ack_latencies_ms(
            name,
            rate=rate,
            seconds=effort.seconds,
            value_bytes=_VALUE_BYTES,
            bootstrap_servers=running.bootstrap,
            acks="all",
        )
        return percentiles(times) | {"broker CPU us": brokers_s() / len(times) * 1e6}


def end_to_end(running: Running, effort: Effort, rate: int, replicas: int) -> dict[str, float]:
    """From send to poll, no linger at 1,000 a second and 1 ms above it, acks=all, one partition."""
    with topic(running, 1, replicas=replicas) as name:
        consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": "versus", "enable.auto.commit": False})
        consumer.assign([TopicPartition(name, 0, OFFSET_END)])
        producer = Producer(
            {"bootstrap.servers": running.bootstrap, "linger.ms": 0 if rate <= 1_000 else 1, "acks": "all"}
        )
        try:
            _wait_both_work(producer, consumer, name)
            brokers_s = running.stopwatch()
            times = _latencies_ms(producer, consumer, name, rate, effort.seconds)
            spent_s = brokers_s()
            producer.flush(_DEADLINE_S)
            # Those of the first moments are sent too, and not timed.
            sent = len(times) * (effort.seconds + _SKIPPED_S) / effort.seconds
            return percentiles(times) | {"broker CPU us": spent_s / sent * 1e6}
        finally:
            consumer.close()


def _wait_both_work(producer: Producer, consumer: Consumer, name: str) -> None:
    """A consumer that starts at the end sees what is sent after it has found the end."""
    deadline = time.perf_counter() + _DEADLINE_S
    while time.perf_counter() < deadline:
        producer.produce(name, b"", partition=0)
        producer.flush(_DEADLINE_S)
        if consumer.poll(0.2) is not None:
            while consumer.poll(0.2) is not None:
                pass
            return
    raise TimeoutError("the consumer saw nothing")


def _latencies_ms(producer: Producer, consumer: Consumer, name: str, rate: int, seconds: float) -> list[float]:
    """Each value carries the moment of its sending, by a clock that both share."""
    filler = bytes(_VALUE_BYTES - 8)
    latencies: list[float] = []
    start = time.perf_counter()
    sent = received = stamp = 0
    ends = start + _SKIPPED_S + seconds
    while (now := time.perf_counter()) < ends or received < sent:
        if now > ends + _DEADLINE_S:
            raise TimeoutError(f"{received} of {sent} records came")
        while now < ends and sent < (now - start) * rate:
            stamp = stamp or time.perf_counter_ns()
            try:
                producer.produce(name, stamp.to_bytes(8, "big") + filler, partition=0)
            except BufferError:
                # What waits for room in the client's queue has waited from here on.
                break
            sent += 1
            stamp = 0
        producer.poll(0)
        for message in consumer.consume(1000, 0.0005):
            value = message.value()
            arrived = time.perf_counter_ns()
            received += 1
            if now - start > _SKIPPED_S:
                latencies.append((arrived - int.from_bytes(value[:8], "big")) / 1e6)
    return latencies


def percentiles(times: list[float], names: Sequence[str] = ("p50", "p99", "p99.9")) -> dict[str, float]:
    times = sorted(times)
    return {name: times[int(len(times) * float(name[1:]) / 100)] for name in names}


LATENCY = tuple(
    Row(
        name=f"{word}-rf{replicas}-{rate // 1_000}k",
        title=f"{title}, rf={replicas}, {rate // 1_000}k msg/s of 1 KB",
        section=SECTION,
        unit="ms",
        measure=lambda running, effort, measure=measure, rate=rate, replicas=replicas: measure(
            running, effort, rate, replicas
        ),
        brokers=replicas,
        lower_is_better=True,
    )
    for word, title, measure, replicas, rate in (
        ("ack", "acknowledged", acknowledged, 1, 20_000),
        ("end-to-end", "end to end", end_to_end, 1, 20_000),
        ("ack", "acknowledged", acknowledged, 3, 20_000),
        ("end-to-end", "end to end", end_to_end, 3, 1_000),
        ("end-to-end", "end to end", end_to_end, 3, 20_000),
    )
)
