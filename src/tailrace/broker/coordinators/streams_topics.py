"""The internal topics of streams groups: created by the coordinator as soon as a heartbeat has shown that they are
missing.

A creation goes on by itself, and each topic is created once at a time. Nobody waits for it: members are told which
topics are missing until they are there, and why one could not be created. After a failure the topic is left alone for
as long as that is told, which is twice the interval between two heartbeats.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tailrace.broker.node import Node
    from tailrace.coordinator.streams.topology import InternalTopic

_log = events.logger("topics")

_DONE = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
# Failures that are remembered; as many as in Kafka.
_FAILURES_MAX = 1000


class _Failure(NamedTuple):
    reason: str
    told_until_ms: float


class StreamsTopics:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._pending: set[str] = set()
        self._failures: dict[str, _Failure] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def create(self, topics: Mapping[str, InternalTopic], *, told_for_ms: float) -> None:
        """Those that are not being created, and have not failed just now."""
        failed = self.failures(topics)
        room = self._node.config.auto_create_topics_max_pending - len(self._pending)
        fresh = [topic for name, topic in topics.items() if name not in self._pending and name not in failed]
        if fresh[:room]:
            self._pending |= {topic.name for topic in fresh[:room]}
            task = asyncio.get_running_loop().create_task(self._create(fresh[:room], told_for_ms))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def failures(self, names: Collection[str]) -> dict[str, str]:
        """Why some of them could not be created."""
        now_ms = self._node.ports.clock.monotonic_ms()
        known = {name: self._failures[name] for name in names if name in self._failures}
        return {name: each.reason for name, each in known.items() if each.told_until_ms > now_ms}

    async def close(self) -> None:
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _create(self, topics: list[InternalTopic], told_for_ms: float) -> None:
        from tailrace.wire.apis.admin import CreateTopicsRequest, CreateTopicsResponse

        names = [topic.name for topic in topics]
        wanted = CreateTopicsRequest
        request = wanted(
            topics=[
                wanted.CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partition_count,
                    replication_factor=topic.replication_factor or -1,
                    configs=[
                        wanted.CreatableTopicConfig(name=name, value=value) for name, value in topic.settings.items()
                    ],
                )
                for topic in topics
            ]
        )
        try:
            response = await self._node.forwarding.ask(request, CreateTopicsResponse)
            for result in response.topics:
                if result.error_code not in _DONE:
                    reason = result.error_message or ErrorCode(result.error_code).name
                    self._note_failure(result.name, reason, told_for_ms)
        except KafkaError as error:
            for name in names:
                self._note_failure(name, error.message or error.code.name, told_for_ms)
        except Exception as error:
            _log.error("a creation failed", trace=True, topics=",".join(names))
            self._node.judge_bug(error)
        finally:
            self._pending.difference_update(names)

    def _note_failure(self, name: str, reason: str, told_for_ms: float) -> None:
        _log.warning("an internal topic of a streams group cannot be created", topic=name, cause=reason)
        self._failures.pop(name, None)
        while len(self._failures) >= _FAILURES_MAX:
            del self._failures[next(iter(self._failures))]
        until_ms = self._node.ports.clock.monotonic_ms() + told_for_ms
        self._failures[name] = _Failure(reason, until_ms)
