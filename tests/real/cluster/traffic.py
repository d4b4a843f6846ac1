"""Producers and readers under way while a cluster is being hurt, and the account of what must be there afterwards.

A record's value is `key:number`. A key always goes to the same partition, so its numbers must be read in order. The
producer is idempotent with acks=all; what it was told to be stored must be stored, once, at the offset it was told. It
is told none where a later batch was acknowledged as a duplicate first: librdkafka concludes that the earlier is stored.
"""

import threading
import time
from collections import Counter

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from .observe import Place

# A client that is not done by then hangs.
DEADLINE_S = 90.0
KEYS = 24
UNKNOWN_OFFSET = -1

CLIENT: dict[str, object] = {
    # What librdkafka would say about lost connections is the point of these tests.
    "log_level": 2,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "topic.metadata.refresh.fast.interval.ms": 50,
    # librdkafka asks at once when it loses a leader, and is told the old one, who is not known to be dead yet; then it
    # looks only once a second, unless it is told to look more often.
    "topic.metadata.refresh.interval.ms": 200,
}


class Traffic:
    """Writes to all partitions of a topic until told to stop; `acked[value]` is where each record was stored."""

    def __init__(self, place: Place, topic: str, partitions: int, *, records_per_second: int = 2000) -> None:
        self.topic = topic
        self.partitions = partitions
        self.acked: dict[bytes, tuple[int, int]] = {}
        self.failed: list[str] = []
        self.sent = 0
        self.place = place
        self._pace = records_per_second
        self._stop = threading.Event()
        self._last_ack = [time.monotonic()] * partitions
        self._gaps = [0.0] * partitions
        self._producer = Producer(
            {
                **_client(place),
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                # A stopped process holds its connections: without this a request would wait a minute for its answer.
                "socket.timeout.ms": 4000,
                "request.timeout.ms": 4000,
            }
        )
        self._tail = Tail(place, topic, partitions)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_acked(self, more: int) -> None:
        """Until each partition has acknowledged something from now on, and all together so many records."""
        wanted, begun = len(self.acked) + more, time.monotonic()
        while len(self.acked) < wanted or min(self._last_ack) < begun:
            assert time.monotonic() < begun + DEADLINE_S, (
                f"{len(self.acked)} acknowledged, then nothing for partitions "
                f"{[index for index, last in enumerate(self._last_ack) if last < begun]}; failed: {self.failed[:3]}"
            )
            time.sleep(0.005)

    def begin_gap(self) -> None:
        """From here on the longest time without an acknowledgement is measured."""
        self._gaps = [0.0] * self.partitions
        self._last_ack = [time.monotonic()] * self.partitions

    def longest_gap_s(self) -> float:
        """The gap of the partition that waited longest."""
        return max(self._gaps)

    def finish(self) -> None:
        """Stops, and waits until every record is acknowledged or failed; none may have failed."""
        self._stop.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "the producer hangs in produce()"
        left = self._producer.flush(DEADLINE_S)
        assert left == 0, f"{left} records were neither acknowledged nor refused in {DEADLINE_S} s"
        assert self.failed == []
        assert len(self.acked) == self.sent

    def check(self) -> None:
        """Everything acknowledged is there, and whoever read along has read the same."""
        stored = read_all(self.place, self.topic, self.partitions)
        check_account(self.acked, stored)
        ends = {partition: offset + 1 for partition, offset in sorted(stored)}
        found = self._tail.finish(ends)
        unread = sorted(set(stored.items()) - set(found.items()))
        strange = sorted(set(found.items()) - set(stored.items()))
        assert found == stored, f"who read along has not read {unread[:3]} ({len(unread)}), but {strange[:3]}"

    def _run(self) -> None:
        started = time.monotonic()
        while not self._stop.is_set():
            due = int((time.monotonic() - started) * self._pace)
            while self.sent < due and not self._stop.is_set() and self._send(self.sent):
                self.sent += 1
            self._producer.poll(0.005)

    def _send(self, serial: int) -> bool:
        number, key = divmod(serial, KEYS)
        value = f"{key}:{number}"
        try:
            self._producer.produce(self.topic, value, partition=key % self.partitions, on_delivery=self._delivered)
        except BufferError:
            return False
        return True

    def _delivered(self, error: object, message: Message) -> None:
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert isinstance(value, bytes)
        assert partition is not None
        if error is not None:
            self.failed.append(f"{value!r}: {error}")
            return
        self.acked[value] = (partition, UNKNOWN_OFFSET if offset is None else offset)
        now = time.monotonic()
        self._gaps[partition] = max(self._gaps[partition], now - self._last_ack[partition])
        self._last_ack[partition] = now


def check_account(acked: dict[bytes, tuple[int, int]], stored: dict[tuple[int, int], bytes]) -> None:
    """Every record is stored once, where the producer was told, and in order per key; and there are no others."""
    places = {(partition, value) for (partition, _), value in stored.items()}
    lost = {
        value: (partition, offset)
        for value, (partition, offset) in acked.items()
        if stored.get((partition, offset)) != value and not (offset == UNKNOWN_OFFSET and (partition, value) in places)
    }
    assert not lost, f"{len(lost)} acknowledged records are lost or moved, such as {dict(list(lost.items())[:3])}"
    doubled = [value for value, count in Counter(stored.values()).items() if count > 1]
    assert not doubled, f"{len(doubled)} records are stored twice, such as {doubled[:3]}"
    strangers = [value for value in stored.values() if value not in acked]
    assert not strangers, f"{len(strangers)} records were never acknowledged, such as {strangers[:3]}"
    last: dict[bytes, int] = {}
    for _, value in sorted(stored.items()):
        key, _, number = value.partition(b":")
        assert int(number) == last.get(key, -1) + 1, f"out of order: of key {key!r}, {number!r} follows {last.get(key)}"
        last[key] = int(number)


class Tail:
    """Reads all partitions as they grow, in a thread, whatever becomes of the brokers meanwhile."""

    def __init__(self, place: Place, topic: str, partitions: int) -> None:
        self.found: dict[tuple[int, int], bytes] = {}
        self._ends: dict[int, int] | None = None
        self._next = dict.fromkeys(range(partitions), 0)
        self._consumer = _consumer(place, topic, partitions)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self, ends: dict[int, int]) -> dict[tuple[int, int], bytes]:
        """All that it has read, up to these ends of partitions; a reader that never gets there hangs."""
        self._ends = ends
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), f"the reader stopped at {self._next}, before {ends}"
        self._consumer.close()
        return self.found

    def _run(self) -> None:
        while self._ends is None or any(self._next[partition] < end for partition, end in self._ends.items()):
            for message in self._consumer.consume(1000, timeout=0.1):
                # While brokers are down there are errors instead of records: they pass.
                if message.error() is None:
                    self.found[message.partition(), message.offset()] = message.value()
                    self._next[message.partition()] = message.offset() + 1


def read_all(place: Place, topic: str, partitions: int) -> dict[tuple[int, int], bytes]:
    """(partition, offset) -> value, from the first record to the end as it is now."""
    consumer = _consumer(place, topic, partitions)
    try:
        left = {}
        for partition in range(partitions):
            low, high = watermarks(consumer, TopicPartition(topic, partition))
            if high > low:
                left[partition] = high
        found: dict[tuple[int, int], bytes] = {}
        deadline = time.monotonic() + DEADLINE_S
        while left:
            assert time.monotonic() < deadline, f"read {len(found)} records, then nothing; ends not reached: {left}"
            for message in consumer.consume(1000, timeout=0.5):
                if message.error() is None:
                    found[message.partition(), message.offset()] = message.value()
                    if message.offset() + 1 >= left.get(message.partition(), 0):
                        left.pop(message.partition(), None)
        return found
    finally:
        consumer.close()


def _client(place: Place) -> dict[str, object]:
    return CLIENT | ({"bootstrap.servers": place} if isinstance(place, str) else place.confluent())


def _consumer(place: Place, topic: str, partitions: int) -> Consumer:
    consumer = Consumer(
        {
            **_client(place),
            "group.id": "unused",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            "fetch.error.backoff.ms": 20,
            "socket.timeout.ms": 4000,
            # Else librdkafka pauses for a whole second whenever its queue is full.
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    return consumer


def watermarks(consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
    """The client does not look again for a leader that has just moved, and calls a partition unknown that the first
    broker it asks knows no leader of; so we do."""
    passing = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._UNKNOWN_PARTITION)
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            low, high = consumer.get_watermark_offsets(partition, timeout=DEADLINE_S)
            return low, high
        except KafkaException as error:
            if error.args[0].code() not in passing or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
