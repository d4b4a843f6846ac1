"""What the parts of remote storage share on one broker: the store behind limits, what was replayed, who may do what.

parts      what remote storage has of each partition here whose topic has it
metadata   the records that say what is in the store
store      the store behind limits; reader and pieces: what lies there alone; memory: what they may have of it
is_ours    the store is known to be this cluster's; until then nothing is copied or deleted
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tailrace.broker.tier.metadata import MetadataPartition, MetadataTopic
from tailrace.broker.tier.on_disk import StartOffsets
from tailrace.broker.tier.opening import check_marker
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ports import StoreAwayError, StoreError
from tailrace.tier.format.marker import Claim, read_claim
from tailrace.tier.format.names import TieredPartition, segment_name
from tailrace.tier.keeping.copying import Copier
from tailrace.tier.keeping.removal import Remover
from tailrace.tier.keeping.throttle import Throttle
from tailrace.tier.reading.cache import PieceCache
from tailrace.tier.reading.helpers import FewHelpers
from tailrace.tier.reading.memory import ReaderMemory
from tailrace.tier.reading.pieces import Pieces, ReadLimits
from tailrace.tier.reading.reader import TierReader
from tailrace.tier.store.circuit import CircuitLimits
from tailrace.tier.store.guard import GuardedObjects, GuardLimits

if TYPE_CHECKING:
    from tailrace.broker.node import Node
    from tailrace.broker.tier.parts import TieredLog
    from tailrace.model.config import BrokerConfig
    from tailrace.model.ports import Objects
    from tailrace.replica.directories import LogDirectories
    from tailrace.replica.partition import Partition
    from tailrace.tier.metadata.coverage import RemoteSegment

T = TypeVar("T")

_log = events.logger("tier")

# A store that is away is asked again this often: clients wait for it.
_CIRCUIT_PAUSE_MAX_MS = 5_000.0
# How long the same complaint is not repeated.
_COMPLAINT_PAUSE_MS = 60_000.0
# How long the marker's word is taken: many partitions delete at a time.
_CONFIRMED_MS = 1_000.0


class Worker(Protocol):
    """Something that is done now and then, as long as this broker runs."""

    @property
    def failure(self) -> str:
        """What is told of a round that failed."""

    @property
    def pause_seconds(self) -> float: ...

    async def round(self) -> None: ...


class Room:
    def __init__(self, node: Node, directories: LogDirectories, cluster_id: str, objects: Objects) -> None:
        config, ports = node.config, node.ports
        self.node = node
        self.cluster_id = cluster_id
        self.parts: dict[Partition, TieredLog] = {}
        self.owners: dict[TieredPartition, TieredLog] = {}  # The same.
        self.is_ours = False
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
        self.copier = Copier(
            cluster_id, node.node_id, self.store, ports.clock, ports.random, self._copy_throttle, ports.background
        )
        self.remover = Remover(
            cluster_id, node.node_id, self.store, ports.clock, delay_ms=config.remote_log_deletion_delay_ms
        )
        folder = config.metadata_folder
        self._helpers = FewHelpers(ports.background, config.remote_log_reader_threads)
        self.cache = PieceCache(
            ports.disk,
            self._helpers,
            f"{folder}/remote-log-cache",
            config.remote_log_index_file_cache_total_size_bytes,
        )
        self.memory = ReaderMemory(config.remote_log_reader_memory_bytes)
        pieces_bytes = self.memory.pieces_max_bytes
        self.pieces = Pieces(
            cluster_id,
            self.store,
            self.cache,
            self._helpers,
            throttle=self._read_throttle,
            limits=ReadLimits(ahead_bytes=pieces_bytes // 2, memory_bytes=pieces_bytes),
        )
        self.reader = TierReader(
            self.pieces, self._helpers, config.max_decompressed_bytes, make_answer=self.memory.hold
        )
        self.metadata = MetadataTopic(node, f"{folder}/remote-log-metadata", self._on_replayed)
        self.starts = StartOffsets(ports.disk, ports.background, directories)
        self._news = asyncio.Event()  # Of what is in the store.
        self._pending_reads = 0
        self._confirmed_ms = float("-inf")  # When the marker was last seen to be this cluster's.
        self._complained_ms: dict[str, float] = {}
        self.note_limits()

    @property
    def config(self) -> BrokerConfig:
        return self.node.config

    @property
    def claim(self) -> Claim:
        """What the metadata says of this cluster's right to the store."""
        return read_claim(self.config.remote_log_storage_recovery)

    @property
    def generation(self) -> int:
        return self.claim.generation

    async def confirm_ours(self) -> None:
        """Asked right before something is deleted. Raises StoreRefusalError if a recovery has taken the store over,
        StoreError if it cannot be asked."""
        now_ms = self.node.ports.clock.monotonic_ms()
        if not self.is_ours or now_ms - self._confirmed_ms >= _CONFIRMED_MS:
            await check_marker(self.store, self.cluster_id, self.claim, has_copies=self._has_copies)
            self._confirmed_ms = now_ms

    @property
    def _has_copies(self) -> bool | None:
        """None as long as the records are not replayed that would tell."""
        machines = (part.machine for part in self.metadata.parts.values())
        if any(tier.visible for machine in machines for tier in machine.partitions.values()):
            return True
        return False if all(part.is_ready for part in self.parts.values()) else None

    def note_limits(self) -> None:
        self._copy_throttle.bytes_per_second = self.config.remote_log_manager_copy_max_bytes_per_second
        self._read_throttle.bytes_per_second = self.config.remote_log_manager_fetch_max_bytes_per_second
        self._helpers.allow(self.config.remote_log_reader_threads)
        self.cache.max_bytes = self.config.remote_log_index_file_cache_total_size_bytes

    def _on_replayed(self, _replayed: MetadataPartition, owners: Collection[TieredPartition]) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
        for owner in owners:
            if (part := self.owners.get(owner)) is not None:
                part.settle()

    # ---- for the parts

    def is_stored(self, part: TieredLog) -> bool:
        return self.starts.find(part.owner) is not None

    async def store_starts(self) -> None:
        """Raises KafkaError."""
        offsets = {
            partition.topic_partition: (part.owner, part.log_start_offset) for partition, part in self.parts.items()
        }
        try:
            await self.starts.store(offsets)
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

    async def work(self, worker: Worker) -> None:
        """Until it is cancelled: what goes wrong ends a round, and never those to come."""
        while True:
            await asyncio.sleep(worker.pause_seconds)
            try:
                await worker.round()
            except StoreError as error:
                self.complain(worker.failure, error)
            except (KafkaError, StorageError, OSError) as error:
                _log.info(worker.failure, cause=error)
            except Exception as error:
                _log.error(worker.failure, trace=True)
                self.node.judge_bug(error)

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
