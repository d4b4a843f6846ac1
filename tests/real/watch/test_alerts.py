"""Shipped alerts, provoked by real faults on one cluster: each fires within its bound, and is over after healing.

Rules are those that are shipped, with their own times, except where a fault would take hours: `CHANGED` says which.
"""

import asyncio
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tailrace.testing import Cluster

from .watching import Watch, create, targets_in, write

pytestmark = pytest.mark.long

CHANGED = {
    "HangingTransaction": {"above": 5.0},  # 20 minutes
    "GroupStopped": {"for_seconds": 5.0},
    "GroupStalls": {"for_seconds": 5.0},
    "LagGrows": {"for_seconds": 5.0},  # 5 minutes
    "LoopLag": {"above": 1.0},  # A busy machine is late by a quarter of a second, too.
    "UncleanElection": {"window_seconds": 15.0},  # An hour
}
# Longer than a loop may be late.
PAUSE_S = 1.5


def watching(cluster: Cluster) -> Watch:
    return Watch(targets_in(cluster.data), changes=CHANGED)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {
        "metrics.lag.interval.ms": "500",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    with Cluster(settings, brokers=3, log_level="warning") as running:
        yield running


async def test_a_broker_that_dies(cluster: Cluster) -> None:
    create(cluster.bootstrap, "alone", [3])
    create(cluster.bootstrap, "strict", [1, 2, 3], min_insync_replicas="3")
    for name in ("alone", "strict"):
        write(cluster.bootstrap, name)
    watch = watching(cluster)
    await watch.look()
    cluster.kill(3)
    names = {"NodeDown", "OfflinePartitions", "UnderReplicated", "UnderMinIsr"}
    await watch.wait(names)
    cluster.start(3)
    await watch.wait(names, over=True)


async def test_controllers_that_die(cluster: Cluster) -> None:
    watch = watching(cluster)
    controllers = [name for name in cluster.nodes if name.startswith("controller")]
    for name in controllers[:2]:
        cluster.kill(name)
    await watch.wait({"NoController", "NodeDown"})
    for name in controllers[:2]:
        cluster.start(name)
    await watch.wait({"NoController", "NodeDown"}, over=True)


async def test_a_transaction_that_hangs(cluster: Cluster) -> None:
    create(cluster.bootstrap, "ledger", [1, 2])
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "hangs"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("ledger", b"x")
    producer.flush(30)
    watch = watching(cluster)
    await watch.wait({"HangingTransaction"})
    producer.abort_transaction(60)
    await watch.wait({"HangingTransaction"}, over=True)


async def test_a_group_that_stops_and_one_that_flaps(cluster: Cluster) -> None:
    create(cluster.bootstrap, "orders", [1, 2])
    settings = {"bootstrap.servers": cluster.bootstrap, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    stopping = Consumer({**settings, "group.id": "stops"})
    watch = watching(cluster)
    for number in range(12):
        write(cluster.bootstrap, "orders", 2)
        stopping.commit(offsets=[TopicPartition("orders", 0, number + 1)], asynchronous=False)
        await watch.look()
        await asyncio.sleep(0.6)
    write(cluster.bootstrap, "orders", 50)

    def flap() -> None:
        member = Consumer({**settings, "group.id": "flaps"})
        member.subscribe(["orders"])
        member.poll(1.0)
        member.close()

    await watch.wait({"GroupFlaps", "GroupStopped"}, work=flap)
    end = stopping.get_watermark_offsets(TopicPartition("orders", 0), 30)[1]
    for _ in range(3):
        stopping.commit(offsets=[TopicPartition("orders", 0, end)], asynchronous=False)
    await watch.wait({"GroupStopped"}, over=True)
    stopping.close()


async def test_groups_that_fall_behind_and_that_stand_still(cluster: Cluster) -> None:
    """One commits as it reads, more slowly than is written; one commits the same place again and again."""
    settings = {"bootstrap.servers": cluster.bootstrap, "enable.auto.commit": False}
    members = {}
    for topic, group in (("behind", "slow"), ("still", "stalls")):
        create(cluster.bootstrap, topic, [1, 2])
        members[topic] = Consumer({**settings, "group.id": group})
    numbers = iter(range(1, 10_000))

    def commit(topic: str, offset: int) -> None:
        members[topic].commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)

    def work() -> None:
        for topic in members:
            write(cluster.bootstrap, topic, 5)
        commit("behind", next(numbers))
        commit("still", 1)

    watch = watching(cluster)
    await watch.wait({"LagGrows", "GroupStalls"}, work=work)

    def catch_up() -> None:
        for topic, member in members.items():
            commit(topic, member.get_watermark_offsets(TopicPartition(topic, 0), 30)[1])

    await watch.wait({"LagGrows", "GroupStalls"}, over=True, work=catch_up)
    for member in members.values():
        member.close()


async def test_a_loop_that_is_late(cluster: Cluster) -> None:
    watch = watching(cluster)

    def stall() -> None:
        cluster.pause(2)
        time.sleep(PAUSE_S)
        cluster.resume(2)
        time.sleep(PAUSE_S)

    await watch.wait({"LoopLag"}, work=stall)
    await watch.wait({"LoopLag"}, over=True)


async def test_an_unclean_election(cluster: Cluster) -> None:
    create(cluster.bootstrap, "risky", [1, 2], min_insync_replicas="1")
    write(cluster.bootstrap, "risky")
    watch = watching(cluster)
    await watch.look()
    cluster.kill(2)
    write(cluster.bootstrap, "risky", 100)  # Of which the other one has nothing.
    cluster.kill(1)
    cluster.start(2)
    await watch.wait({"OfflinePartitions"})
    assert "UncleanElection" not in watch.firing
    await asyncio.to_thread(elect, cluster.bootstrap, TopicPartition("risky", 0))
    await watch.wait({"UncleanElection"})
    cluster.start(1)
    await watch.wait({"UncleanElection", "OfflinePartitions"}, over=True)


def elect(bootstrap: str, partition: TopicPartition) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (found,) = admin.elect_leaders(ElectionType.UNCLEAN, [partition]).result(60).values()
    assert found is None, found
