"""A broker that is held up for longer than librdkafka waits for the answer to a heartbeat: one interval."""

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.testing import Broker
from tests.compat.clients import DEADLINE_S

from .crowd import Crowd, python_member

PARTITIONS = 4
INTERVAL_S = 2.0
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": int(1000 * INTERVAL_S),
    "group.consumer.min.assignment.interval.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as running:
        yield running


def test_a_member_gives_up_what_it_was_told_to_by_an_answer_that_came_too_late(
    broker: Broker, fresh_name: Callable[[], str]
) -> None:
    """It goes on with partial heartbeats, over another connection, as if nothing had been said."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    topic = fresh_name()
    (created,) = admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values()
    created.result(DEADLINE_S)
    with Crowd(broker.bootstrap, topic, topic, PARTITIONS) as crowd:
        writer = crowd.write()
        crowd.add(python_member("confluent"), **{"group.protocol": "consumer"})
        crowd.wait_shared()
        crowd.add(python_member("confluent"), **{"group.protocol": "consumer"})
        wait_for_targets(admin, topic, members=2)
        # The first one's next heartbeat would tell it what it has to give up.
        broker.pause()
        time.sleep(2 * INTERVAL_S + 0.5)
        broker.resume()
        crowd.wait_shared()
        crowd.wait_read(writer.finish())
        crowd.close()
        summary = crowd.check(writer.written)
    assert summary.lost == 0


def wait_for_targets(admin: AdminClient, group: str, members: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        (asked,) = admin.describe_consumer_groups([group], request_timeout=DEADLINE_S).values()
        targets = [each.target_assignment for each in asked.result(DEADLINE_S).members]
        if sum(target is not None and bool(target.topic_partitions) for target in targets) == members:
            return
        assert time.monotonic() < deadline, f"not everybody has a target: {targets}"
