"""Shipped alerts, most of them, provoked by real faults: each fires within its bound, and is over after healing.

Rules are those that are shipped, with their own times, except where a fault would take hours: `CHANGED` says which.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.apps.alerts.defaults import DEFAULT_RULES
from tailrace.apps.alerts.rules import Rule, RuleFile, Sending
from tailrace.apps.alerts.service import AlertService
from tailrace.apps.scrape import Scraper
from tailrace.real.metrics.targets import TARGETS_FILE
from tailrace.testing import Cluster

pytestmark = pytest.mark.long

# Beyond the time that a rule waits: readings, sessions of brokers, a loaded machine.
SLACK_S = 60.0
CHANGED = {
    "HangingTransaction": {"above": 5.0},  # 20 minutes
    "GroupStopped": {"for_seconds": 5.0},
}


class Watch:
    """The service on the loop of a test, and when each alert was told."""

    def __init__(self, cluster: Cluster, changes: dict[str, dict[str, float]]) -> None:
        rules = tuple(self._changed(rule, changes) for rule in DEFAULT_RULES)
        sending = Sending(interval_seconds=1.0, resolve_seconds=3.0)
        targets = [os.path.join(cluster.data, TARGETS_FILE)]
        self._service = AlertService(RuleFile(rules, sending), Scraper(timeout_seconds=2.0), targets)
        self.rules = {rule.name: rule for rule in rules}

    @staticmethod
    def _changed(rule: Rule, changes: dict[str, dict[str, float]]) -> Rule:
        return replace(rule, **changes.get(rule.name, {}))  # type: ignore[arg-type]

    async def wait(self, fires: set[str], *, over: bool = False, work: Callable[[], None] | None = None) -> None:
        """Until all of these were told to have begun, or to be over; each within its bound."""
        began, missing = time.monotonic(), set(fires)
        while missing:
            for notice in await self._service.look():
                if notice.is_firing is not over:
                    missing.discard(notice.alert.rule.name)
            waited = time.monotonic() - began
            late = [name for name in missing if waited > self.rules[name].for_seconds + SLACK_S]
            assert not late, f"after {waited:.0f} s not told: {late}; these hold: {self.firing}"
            if work is not None:
                await asyncio.to_thread(work)
            await asyncio.sleep(0.5)

    async def look(self) -> None:
        await self._service.look()

    @property
    def firing(self) -> set[str]:
        return {alert.rule.name for alert in self._service.engine.firing}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {
        "metrics.lag.interval.ms": "500",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    with Cluster(settings, brokers=3, log_level="warning") as running:
        yield running


def _admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def _create(cluster: Cluster, name: str, *replicas: list[int], **settings: str) -> None:
    config = {key.replace("_", "."): value for key, value in settings.items()}
    topic = NewTopic(name, len(replicas), replica_assignment=list(replicas), config=config)
    admin = _admin(cluster)  # Its futures end with it.
    admin.create_topics([topic])[name].result(30)


def _write(cluster: Cluster, topic: str, count: int = 10) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(count):
        producer.produce(topic, str(number).encode())
    assert producer.flush(60) == 0


async def test_a_broker_that_dies(cluster: Cluster) -> None:
    _create(cluster, "alone", [3])
    _create(cluster, "strict", [1, 2, 3], min_insync_replicas="3")
    for name in ("alone", "strict"):
        _write(cluster, name)
    watch = Watch(cluster, {})
    await watch.look()
    cluster.kill(3)
    names = {"NodeDown", "OfflinePartitions", "UnderReplicated", "UnderMinIsr"}
    await watch.wait(names)
    cluster.start(3)
    await watch.wait(names, over=True)


async def test_controllers_that_die(cluster: Cluster) -> None:
    watch = Watch(cluster, {})
    controllers = [name for name in cluster.nodes if name.startswith("controller")]
    for name in controllers[:2]:
        cluster.kill(name)
    await watch.wait({"NoController", "NodeDown"})
    for name in controllers[:2]:
        cluster.start(name)
    await watch.wait({"NoController", "NodeDown"}, over=True)


async def test_a_transaction_that_hangs(cluster: Cluster) -> None:
    _create(cluster, "ledger", [1, 2])
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "hangs"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("ledger", b"x")
    producer.flush(30)
    watch = Watch(cluster, CHANGED)
    await watch.wait({"HangingTransaction"})
    producer.abort_transaction(60)
    await watch.wait({"HangingTransaction"}, over=True)


async def test_a_group_that_stops_and_one_that_flaps(cluster: Cluster) -> None:
    _create(cluster, "orders", [1, 2])
    settings = {"bootstrap.servers": cluster.bootstrap, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    stopping = Consumer({**settings, "group.id": "stops"})
    watch = Watch(cluster, CHANGED)
    for number in range(12):
        _write(cluster, "orders", 2)
        stopping.commit(offsets=[TopicPartition("orders", 0, number + 1)], asynchronous=False)
        await watch.look()
        await asyncio.sleep(0.6)
    _write(cluster, "orders", 50)

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


async def test_a_disk_that_fills(cluster: Cluster, tmp_path: Path) -> None:
    """By a fraction of it: the threshold lies just below what is free."""
    usage = os.statvfs(cluster.data)
    step = min(256 << 20, usage.f_bavail * usage.f_frsize // 10)
    ratio = usage.f_bavail / usage.f_blocks
    fall = step / (usage.f_blocks * usage.f_frsize)
    watch = Watch(cluster, {"DiskFilling": {"below": ratio - fall / 2, "for_seconds": 2.0}})
    path = Path(cluster.data) / "filler"
    await watch.look()
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, step)
    await watch.wait({"DiskFilling"})
    path.unlink()
    await watch.wait({"DiskFilling"}, over=True)
