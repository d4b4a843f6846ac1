"""`Tier`: the remote storage of one broker. Joins the parts, and owns their life.

parts      what remote storage has of each partition here whose topic has it
metadata   the records that say what is in the store
keeper     copies, retention, orphans of what is led here; collector: what is left of deleted topics
store      the store behind limits; reader and pieces: what lies there alone
is_ours    the store is known to be this cluster's; until then nothing is copied or deleted

A partition gets its part in the turn in which it is opened or its topic gets remote storage, before anybody can ask for
it: without, what is in the store alone would look deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from tailrace.broker.tier.announcing import Announcer
from tailrace.broker.tier.collector import Collector
from tailrace.broker.tier.keeper import Keeper
from tailrace.broker.tier.metadata import MetadataPartition, MetadataTopic
from tailrace.broker.tier.opening import NoStore, check_at_first_start, check_marker, open_store
from tailrace.broker.tier.parts import TieredLog
from tailrace.broker.tier.starts import StartOffsets
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import CLUSTER_METADATA_TOPIC
from tailrace.model.ports import StoreAwayError, StoreError
from tailrace.tier.format.names import TieredPartition, segment_name
from tailrace.tier.keeping.copying import Copier
from tailrace.tier.keeping.removal import Remover
from tailrace.tier.keeping.throttle import Throttle
from tailrace.tier.reading.cache import PieceCache
from tailrace.tier.reading.pieces import Pieces, ReadLimits
from tailrace.tier.reading.reader import TierReader
from tailrace.tier.store.circuit import CircuitLimits
from tailrace.tier.store.guard import GuardedObjects, GuardLimits

if TYPE_CHECKING:
    from tailrace.broker.node import Node
    from tailrace.controller.image import MetadataImage
    from tailrace.model.config import BrokerConfig
    from tailrace.model.ports import Objects
    from tailrace.replica.directories import LogDirectories
    from tailrace.replica.partition import Partition
    from tailrace.tier.metadata.coverage import RemoteSegment

T = TypeVar("T")

_log = events.logger("tier")

_SNAPSHOT_RECORDS = 10_000
_TEND_SECONDS = 1.0
# How often it is looked whose the store is.
_MARKER_SECONDS = 30.0
# A store that is away is asked again this often: clients wait for it.
_CIRCUIT_PAUSE_MAX_MS = 5_000.0
# How long the same complaint is not repeated.
_COMPLAINT_PAUSE_MS = 60_000.0


class Tier:
    """Made by `open_tier`."""

    def __init__(self, node: Node, directories: LogDirectories, cluster_id: str, objects: Objects) -> None:
        config, ports = node.config, node.ports
        self.node = node
        self.cluster_id = cluster_id
        self.parts: dict[Partition, TieredLog] = {}
        self.is_ours = False
        self.generation = 0  # Of the cluster, as the marker had it when this node first saw it.
        self.problem = ""  # What an operator should know of; empty if all is well.
        self.copied_bytes = 0
        self.copied_segments = 0
        limits = GuardLimits(
            call_timeout_ms=config.remote_log_storage_timeout_ms,
            put_timeout_ms=config.remote_log_storage_upload_timeout_ms,
            reads_in_flight=config.remote_log_storage_reads_max,
            read_bytes_max=config.remote_log_storage_read_max_bytes,
            uploads_in_flight=config.remote_log_storage_uploads_max,
            upload_bytes_max=config.remote_log_storage_uploads_max * (16 << 20),
            circuit=CircuitLimits(pause_max_ms=_CIRCUIT_PAUSE_MAX_MS),
        )
        self.store = GuardedObjects(objects, ports.clock, ports.random, limits, on_circuit=self._note_circuit)
        self._copy_throttle, self._read_throttle = Throttle(ports.clock), Throttle(ports.clock)
        self.copier = Copier(cluster_id, node.node_id, self.store, ports.clock, ports.random, self._copy_throttle)
        self.remover = Remover(
            cluster_id, node.node_id, self.store, ports.clock, delay_ms=config.remote_log_deletion_delay_ms
        )
        folder = config.metadata_folder
        self._cache = PieceCache(
            ports.disk,
            ports.background,
            f"{folder}/remote-log-cache",
            config.remote_log_index_file_cache_total_size_bytes,
        )
        self.pieces = Pieces(
            cluster_id, self.store, self._cache, ports.background, throttle=self._read_throttle, limits=ReadLimits()
        )
        self.reader = TierReader(self.pieces, ports.background, config.max_decompressed_bytes)
        self.metadata = MetadataTopic(node, f"{folder}/remote-log-metadata", self._on_replayed)
        self._starts = StartOffsets(ports.disk, ports.background, directories)
        self.announcer = Announcer(self)
        self._keeper, self._collector = Keeper(self), Collector(self)
        self._news = asyncio.Event()  # Of what is in the store.
        self._pending_reads = 0
        self._complained_ms: dict[str, float] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._is_closed = False
        self._note_limits()

    @property
    def _workers(self) -> tuple[Keeper, Collector, Announcer]:
        return self._keeper, self._collector, self.announcer

    @property
    def config(self) -> BrokerConfig:
        return self.node.config

    # ---- life

    async def check_at_first_start(self) -> None:
        """KafkaError if the store says no."""
        await check_at_first_start(self.store, self.cluster_id)

    def attach(self) -> None:
        """From now on partitions have their parts."""
        self.node.replicas.on_settled = self._settle
        self.node.quorum.subscribe(self._follow_image)

    def start(self) -> None:
        for work in (self._tend(), self._watch_marker(), self._cache.open()):
            self._tasks.append(asyncio.get_running_loop().create_task(work, name="tier"))
        for worker in self._workers:
            worker.start()

    async def close(self) -> None:
        self._is_closed = True
        for worker in self._workers:
            await worker.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.pieces.close()
        await self.metadata.close()
        try:
            await self.store_starts()
        except KafkaError as error:
            _log.warning("it is not stored where logs begin", cause=error.message)

    async def _watch_marker(self) -> None:
        """Nothing is copied before the store is known to be this cluster's, nor after a recovery has taken it over."""
        pause_seconds = 1.0
        known = await self._read_generation()
        while True:
            try:
                self.generation = await check_marker(self.store, self.cluster_id, known)
                if known is None:
                    await self._store_generation()
                known = self.generation
                if not self.is_ours:
                    _log.info("remote storage is there", url=self.config.remote_log_storage_url)
                self.is_ours, self.problem = True, ""
                pause_seconds = _MARKER_SECONDS
            except StoreAwayError as error:
                self.complain("the store cannot be asked whose it is", error)
                self.problem = f"remote storage: {error}"
                pause_seconds = min(pause_seconds * 2, _MARKER_SECONDS)
            except (StoreError, OSError) as error:
                self.complain("nothing is copied to the store", error)
                self.is_ours, self.problem = False, f"remote storage: {error}"
                pause_seconds = min(pause_seconds * 2, _MARKER_SECONDS)
            await asyncio.sleep(pause_seconds)

    @property
    def _generation_path(self) -> str:
        return f"{self.config.metadata_folder}/remote-log-generation"

    async def _read_generation(self) -> int | None:
        ports = self.node.ports
        try:
            return int(await ports.background.run(lambda: ports.disk.read(self._generation_path)))
        except (OSError, ValueError):
            return None

    async def _store_generation(self) -> None:
        ports, content = self.node.ports, f"{self.generation}\n".encode()
        await ports.background.run(lambda: ports.disk.replace(self._generation_path, content))

    async def _tend(self) -> None:
        while True:
            await asyncio.sleep(_TEND_SECONDS)
            try:
                self._note_limits()
                self._follow_needs()
                await self.store_starts()
                await self.metadata.store_snapshots(records_min=_SNAPSHOT_RECORDS)
            except KafkaError as error:
                self.complain("it cannot be stored where logs begin", error)
            except Exception as error:
                _log.error("a round of remote storage failed", trace=True)
                self.node.judge_bug(error)

    def _note_limits(self) -> None:
        self._copy_throttle.bytes_per_second = self.config.remote_log_manager_copy_max_bytes_per_second
        self._read_throttle.bytes_per_second = self.config.remote_log_manager_fetch_max_bytes_per_second
        self._cache.max_bytes = self.config.remote_log_index_file_cache_total_size_bytes

    # ---- which partitions

    def _settle(self, partition: Partition) -> None:
        """The partition is new, or its topic has other settings."""
        has_storage = partition.log.config.remote_storage_enable
        owner = TieredPartition(partition.topic_id, partition.topic_partition.partition)
        if has_storage and partition.tier is None:
            stored = self._starts.find(owner)
            start_offset = partition.log.log_start_offset if stored is None else stored
            partition.tier = self.parts[partition] = TieredLog(self, partition, start_offset)
        elif not has_storage:
            self._starts.forget(owner)
            if partition.tier is not None:
                self._detach(partition)

    def _detach(self, partition: Partition) -> None:
        """What is in the store alone is given up (remote.log.delete.on.disable), and never comes back."""
        part = self.parts.pop(partition)
        partition.tier = None
        self._forget(part)
        partition.log.epochs.truncate_from_start(partition.log.log_start_offset)

    def _forget(self, part: TieredLog) -> None:
        self._keeper.forget(part)
        self.announcer.forget(part)

    def _follow_image(self, old: MetadataImage, new: MetadataImage) -> None:
        if self._is_closed:
            return
        if old.topics is not new.topics:
            current = self.node.replicas.partitions
            for partition in [each for each in self.parts if current.get(each.topic_partition) is not each]:
                part = self.parts.pop(partition)
                self._forget(part)
                self._starts.forget(part.owner)
        if old.topics is not new.topics or old.configs is not new.configs:
            self._follow_needs()

    def _follow_needs(self) -> None:
        """Followed are the partitions of __remote_log_metadata that tell of a partition here, and those that are led
        here: their leader collects what is left of deleted topics."""
        metadata = self.metadata
        topic = metadata.topic
        needed = {index for part in self.parts.values() if (index := metadata.index_of(part.owner)) is not None}
        if topic is not None:
            needed |= {index for index in topic.partitions if metadata.leads(index)}
        is_wanted = any(part.partition.is_leader for part in self.parts.values())
        if needed != metadata.parts.keys() or (topic is None and is_wanted):
            metadata.need(needed, is_wanted=is_wanted)
        else:
            metadata.follow_leaders()

    def _on_replayed(self, replayed: MetadataPartition) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
        for part in self.parts.values():
            if self.metadata.part_of(part.owner) is replayed:
                part.settle()

    # ---- for the parts

    def is_stored(self, part: TieredLog) -> bool:
        return self._starts.find(part.owner) is not None

    async def store_starts(self) -> None:
        """Raises KafkaError."""
        offsets = {
            partition.topic_partition: (part.owner, part.log_start_offset) for partition, part in self.parts.items()
        }
        try:
            await self._starts.store(offsets)
        except OSError as error:
            why = f"It cannot be stored where logs begin: {error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why) from error

    async def wait_ready(self, part: TieredLog) -> None:
        while not part.is_ready:
            await self._news.wait()

    def may_keep(self, part: TieredLog) -> bool:
        """Whether this broker may change what the store has of it."""
        partition = part.partition
        return (
            partition.is_leader
            and part.is_ready
            and self.is_ours
            and not partition.log.is_offline
            and self.node.replicas.lease.allows(partition)
        )

    async def catch_up(self, part: TieredLog) -> None:
        """Until all is replayed that is committed now. Raises KafkaError."""
        found = self.metadata.part_of(part.owner)
        if found is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The records of the tier are not followed yet")
        await self.metadata.catch_up(found)

    def name_of(self, owner: TieredPartition, segment: RemoteSegment) -> str:
        return segment_name(self.cluster_id, owner, segment.base_offset, segment.segment_id)

    # ---- reading

    @property
    def may_read(self) -> bool:
        return self._pending_reads < self.config.remote_log_reader_max_pending_tasks

    async def reading(self, read: Coroutine[Any, Any, T]) -> T:
        self._pending_reads += 1
        try:
            return await read
        finally:
            self._pending_reads -= 1

    # ---- what an operator should know

    def note_copied(self, size_bytes: int) -> None:
        self.copied_segments += 1
        self.copied_bytes += size_bytes

    def complain(self, sentence: str, error: Exception) -> None:
        now_ms = self.node.ports.clock.monotonic_ms()
        if now_ms - self._complained_ms.get(sentence, -_COMPLAINT_PAUSE_MS) < _COMPLAINT_PAUSE_MS:
            return
        if len(self._complained_ms) > 1000:
            self._complained_ms.clear()
        self._complained_ms[sentence] = now_ms
        tell = _log.warning if isinstance(error, StoreAwayError) else _log.error
        tell(sentence, cause=error)

    def _note_circuit(self, is_open: bool, cause: str) -> None:
        if self.is_ours:
            self.problem = f"remote storage does not answer: {cause}" if is_open else ""


async def open_tier(node: Node, directories: LogDirectories, cluster_id: str) -> Tier:
    """KafkaError INVALID_CONFIG if remote storage cannot work, unless there is data that has to be served."""
    config = node.config
    found = (each for directory in directories for each in directory.partitions_on_disk())
    has_data = any(each.topic != CLUSTER_METADATA_TOPIC for each in found)
    try:
        objects = await open_store(node.ports.objects, config)
    except KafkaError as error:
        if not has_data:
            raise
        _log.error("remote storage cannot be used: what lies here alone is served", cause=error.message)
        objects = NoStore(error.message)
    tier = Tier(node, directories, cluster_id, objects)
    if not has_data:
        await tier.check_at_first_start()
    tier.attach()
    return tier
