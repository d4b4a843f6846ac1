"""How a broker does with a partition whose log gets longer."""

import random
import socket
import statistics
import struct
import time
from collections.abc import Iterator

from bench import blaster
from bench.canned import fetch_request
from bench.growth import Point
from bench.growth.broker import Measured, running
from bench.measures import Plan

_LENGTHS_MB = (16, 64, 256, 1_024, 4_096)
_BATCH_BYTES = 256 << 10
_READ_BYTES = 64 << 10
_READS = 2_000
# How long each step writes by which the log grows.
_WRITTEN_S = 0.1
_TOPIC = "grown"


def log_length(plan: Plan) -> Iterator[Point]:
    """Segments of 16 MB, so that there are as many as a longer log has of the default size."""
    for length_mb in _LENGTHS_MB:
        with running() as subject:
            _create(subject)
            rates: list[float] = []
            while _end_mb(subject) < length_mb:
                rates.append(blaster.produced_bytes_per_second(subject.port, _TOPIC, _BATCH_BYTES, _WRITTEN_S))
            end = _end_offset(subject)
            times = sorted(_read_ms(subject, end))
            memory = subject.resident_bytes()
            subject.broker.kill()
            killed_s = _start_s(subject)
            subject.broker.stop()
            stopped_s = _start_s(subject)
            yield Point(
                length_mb,
                {
                    "produce at its end MB/s": statistics.median(rates[-plan.rounds :]) / 1e6,
                    "random read p50 ms": times[len(times) // 2],
                    "random read p99 ms": times[len(times) * 99 // 100],
                    "memory MB": memory / 1e6,
                    "back after stop s": stopped_s,
                    "back after kill s": killed_s,
                },
            )


def _create(subject: Measured) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(subject.client)
    (created,) = admin.create_topics([NewTopic(_TOPIC, 1, 1, config={"segment.bytes": str(16 << 20)})]).values()
    created.result(30)


def _end_offset(subject: Measured) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(subject.client | {"group.id": "growth"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(_TOPIC, 0), 30)[1]
    finally:
        consumer.close()


def _end_mb(subject: Measured) -> float:
    """Records have 1,000 bytes."""
    return _end_offset(subject) / 1_000


def _read_ms(subject: Measured, end: int) -> list[float]:
    """Fetches of 64 KB anywhere in the log, one after the other."""
    source = random.Random(7)
    times = []
    with socket.create_connection(("127.0.0.1", subject.port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(_READS):
            request = fetch_request(_TOPIC, offset=source.randrange(end), max_bytes=_READ_BYTES)
            start = time.perf_counter()
            connection.sendall(request)
            (left,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
            while left:
                left -= len(connection.recv(left))
            times.append((time.perf_counter() - start) * 1e3)
    return times


def _start_s(subject: Measured) -> float:
    start = time.perf_counter()
    subject.broker.start()
    return time.perf_counter() - start
