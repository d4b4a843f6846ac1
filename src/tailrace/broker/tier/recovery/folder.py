"""The data folder of a cluster's first node, made of what a bucket gives. It holds no records of topics, only where
they end: what is before that is read from the store.

    DATA FOLDER/.tailrace_recovering    all is made here; `moves` names what was about to be moved out of it
    DATA FOLDER                         has everything once meta.properties is there, which is moved last

A recovery that was killed leaves a folder that no broker starts with, and that the next recovery makes anew. A folder
that holds anything else is never touched. Written are, by the log's own code,

    <topic>-<partition>               an empty log that begins where the copies end, with leader epochs and producers;
                                      in it a marker for each transaction that was open there: its end is lost, so that
                                      it is aborted
    __remote_log_metadata-<n>         the copies
    __consumer_offsets-<n>            what groups have committed
    __cluster_metadata-0              see `topics`
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from tailrace.broker.tier.on_disk import FILE_NAME as STARTS
from tailrace.broker.tier.recovery.topics import BROKER_EPOCH, FirstNode, internal_topics, store_metadata
from tailrace.coordinator.offsets.store import offset_record
from tailrace.coordinator.placement import coordinator_partition
from tailrace.log.checkpoints import META_PROPERTIES, format_entries, read_meta_properties
from tailrace.log.directory import LogDirectory
from tailrace.log.files.failures import disk_errors
from tailrace.log.identity import LOCK_FILE, find_data, nameless, take_lock
from tailrace.log.log import Log
from tailrace.log.validation import Origin
from tailrace.model.config import parse_topic_config
from tailrace.model.errors import KafkaError
from tailrace.model.ids import CONSUMER_OFFSETS_TOPIC, REMOTE_LOG_METADATA_TOPIC, TopicPartition, Uuid, uuid_text
from tailrace.model.ports import RemoteStart
from tailrace.replica.following.changes import begin_after
from tailrace.tier.metadata.export import ExportedOffset
from tailrace.tier.metadata.records import SegmentState, copy_started, metadata_partition, segment_update
from tailrace.tier.recovery.plan import PartitionPlan, RecoveryError, RecoveryPlan, TopicPlan, open_transactions
from tailrace.wire.apis.stored_records import OffsetCommitValue
from tailrace.wire.markers import Marker, build_marker
from tailrace.wire.record_envelopes import encode_coordinator_key, encode_coordinator_value, encode_metadata_record
from tailrace.wire.records import Record, build_batch

if TYPE_CHECKING:
    from tailrace.model.config import BrokerConfig, Endpoint, TopicConfig
    from tailrace.model.ports import Disk, Ports
    from tailrace.tier.format.marker import Claim

_STAGING = ".tailrace_recovering"
_MOVES = "moves"
_RECORDS_PER_BATCH = 200


def check_folders(disk: Disk, config: BrokerConfig) -> None:
    """RecoveryError if one holds what no recovery has left."""
    for folder in _folders(config):
        with disk_errors(f"{folder} cannot be read"):
            if read_meta_properties(disk, folder) is not None:
                raise RecoveryError(
                    f"{folder} is a node's data already: recover into a new folder (log.dirs, --data). If a recovery "
                    "made it, start the node"
                )
            if not disk.is_folder(f"{folder}/{_STAGING}") and (evidence := find_data(disk, folder)) is not None:
                raise RecoveryError(nameless(folder, evidence))


def write_folders(
    ports: Ports,
    config: BrokerConfig,
    plan: RecoveryPlan,
    claim: Claim,
    *,
    replicas: Sequence[int],
    controller: Endpoint | None = None,
) -> None:
    """`controller`: where others find it to join its quorum. What was begun before is made anew. Blocks. RecoveryError;
    StorageError if the disk fails."""
    disk, folders = ports.disk, _folders(config)
    with ExitStack() as undo, disk_errors("the recovered cluster cannot be stored"):
        for folder in folders:
            undo.callback(take_lock(disk, folder).release)
        check_folders(disk, config)
        for folder in folders:
            _clear(disk, folder)
        _Writer(ports, config, plan).write(claim, replicas, controller)
        for folder in folders:
            _note_moves(disk, folder)
        for folder in folders:
            _move(disk, folder)


def _folders(config: BrokerConfig) -> list[str]:
    return list(dict.fromkeys((*config.log_dirs, config.metadata_folder)))


def _clear(disk: Disk, folder: str) -> None:
    staging = f"{folder}/{_STAGING}"
    with suppress(FileNotFoundError):
        for name in disk.read(f"{staging}/{_MOVES}").decode().splitlines():
            _remove(disk, f"{folder}/{name}")
    if disk.is_folder(staging):
        disk.remove_folder(staging)
    disk.make_folder(staging)


def _remove(disk: Disk, path: str) -> None:
    with suppress(FileNotFoundError):
        if disk.is_folder(path):
            disk.remove_folder(path)
        else:
            disk.remove(path)


def _note_moves(disk: Disk, folder: str) -> None:
    staging = f"{folder}/{_STAGING}"
    names = [name for name in disk.list(staging) if name not in (LOCK_FILE, META_PROPERTIES)]
    disk.replace(f"{staging}/{_MOVES}", "\n".join([*names, META_PROPERTIES]).encode())


def _move(disk: Disk, folder: str) -> None:
    staging = f"{folder}/{_STAGING}"
    names = disk.read(f"{staging}/{_MOVES}").decode().splitlines()
    for name in names[:-1]:
        disk.rename(f"{staging}/{name}", f"{folder}/{name}")
    disk.sync_folder(folder)
    disk.rename(f"{staging}/{names[-1]}", f"{folder}/{names[-1]}")
    disk.sync_folder(folder)
    disk.remove_folder(staging)


class _Writer:
    def __init__(self, ports: Ports, config: BrokerConfig, plan: RecoveryPlan) -> None:
        self._ports = ports
        self._config = config
        self._plan = plan
        self._internal = internal_topics(config, ports.random)
        self._topics = [*self._internal, *plan.topics]
        self._now_ms = ports.clock.wall_ms()

    def write(self, claim: Claim, replicas: Sequence[int], controller: Endpoint | None) -> None:
        folders = _folders(self._config)
        directories = {folder: self._open(folder) for folder in folders}
        try:
            self._write_logs(directories[folders[0]])
        except BaseException:
            for each in directories.values():
                each.close(clean=False)
            raise
        ids = {folder: each.directory_id for folder, each in directories.items()}
        for each in directories.values():
            each.close(broker_epoch=BROKER_EPOCH)
        metadata_folder = self._config.metadata_folder
        node = FirstNode(
            self._config.node_id,
            [ids[folder] for folder in folders if folder in self._config.log_dirs],
            ids[metadata_folder],
            replicas,
            controller,
        )
        store_metadata(
            self._ports.disk,
            _staging(metadata_folder),
            self._config,
            node,
            topics=self._topics,
            claim=claim,
            next_producer_id=self._plan.next_producer_id,
            incarnation_id=Uuid(self._ports.random.uuid()),
            timestamp_ms=self._now_ms,
        )

    def _open(self, folder: str) -> LogDirectory:
        ports = self._ports
        return LogDirectory.open(
            ports.disk,
            ports.clock,
            ports.random,
            _staging(folder),
            node_id=self._config.node_id,
            cluster_id=self._plan.cluster_id,
        )

    def _write_logs(self, directory: LogDirectory) -> None:
        ends, starts = {}, []
        records, offsets = self._internal
        assert (records.name, offsets.name) == (REMOTE_LOG_METADATA_TOPIC, CONSUMER_OFFSETS_TOPIC)
        batches = {records.name: self._copies(records), offsets.name: self._offsets(offsets)}
        for topic in self._topics:
            config = self._topic_config(topic)
            written = batches.get(topic.name, {})
            for partition in topic.partitions:
                # An empty one, too: a start would take a log that is not there for one that was lost.
                log = self._open_log(directory, config, partition)
                for batch in written.get(partition.owner.partition, ()):
                    log.append_as_leader(
                        memoryview(bytearray(batch)), leader_epoch=partition.leader_epoch, origin=Origin.COORDINATOR
                    )
                ends[log.topic_partition] = log.log_end_offset
                if config.remote_storage_enable:
                    owner = partition.owner
                    starts.append((uuid_text(owner.topic_id), owner.partition, partition.log_start_offset))
        directory.checkpoint_high_watermarks(ends)
        self._ports.disk.replace(f"{directory.path}/{STARTS}", format_entries(starts))

    def _topic_config(self, topic: TopicPlan) -> TopicConfig:
        try:
            return parse_topic_config(topic.settings, self._config)
        except KafkaError as error:
            raise RecoveryError(
                f"topic {topic.name} has settings that this node does not take: {error.message}"
            ) from None

    def _open_log(self, directory: LogDirectory, config: TopicConfig, partition: PartitionPlan) -> Log:
        name = TopicPartition(partition.topic, partition.owner.partition)
        log = directory.open_log(name, config, topic_id=partition.owner.topic_id, leader_epoch=partition.leader_epoch)
        if partition.end_offset:
            begin_after(log, RemoteStart(partition.end_offset, partition.lineage, partition.producers))
        for producer_id, epoch in open_transactions(partition.producers):
            marker = build_marker(
                Marker(is_commit=False, coordinator_epoch=0),
                producer_id=producer_id,
                producer_epoch=epoch,
                timestamp_ms=self._now_ms,
            )
            log.append_as_leader(
                memoryview(bytearray(marker)), leader_epoch=partition.leader_epoch, origin=Origin.COORDINATOR
            )
        return log

    # ---- what internal topics hold

    def _copies(self, topic: TopicPlan) -> dict[int, list[bytes]]:
        values: dict[int, list[Record]] = {}
        for partition in self._plan.partitions:
            index = metadata_partition(partition.owner, len(topic.partitions))
            values.setdefault(index, []).extend(self._copies_of(partition))
        return {index: list(_batches(records)) for index, records in values.items()}

    def _copies_of(self, partition: PartitionPlan) -> Iterator[Record]:
        for segment in partition.segments:
            started = copy_started(
                partition.topic, partition.owner, segment, leader_epoch=partition.leader_epoch, now_ms=self._now_ms
            )
            finished = segment_update(
                partition.topic,
                partition.owner,
                segment,
                SegmentState.COPY_FINISHED,
                broker_id=segment.broker_id,
                leader_epoch=partition.leader_epoch,
                now_ms=self._now_ms,
                log_start_offset=partition.log_start_offset,
            )
            for message in (started, finished):
                yield Record(0, self._now_ms, None, encode_metadata_record(message))

    def _offsets(self, topic: TopicPlan) -> dict[int, list[bytes]]:
        records: dict[int, list[Record]] = {}
        ids = {each.name: each.topic_id for each in self._plan.topics}
        for each in self._plan.offsets:
            index = coordinator_partition(each.group_id, len(topic.partitions))
            records.setdefault(index, []).append(self._offset(each, ids[each.topic]))
        return {index: list(_batches(found)) for index, found in records.items()}

    def _offset(self, committed: ExportedOffset, topic_id: Uuid) -> Record:
        """Committed now: a group that was quiet for long must not lose its offsets by it."""
        value = OffsetCommitValue(
            offset=committed.offset,
            leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            commit_timestamp=self._now_ms,
            topic_id=topic_id,
        )
        key, stored, version = offset_record(committed.group_id, committed.topic, committed.partition, value)
        return Record(0, self._now_ms, encode_coordinator_key(key), encode_coordinator_value(stored, version))  # type: ignore[arg-type]


def _staging(folder: str) -> str:
    return f"{folder}/{_STAGING}"


def _batches(records: Iterable[Record]) -> Iterator[bytes]:
    found = list(records)
    for start in range(0, len(found), _RECORDS_PER_BATCH):
        part = found[start : start + _RECORDS_PER_BATCH]
        yield build_batch([record._replace(offset=number) for number, record in enumerate(part)])
