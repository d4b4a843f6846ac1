"""What clients do again and again while something happens to a cluster, and the longest pause of each kind of work.

A thread that only looks at the clock is one of them: what the machine does not give to anybody is not the cluster's.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import Consumer, KafkaException, Producer

from .traffic import CLIENT, DEADLINE_S

MACHINE = "the machine itself"


class Work:
    """Something that a client does again and again in a thread, and the longest time in which it was not done."""

    def __init__(self, name: str, step: Callable[[], None]) -> None:
        self.name = name
        self.count = 0
        self.failure: Exception | None = None
        self._step = step
        self._begun = self._last = time.monotonic()
        self._pause_s = self._pause_end_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def begin(self) -> None:
        self._begun = self._last = time.monotonic()
        self._pause_s = self._pause_end_s = 0.0

    def __str__(self) -> str:
        return f"{self.name} {self.pause_s:.2f} s (until {self._pause_end_s:.1f} s)"

    @property
    def pause_s(self) -> float:
        return max(self._pause_s, time.monotonic() - self._last)

    def stop(self) -> None:
        """After the step that is under way."""
        self._stop.set()

    def finish(self) -> None:
        self.stop()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), f"{self.name} hangs"
        assert self.failure is None, f"{self.name}: {self.failure}"

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            try:
                self._step()
            except (KafkaException, AiokafkaError, TimeoutError, AssertionError) as error:
                self.failure = error
                return
            now = time.monotonic()
            if now - self._last > self._pause_s:
                self._pause_s, self._pause_end_s = now - self._last, now - self._begun
            self._last = now
            self.count += 1


def producing(bootstrap: str, topic: str, **settings: object) -> Callable[[], None]:
    """A record, and the wait for its acknowledgement."""
    producer = Producer({**CLIENT, "bootstrap.servers": bootstrap, "linger.ms": 0, **settings})

    def step() -> None:
        told: list[object] = []
        producer.produce(topic, b"x", on_delivery=lambda error, _message: told.append(error))
        assert producer.flush(DEADLINE_S) == 0
        assert told == [None]

    return step


def new_producers(bootstrap: str, topic: str) -> Callable[[], None]:
    """Each asks for a producer id."""

    def step() -> None:
        producing(bootstrap, topic, **{"enable.idempotence": True})()

    return step


def committing(bootstrap: str, topic: str) -> Callable[[], None]:
    """What a member of a group has read is committed. It must not lose its partitions: heartbeats go on."""
    lost: list[object] = []
    consumer = Consumer(
        {
            **CLIENT,
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
        }
    )
    consumer.subscribe([topic], on_revoke=lambda _, partitions: lost.append(partitions))

    def step() -> None:
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert message.error() is None
        consumer.commit(message, asynchronous=False)
        assert not lost

    return step


def transacting(bootstrap: str, topic: str) -> Callable[[], None]:
    producer = Producer({**CLIENT, "bootstrap.servers": bootstrap, "transactional.id": "writer", "linger.ms": 0})
    producer.init_transactions(DEADLINE_S)

    def step() -> None:
        producer.begin_transaction()
        producer.produce(topic, b"t")
        producer.commit_transaction(DEADLINE_S)

    return step


class Awaiting:
    """The same with aiokafka, on a loop of its own: a record, and a member that reads one and commits."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._bootstrap = bootstrap
        self._topic = topic
        self._clients: tuple[AIOKafkaProducer, AIOKafkaConsumer] | None = None

    def step(self) -> None:
        self._loop.run_until_complete(self._write_and_read())

    def close(self) -> None:
        self._loop.run_until_complete(self._stop())
        self._loop.close()

    async def _write_and_read(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            producer, consumer = self._clients or await self._start()
            await producer.send_and_wait(self._topic, b"a")
            await consumer.getone()
            await consumer.commit()

    async def _start(self) -> tuple[AIOKafkaProducer, AIOKafkaConsumer]:
        common = {"bootstrap_servers": self._bootstrap, "metadata_max_age_ms": 1000}
        member = {"group_id": "awaiting", "session_timeout_ms": 6000, "heartbeat_interval_ms": 500}
        producer = AIOKafkaProducer(enable_idempotence=True, **common)
        consumer = AIOKafkaConsumer(
            self._topic, enable_auto_commit=False, auto_offset_reset="earliest", **member, **common
        )
        self._clients = producer, consumer
        await producer.start()
        await consumer.start()
        return self._clients

    async def _stop(self) -> None:
        for client in self._clients or ():
            await client.stop()


@contextmanager
def working(bootstrap: str, topic: str) -> Iterator[list[Work]]:
    awaiting = Awaiting(bootstrap, topic)
    works = [
        Work(MACHINE, lambda: None),
        Work("acks=1", producing(bootstrap, topic, acks="1")),
        Work("new producers", new_producers(bootstrap, topic)),
        Work("transactions", transacting(bootstrap, topic)),
        Work("reading and commits", committing(bootstrap, topic)),
        Work("aiokafka", awaiting.step),
    ]
    deadline = time.monotonic() + DEADLINE_S
    while any(work.count < 3 and work.failure is None for work in works):
        assert time.monotonic() < deadline, [(work.name, work.count) for work in works]
        time.sleep(0.05)
    try:
        yield works
    finally:
        for work in works:
            work.stop()
    for work in works:
        work.finish()
    awaiting.close()
