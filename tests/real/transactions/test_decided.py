"""Between the decision of a transaction and its last marker: coordinators and leaders die, everything restarts."""

import itertools
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tailrace.coordinator.placement import coordinator_partition
from tailrace.testing import Cluster
from tests.real.cluster.observe import ask, create_topic, leader_of, partitions_of, wait_in_sync

from .asking import WAIT_S, describe, wait_for_state
from .loop import SETTINGS
from .worker import CLIENT

pytestmark = pytest.mark.long

STATE_TOPIC = "__transaction_state"
STEP_S = 30.0
_serial = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(SETTINGS, brokers=3) as cluster:
        yield cluster


def _producer(cluster: Cluster, transactional_id: str, *, timeout_ms: int = 60_000) -> Producer:
    producer = Producer(
        {
            **CLIENT,
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "linger.ms": 0,
        }
    )
    producer.init_transactions(STEP_S)
    return producer


def _offsets(cluster: Cluster, topic: str, isolation_level: str) -> int:
    consumer = Consumer(
        {**CLIENT, "bootstrap.servers": cluster.bootstrap, "group.id": "n", "isolation.level": isolation_level}
    )
    try:
        _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=STEP_S)
        return int(high)
    except KafkaException as failure:
        # As in Kafka, while a transaction lies open from before the last election.
        if failure.args[0].name() != "OFFSET_NOT_AVAILABLE":
            raise
        return -1
    finally:
        consumer.close()


def _read(cluster: Cluster, topic: str) -> list[bytes]:
    """All that a read_committed consumer gets to see now."""
    consumer = Consumer(
        {
            **CLIENT,
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "n",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.2):
            error = message.error()
            if error is None:
                values.append(message.value() or b"")
            elif error.name() == "_PARTITION_EOF":
                consumer.close()
                return values
    raise TimeoutError(f"no end of {topic}")


@pytest.mark.parametrize("is_commit", [True, False], ids=["committed", "aborted"])
def test_the_next_coordinator_carries_a_decision_out(cluster: Cluster, is_commit: bool):
    """One partition has a single replica, on a broker that is dead when the transaction is decided: its marker cannot
    be written. Then the coordinator dies too."""
    name = f"decided-{next(_serial)}"
    producer = _producer(cluster, name)
    partition = coordinator_partition(name, len(partitions_of(cluster.bootstrap, STATE_TOPIC)))
    coordinator = leader_of(cluster.bootstrap, STATE_TOPIC, partition)
    lonely_broker = next(each for each in cluster.broker_ids if each != coordinator)
    kept, lonely = f"{name}-kept", f"{name}-lonely"
    create_topic(cluster.bootstrap, kept, 1)
    single = {"min.insync.replicas": "1"}
    ask(cluster.bootstrap, lambda admin: admin.create_topic(lonely, assignments={0: [lonely_broker]}, configs=single))
    producer.begin_transaction()
    for topic in (kept, lonely):
        producer.produce(topic, b"in it", partition=0)
    assert producer.flush(STEP_S) == 0
    cluster.kill(lonely_broker)
    end = producer.commit_transaction if is_commit else producer.abort_transaction
    ending = threading.Thread(target=end, args=(STEP_S,), daemon=True)
    ending.start()
    wait_for_state(cluster, name, "PrepareCommit" if is_commit else "PrepareAbort")
    cluster.kill(coordinator)
    cluster.start(coordinator)
    wait_for_state(cluster, name, "PrepareCommit" if is_commit else "PrepareAbort")
    cluster.start(lonely_broker)
    wait_for_state(cluster, name, "CompleteCommit" if is_commit else "CompleteAbort")
    ending.join(STEP_S)
    assert not ending.is_alive()
    for topic in (kept, lonely):
        assert _read(cluster, topic) == ([b"in it"] if is_commit else []), topic
    wait_in_sync(cluster.bootstrap, STATE_TOPIC)


def test_open_transactions_outlive_a_full_restart(cluster: Cluster):
    """One goes on where it was, the other is nobody's any more and times out."""
    name = f"open-{next(_serial)}"
    create_topic(cluster.bootstrap, name, 1)
    left, lasting = _producer(cluster, f"{name}-left", timeout_ms=20_000), _producer(cluster, f"{name}-lasting")
    for producer in (left, lasting):
        producer.begin_transaction()
        producer.produce(name, b"before", partition=0)
        assert producer.flush(STEP_S) == 0
    cluster.kill()
    cluster.start()
    assert _read(cluster, name) == []
    lasting.produce(name, b"after", partition=0)
    lasting.commit_transaction(STEP_S)
    assert describe(cluster, f"{name}-left").transaction_state == "Ongoing", "it has time until its timeout"
    assert _read(cluster, name) == [], "what is committed waits for what lies open before it"
    deadline = time.monotonic() + WAIT_S
    while _offsets(cluster, name, "read_committed") < _offsets(cluster, name, "read_uncommitted"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert describe(cluster, f"{name}-left").transaction_state == "CompleteAbort"
    assert _read(cluster, name) == [b"before", b"after"]
