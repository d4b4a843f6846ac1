"""Consumers read from the replica in their own rack (KIP-392): near, and at no cost between data centres."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.nodes import NODE_IDS, Nodes

from .clients import DEADLINE_S
from .clients.confluent import Confluent
from .clients.corpus import small
from .clients.pure import KafkaPython
from .clients.pure import TopicPartition as KafkaPythonTopicPartition

_COUNT = 500
_LEADER = 1


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Each in a rack of its own."""
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    settings = {"replica.selector.class": selector}
    with Nodes(tmp_path_factory.mktemp("racks"), lambda node_id: settings | {"broker.rack": f"rack-{node_id}"}) as all_:
        yield all_


@pytest.fixture
def topic(nodes: Nodes, fresh_name: Callable[[], str]) -> str:
    """One partition on all nodes, led by the first, with records."""
    name = fresh_name()
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    new = NewTopic(name, num_partitions=1, replica_assignment=[[_LEADER, 2, 3]])
    (created,) = admin.create_topics([new]).values()
    created.result(DEADLINE_S)
    Confluent().produce(nodes.bootstrap, name, small(_COUNT))
    return name


@pytest.mark.parametrize(("rack", "server"), [*((f"rack-{each}", each) for each in NODE_IDS), ("elsewhere", _LEADER)])
def test_librdkafka_reads_in_its_rack(nodes: Nodes, topic: str, rack: str, server: int):
    fetches: dict[int, int] = {}

    def note(statistics: str) -> None:
        brokers = json.loads(statistics)["brokers"].values()
        fetches.update({broker["nodeid"]: broker["req"].get("Fetch", 0) for broker in brokers if broker["nodeid"] > 0})

    consumer = Confluent().consumer(nodes.bootstrap, client_rack=rack, statistics_interval_ms=100, stats_cb=note)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        _read(consumer.consume, range(_COUNT))
        # Then it waits for more, at the same broker.
        Confluent().produce(nodes.bootstrap, topic, small(_COUNT))
        _read(consumer.consume, range(_COUNT, 2 * _COUNT))
        deadline = time.monotonic() + DEADLINE_S
        while fetches.get(server, 0) < 2:
            assert time.monotonic() < deadline, fetches
            consumer.poll(0.1)
    finally:
        consumer.close()
    # A leader elsewhere is asked once, and tells where to go.
    assert {node for node, count in fetches.items() if count > 1} == {server}


def test_kafka_python_reads_in_its_rack(nodes: Nodes, topic: str):
    """It goes back to the leader after each answer, in a session, and has to be told again."""
    consumer = KafkaPython().consumer(nodes.bootstrap, client_rack="rack-3")
    partition = KafkaPythonTopicPartition(topic, 0)

    def take(count: int, timeout: float) -> list[Any]:
        return consumer.poll(timeout_ms=int(timeout * 1000), max_records=count).get(partition, [])

    try:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        _read(take, range(_COUNT))
        Confluent().produce(nodes.bootstrap, topic, small(_COUNT))
        _read(take, range(_COUNT, 2 * _COUNT))
        metrics = consumer.metrics()
    finally:
        consumer.close()
    received = {node: metrics[f"consumer-node-metrics.node-{node}"]["incoming-byte-rate"] for node in (_LEADER, 3)}
    assert received[3] > 10 * received[_LEADER]


def _read(take: Callable[..., list[Any]], expected: range) -> None:
    """`take` gives some messages, of librdkafka or of kafka-python."""
    offsets: list[int] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(offsets) < len(expected):
        assert time.monotonic() < deadline, f"{len(offsets)} of {len(expected)} records came in time"
        messages = take(len(expected) - len(offsets), timeout=0.5)
        offsets += [each.offset() if callable(each.offset) else each.offset for each in messages]
    assert offsets == list(expected)
