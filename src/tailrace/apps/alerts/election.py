"""Several processes watch a cluster, and one of them tells: the one that a consumer group gives the only partition of a
topic to. The group's own protocol sees to it that there is never more than one for long, and that another follows.

While the group cannot be asked everyone tells: an alert that comes twice is better than none, and the cluster may be
what the alert is about.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.client.admin import Admin
from tailrace.client.groups.consumer import GroupConsumer, GroupOptions
from tailrace.client.groups.membership import MemberOptions
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tailrace.client.metadata import Cluster

_log = events.logger("alerts")

TOPIC = "tailrace-alerts"
_RETRY_SECONDS = 5.0
# Whoever tells and dies is missed after this time: far sooner than a consumer, for nothing is lost by a false alarm.
_SESSION_TIMEOUT_MS = 10_000
_HEARTBEAT_INTERVAL_MS = 2000
# For so long one believes that another process tells, though nothing was heard of the group.
_TRUST_SECONDS = 30.0


class Election:
    def __init__(self, open_cluster: Callable[[], Cluster], group_id: str) -> None:
        self._open_cluster = open_cluster
        self._group_id = group_id
        self._is_chosen = False
        self._heard_at = float("-inf")
        self._task: asyncio.Task[None] | None = None

    @property
    def is_ours(self) -> bool:
        return self._is_chosen or time.monotonic() - self._heard_at > _TRUST_SECONDS

    def start(self) -> None:
        self._heard_at = time.monotonic()
        self._task = asyncio.ensure_future(self._take_part())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _take_part(self) -> None:
        while True:
            try:
                await self._poll()
            except (KafkaError, OSError, TimeoutError) as error:
                self._is_chosen = False
                _log.info("the group of alerts cannot be asked", group=self._group_id, cause=error)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _poll(self) -> None:
        cluster = self._open_cluster()
        try:
            try:
                await Admin(cluster).create_topic(TOPIC, partition_count=1)
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
            member = MemberOptions(
                topics=(TOPIC,),
                session_timeout_ms=_SESSION_TIMEOUT_MS,
                heartbeat_interval_ms=_HEARTBEAT_INTERVAL_MS,
            )
            consumer = GroupConsumer(cluster, GroupOptions(self._group_id, member))
            try:
                while True:
                    await consumer.poll(timeout_ms=1000)
                    self._heard_at = time.monotonic()
                    self._note(is_chosen=bool(consumer.assignment))
            finally:
                self._is_chosen = False
                await consumer.close()
        finally:
            cluster.close()

    def _note(self, *, is_chosen: bool) -> None:
        if is_chosen != self._is_chosen:
            self._is_chosen = is_chosen
            _log.info("this process tells of alerts" if is_chosen else "another process tells of alerts")
