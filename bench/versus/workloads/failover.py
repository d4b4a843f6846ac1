"""How long a producer is without an answer when the leader of its partition is killed.

Nodes are brokers and controllers at once. Whoever leads the partition is chosen: a node that is not the active
controller, or the one that is, since then two things have to be found out one after the other.
"""

import random
import time

from confluent_kafka import Producer

from bench.coordinator import Connection
from bench.versus.processes import DEADLINE_S, Running, wait_answers
from bench.versus.rivals import SAME_TIMEOUTS, WARM_CHECKS, brokers_known
from bench.versus.rows import Effort, Row
from bench.versus.workloads.requests import produce as one_by_one
from bench.versus.workloads.topics import in_sync, topic
from tailrace.wire.apis.quorum import DescribeQuorumRequest

SECTION = "Failover"
_BROKERS = 3
# Chosen anew each time: the library looks for lost leaders once a second, counted from its own start.
_BEFORE_S = (1.0, 2.0)
_EVERY_S = 0.005
_METADATA_TOPIC = "__cluster_metadata"


def failover(running: Running, _effort: Effort, *, of_controller: bool) -> float:
    """Seconds from the kill until the first record sent after it is acknowledged by librdkafka's producer."""
    active = _active_controller(running)
    victim = active if of_controller else next(node for node in running.addresses if node != active)
    with topic(running, 1, replicas=_BROKERS, warm=False, leader=victim) as name:
        _wait_all_in_sync(running, name)
        took_s = _kill_and_wait(running, victim, name)
        running.brokers[victim].start()
        wait_answers(running.addresses[victim], lambda address: brokers_known(address) == _BROKERS, running.brokers)
        _wait_all_in_sync(running, name)
    return took_s


def _kill_and_wait(running: Running, victim: int, name: str) -> float:
    producer = Producer({"bootstrap.servers": running.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0})
    begun = time.perf_counter()
    before_s = random.uniform(*_BEFORE_S)
    killed: float | None = None
    acknowledged: list[float] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            raise RuntimeError(f"a record was not delivered: {error}")
        acknowledged.append(time.perf_counter())

    while not acknowledged:
        now = time.perf_counter()
        if killed is None and now > begun + before_s:
            if producer.flush(DEADLINE_S):
                raise TimeoutError("records were not acknowledged while all brokers lived")
            killed = time.perf_counter()
            running.brokers[victim].kill()
        if now > begun + DEADLINE_S:
            raise TimeoutError(f"nothing was acknowledged in {DEADLINE_S} s after the kill")
        producer.produce(name, b"x", partition=0, on_delivery=delivered if killed is not None else None)
        producer.poll(_EVERY_S)
    assert killed is not None
    producer.flush(DEADLINE_S)
    return acknowledged[0] - killed


def _active_controller(running: Running) -> int:
    partition = DescribeQuorumRequest.PartitionData(partition_index=0)
    topics = [DescribeQuorumRequest.TopicData(topic_name=_METADATA_TOPIC, partitions=[partition])]
    with Connection(running.port) as connection:
        answer = connection.ask(DescribeQuorumRequest(topics=topics), 0)
    return answer.topics[0].partitions[0].leader_id


def _wait_all_in_sync(running: Running, name: str) -> None:
    deadline = time.perf_counter() + DEADLINE_S
    while in_sync(running, name) < _BROKERS:
        if time.perf_counter() > deadline:
            raise TimeoutError(f"{name} has not all replicas in sync after {DEADLINE_S} s")
        time.sleep(0.2)


def _row(word: str, title: str, *, of_controller: bool, settings: dict[str, str]) -> Row:
    return Row(
        name=f"failover-{word}",
        title=f"kill -9 of {title}",
        section=SECTION,
        unit="s",
        measure=lambda running, effort: failover(running, effort, of_controller=of_controller),
        brokers=_BROKERS,
        lower_is_better=True,
        settings=tuple((WARM_CHECKS | settings).items()),
        # Records one by one, as they come when a leader dies. Whoever is killed comes back cold, after the figure.
        warm_with=lambda running, effort: one_by_one(running, effort, _BROKERS, 1),
        closes=True,
        rounds_max=2,
    )


FAILOVER = (
    _row("leader", "a leader, default timeouts", of_controller=False, settings={}),
    _row("leader-same-timeouts", "a leader, the same timeouts", of_controller=False, settings=SAME_TIMEOUTS),
    _row(
        "leader-and-controller-same-timeouts",
        "a leader that is the controller, the same timeouts",
        of_controller=True,
        settings=SAME_TIMEOUTS,
    ),
)
