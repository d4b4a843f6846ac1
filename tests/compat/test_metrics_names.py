"""Names and labels of metrics, compared with Apache Kafka under the JMX exporter after the same work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families as parse

from tailrace.testing import Broker
from tailrace.testing.metrics import scrape
from tests.apache_kafka import ApacheKafka
from tests.nodes import free_ports
from tests.parts import need_jars

pytestmark = [pytest.mark.long, pytest.mark.needs("java", "mvn")]

Names = dict[str, set[frozenset[str]]]

RULES = Path(__file__).parent / "java" / "jmx" / "rules.yaml"
# By kafka_exporter, which is another program.
EXPORTED = ("kafka_consumergroup_", "kafka_topic_partition_")
# Kafka tells these by a part of a listener, too.
LABELS_OF_THREADS = {"networkProcessor"}
# What the exporter calls a summary's sum is made of a mean by nobody.
SUM = "_sum"
RECORDS = 1000


@pytest.fixture(scope="module")
def theirs(kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ApacheKafka, str]]:
    (jar,) = need_jars("tests/compat/java/jmx/pom.xml").glob("jmx_prometheus_javaagent*.jar")
    (port,) = free_ports(1)
    agent = f"-javaagent:{jar}=127.0.0.1:{port}:{RULES}"
    with ApacheKafka(kafka_class_path, tmp_path_factory.mktemp("kafka"), java_options=[agent]) as kafka:
        yield kafka, f"http://127.0.0.1:{port}"


def work(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce("orders", b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    count, ends = 0, time.monotonic() + 60
    while count < RECORDS and time.monotonic() < ends:
        count += len(consumer.consume(500, timeout=1))
    consumer.close()
    assert count == RECORDS


def names_in(text: str) -> Names:
    found: Names = {}
    for family in parse(text):
        for sample in family.samples:
            if sample.name.startswith("kafka_") and not sample.name.startswith(EXPORTED):
                found.setdefault(sample.name, set()).add(frozenset(sample.labels) - LABELS_OF_THREADS)
    return found


def test_what_we_tell_is_told_by_kafka_too(theirs: tuple[ApacheKafka, str]):
    kafka, url = theirs
    with Broker() as broker:
        work(kafka.bootstrap)
        work(broker.bootstrap)
        at_kafka, here = scrape(url), broker.metrics()
    known, told = names_in(at_kafka.text), names_in(here.text)
    ours = {name for name in told if not name.endswith(SUM)}
    assert len(ours) > 60
    missing = sorted(ours - known.keys())
    assert not missing, f"Kafka has no {missing}; it has {sorted(known)}"
    differ = {
        name: (told[name], known[name])
        for name in ours
        # Kafka makes a topic's meter when it is first marked.
        if not told[name] - known[name] <= {frozenset({"topic"})} or not known[name] <= told[name]
    }
    assert differ == {}
    for name in ("messagesin", "totalproducerequests"):
        assert f"kafka_server_brokertopicmetrics_{name}_total" in ours
    for reading in (at_kafka, here):
        assert reading.value("kafka_server_brokertopicmetrics_messagesin_total", topic="orders") == RECORDS
        assert reading.sum("kafka_log_log_logendoffset", topic="orders") == RECORDS
        assert reading.value("kafka_controller_kafkacontroller_activecontrollercount") == 1
        assert reading.value("kafka_server_replicamanager_underreplicatedpartitions") == 0
