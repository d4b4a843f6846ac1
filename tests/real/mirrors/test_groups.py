"""Where groups stand follows a topic that is mirrored anew, though nothing has changed at the source."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import Consumer, ShareConsumer, TopicPartition

from tailrace.cli import main
from tailrace.testing import Broker
from tests.real.mirrors.test_handover import DEADLINE_S, make, mirror, until, write

pytestmark = pytest.mark.long


def commit(broker: Broker, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    consumer.close()


def committed(broker: Broker) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
    (found,) = consumer.committed([TopicPartition("orders", 0)], DEADLINE_S)
    consumer.close()
    return found.offset


def work_off(broker: Broker, count: int) -> None:
    words = ["queue", "set", "workers", "share.auto.offset.reset=earliest", "--bootstrap", broker.bootstrap]
    assert main(words) == 0
    member = ShareConsumer({"bootstrap.servers": broker.bootstrap, "group.id": "workers", "log_level": 0})
    member.subscribe(["orders"])
    deadline = time.monotonic() + DEADLINE_S
    while count > 0:
        assert time.monotonic() < deadline
        count -= len(member.poll(0.5) or ())
    member.commit_sync(DEADLINE_S)
    member.close()


def start(broker: Broker, capsys: pytest.CaptureFixture[str]) -> int | None:
    capsys.readouterr()
    if main(["queue", "describe", "workers", "--json", "--bootstrap", broker.bootstrap]):
        return None
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return next((each["start_offset"] for each in told if each.get("topic") == "orders"), None)


def test_groups_follow_a_topic_that_is_mirrored_anew(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as east, Broker() as west:
        make(east)
        write(east, *map(str, range(10)))
        commit(east, 5)
        work_off(east, 10)
        mirror(west, "create", "dc1", "--source", east.bootstrap, "--set", "sync.interval.ms=4000")
        until(lambda: committed(west) == 5 and start(west, capsys) == 10, "groups are where they are at the source")
        mirror(west, "failover", "dc1", "--topic", "orders")
        assert main(["topic", "delete", "orders", "--bootstrap", west.bootstrap]) == 0
        until(lambda: committed(west) < 0 and start(west, capsys) is None, "they are gone with the topic")
        until(lambda: committed(west) == 5 and start(west, capsys) == 10, "they are there again")
