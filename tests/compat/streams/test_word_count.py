"""Kafka Streams 4.3 counts words, exactly once, in groups of both protocols: killed and restarted, with several
instances, and with copies of its state. Apache Kafka gives the same results."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.streams.application import Application, Topics

LINES = 300
PROTOCOLS = ("classic", "streams")

Command = list[str]
Counts = dict[str, list[int]]


def kill_and_restart(bootstrap: str, name: str, protocol: str, command: Command, state: Path) -> Counts:
    topics = Topics(bootstrap, name)
    topics.write(LINES)
    with Application(command, topics, protocol, state) as application:
        topics.wait_counted(min_count=LINES // 2)
        topics.write(LINES)
        application.kill()
        topics.write(LINES)
        application.start()
        counts = topics.wait_counted()
    assert counts == topics.expected()
    return counts


def test_an_application_with_a_streams_group(
    bootstrap: str, fresh_name: Callable[[], str], word_count: Command, tmp_path: Path
) -> None:
    topics = Topics(bootstrap, fresh_name())
    topics.write(LINES)
    with Application(word_count, topics, "streams", tmp_path) as application:
        assert topics.wait_counted() == topics.expected()
        application.wait_tasks(4)


@pytest.mark.long
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_application_that_is_killed_goes_on_as_on_apache_kafka(
    bootstrap: str, apache_kafka: str, word_count: Command, tmp_path: Path, protocol: str
) -> None:
    ours = kill_and_restart(bootstrap, f"killed-{protocol}", protocol, word_count, tmp_path / "ours")
    theirs = kill_and_restart(apache_kafka, f"killed-{protocol}", protocol, word_count, tmp_path / "theirs")
    assert ours == theirs


@pytest.mark.long
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_one_of_two_instances_is_killed(
    bootstrap: str, fresh_name: Callable[[], str], word_count: Command, tmp_path: Path, protocol: str
) -> None:
    topics = Topics(bootstrap, fresh_name())
    topics.write(LINES)
    with (
        Application(word_count, topics, protocol, tmp_path / "one") as one,
        Application(word_count, topics, protocol, tmp_path / "two") as two,
    ):
        one.wait_tasks(2)
        two.wait_tasks(2)
        topics.write(LINES)
        two.kill()
        topics.write(LINES)
        one.wait_tasks(4)
        assert topics.wait_counted() == topics.expected()
        two.start()
        one.wait_tasks(2)
        two.wait_tasks(2)
        topics.write(LINES)
        assert topics.wait_counted() == topics.expected()


@pytest.mark.long
def test_copies_of_the_state(
    bootstrap: str, fresh_name: Callable[[], str], word_count: Command, tmp_path: Path
) -> None:
    topics = Topics(bootstrap, fresh_name())
    topics.write(LINES)
    topics.set_group("streams.num.standby.replicas", "1")
    with (
        Application(word_count, topics, "streams", tmp_path / "one") as one,
        Application(word_count, topics, "streams", tmp_path / "two") as two,
    ):
        one.wait_tasks(2, 1)
        two.wait_tasks(2, 1)
        topics.write(LINES)
        two.kill()
        one.wait_tasks(4)
        topics.write(LINES)
        assert topics.wait_counted() == topics.expected()


@pytest.mark.long
def test_from_one_protocol_to_the_other_and_back(
    bootstrap: str, fresh_name: Callable[[], str], word_count: Command, tmp_path: Path
) -> None:
    topics = Topics(bootstrap, fresh_name())
    for protocol in ("classic", "streams", "classic"):
        topics.write(LINES)
        with Application(word_count, topics, protocol, tmp_path) as application:
            topics.wait_counted()
            application.close(leaves=True)
    assert topics.wait_counted() == topics.expected()


@pytest.mark.long
def test_several_threads(bootstrap: str, fresh_name: Callable[[], str], word_count: Command, tmp_path: Path) -> None:
    topics = Topics(bootstrap, fresh_name())
    topics.write(LINES)
    with Application(word_count, topics, "streams", tmp_path, settings=["num.stream.threads=3"]) as application:
        application.wait_tasks(4)
        assert topics.wait_counted() == topics.expected()
