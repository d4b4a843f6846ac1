"""Tells the controller in which data folder each replica of this broker lies (AssignReplicasToDirs, KIP-858).

The controller counts on it when a folder fails: the replicas in it, and no others, leave the in-sync sets. It assigns
new replicas of a broker with one folder itself; all else is told here: the choice among several folders, a folder
that was emptied and has a new id, a log that moves.

Rules:
  - What is told is where the log lies, found out at the time of telling; a log that is not open yet, or is being
    moved, is told later.
  - One request at a time, with at most as many replicas as Kafka puts into one; what fails is tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice

from tailrace.broker.cluster.forwarding import Forwarding
from tailrace.controller.image import MetadataImage, PartitionImage
from tailrace.log.directory import LogDirectory
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, PartitionIndex, TopicPartition, Uuid
from tailrace.replica.directories import LogDirectories, assignment_request, decide_assignments, find_log
from tailrace.wire.apis.quorum import AssignReplicasToDirsResponse

_log = events.logger("assignments")

_REPLICAS_PER_REQUEST_MAX = 2250
_RETRY_SECONDS = 0.5
# A log is not moved while the controller cannot be told; after this many tries the move is given up.
_TRIES_MAX = 60
_CHANNEL = "assignments"


class DirectoryAssignments:
    """`is_moving` tells of logs whose folder is about to change, and which `assign` is called for."""

    def __init__(
        self,
        node_id: NodeId,
        directories: LogDirectories,
        forwarding: Forwarding,
        *,
        image: Callable[[], MetadataImage],
        broker_epoch: Callable[[], int],
    ) -> None:
        self.is_moving: Callable[[TopicPartition], bool] = lambda _topic_partition: False
        self._node_id = node_id
        self._directories = directories
        self._forwarding = forwarding
        self._image = image
        self._broker_epoch = broker_epoch
        self._pending: dict[TopicPartition, None] = {}  # Replicas to look at. Bounded by what the image holds.
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.follow_image(None, self._image())
        self._task = asyncio.create_task(self._tell_for_ever(), name="assignments")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._task = None

    def follow_image(self, old: MetadataImage | None, new: MetadataImage) -> None:
        if old is not None and old.topics is new.topics:
            return
        for name, topic in new.topics.items():
            before = old.topics.get(name) if old is not None else None
            if before is topic:
                continue
            states: dict[int, PartitionImage] = {}
            if before is not None and before.id == topic.id:
                states = dict(before.partitions)
            for index, state in topic.partitions.items():
                if states.get(index) is not state and self._node_id in state.replicas:
                    self._pending[TopicPartition(name, PartitionIndex(index))] = None
        if self._pending:
            self._wake.set()

    async def assign(self, topic_partition: TopicPartition, directory: LogDirectory) -> None:
        """Returns when the controller knows that the log will lie there. Raises KafkaError if it cannot be told."""
        for _ in range(_TRIES_MAX):
            topic = self._image().topics.get(topic_partition.topic)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic_partition} was deleted")
            try:
                await self._tell({directory.directory_id: {topic.id: [topic_partition.partition]}})
            except KafkaError as error:
                _log.warning("a move waits for the controller", partition=topic_partition, cause=error)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"The controller could not be told of {topic_partition}")

    async def _tell_for_ever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while self._pending:
                    await self._tell_some()
                continue
            except KafkaError as error:
                _log.warning("the controller could not be told where replicas lie", cause=error)
            except Exception:
                # Replicas that the controller looks for elsewhere would stay out of the in-sync sets.
                _log.error("the controller could not be told where replicas lie", trace=True)
            self._wake.set()
            await asyncio.sleep(_RETRY_SECONDS)

    async def _tell_some(self) -> None:
        looked_at = list(islice(self._pending, _REPLICAS_PER_REQUEST_MAX))
        places: dict[LogDirectory, list[TopicPartition]] = {}
        waiting: list[TopicPartition] = []
        for topic_partition in looked_at:
            directory = find_log(self._directories, topic_partition)
            if directory is not None and not self.is_moving(topic_partition):
                places.setdefault(directory, []).append(topic_partition)
            elif self._is_ours(topic_partition):
                waiting.append(topic_partition)
        image = self._image()
        assignments = {
            directory.directory_id: wrong
            for directory, topic_partitions in places.items()
            if (wrong := decide_assignments(image, self._node_id, directory, topic_partitions))
        }
        for topic_partition in looked_at:
            del self._pending[topic_partition]
        try:
            if assignments:
                await self._tell(assignments)
        except KafkaError:
            self._pending.update(dict.fromkeys(looked_at))
            raise
        self._pending.update(dict.fromkeys(waiting))
        if waiting:  # Others have their turn: it is they who open the logs.
            await asyncio.sleep(_RETRY_SECONDS)

    def _is_ours(self, topic_partition: TopicPartition) -> bool:
        topic = self._image().topics.get(topic_partition.topic)
        state = topic.partitions.get(topic_partition.partition) if topic is not None else None
        return state is not None and self._node_id in state.replicas

    async def _tell(self, assignments: dict[Uuid, dict[Uuid, list[int]]]) -> None:
        request = assignment_request(assignments, node_id=self._node_id, broker_epoch=self._broker_epoch())
        response = await self._forwarding.ask(request, AssignReplicasToDirsResponse, channel=_CHANNEL)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), "The controller refused where replicas lie")
