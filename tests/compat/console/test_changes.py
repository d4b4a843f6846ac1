"""What the console changes: told first, and done as it was told."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import urlencode

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.testing import Broker

from .test_doors import FORM, ask, form

DEADLINE_S = 20.0


class Form:
    """A visitor who goes on with the form that the last page had."""

    def __init__(self, address: str, path: str) -> None:
        self._address = address
        answer, self.page = ask(address, path)
        self._cookie = answer.getheader("Set-Cookie").split(";")[0]

    def post(self, path: str, **fields: str) -> int:
        kept = {
            name: unescape(value)
            for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', self.page)
        }
        body = urlencode(kept | fields) if "Nothing has changed yet" in self.page else form(self.page, **fields)
        answer, self.page = ask(self._address, path, method="POST", body=body, Cookie=self._cookie, Content_Type=FORM)
        return int(answer.status)


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def make(admin: AdminClient, name: str, partitions: int, **settings: str) -> None:
    config = {key.replace("_", "."): value for key, value in settings.items()}
    for created in admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values():
        created.result(DEADLINE_S)


def write(broker: Broker, topic: str, partition: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(count):
        producer.produce(topic, b"x", partition=partition)
    assert producer.flush(DEADLINE_S) == 0


def bounds(broker: Broker, topic: str, partition: int) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "bounds"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=DEADLINE_S)
    finally:
        consumer.close()


def test_a_topic_is_emptied_of_what_was_told_and_of_no_more(address: str, broker: Broker, admin: AdminClient):
    make(admin, "full", 2)
    write(broker, "full", 0, 5)
    write(broker, "full", 1, 3)
    visitor = Form(address, "/topics/full")
    assert visitor.post("/topics/full/empty", partition="", offset="") == 200
    assert "full-0 loses its records from 0 up to 5." in visitor.page
    assert "full-1 loses its records from 0 up to 3." in visitor.page
    write(broker, "full", 0, 2)
    assert visitor.post("/topics/full/empty", confirm="ful") == 200, "the name was not typed"
    assert bounds(broker, "full", 0) == (0, 7)
    assert visitor.post("/topics/full/empty", confirm="full") == 303
    assert (bounds(broker, "full", 0), bounds(broker, "full", 1)) == ((5, 7), (3, 3))


def test_one_partition_is_emptied_up_to_an_offset(address: str, broker: Broker, admin: AdminClient):
    make(admin, "half", 2)
    write(broker, "half", 0, 5)
    write(broker, "half", 1, 5)
    visitor = Form(address, "/topics/half")
    assert visitor.post("/topics/half/empty", partition="1", offset="2") == 200
    assert "half-0" not in visitor.page
    assert visitor.post("/topics/half/empty", confirm="half") == 303
    assert (bounds(broker, "half", 0), bounds(broker, "half", 1)) == ((0, 5), (2, 5))
    for fields, status in (({"partition": "9"}, 404), ({"partition": "1", "offset": "1"}, 400), ({"offset": "x"}, 400)):
        assert Form(address, "/topics/half").post("/topics/half/empty", **fields) == status


def test_a_compacted_topic_is_not_emptied(address: str, broker: Broker, admin: AdminClient):
    make(admin, "compacted", 1, cleanup_policy="compact")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("compacted", b"x", key=b"k")
    assert producer.flush(DEADLINE_S) == 0
    visitor = Form(address, "/topics/compacted")
    visitor.post("/topics/compacted/empty", partition="", offset="")
    assert visitor.post("/topics/compacted/empty", confirm="compacted") >= 400
    assert "POLICY_VIOLATION" in visitor.page
    assert bounds(broker, "compacted", 0) == (0, 1)


def test_a_setting_of_a_broker_is_changed_and_goes_back(address: str):
    visitor = Form(address, "/brokers/1")
    assert visitor.post("/brokers/1/settings", setting="log.retention.ms", value="86400000") == 200
    assert "becomes 86400000." in visitor.page
    assert visitor.post("/brokers/1/settings", confirm="yes") == 303
    page = ask(address, "/brokers/1")[1]
    own = page.index('<tr class="own">')
    assert "log.retention.ms" in page[own : own + 120], "what is set here comes first"
    assert '86400000 <small class="none">1.0 d</small>' in page
    visitor = Form(address, "/brokers/1")
    assert visitor.post("/brokers/1/settings", setting="log.retention.ms", remove="1") == 200
    assert visitor.post("/brokers/1/settings", confirm="yes") == 303
    assert '<tr class="own">' not in ask(address, "/brokers/1")[1]
    assert Form(address, "/brokers/1").post("/brokers/1/settings", setting="node.id", value="7") == 400


def test_a_group_goes_back_in_one_partition(address: str, broker: Broker, admin: AdminClient):
    make(admin, "two", 2)
    write(broker, "two", 0, 4)
    write(broker, "two", 1, 4)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "two-readers"})
    consumer.commit(offsets=[TopicPartition("two", each, 4) for each in (0, 1)], asynchronous=False)
    visitor = Form(address, "/groups/two-readers")
    assert visitor.post("/groups/two-readers/reset", topic="two", partition="1", where="offset", number="1") == 200
    assert "two-1 goes from 4 to 1." in visitor.page
    assert visitor.post("/groups/two-readers/reset", confirm="yes") == 303
    found = consumer.committed([TopicPartition("two", each) for each in (0, 1)], timeout=DEADLINE_S)
    assert [each.offset for each in found] == [4, 1]
    consumer.close()
