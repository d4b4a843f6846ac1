"""The service of alerts on the loop of a test, with the rules that are shipped, and when each alert was told."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.apps.alerts.defaults import DEFAULT_RULES
from tailrace.apps.alerts.rules import Rule, RuleFile, Sending
from tailrace.apps.alerts.service import AlertService
from tailrace.apps.scrape import Scraper
from tailrace.real.metrics.targets import TARGETS_FILE

# Beyond the time that a rule waits: readings, sessions of brokers, a loaded machine.
SLACK_S = 60.0
Changes = Mapping[str, Mapping[str, float]]


def targets_in(folder: str) -> str:
    return os.path.join(folder, TARGETS_FILE)


class Watch:
    """`changes` are those of rules: what would take hours, or more than a test may do to a machine."""

    def __init__(self, *targets: str, changes: Changes | None = None, scraper: Scraper | None = None) -> None:
        rules = tuple(_changed(rule, changes or {}) for rule in DEFAULT_RULES)
        sending = Sending(interval_seconds=1.0, resolve_seconds=3.0)
        self._service = AlertService(RuleFile(rules, sending), scraper or Scraper(timeout_seconds=2.0), targets)
        self.rules = {rule.name: rule for rule in rules}

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


def _changed(rule: Rule, changes: Changes) -> Rule:
    return replace(rule, **changes.get(rule.name, {}))  # type: ignore[arg-type]


def create(bootstrap: str, name: str, *replicas: list[int], **settings: str) -> None:
    config = {key.replace("_", "."): value for key, value in settings.items()}
    topic = NewTopic(name, len(replicas), replica_assignment=list(replicas), config=config)
    admin = AdminClient({"bootstrap.servers": bootstrap})  # Its futures end with it.
    admin.create_topics([topic])[name].result(30)


def write(bootstrap: str, topic: str, count: int = 10) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, str(number).encode())
    assert producer.flush(60) == 0
