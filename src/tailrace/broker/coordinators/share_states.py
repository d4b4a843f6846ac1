"""The way to share coordinators: requests about many share-partitions go, in parts, to those who keep their states.

A coordinator that is not there, or not yet, is looked for again until share.coordinator.write.timeout.ms is over. What
still fails then is told for each share-partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tailrace.broker.coordinators.calls import InnerCall
from tailrace.broker.coordinators.shares import share_key
from tailrace.coordinator.machine import GroupMachine
from tailrace.coordinator.placement import coordinator_partition
from tailrace.coordinator.shares.group import ShareTopic
from tailrace.coordinator.shares.states import on_initialized
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import SHARE_GROUP_STATE_TOPIC, PartitionIndex, Uuid
from tailrace.wire import apis

if TYPE_CHECKING:
    from tailrace.broker.coordinators.shard import Shard
    from tailrace.broker.coordinators.shares import ShareCoordinators
    from tailrace.broker.coordinators.topics import TopicCreations
    from tailrace.broker.node import Node
    from tailrace.wire.schema import Message

_log = events.logger("shares")

_CHANNEL = "shares"
# They are somewhere else, or not ready: worth another try.
_AGAIN = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_PAUSE_SECONDS = 0.02
_PAUSE_MAX_SECONDS = 0.5

Place = tuple[Uuid, int]


class ShareStates:
    def __init__(self, node: Node, creations: TopicCreations, shares: Callable[[], ShareCoordinators]) -> None:
        self._node = node
        self._creations = creations
        self._shares = shares
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, request: Any) -> dict[Place, Any]:
        """The result of each share-partition that the request names, with its error code."""
        wanted: dict[Place, Any] = {
            (Uuid(topic.topic_id), each.partition): each for topic in request.topics for each in topic.partitions
        }
        done: dict[Place, Any] = {}
        clock = self._node.ports.clock
        ends_ms = clock.monotonic_ms() + self._node.config.share_coordinator_write_timeout_ms
        pause = _PAUSE_SECONDS
        while True:
            for place, result in (await self._ask_once(request, wanted)).items():
                done[place] = result
                if result.error_code not in _AGAIN:
                    del wanted[place]
            if not wanted or clock.monotonic_ms() + 1000 * pause >= ends_ms:
                return done
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX_SECONDS)

    async def _ask_once(self, request: Any, wanted: Mapping[Place, Any]) -> dict[Place, Any]:
        if SHARE_GROUP_STATE_TOPIC not in self._node.image.topics:
            await self._creations.wait([SHARE_GROUP_STATE_TOPIC])
        by_leader: dict[int, dict[Place, Any]] = {}
        for place, asked in wanted.items():
            by_leader.setdefault(self._leader_of(request.group_id, place), {})[place] = asked
        found: dict[Place, Any] = {}
        for answers in await asyncio.gather(
            *(self._ask_leader(leader, request, asked) for leader, asked in by_leader.items())
        ):
            found |= answers
        return found

    def _leader_of(self, group_id: str, place: Place) -> int:
        topic = self._node.image.topics.get(SHARE_GROUP_STATE_TOPIC)
        if topic is None:
            return -1
        index = coordinator_partition(share_key(group_id, *place), len(topic.partitions))
        return topic.partitions[PartitionIndex(index)].leader

    async def _ask_leader(self, leader: int, request: Any, asked: Mapping[Place, Any]) -> dict[Place, Any]:
        response_type: Any = apis.response_type(request.api_key)
        try:
            if leader < 0:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "Nobody keeps the state of share-partitions now")
            if leader == self._node.node_id:
                return await self._ask_here(request, asked)
            part = _part_of(request, asked)
            answer = await self._node.call_broker(
                leader,
                part,
                response_type,
                channel=_CHANNEL,
                timeout_ms=self._node.config.share_coordinator_write_timeout_ms,
            )
        except KafkaError as error:
            result_type = _result_type(response_type)
            return {
                place: result_type(partition=place[1], error_code=int(error.code), error_message=error.message)
                for place in asked
            }
        return _results(answer)

    async def _ask_here(self, request: Any, asked: Mapping[Place, Any]) -> dict[Place, Any]:
        calls = []
        for place, each in asked.items():
            call = InnerCall(_part_of(request, {place: each}), request.versions[-1])
            self._shares().submit(share_key(request.group_id, *place), call)
            calls.append(call)
        found: dict[Place, Any] = {}
        for call in calls:
            found |= _results(await call.wait())
        return found

    def begin(self, work: Any) -> asyncio.Task[None]:
        """A coroutine beside everything else."""
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("the state of share-partitions could not be kept", cause=error)
            self._node.judge_bug(error)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


class Initialization:
    """Told, once it is committed, that the states of new share-partitions of a group are to be kept."""

    def __init__(self, states: ShareStates, find_shard: Callable[[], Shard]) -> None:
        self._states = states
        self._find_shard = find_shard

    def complete(self, request: Message) -> None:
        self._states.begin(self._initialize(request))

    def fail(self, error: KafkaError) -> None:
        """Whoever coordinates finds on the log what is to be initialized, and asks again after a while."""
        _log.debug("share-partitions are initialized later", cause=error)

    async def _initialize(self, request: Any) -> None:
        names = {Uuid(topic.topic_id): "" for topic in request.topics}
        results = await self._states.ask(request)
        done: dict[Uuid, ShareTopic] = {}
        for (topic_id, partition), result in results.items():
            # Who is fenced meets a state that was initialized later, and is kept.
            if result.error_code in (ErrorCode.NONE, ErrorCode.FENCED_STATE_EPOCH):
                known = done.get(topic_id) or ShareTopic(names[topic_id], frozenset())
                done[topic_id] = ShareTopic(known.name, known.partitions | {partition})
        try:
            shard = self._find_shard()
        except KafkaError:
            return  # Another broker coordinates the group, and finds on its log what is left to do.
        machine = shard.machine
        assert isinstance(machine, GroupMachine), "a shard of __consumer_offsets"
        shard.decide(lambda call: [on_initialized(machine.state, call, request.group_id, _named(call.image, done))])


def _named(image: Any, topics: Mapping[Uuid, ShareTopic]) -> dict[Uuid, ShareTopic]:
    return {
        topic_id: ShareTopic(image.topic_names[topic_id], topic.partitions)
        for topic_id, topic in topics.items()
        if topic_id in image.topic_names
    }


def _part_of(request: Any, asked: Mapping[Place, Any]) -> Any:
    """The same request, about these share-partitions alone."""
    topic_type = next(field.struct for field in request.fields if field.name == "topics")
    topics: dict[Uuid, Any] = {}
    for (topic_id, _), each in asked.items():
        if topic_id not in topics:
            topics[topic_id] = topic_type(topic_id=topic_id, partitions=[])
        topics[topic_id].partitions.append(each)
    return type(request)(group_id=request.group_id, topics=list(topics.values()))


def _results(answer: Any) -> dict[Place, Any]:
    return {(Uuid(result.topic_id), each.partition): each for result in answer.results for each in result.partitions}


def _result_type(response_type: Any) -> Any:
    results = next(field.struct for field in response_type.fields if field.name == "results")
    return next(field.struct for field in results.fields if field.name == "partitions")
