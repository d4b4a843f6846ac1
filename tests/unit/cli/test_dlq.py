"""`tailrace dlq` over letters that an application has left, and over those of Kafka Connect."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable

import pytest

from tailrace.kit import Admin, Consumer, Message, Outgoing, Producer
from tailrace.kit.retries.headers import STAGE_HANDLER, Failure, Origin, Trail, buried_headers
from tailrace.testing import Broker

Run = Callable[..., tuple[int, str, str]]
_numbers = itertools.count()
FAILED_MS = 1_700_000_000_000


class Letters:
    """Numbered letters in two partitions: even ones of the group billing, odd ones of audit."""

    def __init__(self, bootstrap: str, count: int) -> None:
        self.options = {"bootstrap.servers": bootstrap}
        self.source = f"dlq-{next(_numbers)}"
        self.topic = f"{self.source}.dlq"
        asyncio.run(self._write(count))

    async def _write(self, count: int) -> None:
        async with Admin(self.options) as admin:
            for name in (self.source, self.topic):
                await admin.create_topic(name, partitions=2)
        letters = []
        for number in range(count):
            error = TimeoutError("no answer") if number % 2 else KeyError("customer")
            trail = Trail(Origin(self.source, number % 2, 100 + number, 5), ("billing", "audit")[number % 2], 3, 6)
            headers = buried_headers([("own", b"1")], trail, Failure(error, STAGE_HANDLER, FAILED_MS + number * 1000))
            letters.append(Outgoing(str(number), f"k{number}", headers, partition=number // 2 % 2))
        async with Producer(self.options) as producer:
            await producer.produce_many(self.topic, letters)

    def in_topic(self, name: str) -> list[Message]:
        async def read() -> list[Message]:
            found: list[Message] = []
            options = {"isolation.level": "read_committed", "fetch.max.wait.ms": 20}
            async with Consumer({**self.options, **options}) as consumer, Admin(self.options) as admin:
                places = await admin.partitions_of(name)
                await consumer.assign(await admin.beginning_offsets(places))
                ends = await admin.end_offsets(places, committed_only=True)
                while any(consumer.position(place) < end for place, end in ends.items()):
                    found += await consumer.poll(0.5)
            return found

        return asyncio.run(asyncio.wait_for(read(), 20))


@pytest.fixture
def letters(tailrace_broker: Broker) -> Letters:
    return Letters(tailrace_broker.bootstrap, 8)


@pytest.fixture
def listed(run: Run, letters: Letters) -> Callable[..., list[str]]:
    """The keys of the letters that are listed, each named by where it came from."""

    def ask(*words: str) -> list[int]:
        code, out, err = run("dlq", "list", letters.topic, "--json", *words)
        assert code == 0, err
        return sorted(json.loads(line)["origin"]["offset"] - 100 for line in out.splitlines())

    return ask


def test_letters_are_listed_and_filtered(listed: Callable[..., list[int]]):
    assert listed() == list(range(8))
    assert listed("--group", "billing") == [0, 2, 4, 6]
    assert listed("--error", "TimeoutError") == [1, 3, 5, 7]
    assert listed("--error", "no answer", "--key", "k3") == [3]
    assert listed("--since", str(FAILED_MS + 6000)) == [6, 7]
    assert listed("--until", str(FAILED_MS + 1000)) == [0]
    assert listed("--from", "elsewhere") == []


def test_a_list_that_is_cut_says_so(run: Run, letters: Letters):
    code, out, err = run("dlq", "list", letters.topic, "--limit", "3")
    assert (code, len(out.splitlines())) == (0, 3)
    assert "more than 3" in err


def test_topics_with_letters_are_listed(run: Run, letters: Letters):
    code, out, _ = run("dlq", "list")
    assert code == 0
    assert f"{letters.topic}\t8" in out.splitlines()


def test_a_letter_is_shown_as_a_whole(run: Run, letters: Letters):
    code, out, _ = run("dlq", "show", letters.topic, "0:0")
    assert code == 0
    assert f"came from  {letters.source}-0 at offset 100" in out
    assert "failed     2023-11-14 22:13:20.000, after 6 attempts" in out
    assert "error      KeyError: 'customer'" in out
    assert '"own"' in out
    code, _, err = run("dlq", "show", letters.topic, "0:99")
    assert code == 1
    assert "no letter waits" in err


def test_nothing_is_done_without_execute_and_nothing_without_a_choice(
    run: Run, letters: Letters, listed: Callable[..., list[int]]
):
    code, out, _ = run("dlq", "replay", letters.topic, "--group", "billing")
    assert code == 0
    assert f"{letters.source}\t4" in out
    assert "add --execute" in out
    assert listed() == list(range(8))
    code, _, err = run("dlq", "drop", letters.topic, "--execute")
    assert code == 1
    assert "which letters" in err


def test_replayed_letters_go_back_once_for_their_group(run: Run, letters: Letters, listed: Callable[..., list[int]]):
    code, out, err = run("dlq", "replay", letters.topic, "--group", "billing", "--execute")
    assert (code, out.strip()) == (0, "4 letters replayed"), err
    assert listed() == [1, 3, 5, 7]
    back = letters.in_topic(letters.source)
    assert sorted(message.raw_value for message in back) == [b"0", b"2", b"4", b"6"]
    first = next(message for message in back if message.raw_value == b"0")
    headers = dict(first.headers)
    assert headers["own"] == b"1"
    assert headers["tailrace.retry.group"] == b"billing"
    assert headers["tailrace.retry.attempts"] == b"0"
    assert headers["tailrace.retry.replays"] == b"1"
    assert not any(name.startswith(("__connect", "tailrace.retry.error")) for name in headers)
    # What was settled is gone for good, and doing it again does nothing.
    assert sorted(message.raw_value for message in letters.in_topic(letters.topic)) == [b"1", b"3", b"5", b"7"]
    code, out, _ = run("dlq", "replay", letters.topic, "--group", "billing", "--execute")
    assert (code, out.strip()) == (0, "no letter is so")
    assert len(letters.in_topic(letters.source)) == 4


def test_letters_are_dropped_and_the_others_stay_as_they_are(run: Run, letters: Letters):
    before = {message.raw_value: message for message in letters.in_topic(letters.topic)}
    code, out, err = run("dlq", "drop", letters.topic, "1:1", "--execute")
    assert (code, out.strip()) == (0, "1 letter dropped"), err
    after = {message.raw_value: message for message in letters.in_topic(letters.topic)}
    (gone,) = before.keys() - after.keys()
    assert (before[gone].partition, before[gone].offset) == (1, 1)
    for value, message in after.items():
        assert (message.headers, message.raw_key, message.partition) == (
            before[value].headers,
            before[value].raw_key,
            before[value].partition,
        )
    assert letters.in_topic(letters.source) == []


def test_letters_of_kafka_connect(run: Run, tailrace_broker: Broker, letters: Letters):
    name = "connect"
    headers = {
        f"__connect.errors.{each}": text
        for each, text in {
            "topic": letters.source,
            "partition": "1",
            "offset": "7",
            "connector.name": "sink",
            "exception.class.name": "org.apache.kafka.connect.errors.DataException",
            "exception.message": "bad date",
        }.items()
    }

    async def write() -> None:
        async with Admin(letters.options) as admin, Producer(letters.options) as producer:
            await admin.create_topic(name)
            await producer.produce_many(name, [Outgoing("x", None, headers), Outgoing("y")])

    asyncio.run(write())
    code, out, _ = run("dlq", "list", name, "--group", "sink", "--json")
    assert code == 0
    told = json.loads(out)
    assert told["origin"] == {"topic": letters.source, "partition": 1, "offset": 7}
    assert told["error"] == {"class": "org.apache.kafka.connect.errors.DataException", "message": "bad date"}
    # One that does not say where it came from needs a target.
    code, _, err = run("dlq", "replay", name, "--all", "--execute")
    assert code == 1
    assert "name a topic by --to TOPIC" in err
    code, out, _ = run("dlq", "replay", name, "--all", "--to", letters.source, "--execute")
    assert (code, out.strip()) == (0, "2 letters replayed")
    assert sorted(message.raw_value for message in letters.in_topic(letters.source)) == [b"x", b"y"]
