"""Controllers that are killed, two of three and then all, while brokers live: what clients do goes on.

Every kind of work prints its longest pause, and so does a thread that only looks at the clock: what the machine does
not give to anybody is not the cluster's. A second is the goal; one that runs other things too may need longer.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from tailrace.testing import Cluster

from .observe import assert_replicas_equal, create_topic, wait_in_sync
from .traffic import CLIENT, DEADLINE_S, Traffic

PARTITIONS = 3
TOPIC = "headless"
OTHER = "headless-one"
PAUSE_MAX_S = 5.0
MACHINE = "the machine itself"


class Work:
    """Something that a client does again and again in a thread, and the longest time in which it was not done."""

    def __init__(self, name: str, step: Callable[[], None]) -> None:
        self.name = name
        self.count = 0
        self.failure: Exception | None = None
        self._step = step
        self._last = time.monotonic()
        self._pause_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def begin(self) -> None:
        self._pause_s, self._last = 0.0, time.monotonic()

    @property
    def pause_s(self) -> float:
        return max(self._pause_s, time.monotonic() - self._last)

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), f"{self.name} hangs"
        assert self.failure is None, f"{self.name}: {self.failure}"

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            try:
                self._step()
            except (KafkaException, AssertionError) as error:
                self.failure = error
                return
            now = time.monotonic()
            self._pause_s, self._last = max(self._pause_s, now - self._last), now
            self.count += 1


def producing(bootstrap: str, **settings: object) -> Callable[[], None]:
    """A record, and the wait for its acknowledgement."""
    producer = Producer({**CLIENT, "bootstrap.servers": bootstrap, "linger.ms": 0, **settings})

    def step() -> None:
        told: list[object] = []
        producer.produce(OTHER, b"x", on_delivery=lambda error, _message: told.append(error))
        assert producer.flush(DEADLINE_S) == 0
        assert told == [None]

    return step


def new_producers(bootstrap: str) -> Callable[[], None]:
    """Each asks for a producer id."""

    def step() -> None:
        producing(bootstrap, **{"enable.idempotence": True})()

    return step


def committing(bootstrap: str) -> Callable[[], None]:
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
    consumer.subscribe([OTHER], on_revoke=lambda _, partitions: lost.append(partitions))

    def step() -> None:
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert message.error() is None
        consumer.commit(message, asynchronous=False)
        assert not lost

    return step


def transacting(bootstrap: str) -> Callable[[], None]:
    producer = Producer({**CLIENT, "bootstrap.servers": bootstrap, "transactional.id": "writer", "linger.ms": 0})
    producer.init_transactions(DEADLINE_S)

    def step() -> None:
        producer.begin_transaction()
        producer.produce(OTHER, b"t")
        producer.commit_transaction(DEADLINE_S)

    return step


@contextmanager
def working(bootstrap: str) -> Iterator[list[Work]]:
    works = [
        Work(MACHINE, lambda: None),
        Work("acks=1", producing(bootstrap, acks="1")),
        Work("new producers", new_producers(bootstrap)),
        Work("transactions", transacting(bootstrap)),
        Work("reading and commits", committing(bootstrap)),
    ]
    deadline = time.monotonic() + DEADLINE_S
    while any(work.count < 3 and work.failure is None for work in works):
        assert time.monotonic() < deadline, [(work.name, work.count) for work in works]
        time.sleep(0.05)
    yield works
    for work in works:
        work.finish()


def go_on_without(
    cluster: Cluster, controllers: list[str], traffic: Traffic, works: list[Work], seconds: float
) -> None:
    for name in controllers:
        cluster.kill(name)
    traffic.begin_gap()
    for work in works:
        work.begin()
    time.sleep(seconds)
    traffic.wait_acked(10)
    pauses = {work.name: work.pause_s for work in works} | {"acks=all": traffic.longest_gap_s()}
    told = ", ".join(f"{name} {pause_s:.2f} s" for name, pause_s in pauses.items())
    print(f"{seconds:.0f} s without {', '.join(controllers)}, longest pauses: {told}")
    assert [work.failure for work in works] == [None] * len(works)
    assert max(pauses.values()) < PAUSE_MAX_S + pauses[MACHINE], told


@pytest.mark.parametrize(
    ("steps", "seconds"),
    [
        ((2, 1), 15.0),
        # No test may take two minutes.
        pytest.param((2,), 60.0, marks=pytest.mark.long),
        pytest.param((3,), 60.0, marks=pytest.mark.long),
    ],
)
def test_brokers_go_on_without_controllers(steps: tuple[int, ...], seconds: float):
    """`steps`: how many of three are killed each time."""
    with Cluster(brokers=3) as cluster:
        for topic in (TOPIC, OTHER):
            create_topic(cluster.bootstrap, topic, PARTITIONS)
            wait_in_sync(cluster.bootstrap, topic)
        traffic = Traffic(cluster.bootstrap, TOPIC, PARTITIONS, records_per_second=200)
        traffic.wait_acked(100)
        alive = [name for name in cluster.nodes if name.startswith("controller-")]
        dead: list[str] = []
        with working(cluster.bootstrap) as works:
            for count in steps:
                killed, alive = alive[:count], alive[count:]
                dead += killed
                go_on_without(cluster, killed, traffic, works, seconds)
            for name in dead:
                cluster.start(name)
        traffic.finish()
        wait_in_sync(cluster.bootstrap, TOPIC)
        traffic.check()
        assert_replicas_equal(cluster.data, cluster.bootstrap, TOPIC)
