"""Brokers are killed two at a time while confluent-kafka's ShareConsumer empties a queue: nothing is lost, and nothing
comes again after a member was told that it is done with."""

import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from tailrace.testing import LOW_LATENCY, Cluster
from tailrace.verify import verify
from tailrace.verify.recorder import Recorder

pytestmark = pytest.mark.long

BROKERS = (1, 2, 3)
PARTITIONS = 3
ROUNDS = 4
RECORDS_PER_ROUND = 500
DEADLINE_S = 180.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster({**LOW_LATENCY, "share.coordinator.state.topic.num.partitions": 3}, brokers=len(BROKERS)) as running:
        yield running


class Queue:
    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap, self.group, self.topic = bootstrap, name, f"{name}-jobs"
        self.lines: list[str] = []
        self.taken: set[str] = set()
        self.is_over = threading.Event()
        self._recorder = Recorder(self.lines.append)
        self._writing = self._recorder.process("producer")
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._count = 0
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for created in admin.create_topics([NewTopic(self.topic, PARTITIONS, 3)]).values():
            created.result(DEADLINE_S)
        entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.GROUP, name, incremental_configs=[entry])
        for altered in admin.incremental_alter_configs([resource]).values():
            altered.result(DEADLINE_S)

    @property
    def has_all(self) -> bool:
        return len(self.taken) == self._count

    def write(self, count: int) -> None:
        for number in range(self._count, self._count + count):
            at = number % PARTITIONS
            send = self._writing.send(f"{self.topic}-{at}", str(number))
            self._producer.produce(
                self.topic,
                str(number).encode(),
                partition=at,
                on_delivery=lambda error, message, send=send: send.info() if error else send.ok(message.offset()),  # type: ignore[misc]
            )
        self._count += count
        assert self._producer.flush(DEADLINE_S) == 0

    def work(self, name: str) -> None:
        process = self._recorder.process(name)
        member = ShareConsumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "share.acknowledgement.mode": "explicit",
                "log_level": 0,
            }
        )
        member.subscribe([self.topic])
        while not self.is_over.is_set():
            messages = [each for each in member.poll(0.5) or () if each.error() is None]
            if not messages:
                continue
            places = [(f"{each.topic()}-{each.partition()}", each.offset()) for each in messages]
            values = [each.value().decode() for each in messages]
            counts = [each.delivery_count() for each in messages]
            process.taken(
                self.group, [(*at, value, count) for at, value, count in zip(places, values, counts, strict=True)]
            )
            for each in messages:
                member.acknowledge(each)
            settling = process.settle(self.group, [(*at, "accept") for at in places])
            try:
                told = member.commit_sync(20)
            except KafkaException:
                settling.info()
                continue
            if any(error is not None for error in told.values()):
                settling.info()
            else:
                settling.ok()
            self.taken.update(values)
        member.close()

    def check(self) -> None:
        self._writing.emptied(self.group)
        report = verify(self.lines)
        assert report.is_clean, report.anomalies[:3]
        assert report.figures.deliveries >= self._count


def test_brokers_die_two_at_a_time(cluster: Cluster, fresh_name: Callable[[], str]):
    queue = Queue(cluster.bootstrap, fresh_name())
    queue.write(RECORDS_PER_ROUND)
    members = [threading.Thread(target=queue.work, args=(f"member-{number}",), daemon=True) for number in range(3)]
    for each in members:
        each.start()
    chance = random.Random(7)
    for _ in range(ROUNDS):
        writing = threading.Thread(target=queue.write, args=(RECORDS_PER_ROUND,))
        writing.start()
        time.sleep(chance.uniform(0, 1.5))
        dying = chance.sample(BROKERS, 2)
        for broker in dying:
            cluster.kill(broker)
        time.sleep(chance.uniform(0, 2))
        for broker in dying:
            cluster.restart(broker)
        writing.join()
    deadline = time.monotonic() + DEADLINE_S
    while not queue.has_all and time.monotonic() < deadline:
        time.sleep(0.2)
    missing = not queue.has_all
    queue.is_over.set()
    for each in members:
        each.join(DEADLINE_S)
    assert not missing, "records that nobody was given"
    queue.check()
