"""What the coordinators of this broker know of the lag of their groups: asked of the leaders once an interval.

One request to each leader has all partitions of all groups that it leads; what this broker leads itself is not asked
for. A leader that does not answer, or is no broker of ours, leaves its partitions without a lag until the next time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.metrics.lag.ends import Ends
from tailrace.model import events
from tailrace.model.errors import KafkaError
from tailrace.model.metrics.lag import Commit, Verdict, decide_verdict
from tailrace.wire.apis.own import LocateOffsetsRequest, LocateOffsetsResponse

if TYPE_CHECKING:
    from tailrace.broker.coordinators.coordination import Coordination
    from tailrace.broker.node import Node
    from tailrace.replica.manager import ReplicaManager

_log = events.logger("metrics")

_PER_TURN = 100
# Intervals for which a group may be quiet before it can be thought of as stopped.
_QUIET_INTERVALS = 2


class PartitionLag(NamedTuple):
    committed: int
    committed_ms: int  # When it was committed.
    end: int  # What a consumer may read ends here.
    lag_ms: int  # -1 if it is not known.
    verdict: Verdict

    @property
    def lag(self) -> int:
        return max(0, self.end - self.committed)


class GroupLag(NamedTuple):
    partitions: Mapping[tuple[str, int], PartitionLag]

    @property
    def lag(self) -> int:
        return sum(each.lag for each in self.partitions.values())

    @property
    def lag_ms(self) -> int:
        return max((each.lag_ms for each in self.partitions.values()), default=-1)

    @property
    def verdict(self) -> Verdict:
        verdicts = [each.verdict for each in self.partitions.values()]
        return max(verdicts, key=lambda each: each.value, default=Verdict.OK)


class Committed(NamedTuple):
    group_id: str
    topic: str
    partition: int
    offset: int
    at_ms: int


class Located(NamedTuple):
    end: int
    ages_ms: Mapping[int, int]  # By offset.


class LagWatch:
    def __init__(self, node: Node, coordination: Coordination) -> None:
        self.groups: dict[str, GroupLag] = {}  # As of the last look.
        self.left_out_count = 0  # Partitions of groups beyond metrics.group.partitions.max.
        self.ends = Ends(node.replicas, node.ports.clock)
        self._node = node
        self._coordination = coordination
        self._windows: dict[tuple[str, str, int], deque[Commit]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Looks at once, and then once an interval."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
            except Exception as error:
                _log.error("the lag of groups cannot be found", trace=True)
                self._node.judge_bug(error)
            await asyncio.sleep(self._node.config.metrics_lag_interval_ms / 1000)

    async def look(self) -> None:
        await self.ends.look()
        committed = [each async for each in self._committed()]
        located = await self._locate(committed)
        await self._judge(committed, located)

    async def _committed(self) -> AsyncIterator[Committed]:
        """What groups of this broker have committed, a few a turn; bounded."""
        from tailrace.coordinator.machine import GroupMachine  # Not on the way to ready, like what is in it.

        running = self._coordination.running_groups
        left, self.left_out_count = self._node.config.metrics_group_partitions_max, 0
        shards = [] if running is None else [each for each in running.shards.values() if each.is_active]
        for shard in shards:
            assert isinstance(shard.machine, GroupMachine), "the shards of groups have such machines"
            for group_id, topics in list(shard.machine.state.offsets.groups.items()):
                for number, each in enumerate(_offsets_of(group_id, topics)):
                    if left <= 0:
                        self.left_out_count += 1
                        continue
                    left -= 1
                    yield each
                    if number % _PER_TURN == 0:
                        await asyncio.sleep(0)

    async def _locate(self, committed: list[Committed]) -> dict[tuple[str, int], Located]:
        """Of all partitions whose leaders answer."""
        wanted: dict[int, dict[str, dict[int, set[int]]]] = {}
        image = self._node.image
        for number, each in enumerate(committed):
            if number % _PER_TURN == 0:
                await asyncio.sleep(0)
            topic = image.topics.get(each.topic)
            state = None if topic is None else topic.partitions.get(each.partition)
            if state is not None and state.leader >= 0:
                by_topic = wanted.setdefault(state.leader, {})
                by_topic.setdefault(each.topic, {}).setdefault(each.partition, set()).add(each.offset)
        answers = await asyncio.gather(*(self._ask(leader, _question(topics)) for leader, topics in wanted.items()))
        found: dict[tuple[str, int], Located] = {}
        for request, answer in answers:
            for asked, told in zip(request.topics, answer.topics, strict=False):
                await asyncio.sleep(0)
                for question, place in zip(asked.partitions, told.partitions, strict=False):
                    if not place.error_code:
                        ages = dict(zip(question.offsets, place.ages_ms, strict=False))
                        found[asked.name, question.partition_index] = Located(place.high_watermark, ages)
        return found

    async def _ask(
        self, leader: int, request: LocateOffsetsRequest
    ) -> tuple[LocateOffsetsRequest, LocateOffsetsResponse]:
        node = self._node
        if leader == node.node_id:
            return request, await locate(node.replicas, self.ends, request)
        timeout_ms = node.config.metrics_lag_interval_ms
        try:
            answer = await node.call_broker(
                leader, request, LocateOffsetsResponse, channel="lag", timeout_ms=timeout_ms
            )
        except KafkaError as error:
            _log.debug("a leader does not tell where its logs end", leader=leader, cause=error.message)
            answer = LocateOffsetsResponse()
        return request, answer

    async def _judge(self, committed: list[Committed], located: Mapping[tuple[str, int], Located]) -> None:
        config, now_ms = self._node.config, self._node.ports.clock.wall_ms()
        groups: dict[str, dict[tuple[str, int], PartitionLag]] = {}
        windows: dict[tuple[str, str, int], deque[Commit]] = {}
        for number, each in enumerate(committed):
            if number % _PER_TURN == 0:
                await asyncio.sleep(0)
            key = each.group_id, each.topic, each.partition
            window = windows[key] = self._windows.get(key) or deque(maxlen=config.metrics_lag_window)
            place = located.get((each.topic, each.partition))
            if place is None:
                continue
            lag = max(0, place.end - each.offset)
            if not window or window[-1].at_ms != each.at_ms:
                window.append(Commit(each.at_ms, each.offset, lag))
            quiet_ms = _QUIET_INTERVALS * config.metrics_lag_interval_ms
            verdict = decide_verdict(window, lag=lag, now_ms=now_ms, quiet_min_ms=quiet_ms)
            age_ms = place.ages_ms.get(each.offset, -1)
            found = PartitionLag(each.offset, each.at_ms, place.end, age_ms, verdict)
            groups.setdefault(each.group_id, {})[each.topic, each.partition] = found
        self.groups = {group_id: GroupLag(partitions) for group_id, partitions in groups.items()}
        self._windows = windows


def _offsets_of(group_id: str, topics: Mapping[str, Mapping[int, bytes]]) -> Iterator[Committed]:
    from tailrace.coordinator.offsets.store import read_offset

    for topic, partitions in list(topics.items()):
        for partition, value in list(partitions.items()):
            offset = read_offset(value)
            if offset.offset >= 0:
                yield Committed(group_id, topic, partition, offset.offset, offset.commit_timestamp_ms)


def _question(topics: Mapping[str, Mapping[int, set[int]]]) -> LocateOffsetsRequest:
    return LocateOffsetsRequest(
        topics=[
            LocateOffsetsRequest.Topic(
                name=name,
                partitions=[
                    LocateOffsetsRequest.Partition(partition_index=index, offsets=sorted(offsets))
                    for index, offsets in partitions.items()
                ],
            )
            for name, partitions in topics.items()
        ]
    )


async def locate(replicas: ReplicaManager, ends: Ends | None, request: LocateOffsetsRequest) -> LocateOffsetsResponse:
    """As a leader answers. Without `ends` ages are not known."""
    answer, count = LocateOffsetsResponse(), 0
    for topic in request.topics:
        told = LocateOffsetsResponse.Topic(name=topic.name)
        answer.topics.append(told)
        for asked in topic.partitions:
            count += 1
            if count % _PER_TURN == 0:
                await asyncio.sleep(0)
            each = LocateOffsetsResponse.Partition(partition_index=asked.partition_index)
            told.partitions.append(each)
            try:
                partition = replicas.find(topic.name, asked.partition_index)
                partition.check_leader()
                each.high_watermark = partition.high_watermark
                unknown = [-1] * len(asked.offsets)
                each.ages_ms = unknown if ends is None else ends.ages_ms(partition, asked.offsets)
            except KafkaError as error:
                each.error_code = int(error.code)
    return answer
