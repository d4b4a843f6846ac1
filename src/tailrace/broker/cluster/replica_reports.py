"""Tells the controller what this broker's replicas hold (ReportReplicas, a request of our own).

    at the start     before the broker is unfenced: which replicas were found damaged (`replica.repair.damage`), so
                     that none of them is elected while somebody else has what it lost
    since then       which replicas have given up because an invariant is broken (`LogFiles.give_up`), so that another
                     one leads
    without leader   how far the replicas of partitions without a leader reach, so that the longest log is elected. Told
                     when the metadata shows such a partition, and again to each new controller

A controller of Kafka's knows nothing of this. It elects the first that comes, so a folder with a damaged replica is
reported to it as failed, and only that. So is one with a replica that has given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from tailrace.broker.cluster.forwarding import Forwarding
from tailrace.controller.image import NO_LEADER, MetadataImage
from tailrace.log.recovery import Damage
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition, Uuid
from tailrace.model.ports import Background
from tailrace.replica.directories import find_log
from tailrace.replica.manager import ReplicaManager
from tailrace.wire.apis.own import ReportReplicasRequest, ReportReplicasResponse

_log = events.logger("reports")

_REPLICAS_PER_REQUEST_MAX = 2000
_RETRY_SECONDS = 0.1
# How often a broker with replicas of leaderless partitions looks whether there is another controller.
_LOOK_SECONDS = 0.5
_CHANNEL = "reports"


class _Listener(NamedTuple):
    """Whoever was told: another controller, or the same one about another incarnation, knows nothing of it."""

    controller_id: int | None
    controller_epoch: int
    broker_epoch: int


class ReplicaReports:
    """`controller` gives id and epoch of the controller that is known now."""

    def __init__(
        self,
        replicas: ReplicaManager,
        forwarding: Forwarding,
        background: Background,
        *,
        image: Callable[[], MetadataImage],
        controller: Callable[[], tuple[int | None, int]],
        broker_epoch: Callable[[], int],
    ) -> None:
        self._replicas = replicas
        self._forwarding = forwarding
        self._background = background
        self._image = image
        self._controller = controller
        self._broker_epoch = broker_epoch
        # Partitions without a leader of which a replica is here, with their leader epochs; and those of them that are
        # still to be told.
        self._leaderless: dict[TopicPartition, int] = {}
        self._untold: dict[TopicPartition, None] = {}
        self._told: _Listener | None = None
        self._wake = asyncio.Event()
        if replicas.broken:
            self._wake.set()
        replicas.directories.on_log_broken.append(lambda _topic_partition: self._wake.set())
        self._task: asyncio.Task[None] | None = None

    async def tell_start(self) -> None:
        """Returns when the controller knows of all damage, and has left it out of every election."""
        self.follow_image(None, self._image())
        damaged = self._replicas.damaged.found
        if not damaged:
            return
        irreplaceable = None
        while irreplaceable is None:
            try:
                irreplaceable = await self._tell([*damaged])
            except KafkaError as error:
                if error.code is ErrorCode.UNSUPPORTED_VERSION:
                    self._fail_folders(damaged)
                    return
                _log.warning("the controller could not be told of damaged replicas", cause=error.message)
                await asyncio.sleep(_RETRY_SECONDS)
        for topic_partition, damage in damaged.items():
            self._log_damage(topic_partition, damage, is_irreplaceable=topic_partition in irreplaceable)
        damaged.clear()  # What is filled again, and told of later, is as good as any other.
        await self._resume_proofs()

    async def _resume_proofs(self) -> None:
        """The controller knows all that the folders could not prove."""
        if not self._replicas.broken:
            self._replicas.directories.resume_proofs()
            await self._background.run(lambda: self._replicas.directories.note_running(self._broker_epoch()))

    def start(self) -> None:
        self._task = asyncio.create_task(self._tell_for_ever(), name="replica reports")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._task = None

    def follow_image(self, old: MetadataImage | None, new: MetadataImage) -> None:
        if old is not None and old.topics is new.topics:
            return
        node_id = self._replicas.node_id
        for key in [key for key in self._leaderless if not _is_leaderless(new, key)]:
            del self._leaderless[key]
            self._untold.pop(key, None)
        for name, topic in new.topics.items():
            if old is not None and old.topics.get(name) is topic:
                continue
            for index, state in topic.partitions.items():
                key = TopicPartition(name, PartitionIndex(index))
                is_news = self._leaderless.get(key) != state.leader_epoch
                if state.leader == NO_LEADER and node_id in state.replicas and is_news:
                    self._leaderless[key] = state.leader_epoch
                    self._untold[key] = None
        if self._untold:
            self._wake.set()

    async def _tell_for_ever(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_LOOK_SECONDS if self._leaderless else None):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                await self._tell_broken()
                await self._tell_leaderless()
            except KafkaError as error:
                if error.code is ErrorCode.UNSUPPORTED_VERSION:
                    self._untold.clear()
                    continue
                _log.debug("the controller could not be told how far replicas reach", cause=error.message)
                self._wake.set()
                await asyncio.sleep(_RETRY_SECONDS)
            except Exception:
                # Elections would have to wait for this broker in vain.
                _log.error("the controller could not be told how far replicas reach", trace=True)
                await asyncio.sleep(_LOOK_SECONDS)

    async def _tell_broken(self) -> None:
        broken = self._replicas.broken
        due = [*broken]
        if not due:
            return
        try:
            irreplaceable = await self._tell(due)
        except KafkaError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            self._fail_folders(due)
            irreplaceable = set()
        for topic_partition in due:
            broken.pop(topic_partition, None)
            if topic_partition in irreplaceable:
                _log.error("no other replica can lead in its place: restart this broker", partition=topic_partition)
        await self._resume_proofs()

    async def _tell_leaderless(self) -> None:
        listener = _Listener(*self._controller(), self._broker_epoch())
        if listener != self._told:
            self._untold = dict.fromkeys(self._leaderless)
        due = [*self._untold]
        if due:
            self._untold.clear()
            try:
                await self._tell(due)
            except BaseException:
                self._untold |= dict.fromkeys(due)
                raise
        self._told = listener

    async def _tell(self, topic_partitions: Sequence[TopicPartition]) -> set[TopicPartition]:
        """Gives those that lead with what is left of them. KafkaError."""
        irreplaceable: set[TopicPartition] = set()
        for start in range(0, len(topic_partitions), _REPLICAS_PER_REQUEST_MAX):
            request = self._build(topic_partitions[start : start + _REPLICAS_PER_REQUEST_MAX])
            response = await self._forwarding.ask(request, ReportReplicasResponse, channel=_CHANNEL)
            if response.error_code:
                code = ErrorCode(response.error_code)
                raise KafkaError(code, f"The controller refused a report of replicas: {code.name}")
            for told in response.topics:
                topic = self._image().topic_by_id(Uuid(told.topic_id))
                if topic is not None:  # It may have been deleted meanwhile.
                    partitions = map(PartitionIndex, told.irreplaceable_partitions)
                    irreplaceable |= {TopicPartition(topic.name, index) for index in partitions}
        return irreplaceable

    def _build(self, topic_partitions: Iterable[TopicPartition]) -> ReportReplicasRequest:
        image, damaged = self._image(), {*self._replicas.damaged.found, *self._replicas.broken}
        topics: dict[bytes, ReportReplicasRequest.Topic] = {}
        for key in topic_partitions:
            topic = image.topics.get(key.topic)
            if topic is None:
                continue
            replica = ReportReplicasRequest.Replica(partition_index=key.partition, is_damaged=key in damaged)
            state = topic.partitions.get(key.partition)
            if state is not None:
                replica.leader_epoch = state.leader_epoch
            self._replicas.late.follow_now(key)  # What is told of an epoch is what was there when it was followed.
            partition = self._replicas.partitions.get(key)
            if partition is not None and key not in self._replicas.broken:
                log = partition.log
                replica.log_start_offset, replica.log_end_offset = log.log_start_offset, log.log_end_offset
                replica.last_epoch = log.epochs.latest
            topics.setdefault(topic.id, ReportReplicasRequest.Topic(topic_id=topic.id)).replicas.append(replica)
        return ReportReplicasRequest(
            broker_id=self._replicas.node_id, broker_epoch=self._broker_epoch(), topics=[*topics.values()]
        )

    def _fail_folders(self, damaged: Iterable[TopicPartition]) -> None:
        for topic_partition in damaged:
            directory = find_log(self._replicas.directories, topic_partition)
            if directory is not None:
                directory.fail(
                    f"the log of {topic_partition} is damaged, and a controller of Apache Kafka could elect it; remove "
                    "the folder of this partition while the broker is stopped, and it is filled again from the others"
                )

    def _log_damage(self, topic_partition: TopicPartition, damage: Damage, *, is_irreplaceable: bool) -> None:
        partition = self._replicas.partitions.get(topic_partition)
        end_offset = partition.log.log_end_offset if partition is not None else 0
        facts: dict[str, Any] = {"partition": topic_partition, "cause": damage.cause, "log_end_offset": end_offset}
        if not is_irreplaceable:
            _log.warning("a damaged replica is filled again from the others", **facts)
            return
        if damage.lost_until <= end_offset:
            _log.warning("the only replica leads with what is left of it, and may have had more", **facts)
            return
        # What was not synced a power loss may take, as was told; anything else is a broken disk.
        report = _log.error if self._replicas.directories.previous_broker_epoch >= 0 else _log.warning
        lost = f"{end_offset}-{damage.lost_until - 1}"
        report("records are lost: the only replica leads with what is left of it", lost_offsets=lost, **facts)


def _is_leaderless(image: MetadataImage, key: TopicPartition) -> bool:
    topic = image.topics.get(key.topic)
    state = topic.partitions.get(key.partition) if topic is not None else None
    return state is not None and state.leader == NO_LEADER
