"""Apache Kafka's commands for share groups, and its VerifiableShareConsumer: here they tell what they tell of a broker
of Apache Kafka that has done the same."""

import json
import re
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.apache_kafka import ApacheKafka

pytestmark = pytest.mark.long

DEADLINE_S = 60.0
RECORDS = 10
SHARES_OF_ONE = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
GROUPS = "consumer.group.ShareGroupCommand"

Tool = Callable[..., str]


@pytest.fixture(scope="module")
def apache_kafka(kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ApacheKafka(kafka_class_path, tmp_path_factory.mktemp("kafka"), settings=SHARES_OF_ONE) as kafka:
        yield kafka.bootstrap


class Story:
    """One queue, and what commands told of it: words without what is of this run alone."""

    def __init__(self, tool: Tool, bootstrap: str, name: str) -> None:
        self.tool, self.at = tool, ("--bootstrap-server", bootstrap)
        self.group, self.topic = name, f"{name}-topic"
        self.told: list[list[str]] = []
        self._producer = Producer({"bootstrap.servers": bootstrap})
        admin = AdminClient({"bootstrap.servers": bootstrap})
        (created,) = admin.create_topics([NewTopic(self.topic, 1, 1)]).values()
        created.result(DEADLINE_S)

    def produce(self) -> None:
        for number in range(RECORDS):
            self._producer.produce(self.topic, f"job {number}".encode())
        assert self._producer.flush(DEADLINE_S) == 0

    def note(self, tool: str, *words: str) -> None:
        told = self.tool(tool, *self.at, *words)
        told = told.replace(self.group, "GROUP").replace(self.at[1], "BROKER")
        # Of heartbeats, epochs and coordinators each broker has its own.
        told = re.sub(r"BROKER +\(\d+\)", "COORDINATOR", told)
        self.told.append([" ".join(line.split()) for line in told.splitlines() if line.strip()])

    def groups(self, *words: str) -> None:
        self.note(GROUPS, *words, "--group", self.group)

    def consume(self, *words: str) -> None:
        self.note("consumer.ConsoleShareConsumer", "--topic", self.topic, "--group", self.group, *words)

    def verify(self, *words: str) -> dict[str, int]:
        """How many records there were, by what VerifiableShareConsumer tells of them."""
        told = self.tool("VerifiableShareConsumer", *self.at, "--topic", self.topic, "--group-id", self.group, *words)
        counts: dict[str, int] = {}
        for event in map(json.loads, told.splitlines()):
            counts[event["name"]] = counts.get(event["name"], 0) + event.get("count", 0)
        return counts

    def wait_empty(self) -> None:
        """A member of before has left, and what it held is for others."""
        deadline = time.monotonic() + DEADLINE_S
        while "Empty" not in self.tool(GROUPS, *self.at, "--describe", "--state", "--group", self.group):
            assert time.monotonic() < deadline
            time.sleep(0.2)


def tell(story: Story) -> list[list[str]]:
    story.groups("--describe")
    story.groups("--reset-offsets", "--to-earliest", "--topic", story.topic, "--execute")
    configure = ("--alter", "--add-config", "share.auto.offset.reset=earliest,share.delivery.count.limit=3")
    story.note("kafka.admin.ConfigCommand", "--entity-type", "groups", "--entity-name", story.group, *configure)
    story.note("kafka.admin.ConfigCommand", "--entity-type", "groups", "--entity-name", story.group, "--describe")
    story.produce()
    story.consume("--max-messages", str(RECORDS), "--release", "--formatter-property", "print.delivery=true")
    story.wait_empty()
    story.groups("--describe", "--state")
    story.groups("--describe", "--members")
    told = story.verify("--max-messages", str(RECORDS), "--acknowledgement-mode", "sync")
    story.told.append(sorted(f"{name} {count}" for name, count in told.items() if count))
    story.wait_empty()
    story.produce()
    story.consume("--max-messages", str(RECORDS), "--reject", "--formatter-property", "print.offset=true")
    story.wait_empty()
    listed = story.tool(GROUPS, *story.at, "--list", "--state", "empty")
    story.told.append([" ".join(line.split()).replace(story.group, "GROUP") for line in listed.splitlines()][:1])
    assert story.group in listed
    story.groups("--reset-offsets", "--to-earliest", "--topic", story.topic, "--dry-run")
    story.groups("--reset-offsets", "--to-latest", "--topic", story.topic, "--execute")
    story.groups("--describe", "--offsets")
    story.groups("--reset-offsets", "--to-earliest", "--topic", "nowhere", "--execute")
    story.groups("--delete-offsets", "--topic", story.topic)
    story.groups("--describe", "--offsets")
    story.groups("--delete")
    story.groups("--delete")
    return story.told


def test_they_tell_what_they_tell_of_apache_kafka(
    bootstrap: str, apache_kafka: str, kafka_tool: Tool, fresh_name: Callable[[], str]
):
    name = fresh_name()
    ours, theirs = (tell(Story(kafka_tool, each, name)) for each in (bootstrap, apache_kafka))
    assert ours == theirs
