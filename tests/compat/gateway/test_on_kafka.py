"""The gateway beside Apache Kafka: the same answers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.apache_kafka import ApacheKafka

from .conftest import Gateway, running_gateway
from .test_readers import committed, events, fill, wait_until

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def on_kafka(kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = {"offsets.topic.replication.factor": "1", "group.initial.rebalance.delay.ms": "0"}
    with (
        ApacheKafka(kafka_class_path, tmp_path_factory.mktemp("kafka"), settings=settings) as kafka,
        running_gateway(kafka.bootstrap) as gateway,
    ):
        yield gateway


def test_records_and_readers(on_kafka: Gateway):
    topic = on_kafka.create("events", 2)
    body = {"partition_id": 1, "value": {"type": "JSON", "data": {"a": 1}}}
    status, receipts = on_kafka.receipts(topic, json.dumps(body) * 3)
    assert (status, [each["offset"] for each in receipts]) == (200, [0, 1, 2])
    fill(on_kafka, topic, range(40))
    path = f"/topics/{topic}/events?from=earliest"
    with events(on_kafka, path) as reader:
        first = reader.read(20)
    with events(on_kafka, path, last_id=reader.last_id) as reader:
        places = {(each["partition"], each["offset"]) for each in (*first, *reader.read(23))}
    assert len(places) == 43
    with events(on_kafka, f"{path}&group=sse") as reader:
        reader.read(43)
        wait_until(lambda: committed(on_kafka, "sse") == 43)
    assert on_kafka.ask("GET", "consumer-groups/sse/lag-summary")[1]["total_lag"] == 0


def test_resources(on_kafka: Gateway):
    topic = on_kafka.create("resources")
    setting = f"topics/{topic}/configs/retention.ms"
    assert on_kafka.ask("PUT", setting, {"value": "2000"}) == (204, None)
    told = on_kafka.ask("GET", setting)[1]
    assert (told["value"], told["source"]) == ("2000", "DYNAMIC_TOPIC_CONFIG")
    assert on_kafka.ask("GET", "brokers")[1]["data"][0]["kind"] == "KafkaBroker"
    assert on_kafka.ask("PUT", setting, {"value": "soon"})[1]["error_code"] == 40002
    assert on_kafka.ask("GET", "topics/no-such-topic")[1]["error_code"] == 40403
    assert on_kafka.ask("POST", "topics", {"topic_name": topic})[1]["error_code"] == 40002
    assert on_kafka.ask("GET", "acls")[1]["error_code"] == 40002
    assert on_kafka.ask("DELETE", f"topics/{topic}") == (204, None)
