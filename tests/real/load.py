"""Producers under load, each in a thread, that remember exactly what the broker has acknowledged, and a reader."""

import threading
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

# A client that is not done by then hangs.
DEADLINE_S = 60.0


class Load:
    """Writes 0, 1, 2, ... to one partition until told to stop. `acked[n]` is the offset at which n was acknowledged."""

    def __init__(self, bootstrap: str, topic: str, *, records_per_second: int = 4000, **settings: object) -> None:
        self.topic = topic
        self.acked: dict[int, int] = {}
        self.failed: list[str] = []
        self.sent = 0
        self._pace = records_per_second
        self._stop = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 2, "reconnect.backoff.max.ms": 200, **settings}
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Stops, and waits until every record is acknowledged or failed."""
        self._stop.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), f"the producer of {self.topic} hangs in produce()"
        left = self._producer.flush(DEADLINE_S)
        assert left == 0, f"{left} records of {self.topic} were neither acknowledged nor refused in {DEADLINE_S} s"

    def _run(self) -> None:
        started = time.monotonic()
        while not self._stop.is_set():
            due = int((time.monotonic() - started) * self._pace)
            while self.sent < due and not self._stop.is_set() and self._send(self.sent):
                self.sent += 1
            self._producer.poll(0.005)

    def _send(self, number: int) -> bool:
        try:
            self._producer.produce(self.topic, str(number).encode(), partition=0, on_delivery=self._delivered)
        except BufferError:
            return False
        return True

    def _delivered(self, error: object, message: Message) -> None:
        value, offset = message.value(), message.offset()
        if error is not None:
            self.failed.append(f"{value!r}: {error}")
        else:
            assert isinstance(value, bytes)
            assert offset is not None
            self.acked[int(value)] = offset


def read_numbers(bootstrap: str, topic: str) -> list[tuple[int, int]]:
    """All (offset, number) of partition 0, from the first to the end as it is now."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
    )
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE_S)
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found: list[tuple[int, int]] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(found) < high - low:
            assert time.monotonic() < deadline, f"read {len(found)} of {high - low} records of {topic}, then nothing"
            for message in consumer.consume(1000, timeout=0.5):
                assert message.error() is None, message.error()
                found.append((message.offset(), int(message.value())))
        return found
    finally:
        consumer.close()
