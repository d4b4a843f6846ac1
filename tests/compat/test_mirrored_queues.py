"""Share groups of Apache Kafka go on here where they started there: a mirror's ShareConsumer is given what is not done
with, and nothing that is."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tailrace.cli import main
from tailrace.testing import Broker
from tests.apache_kafka import ApacheKafka
from tests.compat.test_mirrors_of_kafka import DEADLINE_S, LINK, ends_of, make, wait_mirrored, write

pytestmark = pytest.mark.long

SETTINGS = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
GROUP, TOPIC, PARTITIONS = "workers", "jobs", 2


@pytest.fixture
def kafka(kafka_class_path: str, tmp_path: Path) -> Iterator[ApacheKafka]:
    folder = tmp_path / "kafka"
    folder.mkdir()
    with ApacheKafka(kafka_class_path, folder, settings=SETTINGS) as running:
        yield running


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def tailrace(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The command, and what it prints."""

    def run(*words: str, may_fail: bool = False) -> str:
        assert main(list(words)) == 0 or may_fail, capsys.readouterr().err
        return capsys.readouterr().out

    return run


def from_the_beginning(bootstrap: str, group: str) -> None:
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(DEADLINE_S)


def member_of(bootstrap: str, group: str) -> ShareConsumer:
    options = {"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
    member = ShareConsumer(options)
    member.subscribe([TOPIC])
    return member


def work(bootstrap: str, group: str, count: int, *, more_s: float = 0.0) -> set[tuple[int, int]]:
    """By a member that accepts at least so many, and what comes in some seconds more; nothing comes twice."""
    done: list[tuple[int, int]] = []
    with closing(member_of(bootstrap, group)) as member:
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            for message in member.poll(0.2) or ():
                assert message.error() is None
                member.acknowledge(message)
                done.append((message.partition(), message.offset()))
            member.commit_sync(DEADLINE_S)
            if len(done) >= count:
                deadline = min(deadline, time.monotonic() + more_s)
    assert len(done) == len(set(done)) >= count
    return set(done)


def starts(tailrace: Callable[..., str], bootstrap: str, group: str) -> dict[int, int]:
    """Where the group has begun, if it is there; where nothing was acknowledged yet Kafka has no start."""
    described = tailrace("queue", "describe", group, "--json", "--bootstrap", bootstrap, may_fail=True)
    told = map(json.loads, described.splitlines())
    return {each["partition"]: each["start_offset"] for each in told if each["start_offset"] is not None}


def wait_starts(tailrace: Callable[..., str], bootstrap: str, group: str, wanted: dict[int, int]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while (found := starts(tailrace, bootstrap, group)) != wanted:
        assert time.monotonic() < deadline, (found, wanted)
        time.sleep(0.2)


def test_a_share_group_goes_on_after_a_failover(
    kafka: ApacheKafka, broker: Broker, tailrace: Callable[..., str]
) -> None:
    here = broker.bootstrap
    make(kafka, TOPIC, PARTITIONS)
    for each in (kafka.bootstrap, here):
        from_the_beginning(each, GROUP)
    done: set[tuple[int, int]] = set()
    for _ in range(3):  # Kafka stores a start with the acknowledgement after the one that has moved it.
        write(kafka, TOPIC, 200)
        done |= work(kafka.bootstrap, GROUP, 200)
    tailrace("mirror", "create", "dc1", "--source", kafka.bootstrap, "--bootstrap", here, *LINK)
    wait_mirrored(lambda *words: tailrace("mirror", *words, "--bootstrap", here), {TOPIC: PARTITIONS})
    begun = starts(tailrace, kafka.bootstrap, GROUP)
    assert sum(begun.values()) > 0
    wait_starts(tailrace, here, GROUP, begun)
    write(kafka, TOPIC, 200)
    done |= work(kafka.bootstrap, GROUP, 200)
    write(kafka, TOPIC, 100)
    wait_mirrored(lambda *words: tailrace("mirror", *words, "--bootstrap", here), {TOPIC: PARTITIONS})
    wait_starts(tailrace, here, GROUP, moved := starts(tailrace, kafka.bootstrap, GROUP))
    assert sum(moved.values()) > sum(begun.values())
    ends = [end for _, end in ends_of(here, TOPIC, PARTITIONS)]  # Each gets a marker with the failover.
    kafka.kill()
    tailrace("mirror", "failover", "dc1", "--bootstrap", here)
    everything = {(index, offset) for index, end in enumerate(ends) for offset in range(end)}
    left = {(index, offset) for index, offset in everything if offset >= moved.get(index, 0)}
    assert done | left == everything, "what is before the start is done with"
    assert work(here, GROUP, len(left), more_s=2) == left


def test_a_group_that_works_here_already_is_left_alone(
    kafka: ApacheKafka, broker: Broker, tailrace: Callable[..., str]
) -> None:
    here = broker.bootstrap
    make(kafka, TOPIC, PARTITIONS)
    write(kafka, TOPIC, 200)
    for each in (kafka.bootstrap, here):
        from_the_beginning(each, GROUP)
        from_the_beginning(each, "others")
    tailrace("mirror", "create", "dc1", "--source", kafka.bootstrap, "--bootstrap", here, *LINK)
    wait_mirrored(lambda *words: tailrace("mirror", *words, "--bootstrap", here), {TOPIC: PARTITIONS})
    with closing(member_of(here, GROUP)) as member:
        deadline = time.monotonic() + DEADLINE_S
        while not any(member.poll(0.2) or ()):
            assert time.monotonic() < deadline
        before = starts(tailrace, here, GROUP)
        for _ in range(3):
            work(kafka.bootstrap, GROUP, 200)
            work(kafka.bootstrap, "others", 200)
            write(kafka, TOPIC, 200)
        wait_starts(tailrace, here, "others", starts(tailrace, kafka.bootstrap, "others"))  # Rounds go by.
        assert starts(tailrace, here, GROUP) == before != starts(tailrace, kafka.bootstrap, GROUP)
    wait_starts(tailrace, here, GROUP, starts(tailrace, kafka.bootstrap, GROUP))
