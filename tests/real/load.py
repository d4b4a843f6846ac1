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

    def wait_acked(self, more: int) -> None:
        """Until so many more records are acknowledged: whoever kills the broker now kills it at work."""
        wanted = len(self.acked) + more
        deadline = time.monotonic() + DEADLINE_S
        while len(self.acked) < wanted:
            assert time.monotonic() < deadline, (
                f"{self.topic}: {len(self.acked)} acknowledged, {self.failed[:3]} failed"
            )
            time.sleep(0.005)

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


class Tail:
    """Reads partition 0 as it grows, in a thread, whatever becomes of the broker meanwhile."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.found: list[tuple[int, int]] = []
        self._consumer = _consumer(bootstrap, **{"reconnect.backoff.max.ms": 200})
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        self._end: int | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self, end_offset: int) -> list[tuple[int, int]]:
        """All (offset, number) up to there; a reader that never gets there hangs."""
        self._end = end_offset
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), f"the reader stopped at {self.found[-1:]}, before offset {end_offset}"
        self._consumer.close()
        return self.found

    def _run(self) -> None:
        while self._end is None or not self.found or self.found[-1][0] < self._end - 1:
            for message in self._consumer.consume(1000, timeout=0.1):
                # While the broker is down there are errors instead of records: they pass.
                if message.error() is None:
                    self.found.append((message.offset(), int(message.value())))


def _consumer(bootstrap: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            # Else librdkafka pauses for a whole second whenever its queue is full.
            "fetch.queue.backoff.ms": 10,
            "allow.auto.create.topics": True,
            **settings,
        }
    )


def read_numbers(bootstrap: str, topic: str) -> list[tuple[int, int]]:
    """All (offset, number) of partition 0, from the first to the end as it is now."""
    consumer = _consumer(bootstrap)
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
