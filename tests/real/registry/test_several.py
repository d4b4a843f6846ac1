"""Several registries: one writes, the others lead to it; and whoever is killed takes no id and no version along."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tailrace.testing import Broker

from .asking import Answer, RegistryProcess, ask, avro, wait_until

# Who dies is missed after a second.
QUICK = ("schema.registry.session.timeout.ms=6000", "schema.registry.heartbeat.interval.ms=300")


def topic_records(bootstrap: str) -> list[tuple[bytes, bytes | None]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "look", "enable.partition.eof": True})
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition

    consumer.assign([TopicPartition("_schemas", 0, OFFSET_BEGINNING)])
    found = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None
            if message.error():
                return found
            found.append((message.key(), message.value()))
    finally:
        consumer.close()


def check_topic(bootstrap: str) -> dict[tuple[str, int], int]:
    """No id is two schemas, and no version was written over."""
    texts: dict[int, str] = {}
    versions: dict[tuple[str, int], int] = {}
    for key, value in topic_records(bootstrap):
        document = json.loads(key)
        if document["keytype"] == "SCHEMA" and value is not None:
            stored = json.loads(value)
            assert texts.setdefault(stored["id"], stored["schema"]) == stored["schema"]
            place = stored["subject"], stored["version"]
            assert versions.setdefault(place, stored["id"]) == stored["id"]
    return versions


@pytest.fixture
def broker():
    with Broker({"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1000}) as found:
        yield found


def test_a_write_goes_to_the_writer_and_is_seen_everywhere(broker: Broker, tmp_path: Path):
    with (
        RegistryProcess(broker.bootstrap, tmp_path / "one.log", *QUICK) as one,
        RegistryProcess(broker.bootstrap, tmp_path / "two.log", *QUICK, "leader.eligibility=false") as two,
    ):
        wait_until(lambda: ask(two.url, "POST", "/subjects/a/versions", avro("a")).status == 200)
        assert ask(two.url, "POST", "/subjects/b/versions", avro("b")).content["id"] == 2
        refused = ask(two.url, "POST", "/subjects/a/versions", {"schema": '"int"'})
        assert (refused.status, refused.code) == (409, 40901)
        for registry in (one, two):
            wait_until(lambda url=registry.url: ask(url, "GET", "/subjects").content == ["a", "b"])
        assert ask(two.url, "PUT", "/config/a", {"compatibility": "NONE"}).content == {"compatibility": "NONE"}
        assert ask(two.url, "DELETE", "/subjects/b").content == [1]
        assert one.kill(signal.SIGTERM) == 0
        alone = wait_until(
            lambda: (answer := ask(two.url, "POST", "/subjects/c/versions", avro("c"))).status == 500 and answer
        )
        assert alone.code in (50003, 50004)
        assert ask(two.url, "GET", "/subjects").content == ["a"]  # What is there can be read without a writer.


@pytest.mark.long
def test_a_writer_that_sleeps_is_shut_out(broker: Broker, tmp_path: Path):
    """It is stopped until another writes, and then goes on with what it believed."""
    with (
        RegistryProcess(broker.bootstrap, tmp_path / "one.log", *QUICK) as one,
        RegistryProcess(broker.bootstrap, tmp_path / "two.log", *QUICK) as two,
    ):
        first = ask(one.url, "POST", "/subjects/s/versions", avro("a"))
        assert first.status == 200
        writer, other = sorted((one, two), key=lambda each: each.url)  # The smallest address is elected.
        wait_until(lambda: "own=True" in Path(tmp_path / ("one.log" if writer is one else "two.log")).read_text())
        os.kill(writer.process.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: ask(other.url, "POST", "/subjects/s/versions", avro("a", "b")).status == 200)
        finally:
            os.kill(writer.process.pid, signal.SIGCONT)
        answer = wait_until(
            lambda: (
                (found := ask(writer.url, "POST", "/subjects/s/versions", avro("a", "b", "c"))).status == 200 and found
            )
        )
        assert answer.content["version"] == 3
        assert check_topic(broker.bootstrap) == {("s", 1): 1, ("s", 2): 2, ("s", 3): 3}


@pytest.mark.long
def test_killed_again_and_again(broker: Broker, tmp_path: Path):
    """Whatever was answered is there after kill -9, under the same id; nothing has two."""
    answered: dict[tuple[str, int], int] = {}
    with RegistryProcess(broker.bootstrap, tmp_path / "registry.log", *QUICK) as registry:
        for life in range(5):
            stop = threading.Event()

            def register(number: int, life: int = life, stop: threading.Event = stop) -> None:
                count = 0
                while not stop.is_set():
                    count += 1
                    subject = f"k{number}"
                    try:
                        answer = ask(
                            registry.url, "POST", f"/subjects/{subject}/versions", avro(f"f{life}_{number}_{count}")
                        )
                    except OSError:
                        return
                    if answer.status == 200:
                        answered[subject, answer.content["version"]] = answer.content["id"]

            threads = [threading.Thread(target=register, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            before = len(answered)
            wait_until(lambda before=before, life=life: len(answered) > before + 10 + 7 * life)
            registry.kill()
            stop.set()
            for thread in threads:
                thread.join()
            registry.start()
        written = check_topic(broker.bootstrap)
        assert answered.items() <= written.items()
        for subject, version in list(answered)[:: max(1, len(answered) // 50)]:
            found = ask(registry.url, "GET", f"/subjects/{subject}/versions/{version}").content
            assert found["id"] == answered[subject, version]
        numbers = sorted(written.values())
        assert numbers == list(range(1, len(numbers) + 1))  # And none was lost between two.


@pytest.mark.long
def test_damaged_records_are_passed_over_and_told(broker: Broker, tmp_path: Path):
    with RegistryProcess(broker.bootstrap, tmp_path / "one.log", *QUICK) as registry:
        assert ask(registry.url, "POST", "/subjects/a/versions", avro("a")).content["id"] == 1
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        key = b'{"keytype":"SCHEMA","subject":"b","version":1,"magic":1}'
        for name, value in (
            (b"not json", b"x"),
            (key, b'{"id":'),
            (key, b'{"subject":"b","version":1,"id":1,"schema":"2"}'),
        ):
            producer.produce("_schemas", value, name, partition=0)
        # Another registry wrote this one, with its fields in another order.
        foreign = {"deleted": False, "id": 9, "schema": '"long"', "subject": "karapace", "version": 1}
        name = {"subject": "karapace", "version": 1, "magic": 1, "keytype": "SCHEMA"}
        producer.produce("_schemas", json.dumps(foreign).encode(), json.dumps(name).encode(), partition=0)
        producer.flush()
        wait_until(lambda: ask(registry.url, "GET", "/subjects").content == ["a", "karapace"])
        assert (tmp_path / "one.log").read_text().count("passed over a record that is damaged") == 3
        assert ask(registry.url, "POST", "/subjects/a/versions", avro("a", "b")).content["id"] == 10
        registry.kill(signal.SIGTERM)
        registry.start()
        answer: Answer = ask(registry.url, "GET", "/schemas/ids/9")
        assert answer.content["schema"] == '"long"'
