"""`tailrace queue`, against a real broker, with dead letters that it has written."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable

import pytest

from tailrace.client.admin import Admin
from tailrace.client.metadata import Cluster
from tailrace.client.producer import Producer
from tailrace.client.shares.consumer import ACCEPT, REJECT, ShareConsumer, ShareOptions
from tailrace.testing import Broker
from tests.unit.cli.test_group import do

Run = Callable[..., tuple[int, str, str]]
_numbers = itertools.count()


class Queue:
    """A topic with jobs, a group that reads it, and a topic for its dead letters."""

    def __init__(self, broker: Broker, run: Run) -> None:
        number = next(_numbers)
        self.topic, self.group, self.letters = f"jobs-{number}", f"workers-{number}", f"dlq.jobs-{number}"
        self.run = run
        self._broker = broker

        async def create(cluster: Cluster) -> None:
            await Admin(cluster).create_topic(self.topic, partition_count=1)
            settings = {"errors.deadletterqueue.group.enable": "true"}
            await Admin(cluster).create_topic(self.letters, partition_count=1, configs=settings)

        do(broker, create)
        self.set("share.auto.offset.reset=earliest", f"errors.deadletterqueue.topic.name={self.letters}")

    def set(self, *words: str) -> None:
        assert self.run("queue", "set", self.group, *words)[0] == 0

    def produce(self, *values: bytes) -> None:
        async def produce(cluster: Cluster) -> None:
            async with Producer(cluster) as producer:
                for value in values:
                    await producer.send(self.topic, value, key=b"k", headers=(("trace", b"1"),))

        do(self._broker, produce)

    def work(self, count: int, *, rejects: bytes = b"poison") -> list[bytes | None]:
        """So many records, as the only member."""
        seen: list[bytes | None] = []

        async def work(cluster: Cluster) -> None:
            consumer = ShareConsumer(cluster, ShareOptions(self.group, (self.topic,), "worker", 100))
            async with asyncio.timeout(30):
                while len(seen) < count:
                    for record in (await consumer.poll(500))[0]:
                        seen.append(record.record.value)
                        is_bad = (record.record.value or b"").startswith(rejects)
                        consumer.acknowledge(record, REJECT if is_bad else ACCEPT)
                await consumer.close()

        do(self._broker, work)
        return seen

    def look(self) -> dict[str, object]:
        _, out, _ = self.run("queue", "list", "--json")
        (facts,) = [each for each in map(json.loads, out.splitlines()) if each["group"] == self.group]
        return {name: facts[name] for name in ("depth", "dead_letters")}


@pytest.fixture
def queue(tailrace_broker: Broker, run: Run) -> Queue:
    return Queue(tailrace_broker, run)


def test_a_poison_record_ends_in_the_dead_letters_and_is_sent_back(queue: Queue) -> None:
    queue.produce(b"a", b"poison", b"b")
    assert queue.work(3) == [b"a", b"poison", b"b"]
    assert queue.look() == {"depth": 0, "dead_letters": 1}
    code, out, _ = queue.run("queue", "peek", queue.group, "--dead-letters")
    assert (code, out) == (
        0, f"{queue.letters}-0 0: {queue.topic}-0 1 of {queue.group}, 1 deliveries, Offset rejected by client.\n"
    )  # fmt: skip
    code, out, _ = queue.run("queue", "redrive", queue.group)
    assert (code, out) == (0, f"1 record of {queue.letters} sent back\n")
    assert queue.look() == {"depth": 1, "dead_letters": 0}
    # The record as it was, though its letter had no copy.
    record = json.loads(queue.run("queue", "peek", queue.group, "--json")[1])
    assert (record["offset"], record["key"], record["value"]) == (3, "k", "poison")
    assert record["headers"] == [{"name": "trace", "value": "1"}]
    code, out, _ = queue.run("queue", "describe", queue.group)
    assert f"{queue.topic}\t0\t3\t1" in out
    assert f"dead letters in {queue.letters}: 0" in out


def test_what_is_gone_is_sent_back_from_its_copy_or_not_at_all(queue: Queue, tailrace_broker: Broker) -> None:
    queue.produce(b"poison 1")
    queue.work(1)
    queue.set("errors.deadletterqueue.copy.record.enable=true")
    queue.produce(b"poison 2")
    queue.work(1)

    async def forget(cluster: Cluster) -> None:
        from tailrace.client.shares.dead_letters import DeadLetters

        for partition in await DeadLetters(cluster, queue.topic).depths():
            await DeadLetters(cluster, queue.topic).delete({partition: 2})

    do(tailrace_broker, forget)
    code, out, err = queue.run("queue", "redrive", queue.group)
    assert (code, out) == (1, f"0 records of {queue.letters} sent back\n")
    assert f"the record {queue.topic}-0 0 is gone, and its letter has no copy" in err
    assert queue.look() == {"depth": 0, "dead_letters": 2}
    code, out, _ = queue.run("queue", "redrive", queue.group, "--drop-lost")
    assert code == 0
    assert out.startswith(f"1 record of {queue.letters} sent back\n1 letter deleted")
    record = json.loads(queue.run("queue", "peek", queue.group, "--json")[1])
    assert (record["key"], record["value"], record.get("headers")) == ("k", "poison 2", None)


def test_letters_of_another_group_are_left(queue: Queue, tailrace_broker: Broker, run: Run) -> None:
    other = Queue(tailrace_broker, run)
    other.set(f"errors.deadletterqueue.topic.name={queue.letters}")
    queue.produce(b"poison")
    queue.work(1)
    other.produce(b"poison")
    other.work(1)
    code, out, err = queue.run("queue", "redrive", queue.group)
    assert (code, out) == (1, f"1 record of {queue.letters} sent back\n")
    assert f"from 1 on: a dead letter of group {other.group}" in err
    assert queue.run("queue", "redrive", queue.group, "--all-groups")[0] == 0
    assert (queue.look()["depth"], other.look()["depth"]) == (1, 1)


def test_a_queue_is_emptied_when_somebody_says_so(queue: Queue) -> None:
    queue.produce(b"poison", b"a")
    queue.work(2)
    queue.produce(b"b", b"c")
    assert queue.look() == {"depth": 2, "dead_letters": 1}
    code, out, _ = queue.run("queue", "purge", queue.group)
    assert (code, out) == (0, f"2 records of queue {queue.group} would be gone; --execute does it\n")
    assert queue.look() == {"depth": 2, "dead_letters": 1}
    assert queue.run("queue", "purge", queue.group, "--execute")[0] == 0
    assert queue.run("queue", "purge", queue.group, "--dead-letters", "--execute")[0] == 0
    assert queue.look() == {"depth": 0, "dead_letters": 0}


def test_what_cannot_be_done_is_told_in_a_line(queue: Queue) -> None:
    assert queue.run("queue", "set", queue.group)[0] == 2
    assert queue.run("queue", "redrive", "nobody")[2].startswith(
        "tailrace: group nobody names no topic for dead letters"
    )
    code, _, err = queue.run("queue", "describe", "nobody")
    assert code == 1
    assert "Traceback" not in err
