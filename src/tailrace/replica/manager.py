"""All partitions of which this broker has a replica. Follows the metadata image: creates, reconfigures and deletes
logs.

The image is applied in the same turn in which it is published, so a topic can be served before the answer to its
creation goes out. A log that cannot be created (disk full, read-only) leaves its partition without a log:
KAFKA_STORAGE_ERROR, and it is tried again whenever the partition is asked for; other partitions go on. Of many
partitions that change at once most follow later, and of many new ones most get their logs later (`late`).

A partition that another broker leads is handed to that leader's fetcher, one that is led here to nobody; a replica that
was moved elsewhere is deleted. Past its lease this broker may have been replaced without having heard of it (`lease`).
"""

from __future__ import annotations

import math
from asyncio import get_running_loop, sleep
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tailrace.controller import effective
from tailrace.controller.image import MetadataImage, PartitionImage, TopicImage
from tailrace.log.directory import LogDirectory
from tailrace.log.files.damaged import Suspect
from tailrace.log.log import Log
from tailrace.model import events
from tailrace.model.config import BrokerConfig, TopicConfig
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ids import NodeId, PartitionIndex, TopicPartition, Uuid
from tailrace.model.metrics.traffic import Traffic
from tailrace.model.ports import Background, Clock
from tailrace.replica.directories import LogDirectories, StoredHighWatermarks
from tailrace.replica.flusher import Flusher
from tailrace.replica.isr import NO_BROKER_EPOCH
from tailrace.replica.late import AT_ONCE_MAX, Change, LatePartitions, OwedLogs, find_changes
from tailrace.replica.leading.mirrors import MirrorRole
from tailrace.replica.lease import Lease
from tailrace.replica.partition import OnBug, Partition
from tailrace.replica.repair.cut import lasting_end
from tailrace.replica.repair.damage import DamagedReplicas
from tailrace.replica.throttle import Throttle

if TYPE_CHECKING:
    from tailrace.replica.alter_isr import IsrProposals
    from tailrace.replica.following.cuts import AskLeave
    from tailrace.replica.following.fetcher import Leaders
    from tailrace.replica.following.fetchers import Fetchers
    from tailrace.wire.apis.quorum import AlterPartitionRequest, AlterPartitionResponse

_log = events.logger("replicas")

# Logs that a start opens before others have a turn. One that has nothing to recover takes about 0.1 ms.
_OPENED_PER_TURN = 10


class ReplicaManager:
    def __init__(
        self,
        static: BrokerConfig,
        directories: Sequence[LogDirectory],
        *,
        background: Background,
        clock: Clock | None = None,
        leaders: Leaders | None = None,
        alter_partition: Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]] | None = None,
        ask_leave: AskLeave | None = None,
    ) -> None:
        """Without `leaders` and `alter_partition` this is the only broker there will ever be. `ask_leave` asks the
        controller before confirmed records are cut."""
        self.node_id = NodeId(static.node_id)
        self.config = static  # With the dynamic settings of the image applied.
        self.directories = LogDirectories.of(directories)
        self.directories.on_offline.append(self._on_directory_offline)
        self.directories.on_log_broken.append(self._on_log_broken)
        # Replicas that have given up since the start, until the controller knows of it (`LogFiles.give_up`).
        self.broken: dict[TopicPartition, None] = {}
        self.on_bug: OnBug = lambda _error, _partition: None
        self.damaged = DamagedReplicas(self.node_id, self.directories)
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.retired = Traffic()  # Of replicas that are gone: what all have done together never falls.
        self.flusher = Flusher(background, unsynced_max_bytes=static.log_unsynced_max_bytes)
        # Where readers have met trouble (`log.files.damaged`); a scrub takes them out.
        self.suspects: dict[TopicPartition, Suspect] = {}
        # Told of a log that is about to be deleted, before its folder gives up its name: a compaction or a copy that
        # went on would put its files under the name of a topic that comes later.
        self.before_deletion: list[Callable[[TopicPartition], None]] = []
        self.on_settled: Callable[[Partition], None] = lambda _: None  # Told of one that is new, or has other settings.
        self.lease = Lease(self.node_id, self, self._state_of, session_ms=static.broker_session_timeout_ms)
        self.leader_throttle = Throttle()  # For what followers fetch from here.
        self._broker_epoch = NO_BROKER_EPOCH
        self._static = static
        self._background = background
        self._clock = clock
        self._leaders, self._alter_partition, self._ask_leave = leaders, alter_partition, ask_leave
        self._fetchers: Fetchers | None = None
        self._proposals: IsrProposals | None = None
        self._image: MetadataImage | None = None
        self._is_closed = False
        self.missing: dict[tuple[str, int], None] = {}  # Their logs could not be opened, as was logged once. In order.
        self.owed = OwedLogs(self._make_owed)
        self.late = LatePartitions(self._follow_late, per_turn=static.replica_changes_per_turn)
        # Logs that the last run left and that are not open yet, and where they lie.
        self._found: dict[TopicPartition, LogDirectory] = {}
        self._high_watermarks = StoredHighWatermarks(self.directories)

    # ---- finding a partition

    def find(self, topic: str, index: int) -> Partition:
        """To answer a client. Raises what it should see if the partition is not here, or may be led elsewhere."""
        partition = self.find_any(topic, index)
        if self.lease.ends_ms != math.inf:
            self.lease.check(partition)
        return partition

    def find_to_write(self, topic: str, index: int) -> Partition:
        """The same for what is confirmed only when everyone who could take over has it."""
        partition = self.find_any(topic, index)
        if self.lease.ends_ms != math.inf:
            self.lease.check_write(partition)
        return partition

    def find_any(self, topic: str, index: int) -> Partition:
        """For a follower, or for what this broker does by itself: whoever may lead by now."""
        if self.late:
            self.late.follow_now((topic, index))
        return self.partitions.get((topic, index)) or self._find_or_explain(topic, index)

    def on_lease_end(self) -> None:
        self.lease.fail_unconfirmed(self.partitions.values())

    def topic_name(self, topic_id: bytes) -> str:
        name = self._image.topic_names.get(Uuid(topic_id)) if self._image is not None else None
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "There is no topic with this id")
        return name

    def _find_or_explain(self, topic: str, index: int) -> Partition:
        state = self._state_of(TopicPartition(topic, PartitionIndex(index)))
        if self._image is None or state is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic}-{index}")
        if self.node_id not in state.replicas:
            why = f"Broker {self.node_id} has no replica of {topic}-{index}"
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, why)
        self._ensure(self._image.topics[topic], index)
        partition = self.partitions.get((topic, index))
        if partition is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log of {topic}-{index} could not be created")
        return partition

    # ---- following the image

    async def open_logs(self, image: Callable[[], MetadataImage]) -> None:
        """At a start, a few logs a turn: recovery may have to read a gigabyte, and meanwhile this node has a part in
        the metadata quorum. Ends with the newest image, which `follow_image` goes on from."""
        first = image()
        for number, _ in enumerate(self._follow(None, first)):
            if number % _OPENED_PER_TURN == _OPENED_PER_TURN - 1:
                await sleep(0)
        if image() is not first:
            self.follow_image(first, image())

    def follow_image(self, old: MetadataImage | None, new: MetadataImage) -> None:
        for _ in self._follow(old, new):
            pass

    def _follow(self, old: MetadataImage | None, new: MetadataImage) -> Iterator[None]:
        """Brings the logs in line with the newest metadata. With `old` None all of it is new: strays are set aside."""
        if self._is_closed:
            return  # The quorum ends later than the logs do: nothing may be fetched into one that is being stored.
        self._image = new
        if old is None or old.configs is not new.configs or old.brokers is not new.brokers:
            self.config = effective.broker_config(self._static, new)
        if old is None:
            self._found = self.directories.find_logs(self.node_id, new)
            self.damaged.miss_logs(new, self._found)
        elif old.topics is not new.topics:
            self._remove_deleted(old, new)
        if old is not None and old.brokers is not new.brokers:
            self._follow_brokers(old, new)
        # A leader never judges by the settings of one image and the in-sync set of another: min.insync.replicas with
        # another set would confirm what an eligible replica does not have.
        has_other_settings = old is not None and old.configs is not new.configs
        reconfigured = self._reconfigure(new) if has_other_settings else []
        if has_other_settings:
            self.late.follow_all()
        if old is None or old.topics is not new.topics:
            changes = list(find_changes(old, new))
            if old is not None and not has_other_settings and len(changes) > self.late.per_turn:
                changes = self._put_off(changes, old)
            yield from self._follow_topics(changes)
        if old is None:
            self.damaged.end_start(self.missing)
        for partition in reconfigured:
            if self.partitions.get(partition.topic_partition) is partition:
                self.on_settled(partition)
                partition.reconfigure()

    def _follow_brokers(self, old: MetadataImage, new: MetadataImage) -> None:
        has_gone = False
        for node_id, broker in new.brokers.items():
            before = old.brokers.get(node_id)
            if before is broker:
                continue
            has_gone = has_gone or not broker.is_active
            if self._fetchers is not None and (before is None or before.epoch != broker.epoch):
                self._fetchers.on_new_incarnation(broker.node_id)
        if has_gone or len(new.brokers) < len(old.brokers):
            # A follower that was about to join is waited for; one that is gone is not, and nobody else would notice.
            for partition in self.partitions.values():
                if partition.produces:
                    partition.raise_high_watermark()

    def _put_off(self, changes: Sequence[Change], old: MetadataImage) -> list[Change]:
        """Those of many that cannot wait: what is not here yet or any more, and what is led here and will not be."""
        urgent: list[Change] = []
        for topic, index, state in changes:
            partition = self.partitions.get((topic.name, index))
            if partition is None or self.node_id not in state.replicas or partition.ends_leading(state):
                urgent.append((topic, index, state))
            else:
                self.late.add((topic.name, index), old)
        if len(urgent) < len(changes):
            _log.info("many partitions change", partitions=len(changes))
        return urgent

    def _follow_late(self, key: tuple[str, int]) -> None:
        name, index = key
        topic = self._image.topics.get(name) if self._image is not None else None
        if topic is not None and index in topic.partitions and key in self.partitions:
            self._ensure(topic, index, is_one_of_many=True)

    def _follow_topics(self, changes: Sequence[Change]) -> Iterator[None]:
        """Gives a turn after each log."""
        created_count = 0
        owed: list[TopicPartition] = []
        for topic, index, state in changes:
            key = TopicPartition(topic.name, PartitionIndex(index))
            self.late.drop(key)
            if self.node_id not in state.replicas:
                if key in self.partitions or key in self._found:
                    self._remove(key)
                continue
            is_new = key not in self.partitions and key not in self._found
            created_count += is_new
            if is_new and created_count > AT_ONCE_MAX:
                owed.append(key)
            else:
                self._ensure(topic, index)
                yield
        if owed:
            self.owed.add(owed)

    def _make_owed(self, key: tuple[str, int]) -> None:
        name, index = key
        topic = self._image.topics.get(name) if self._image is not None else None
        # Unless it was deleted, moved elsewhere or asked for meanwhile.
        state = topic.partitions.get(index) if topic is not None else None
        if topic is not None and state is not None and key not in self.partitions and self.node_id in state.replicas:
            self._ensure(topic, index)

    def open_missing(self) -> None:
        """Tries again what could not be opened, a few a turn: clients ask for what is led here, but nobody for what is
        to follow."""
        if self.missing and not self.owed and not self._is_closed:
            self.owed.add(self.missing)

    def _ensure(self, topic: TopicImage, index: int, *, is_one_of_many: bool = False) -> None:
        """The partition exists here and knows its leader."""
        state = topic.partitions[index]
        partition = self.partitions.get((topic.name, index))
        if partition is None:
            try:
                partition = self._open(topic, TopicPartition(topic.name, PartitionIndex(index)), state)
            except (OSError, StorageError) as error:
                if (topic.name, index) not in self.missing:
                    self.missing[topic.name, index] = None
                    _log.error("a log cannot be opened", partition=f"{topic.name}-{index}", cause=error)
                return
            self.missing.pop((topic.name, index), None)
            self.partitions[topic.name, index] = partition
            self.on_settled(partition)
        try:
            partition.follow_image(state, mirror=self._mirror_role(topic), is_one_of_many=is_one_of_many)
        except AssertionError as error:
            partition.log.give_up(error)  # The others have to follow the image all the same.
        if self._leaders is not None:
            self._settle_fetcher(partition, self._leaders)

    def _mirror_role(self, topic: TopicImage) -> MirrorRole | None:
        mirror, closed = topic.mirror, topic.closed
        if mirror is None or self._image is None:
            return MirrorRole("", False, -1, closed) if closed is not None else None
        link = self._image.mirror_links.get(mirror.link_id)
        return MirrorRole(link.name if link else "", mirror.is_read_only, mirror.opening_epoch, closed)

    def _settle_fetcher(self, partition: Partition, leaders: Leaders) -> None:
        if self._fetchers is None:
            if partition.is_leader:
                return
            # Not before it is needed: a lone broker fetches from nobody, and starts sooner without.
            from tailrace.replica.following.cuts import Cuts
            from tailrace.replica.following.fetchers import Fetchers

            self._fetchers = Fetchers(self, leaders, Cuts(self, self._background, self._ask_leave))
        self._fetchers.settle(partition)

    def _open(self, topic: TopicImage, topic_partition: TopicPartition, state: PartitionImage) -> Partition:
        is_new = topic_partition not in self._found
        log = self._open_log(topic, topic_partition, state)
        is_alone = len(state.replicas) == 1
        high_watermark = None if is_alone else self._high_watermarks.find(topic_partition, is_new=is_new)
        self.damaged.judge(log, high_watermark)
        return Partition(
            log,
            topic_id=topic.id,
            node_id=self.node_id,
            flusher=self.flusher,
            high_watermark=high_watermark,
            surroundings=self,
        )

    def _open_log(self, topic: TopicImage, topic_partition: TopicPartition, state: PartitionImage) -> Log:
        """The log that is there, or a new one."""
        directory = self._found.get(topic_partition)
        if directory is None:
            directory = self.directories.choose(state.directory(self.node_id))
            if not directory.may_hold(topic_partition, topic.id):
                # What lies there is of a topic that was deleted while the disk refused to rename its folder.
                directory.delete_log(topic_partition)
        config = self._topic_config(topic.name)
        log = directory.open_log(topic_partition, config, topic_id=topic.id, leader_epoch=state.leader_epoch)
        # Not earlier: a log that cannot be opened now must not be made anew elsewhere at the next try.
        self._found.pop(topic_partition, None)
        # It is opened again when it is first used: a new log of ten thousand need not hold a handle.
        log.files.segments.close_idle_handles()
        log.files.damage.share_suspects(self.suspects)
        log.producers.expiration_ms = self.config.producer_id_expiration_ms
        log.producers.max_producers = self.config.max_producer_ids_per_partition
        log.max_decompressed_bytes = self.config.max_decompressed_bytes
        return log

    def _topic_config(self, topic: str) -> TopicConfig:
        assert self._image is not None, "the image comes before the first partition"
        return effective.topic_config(self.config, self._image, topic)

    def _reconfigure(self, new: MetadataImage) -> list[Partition]:
        """Settings change seldom: all logs are looked at. Gives the partitions that are still to be told of it."""
        reconfigured: list[Partition] = []
        configs: dict[str, TopicConfig] = {}
        for (topic, _index), partition in self.partitions.items():
            config = configs.get(topic)
            if config is None:
                config = configs[topic] = effective.topic_config(self.config, new, topic)
            if config != partition.log.config:
                partition.log.reconfigure(config)
                reconfigured.append(partition)
        return reconfigured

    def _remove_deleted(self, old: MetadataImage, new: MetadataImage) -> None:
        for name, topic in old.topics.items():
            now = new.topics.get(name)
            if now is not None and now.id == topic.id:
                continue
            for index in topic.partitions:
                self._remove(TopicPartition(name, PartitionIndex(index)))

    def _remove(self, topic_partition: TopicPartition) -> None:
        partition = self.partitions.pop(topic_partition, None)
        self.late.drop(topic_partition)
        self.missing.pop(topic_partition, None)
        self.broken.pop(topic_partition, None)
        if partition is not None:
            self.retired.add(partition.traffic)
            if self._fetchers is not None:
                self._fetchers.drop(partition)
            partition.close()
        for tell in self.before_deletion:
            tell(topic_partition)
        found = self._found.pop(topic_partition, None)
        for directory in self.directories:
            # A log that could not be opened has a folder too.
            if directory is found or topic_partition in directory.logs or topic_partition in directory.offline:
                _delete_log(directory, topic_partition)

    # ---- among other brokers

    @property
    def broker_epoch(self) -> int:
        """The epoch of this incarnation; -1 until it is registered. Fetches name it, so there are none before."""
        return self._broker_epoch

    @broker_epoch.setter
    def broker_epoch(self, broker_epoch: int) -> None:
        self._broker_epoch = broker_epoch
        if self._fetchers is not None:
            self._fetchers.wake()

    own_epoch = broker_epoch

    @property
    def lag_max_ms(self) -> float:
        return self.config.replica_lag_time_max_ms

    def monotonic_ms(self) -> float:
        return self._clock.monotonic_ms() if self._clock is not None else get_running_loop().time() * 1000

    def patient_ms(self) -> float:
        return self._clock.patient_ms() if self._clock is not None else get_running_loop().time() * 1000

    def registered_epoch(self, node_id: NodeId) -> int:
        broker = self._image.brokers.get(node_id) if self._image is not None else None
        return NO_BROKER_EPOCH if broker is None else broker.epoch

    def may_be_in_sync(self, topic_partition: TopicPartition, node_id: NodeId, broker_epoch: int) -> bool:
        broker = self._image.brokers.get(node_id) if self._image is not None else None
        state = self._state_of(topic_partition)
        return (
            broker is not None
            and state is not None
            and broker.is_active
            and broker.epoch == broker_epoch
            and broker.has_online(state.directory(node_id))
        )

    def _state_of(self, topic_partition: TopicPartition) -> PartitionImage | None:
        topic = self._image.topics.get(topic_partition.topic) if self._image is not None else None
        return topic.partitions.get(topic_partition.partition) if topic is not None else None

    def propose_isr(self, partition: Partition) -> None:
        if self._alter_partition is None:
            return
        if self._proposals is None:
            from tailrace.replica.alter_isr import IsrProposals

            self._proposals = IsrProposals(
                self._alter_partition,
                node_id=self.node_id,
                own_epoch=lambda: self._broker_epoch,
                on_bug=self.on_bug,
            )
        self._proposals.submit(partition)

    # ---- what lies on the disk

    def begin_high_watermark_checkpoint(self, directory: LogDirectory) -> Callable[[], None]:
        """Work for Background that stores them as they are now; it raises OSError."""
        found = {key: self.partitions[key] for key in directory.logs if key in self.partitions}
        offsets = {key: lasting_end(each) for key, each in found.items()}
        return self._high_watermarks.begin_storing(directory, offsets)

    def _on_directory_offline(self, directory: LogDirectory) -> None:
        """Whoever waits for one of its logs is told; other brokers take over once the controller knows. A fetch would
        tell a leader that the replica is still here, and bring it back into the in-sync set."""
        for topic_partition in directory.logs:
            self._end_service(topic_partition)

    def _on_log_broken(self, topic_partition: TopicPartition) -> None:
        self.broken[topic_partition] = None
        self._end_service(topic_partition)

    def _end_service(self, topic_partition: TopicPartition) -> None:
        partition = self.partitions.get(topic_partition)
        if partition is not None:
            partition.on_synced()
            partition.readers.tell()
            partition.replica_readers.tell()
            if self._fetchers is not None:
                self._fetchers.drop(partition)

    # ---- the whole

    async def store_log_start_offsets(self) -> None:
        """Raises KafkaError if they could not be stored."""
        for directory in self.directories.online:
            try:
                await self._background.run(directory.begin_log_start_checkpoint())
            except OSError as error:
                why = f"The log start offsets in {directory.path} cannot be stored: {error}"
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why) from error

    def close(self) -> None:
        """Answers all who wait; the logs are closed by their directories."""
        self._is_closed = True
        self.owed.clear()
        self.late.clear()
        if self._fetchers is not None:
            self._fetchers.close()
        if self._proposals is not None:
            self._proposals.close()
        for partition in self.partitions.values():
            partition.close()


def _delete_log(directory: LogDirectory, topic_partition: TopicPartition) -> None:
    try:
        directory.delete_log(topic_partition)
    except StorageError as error:
        _log.error("cannot delete a log", partition=topic_partition, cause=error)
