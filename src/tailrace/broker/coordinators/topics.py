"""Topics that are created because someone asks for them; internal ones with settings of their own.

A creation goes on by itself. Whoever asked for it waits for a moment (`request.controller.wait.ms`), since most are
done by then, and no longer: later requests of its connection wait behind it, and without a controller it takes until
there is one. Whoever asks for the same topic meanwhile shares what is left of that moment.

A topic that was deleted is created again like any other, but who asks first is told that it is gone, as by Kafka: many
delete a topic and then ask until it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from tailrace.broker.node import Node
    from tailrace.controller.image import MetadataImage
    from tailrace.coordinator.streams.topology import InternalTopic
    from tailrace.model.config import BrokerConfig
    from tailrace.wire.apis.admin import CreateTopicsRequest

_log = events.logger("topics")

_DONE = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
# Failures to create topics of streams groups that are remembered; as many as in Kafka.
_FAILURES_MAX = 1000


class TopicCreations:
    """At most auto.create.topics.max.pending; the others are created when they are asked for again."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._pending: dict[str, _Creation] = {}
        self._deleted: dict[
            str, None
        ] = {}  # Of which nobody has been told yet, oldest first; as many as may be pending.
        self._is_closed = False

    def follow_image(self, old: MetadataImage, new: MetadataImage) -> None:
        if old.topics is new.topics:
            return
        self._deleted |= dict.fromkeys(name for name in old.topics if name not in new.topics)
        while len(self._deleted) > self._node.config.auto_create_topics_max_pending:
            del self._deleted[next(iter(self._deleted))]

    async def wait(self, names: Sequence[str]) -> dict[str, KafkaError]:
        """Sees to it that they are created, and waits a moment for it. Gives what is known by then to have gone wrong,
        and what is to be told as gone; of the others, what is in the image by then is there."""
        gone = {name: _gone(name) for name in names if name in self._deleted}
        for name in gone:
            del self._deleted[name]
        fresh = [name for name in names if name not in self._pending and name not in self._node.image.topics]
        room = self._node.config.auto_create_topics_max_pending - len(self._pending)
        if fresh[:room] and not self._is_closed:
            self._begin(fresh[:room])
        wanted = list(
            dict.fromkeys(self._pending[name] for name in names if name in self._pending and name not in gone)
        )
        now_ms = self._node.ports.clock.monotonic_ms()
        patience_ms = max((each.patience_ends_ms for each in wanted), default=now_ms) - now_ms
        if patience_ms > 0:
            await asyncio.wait([each.task for each in wanted], timeout=patience_ms / 1000)
        done = [each.task.result() for each in wanted if each.task.done() and not each.task.cancelled()]
        asked = set(names)
        return gone | {name: error for errors in done for name, error in errors.items() if name in asked}

    async def close(self) -> None:
        self._is_closed = True
        tasks = {each.task for each in self._pending.values()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _begin(self, names: list[str]) -> None:
        task = asyncio.get_running_loop().create_task(self._create(names), name="create topics")
        patience_ms = self._node.config.request_controller_wait_ms
        creation = _Creation(task, self._node.ports.clock.monotonic_ms() + patience_ms)
        self._pending |= dict.fromkeys(names, creation)

    async def _create(self, names: list[str]) -> dict[str, KafkaError]:
        from tailrace.wire.apis.admin import CreateTopicsRequest, CreateTopicsResponse

        try:
            request = CreateTopicsRequest(topics=[creatable_topic(self._node.config, name) for name in names])
            response = await self._node.forwarding.ask(request, CreateTopicsResponse)
            errors = {
                result.name: KafkaError(
                    ErrorCode(result.error_code),
                    f"{result.name} cannot be created: {result.error_message or ErrorCode(result.error_code).name}",
                )
                for result in response.topics
                if result.error_code not in _DONE
            }
            await self._node.wait_topics([name for name in names if name not in errors])
            return errors
        except KafkaError as error:
            return dict.fromkeys(names, error)
        except Exception as error:
            _log.error("a creation failed", trace=True, topics=",".join(names))
            self._node.judge_bug(error)
            return dict.fromkeys(names, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The broker's log says why."))
        finally:
            for name in names:
                del self._pending[name]


class _Creation:
    """Of the topics of one request."""

    __slots__ = ("patience_ends_ms", "task")

    def __init__(self, task: asyncio.Task[dict[str, KafkaError]], patience_ends_ms: float) -> None:
        self.task = task
        self.patience_ends_ms = patience_ends_ms


def _gone(name: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} was deleted; it is being created again")


def creatable_topic(config: BrokerConfig, name: str) -> CreateTopicsRequest.CreatableTopic:
    """As it is created when someone asks for it."""
    from tailrace.wire.apis.admin import CreateTopicsRequest

    topic, settings = CreateTopicsRequest.CreatableTopic, {"cleanup.policy": "compact"}
    if name == CONSUMER_OFFSETS_TOPIC:
        count, replication_factor = config.offsets_topic_num_partitions, config.offsets_topic_replication_factor
        settings |= {"compression.type": "producer", "segment.bytes": str(config.offsets_topic_segment_bytes)}
    elif name == TRANSACTION_STATE_TOPIC:
        count = config.transaction_state_log_num_partitions
        replication_factor = config.transaction_state_log_replication_factor
        settings |= {
            "compression.type": "uncompressed",
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
            "unclean.leader.election.enable": "false",
        }
    elif name == SHARE_GROUP_STATE_TOPIC:
        count = config.share_coordinator_state_topic_num_partitions
        replication_factor = config.share_coordinator_state_topic_replication_factor
        # Its records build on each other: what is superfluous is cut off by the coordinator.
        settings = {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "compression.type": "uncompressed",
            "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
            "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
        }
    else:
        return topic(name=name, num_partitions=-1, replication_factor=-1)
    setting = CreateTopicsRequest.CreatableTopicConfig
    return topic(
        name=name,
        num_partitions=count,
        replication_factor=replication_factor,
        configs=[setting(name=each, value=value) for each, value in settings.items()],
    )


class _Failure(NamedTuple):
    reason: str
    told_until_ms: float


class StreamsTopics:
    """The internal topics of streams groups: created by the coordinator as soon as a heartbeat has shown that they are
    missing.

    A creation goes on by itself, and each topic is created once at a time. Nobody waits for it: members are told which
    topics are missing until they are there, and why one could not be created. After a failure the topic is left alone
    for as long as that is told.
    """

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
