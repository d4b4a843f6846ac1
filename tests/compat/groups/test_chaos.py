"""Members and brokers die, stall, leave and come back in an order that a seed decides; the account must hold anyway."""

import random
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.testing import LOW_LATENCY, Cluster
from tests.compat.clients import DEADLINE_S

from .conftest import QUICK
from .crowd import Crowd, Member, python_member

pytestmark = pytest.mark.long

PARTITIONS = 24
MEMBERS_MIN, MEMBERS_MAX = 4, 9
STEPS = 12
CONFLUENT = python_member("confluent")
EAGER = {"partition.assignment.strategy": "range"}
COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}
CONSUMER = {"group.protocol": "consumer"}
# What each new member may be; both protocols in one group are a change that never ends.
KINDS = {"eager": [EAGER], "cooperative": [COOPERATIVE], "consumer": [CONSUMER], "both": [EAGER, CONSUMER]}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster({**LOW_LATENCY, **QUICK}, brokers=3) as running:
        yield running


class Chaos:
    """One fault after the other; of members one at most is stalled, of brokers one at most is away."""

    def __init__(self, cluster: Cluster, crowd: Crowd, kinds: list[dict[str, str]], seed: int) -> None:
        self._cluster = cluster
        self._crowd = crowd
        self._kinds = kinds
        self._random = random.Random(seed)
        self._stalled: Member | None = None
        self._faults: list[Callable[[], None]] = [
            self.add,
            self._kill_member,
            self._close_member,
            self._stall_member,
            self._kill_broker,
            self._kill_coordinator,
            self._restart_broker,
            self._stall_broker,
        ]

    def step(self) -> None:
        self._random.choice(self._faults)()
        self._sleep(2.0)
        if self._random.random() < 0.3:
            self.heal()

    def heal(self) -> None:
        if self._stalled is not None:
            self._stalled.resume()
            self._stalled = None

    def add(self) -> None:
        if len(self._crowd.alive) < MEMBERS_MAX:
            self._crowd.add(CONFLUENT, **self._random.choice(self._kinds))

    def _kill_member(self) -> None:
        if member := self._pick():
            member.kill()

    def _close_member(self) -> None:
        if member := self._pick():
            member.ask_to_close()
            member.wait_closed()

    def _stall_member(self) -> None:
        if self._stalled is None and (member := self._pick()):
            member.pause()
            self._stalled = member

    def _kill_broker(self, broker_id: int | None = None) -> None:
        broker_id = broker_id or self._random.choice(self._cluster.broker_ids)
        self._cluster.kill(broker_id)
        self._sleep(2.0)
        self._cluster.start(broker_id)

    def _kill_coordinator(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap, "log_level": 2})
        (asked,) = admin.describe_consumer_groups([self._crowd.group], request_timeout=DEADLINE_S).values()
        try:
            coordinator = asked.result(DEADLINE_S).coordinator
        except KafkaException:
            # It moves just now, which librdkafka does not wait for: one fault less.
            return
        assert coordinator is not None
        self._kill_broker(coordinator.id)

    def _restart_broker(self) -> None:
        self._cluster.restart(self._random.choice(self._cluster.broker_ids))

    def _stall_broker(self) -> None:
        """For longer than its lease, or not."""
        broker_id = self._random.choice(self._cluster.broker_ids)
        self._cluster.pause(broker_id)
        self._sleep(3.0)
        self._cluster.resume(broker_id)

    def _pick(self) -> Member | None:
        members = [member for member in self._crowd.alive if member is not self._stalled]
        return self._random.choice(members) if len(members) > MEMBERS_MIN else None

    def _sleep(self, at_most_s: float) -> None:
        time.sleep(self._random.uniform(0.0, at_most_s))


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_account_holds(cluster: Cluster, fresh_name: Callable[[], str], kind: str, seed: int):
    topic = fresh_name()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    (created,) = admin.create_topics([NewTopic(topic, PARTITIONS, 3)]).values()
    created.result(DEADLINE_S)
    with Crowd(cluster.bootstrap, f"group-of-{topic}", topic, PARTITIONS) as crowd:
        chaos = Chaos(cluster, crowd, KINDS[kind], seed)
        for _ in range(6):
            chaos.add()
        crowd.wait_shared()
        writer = crowd.write()
        for _ in range(STEPS):
            chaos.step()
        chaos.heal()
        crowd.wait_shared()
        crowd.wait_read(writer.finish())
        crowd.close()
        crowd.check(writer.written)
