"""Brokers are killed two at a time while share consumers of confluent-kafka, Java and franz-go empty a queue: nothing
is lost, and nothing comes again after a member was told that it is done with. Dead letters are sent back while their
leaders die."""

import json
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import AcknowledgeType, Consumer, KafkaException, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from tailrace.cli import main
from tailrace.testing import LOW_LATENCY, Cluster
from tailrace.verify import verify
from tailrace.verify.recorder import Recorder
from tests.apache_kafka import JAVA

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
        self.count = 0
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for created in admin.create_topics([NewTopic(self.topic, PARTITIONS, 3)]).values():
            created.result(DEADLINE_S)
        entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.GROUP, name, incremental_configs=[entry])
        for altered in admin.incremental_alter_configs([resource]).values():
            altered.result(DEADLINE_S)

    @property
    def has_all(self) -> bool:
        return len(self.taken) == self.count

    def write(self, count: int) -> None:
        for number in range(self.count, self.count + count):
            at = number % PARTITIONS
            send = self._writing.send(f"{self.topic}-{at}", str(number))
            self._producer.produce(
                self.topic,
                str(number).encode(),
                partition=at,
                on_delivery=lambda error, message, send=send: send.info() if error else send.ok(message.offset()),  # type: ignore[misc]
            )
        self.count += count
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
        assert report.figures.deliveries >= self.count


def kill_two_at_a_time(cluster: Cluster, queue: Queue, rounds: int = ROUNDS) -> None:
    """And writes more meanwhile."""
    chance = random.Random(7)
    for _ in range(rounds):
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


def test_brokers_die_two_at_a_time(cluster: Cluster, fresh_name: Callable[[], str]):
    queue = Queue(cluster.bootstrap, fresh_name())
    queue.write(RECORDS_PER_ROUND)
    members = [threading.Thread(target=queue.work, args=(f"member-{number}",), daemon=True) for number in range(3)]
    for each in members:
        each.start()
    kill_two_at_a_time(cluster, queue)
    deadline = time.monotonic() + DEADLINE_S
    while not queue.has_all and time.monotonic() < deadline:
        time.sleep(0.2)
    missing = not queue.has_all
    queue.is_over.set()
    for each in members:
        each.join(DEADLINE_S)
    assert not missing, "records that nobody was given"
    queue.check()


class JavaMember(threading.Thread):
    """VerifiableShareConsumer, and what it says: the places that it was given, and those that it knows to be stored."""

    def __init__(self, class_path: str, queue: Queue) -> None:
        super().__init__(daemon=True)
        self.taken: list[tuple[int, int]] = []
        self.stored: list[tuple[int, int]] = []
        words = ["--bootstrap-server", queue.bootstrap, "--topic", queue.topic, "--group-id", queue.group]
        program = "org.apache.kafka.tools.VerifiableShareConsumer"
        command = [*JAVA, "-cp", class_path, program, *words, "--acknowledgement-mode", "sync"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.start()

    def run(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as told:
            for event in map(json.loads, told):
                if event["name"] == "offsets_acknowledged" and not event["success"]:
                    continue
                into = {"records_consumed": self.taken, "offsets_acknowledged": self.stored}.get(event["name"], [])
                found = event.get("partitions", ())
                into += [(each["partition"], offset) for each in found for offset in each["offsets"]]

    def finish(self) -> None:
        self.process.terminate()
        self.process.wait(DEADLINE_S)
        self.join(DEADLINE_S)


def test_java_members_go_on_while_brokers_die(
    cluster: Cluster, fresh_name: Callable[[], str], kafka_class_path: str
) -> None:
    queue = Queue(cluster.bootstrap, fresh_name())
    queue.write(RECORDS_PER_ROUND)
    members = [JavaMember(kafka_class_path, queue) for _ in range(2)]
    try:
        kill_two_at_a_time(cluster, queue)
        deadline = time.monotonic() + DEADLINE_S
        while len(set(members[0].stored + members[1].stored)) < queue.count:
            assert time.monotonic() < deadline, [len(each.stored) for each in members]
            time.sleep(0.2)
    finally:
        for member in members:
            member.finish()
    stored = members[0].stored + members[1].stored
    assert len(stored) == len(set(stored)) == queue.count, "each was accepted once"
    assert all(member.taken for member in members)


@pytest.mark.needs("go")
def test_franz_go_goes_on_while_brokers_die(cluster: Cluster, fresh_name: Callable[[], str], go_queue: str) -> None:
    queue = Queue(cluster.bootstrap, fresh_name())
    queue.write(RECORDS_PER_ROUND)
    count = (ROUNDS + 1) * RECORDS_PER_ROUND
    command = [go_queue, cluster.bootstrap.partition(",")[0], queue.topic, queue.group, str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as members:
        kill_two_at_a_time(cluster, queue)
        told, complaints = members.communicate(timeout=DEADLINE_S)
    assert members.returncode == 0, complaints
    delivered = dict(each.split(":") for each in told.strip().removeprefix("map[").removesuffix("]").split())
    assert delivered.keys() == {str(number) for number in range(count)}


def test_dead_letters_are_sent_back_while_their_leader_dies(
    cluster: Cluster, fresh_name: Callable[[], str], capsys: pytest.CaptureFixture[str]
) -> None:
    queue = Queue(cluster.bootstrap, fresh_name())
    letters = f"dlq.{queue.topic}"
    at = ("--bootstrap", cluster.bootstrap)
    assert main(["topic", "create", letters, "--set", "errors.deadletterqueue.group.enable=true", *at]) == 0
    assert main(["queue", "set", queue.group, f"errors.deadletterqueue.topic.name={letters}", *at]) == 0
    queue.write(1500)
    rejected = reject(queue, 1500)
    ended = threading.Event()
    deaths: list[int] = []
    dying = threading.Thread(target=kill_leaders, args=(cluster, letters, ended, deaths))
    dying.start()
    try:
        deadline = time.monotonic() + DEADLINE_S
        codes = []
        while not codes or codes[-1] or letters_left(cluster, letters):
            assert time.monotonic() < deadline
            codes.append(main(["queue", "redrive", queue.group, "--count", "50", *at]))
    finally:
        ended.set()
        dying.join(DEADLINE_S)
    counts = Counter(read_all(cluster, queue.topic))
    assert counts.keys() == rejected
    assert min(counts.values()) >= 2, "what was given up is there again"
    assert len(deaths) >= 2
    capsys.readouterr()


def reject(queue: Queue, count: int) -> set[str]:
    """All of it."""
    options = {"bootstrap.servers": queue.bootstrap, "group.id": queue.group, "share.acknowledgement.mode": "explicit"}
    member = ShareConsumer(options)
    member.subscribe([queue.topic])
    seen: set[str] = set()
    deadline = time.monotonic() + DEADLINE_S
    while len(seen) < count:
        assert time.monotonic() < deadline, len(seen)
        for message in member.poll(0.5) or ():
            assert message.error() is None
            member.acknowledge(message, AcknowledgeType.REJECT)
            seen.add(message.value().decode())
        member.commit_sync(20)
    member.close()
    return seen


def kill_leaders(cluster: Cluster, topic: str, ended: threading.Event, deaths: list[int]) -> None:
    """Whoever leads the only partition, again and again."""
    chance = random.Random(11)
    while not ended.wait(chance.uniform(0, 1)):
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        leader = admin.list_topics(topic, 20).topics[topic].partitions[0].leader
        if leader > 0:
            cluster.kill(leader)
            deaths.append(leader)
            ended.wait(0.5)
            cluster.restart(leader)


def letters_left(cluster: Cluster, topic: str) -> int:
    with closing(Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "nobody"})) as consumer:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), 20)
        return high - low


def read_all(cluster: Cluster, topic: str) -> list[str]:
    options = {"bootstrap.servers": cluster.bootstrap, "group.id": "nobody", "enable.auto.commit": False}
    values: list[str] = []
    with closing(Consumer(options)) as consumer:
        places = [TopicPartition(topic, each, 0) for each in range(PARTITIONS)]
        ends = sum(consumer.get_watermark_offsets(each, 20)[1] for each in places)
        consumer.assign(places)
        deadline = time.monotonic() + DEADLINE_S
        while len(values) < ends:
            assert time.monotonic() < deadline, (len(values), ends)
            values += [each.value().decode() for each in consumer.consume(500, 0.5) if each.error() is None]
    return values
