"""When a move must not begin: what somebody else does is left alone, and no partition is taken below what it needs."""

from collections.abc import AsyncIterator

import pytest

from tailrace.balance.plan.picture import Goals, Move
from tailrace.balance.run.look import Limits, Sight
from tailrace.balance.run.runner import Pace, Runner
from tailrace.balance.run.throttles import TopicSettings
from tailrace.client.admin import Admin, BrokerEntry, Reassignment
from tailrace.client.metadata import PartitionMetadata
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import NodeId, PartitionIndex, TopicPartition
from tests.unit.client.peer import Peer

PARTITION = TopicPartition("t", PartitionIndex(0))
MOVE = Move(PARTITION, (1, 2), (1, 3), 0, "disk")
FINE = PartitionMetadata(PartitionIndex(0), NodeId(1), 0, (1, 2), (1, 2), (), ErrorCode.NONE)
SETTINGS = TopicSettings(2, None, frozenset(), is_foreign=False, is_covered=False)


def sight(*, down: tuple[int, ...] = (), ongoing: bool = False) -> Sight:
    brokers = tuple(BrokerEntry(each, "h", 1, None, is_fenced=each in down) for each in (1, 2, 3))
    return Sight(brokers, (), {PARTITION: Reassignment((3, 1, 2), (3,), (2,))} if ongoing else {})


@pytest.fixture
async def runner() -> AsyncIterator[Runner]:
    async with Peer() as peer:
        cluster = peer.cluster()
        made = Runner(Admin(cluster), goals=Goals(), pace=Pace(), limits=Limits(), tell=lambda _line: None)
        made._settings["t"] = SETTINGS
        yield made
        cluster.close()


async def test_a_healthy_partition_may_move(runner: Runner):
    assert runner._why_not(MOVE, FINE, sight()) is None


@pytest.mark.parametrize(
    ("state", "seen", "reason"),
    [
        (None, sight(), "it was deleted"),
        (FINE, sight(ongoing=True), "somebody else moves it"),
        (FINE._replace(replicas=(2, 1)), sight(), "its replicas are not what they were"),
        (FINE._replace(leader_id=NodeId(-1)), sight(), "it has no leader"),
        (FINE._replace(isr=(1,)), sight(), "its replica on broker 2 is not in sync"),
        (FINE, sight(down=(3,)), "broker 3 is down"),
    ],
)
async def test_what_keeps_a_move_back(runner: Runner, state: PartitionMetadata | None, seen: Sight, reason: str):
    assert runner._why_not(MOVE, state, seen) == reason


async def test_a_dead_replica_may_be_replaced(runner: Runner):
    assert runner._why_not(MOVE, FINE._replace(isr=(1,)), sight(down=(2,))) is None


async def test_a_throttle_of_somebody_else_is_respected(runner: Runner):
    runner._settings["t"] = SETTINGS._replace(is_foreign=True)
    assert runner._why_not(MOVE, FINE, sight()) == "somebody else throttles replicas of topic t"
    runner._settings["t"] = SETTINGS._replace(is_foreign=True, is_covered=True)
    assert runner._why_not(MOVE, FINE, sight()) is None


async def test_never_fewer_replicas_than_producers_need(runner: Runner):
    fewer = MOVE._replace(new=(1,))
    assert runner._why_not(fewer, FINE, sight()) == "1 replicas are fewer than min.insync.replicas, 2"
