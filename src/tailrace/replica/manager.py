"""All partitions of which this broker has a replica. Follows the metadata image: creates, reconfigures and deletes
logs.

The image is applied in the same turn in which it is published, so a topic can be served before the answer to its
creation goes out. Of many new partitions only the first get their logs at once, the others a few a turn, or when they
are asked for: a log takes up to a millisecond, and a request may create ten thousand. A log that cannot be created
(disk full, read-only) leaves its partition without a log: KAFKA_STORAGE_ERROR, and it is tried again whenever the
partition is asked for; other partitions go on.
"""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Callable, Sequence

from tailrace.controller import effective
from tailrace.controller.image import MetadataImage, TopicImage
from tailrace.log.directory import LogDirectory
from tailrace.log.log import Log
from tailrace.model import events
from tailrace.model.config import BrokerConfig, TopicConfig
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ids import CLUSTER_METADATA_TOPIC, LeaderEpoch, NodeId, PartitionIndex, TopicPartition, Uuid
from tailrace.model.ports import Background
from tailrace.replica.flusher import Flusher
from tailrace.replica.partition import Partition

_log = events.logger("replicas")

# Logs created in the turn in which their topics are published, and in each later one.
_CREATED_AT_ONCE_MAX = 16
_CREATED_PER_TURN = 4


class ReplicaManager:
    def __init__(self, static: BrokerConfig, directories: Sequence[LogDirectory], *, background: Background) -> None:
        self.node_id = NodeId(static.node_id)
        self.config = static  # With the dynamic settings of the image applied.
        self.directories = directories
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.flusher = Flusher(background, unsynced_max_bytes=static.log_unsynced_max_bytes)
        # Told of a log that is about to be deleted: a compaction of it must end first.
        self.before_deletion: list[Callable[[TopicPartition], None]] = []
        self._static = static
        self._background = background
        self._image: MetadataImage | None = None
        self._missing: set[tuple[str, int]] = set()  # Partitions whose log could not be opened, as was logged once.
        self._owed: list[tuple[str, int]] = []  # New partitions without a log yet. Bounded by what the image holds.
        # Logs that the last run left and that are not open yet, and where they lie.
        self._found: dict[TopicPartition, LogDirectory] = {}

    # ---- finding a partition

    def find(self, topic: str, index: int) -> Partition:
        """Raises the error that a client should see if the partition is not here."""
        partition = self.partitions.get((topic, index))
        return partition if partition is not None else self._find_or_explain(topic, index)

    def topic_name(self, topic_id: bytes) -> str:
        name = self._image.topic_names.get(Uuid(topic_id)) if self._image is not None else None
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "There is no topic with this id")
        return name

    def _find_or_explain(self, topic: str, index: int) -> Partition:
        image = self._image.topics.get(topic) if self._image is not None else None
        state = image.partitions.get(index) if image is not None else None
        if image is None or state is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic}-{index}")
        if self.node_id not in state.replicas:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Broker {self.node_id} has no replica of {topic}-{index}"
            )
        self._ensure(image, index)
        partition = self.partitions.get((topic, index))
        if partition is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log of {topic}-{index} could not be created")
        return partition

    # ---- following the image

    def follow_image(self, old: MetadataImage | None, new: MetadataImage) -> None:
        """Brings the logs in line with the newest metadata. With `old` None all of it is new: strays are set aside."""
        self._image = new
        if old is None or old.configs is not new.configs or old.brokers is not new.brokers:
            self.config = effective.broker_config(self._static, new)
        if old is None:
            self._find_logs(new)
        elif old.topics is not new.topics:
            self._remove_deleted(old, new)
        if old is None or old.topics is not new.topics:
            changed = [topic for name, topic in new.topics.items() if old is None or old.topics.get(name) is not topic]
            self._follow_topics(changed)
        if old is not None and old.configs is not new.configs:
            self._reconfigure(new)

    def _follow_topics(self, topics: Sequence[TopicImage]) -> None:
        is_first_debt = not self._owed
        created_count = 0
        for topic in topics:
            for index, state in topic.partitions.items():
                if self.node_id not in state.replicas:
                    continue
                key = TopicPartition(topic.name, PartitionIndex(index))
                is_new = key not in self.partitions and key not in self._found
                created_count += is_new
                if is_new and created_count > _CREATED_AT_ONCE_MAX:
                    self._owed.append(key)
                else:
                    self._ensure(topic, index)
        if self._owed and is_first_debt:
            get_running_loop().call_soon(self._create_owed)

    def _create_owed(self) -> None:
        due = self._owed[-_CREATED_PER_TURN:]
        del self._owed[-_CREATED_PER_TURN:]
        if self._owed:
            get_running_loop().call_soon(self._create_owed)
        for name, index in due:
            topic = self._image.topics.get(name) if self._image is not None else None
            # Unless it was deleted or asked for meanwhile.
            if topic is not None and index in topic.partitions and (name, index) not in self.partitions:
                self._ensure(topic, index)

    def _ensure(self, topic: TopicImage, index: int) -> None:
        """The partition exists here and knows its leader."""
        state = topic.partitions[index]
        partition = self.partitions.get((topic.name, index))
        if partition is None:
            try:
                log = self._open_log(topic, TopicPartition(topic.name, PartitionIndex(index)))
            except (OSError, StorageError) as error:
                if (topic.name, index) not in self._missing:
                    self._missing.add((topic.name, index))
                    _log.error("a log cannot be opened", partition=f"{topic.name}-{index}", cause=error)
                return
            self._missing.discard((topic.name, index))
            partition = Partition(log, topic_id=topic.id, node_id=self.node_id, flusher=self.flusher)
            self.partitions[topic.name, index] = partition
        partition.follow_image(
            leader_id=state.leader,
            leader_epoch=LeaderEpoch(state.leader_epoch),
            replicas=state.replicas,
            isr=state.isr,
        )

    def _open_log(self, topic: TopicImage, topic_partition: TopicPartition) -> Log:
        """The log that is there, or a new one in the folder that holds the fewest."""
        directory = self._found.get(topic_partition)
        if directory is None:
            directory = min(self.directories, key=lambda each: len(each.logs))
            if not directory.may_hold(topic_partition, topic.id):
                # Of a topic that was deleted, while the disk refused to rename its folder.
                directory.delete_log(topic_partition)
        log = directory.open_log(topic_partition, self._topic_config(topic.name), topic_id=topic.id)
        # Not earlier: a log that cannot be opened now must not be made anew elsewhere at the next try.
        self._found.pop(topic_partition, None)
        # It is opened again when it is first used: a new log of ten thousand need not hold a handle.
        log.close_idle_handles()
        log.producers.expiration_ms = self.config.producer_id_expiration_ms
        log.producers.max_producers = self.config.max_producer_ids_per_partition
        log.max_decompressed_bytes = self.config.max_decompressed_bytes
        return log

    def _topic_config(self, topic: str) -> TopicConfig:
        assert self._image is not None, "the image comes before the first partition"
        return effective.topic_config(self.config, self._image, topic)

    def _reconfigure(self, new: MetadataImage) -> None:
        """Settings are few and change seldom: all logs are looked at."""
        configs: dict[str, TopicConfig] = {}
        for (topic, _index), partition in self.partitions.items():
            config = configs.get(topic)
            if config is None:
                config = configs[topic] = effective.topic_config(self.config, new, topic)
            if config != partition.log.config:
                partition.log.reconfigure(config)
                partition.reconfigure()

    def _remove_deleted(self, old: MetadataImage, new: MetadataImage) -> None:
        for name, topic in old.topics.items():
            now = new.topics.get(name)
            if now is not None and now.id == topic.id:
                continue
            for index in topic.partitions:
                self._remove(TopicPartition(name, PartitionIndex(index)))

    def _remove(self, topic_partition: TopicPartition) -> None:
        partition = self.partitions.pop(topic_partition, None)
        if partition is not None:
            partition.close()
        for tell in self.before_deletion:
            tell(topic_partition)
        found = self._found.pop(topic_partition, None)
        for directory in self.directories:
            # A log that could not be opened has a folder too.
            if directory is found or topic_partition in directory.logs or topic_partition in directory.offline:
                _delete_log(directory, topic_partition)

    def _find_logs(self, image: MetadataImage) -> None:
        """Looks for the logs of the last run. Those of unknown topics are set aside: a kill between a deletion and the
        renaming of its folders leaves such, but so does a lost metadata log, and then they are all there is."""
        for directory in self.directories:
            for topic_partition in directory.partitions_on_disk():
                if topic_partition.topic == CLUSTER_METADATA_TOPIC:
                    continue
                topic = image.topics.get(topic_partition.topic)
                if (
                    topic is not None
                    and topic_partition.partition in topic.partitions
                    and directory.may_hold(topic_partition, topic.id)
                ):
                    self._found[topic_partition] = directory
                else:
                    target = directory.set_stray_aside(topic_partition)
                    _log.warning("set a log aside that the metadata does not know", folder=target)

    # ---- the whole

    async def store_log_start_offsets(self) -> None:
        """Raises KafkaError if they could not be stored."""
        for directory in self.directories:
            try:
                await self._background.run(directory.begin_log_start_checkpoint())
            except OSError as error:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"The log start offsets in {directory.path} cannot be stored: {error}",
                ) from error

    def close(self) -> None:
        """Answers all who wait; the logs are closed by their directories."""
        self._owed.clear()
        for partition in self.partitions.values():
            partition.close()


def _delete_log(directory: LogDirectory, topic_partition: TopicPartition) -> None:
    try:
        directory.delete_log(topic_partition)
    except StorageError as error:
        _log.error("cannot delete a log", partition=topic_partition, cause=error)
