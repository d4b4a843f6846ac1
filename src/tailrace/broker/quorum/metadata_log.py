"""The log of __cluster_metadata-0 and the snapshots beside it, as Raft sees them.

    start_offset <= latest snapshot's end <= high watermark (Raft's) <= end_offset
    synced_end_offset <= end_offset: what may be counted for a majority, or told to a leader; the same on a node that
    is not counted, which syncs nothing and fetches again what a power loss took

Rules:
  - A start offset above 0 is the end of a snapshot: what was before it is in the snapshot.
  - A snapshot that the log does not reach to, or that is of a later epoch, replaces the log, at a start too.
  - A truncation takes the sync of the segment it cuts back, so `synced_end_offset` falls: sync before telling it.
  - A failed sync is final: nobody knows what is on the device until a restart recovers the log.
  - What was synced is noted (`damage.synced_end`) before anyone is told, and a start looks whether it is there.

Never knows who leads or what is committed: Raft says up to where may be truncated or removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import ExitStack

from tailrace.broker.quorum.control_records import build_control_batch, find_control_records
from tailrace.broker.quorum.damage.inspection import Inspection
from tailrace.broker.quorum.damage.rebuilding import PARTITION
from tailrace.broker.quorum.damage.settling import is_counted, settle_damage
from tailrace.broker.quorum.damage.synced_end import SyncedEnd
from tailrace.broker.quorum.snapshots import SnapshotFiles, SnapshotId
from tailrace.log.directory import LogDirectory
from tailrace.log.files.failures import disk_errors
from tailrace.log.log import Log
from tailrace.log.retention import expire_segments
from tailrace.log.validation import Origin
from tailrace.model import events
from tailrace.model.config import BrokerConfig, TopicConfig
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ids import CLUSTER_METADATA_TOPIC_ID, Uuid
from tailrace.model.ports import FileSlice, Ports
from tailrace.raft.types import OffsetAndEpoch
from tailrace.wire.apis.stored_records import KRaftVersionRecord, VotersRecord
from tailrace.wire.record_envelopes import encode_metadata_record
from tailrace.wire.records import BatchHeader, Record, build_batch, iterate_headers
from tailrace.wire.schema import Message

_log = events.logger("quorum")

_KEPT_CONTROL_RECORDS = (KRaftVersionRecord, VotersRecord)
# What is replayed is read in pieces of this size: large enough to be fast, and little memory.
_READ_BYTES = 1 << 20
# What was noted of a sync is itself synced after so long: one more sync a second at most, and no change waits for it.
_FLUSH_SECONDS = 1.0


class MetadataLog:
    """Opened by `MetadataLog.open`."""

    def __init__(
        self, config: BrokerConfig, ports: Ports, log: Log, snapshots: SnapshotFiles, synced_end: SyncedEnd
    ) -> None:
        self.folder = log.folder
        self.snapshots = snapshots
        # Bytes of batches above the latest snapshot: when it is time for another.
        self.unsnapshotted_bytes = 0
        # Whether a majority may be counted with this log. Brokers only read along: as in Kafka they need no fsync for
        # it, which would be one more on the disk that their data is written to.
        self.is_counted = is_counted(config, ports.disk)
        self._max_batch_bytes = config.metadata_max_batch_bytes
        self._ports = ports
        self._log = log
        self._directory: LogDirectory | None = None
        self._control_records: list[tuple[int, Message]] = []
        self._synced_end = synced_end
        self._flush_timer: asyncio.TimerHandle | None = None
        self._flush_task: asyncio.Task[None] | None = None
        self._sync_task: asyncio.Task[None] | None = None
        self._failure: str | None = None

    @classmethod
    def open(cls, config: BrokerConfig, ports: Ports, *, cluster_id: str) -> MetadataLog:
        """Raises StorageError with cause and remedy, and then leaves nothing open."""
        folder = f"{config.metadata_folder}/{PARTITION}"
        with ExitStack() as undo:
            directory = None
            if config.metadata_folder not in config.log_dirs:
                # Locked and checked to be this cluster's, as the folders of data are.
                directory = LogDirectory.open(
                    ports.disk,
                    ports.clock,
                    ports.random,
                    config.metadata_folder,
                    node_id=config.node_id,
                    cluster_id=cluster_id,
                )
                undo.callback(directory.close, clean=False)
            found = settle_damage(config, ports.disk, ports.random)
            with disk_errors(f"{config.metadata_folder} cannot be read"):
                synced_end = SyncedEnd(ports.disk, config.metadata_folder)
            snapshots = SnapshotFiles.open(ports.disk, folder)
            log = Log.open(
                ports.disk,
                ports.clock,
                folder,
                TopicConfig(
                    segment_bytes=config.metadata_log_segment_bytes,
                    segment_ms=config.metadata_log_segment_ms,
                    max_message_bytes=config.metadata_max_batch_bytes,
                    # What a snapshot covers goes, and nothing else.
                    retention_ms=-1,
                    retention_bytes=-1,
                ),
                topic_partition=PARTITION,
                topic_id=CLUSTER_METADATA_TOPIC_ID,
            )
            undo.callback(log.close, clean=False)
            opened = cls(config, ports, log, snapshots, synced_end)
            opened._directory = directory
            if opened.is_counted:
                synced_end.begin()
            opened._settle_start(found)
            opened._take_stock(found)
            undo.pop_all()
        return opened

    # ---- what there is

    @property
    def directory_id(self) -> Uuid | None:
        """The id of the folder it lies in, if that is its own and not one of the data folders."""
        return None if self._directory is None else self._directory.directory_id

    @property
    def start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def synced_end_offset(self) -> int:
        return self._log.recovery_point if self.is_counted else self._log.log_end_offset

    @property
    def start_epoch(self) -> int:
        """The epoch of the last record before `start_offset`, as the snapshot that ends there tells; 0 if none does."""
        start_offset = self.start_offset
        return next((each.epoch for each in self.snapshots.ids if each.offset == start_offset), 0)

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record; `start_epoch` if the log is empty."""
        latest = self._log.epochs.latest
        return latest if latest >= 0 else self.start_epoch

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self.snapshots.latest

    @property
    def failure(self) -> str | None:
        """Why nothing can be written any more, until a restart."""
        return self._failure or self._log.files.offline_reason

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        """The greatest epoch of the log that is not greater than `epoch`, and where it ends. An epoch before the first
        of the log gives its start."""
        entries = self._log.epochs.entries
        if not entries or epoch < entries[0].epoch:
            return OffsetAndEpoch(self.start_offset, self.start_epoch)
        if epoch >= entries[-1].epoch:
            return OffsetAndEpoch(self.end_offset, entries[-1].epoch)
        found, end_offset = self._log.epochs.end_offset_for(epoch, self.end_offset)
        return OffsetAndEpoch(end_offset, found)

    def epoch_at(self, offset: int) -> int:
        """That of the last record before `offset`, which is committed: a snapshot that ends there is named after it."""
        return self._log.epochs.epoch_for(offset - 1) if offset > self.start_offset else self.start_epoch

    def control_records(self) -> Sequence[tuple[int, Message]]:
        """Offset and message of each KRaftVersion and Voters record: of the latest snapshot, with the last offset that
        it holds, and of the log after it, committed or not. Raft finds its voters in them."""
        return self._control_records

    def control_before(self, offset: int) -> list[Message]:
        """The last of each kind before `offset`: what a snapshot that ends there has to hold."""
        last = {type(message): message for at, message in self._control_records if at < offset}
        return [last[kind] for kind in _KEPT_CONTROL_RECORDS if kind in last]

    # ---- writing

    def append(self, records: Sequence[Message], *, epoch: int) -> tuple[int, int]:
        """One batch. Gives the offset of the first record and the end. If it raises nothing has changed: KafkaError
        POLICY_VIOLATION for what is too large, StorageError for what the disk does not take."""
        now_ms = self._ports.clock.wall_ms()
        framed = [
            Record(index, now_ms, None, encode_metadata_record(record), ()) for index, record in enumerate(records)
        ]
        return self._write(build_batch(framed), epoch)

    def append_control(self, records: Sequence[tuple[int, Message]], *, epoch: int) -> tuple[int, int]:
        """One batch of (type, message), of Raft's own."""
        batch = build_control_batch(records, timestamp_ms=self._ports.clock.wall_ms())
        base_offset, end_offset = self._write(batch, epoch)
        self._note_control((base_offset + index, message) for index, (_, message) in enumerate(records))
        return base_offset, end_offset

    def _write(self, batch: bytes, epoch: int) -> tuple[int, int]:
        self._check_health()
        if len(batch) > self._max_batch_bytes:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"The request would write {len(batch)} bytes to the metadata log at once, more than "
                f"metadata.max.batch.bytes ({self._max_batch_bytes}). Split it.",
            )
        result = self._log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=epoch, origin=Origin.RAFT)
        self.unsnapshotted_bytes += len(batch)
        return result.base_offset, result.next_offset

    def append_fetched(self, view: memoryview) -> int:
        """Batches as the leader has numbered them; one cut short at the end is left out. Gives the new end. KafkaError
        for what does not follow on the log, StorageError for what the disk does not take."""
        self._check_health()
        for _, header in iterate_headers(view, allow_partial=True):
            if header.base_offset != self.end_offset or header.leader_epoch < self.last_epoch:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"The leader sent offset {header.base_offset} of epoch {header.leader_epoch}, but the metadata log "
                    f"ends at {self.end_offset} in epoch {self.last_epoch}.",
                )
            break
        end_offset = self._log.append_as_follower(view).next_offset
        self.unsnapshotted_bytes += len(view)
        self._note_control(find_control_records(view))
        return end_offset

    def truncate(self, offset: int) -> int:
        """Gives the new end, which may be lower: batches go as a whole. StorageError."""
        assert offset >= self.start_offset, "what a snapshot covers is committed"
        self._check_health()
        # A batch goes as a whole, and so more than that may: the next sync, which is due now, notes the new end.
        self._synced_end.lower(max(each.base_offset for each in self._log.segments if each.base_offset <= offset))
        self._log.truncate(offset)
        self._control_records = [each for each in self._control_records if each[0] < self.end_offset]
        return self.end_offset

    async def sync(self) -> int:
        """Until all that is written now is on the device; what is written while one sync runs shares the next. Gives
        the end of what is synced. StorageError, and then for ever."""
        end_offset = self.end_offset
        # A truncation meanwhile takes the rest back: then there is less to wait for.
        while self.synced_end_offset < min(end_offset, self.end_offset):
            self._check_health()
            if self._sync_task is None:
                self._sync_task = asyncio.create_task(self._sync_once(), name="metadata sync")
            await asyncio.shield(self._sync_task)
        self._check_health()
        return self.synced_end_offset

    async def _sync_once(self) -> None:
        work, end_offset = self._log.begin_sync()
        try:
            await self._ports.background.run(work)
        except (OSError, StorageError) as error:
            self._log.mark_sync_failed(end_offset, error)
            self._failure = f"the metadata log could not be synced: {error}"
        else:
            self._log.mark_synced(end_offset)
            self._note_synced()
        finally:
            self._sync_task = None

    def _note_synced(self) -> None:
        if self.is_counted:
            self._synced_end.note(self._log.recovery_point)
            if self._flush_timer is None:
                self._flush_timer = asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self._start_flush)

    def _start_flush(self) -> None:
        self._flush_timer = None
        if self._flush_task is None:
            self._flush_task = asyncio.create_task(self._flush(), name="metadata synced end")

    async def _flush(self) -> None:
        """It is tried again with the next one: until then a power loss is noticed less well, and nothing is lost."""
        work = self._synced_end.begin_flush()
        try:
            if work is not None:
                await self._ports.background.run(work)
        except OSError as error:
            _log.warning("the synced end of the metadata log could not be stored", cause=error)
        finally:
            self._flush_task = None

    def _check_health(self) -> None:
        if self._failure is not None:
            raise StorageError(self._failure)

    # ---- reading

    def read(self, offset: int, max_bytes: int, end_offset: int) -> FileSlice | None:
        """Whole batches from the one that holds `offset`, as they lie; None if there are none below `end_offset`."""
        return self._log.read(offset, max_bytes, end_offset=end_offset)

    async def batches(self, offset: int, end_offset: int) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        """Each batch from `offset` to `end_offset`, read in Background. Ends early where a snapshot has replaced the
        log meanwhile."""
        while self.start_offset <= offset < end_offset:
            piece = self.read(offset, _READ_BYTES, end_offset)
            assert piece is not None, "the metadata log is shorter than it claims"
            data = memoryview(await self._ports.background.run(piece.read))
            for position, header in iterate_headers(data, allow_partial=True):
                if header.next_offset > end_offset:
                    return
                yield header, data[position : position + header.size_bytes]
                offset = header.next_offset

    # ---- snapshots

    def install_snapshot(self, snapshot: SnapshotId) -> None:
        """A snapshot of the leader that is complete and on the device: the log starts anew at its end. StorageError."""
        assert snapshot in self.snapshots.ids, "a snapshot is installed once it is there"
        self._synced_end.lower(snapshot.offset)
        self._log.truncate_fully_and_start_at(snapshot.offset)
        if self.is_counted:
            self._synced_end.note(snapshot.offset)
        self.unsnapshotted_bytes = 0
        self._control_records = []
        self._note_control((snapshot.offset - 1, message) for message in self.snapshots.read_control(snapshot))
        _log.info("the metadata log was replaced by a snapshot", offset=snapshot.offset, epoch=snapshot.epoch)

    def remove_before(self, snapshot: SnapshotId) -> Callable[[], None]:
        """Snapshots before this one, and what it covers of the log, are needed no more. Gives the work of removing
        files, for Background. StorageError."""
        removal = self.snapshots.forget_before(snapshot)
        if snapshot.offset > self.start_offset:
            self._log.advance_start(snapshot.offset)
            expire_segments(self._log, now_ms=self._ports.clock.wall_ms(), high_watermark=snapshot.offset)
            self._log.delete_expired_segments()
        segments = self._log.files.segments.take_due(self._ports.clock.monotonic_ms())

        def work() -> None:
            removal()
            for segment in segments:
                segment.remove()

        return work

    def note_snapshot(self, snapshot: SnapshotId, covered_bytes: int) -> None:
        """A snapshot was stored that covers so many bytes of the log."""
        self.unsnapshotted_bytes = max(0, self.unsnapshotted_bytes - covered_bytes)
        kept = [(snapshot.offset - 1, message) for message in self.control_before(snapshot.offset)]
        self._control_records = [*kept, *(each for each in self._control_records if each[0] >= snapshot.offset)]

    def _note_control(self, records: Iterable[tuple[int, Message]]) -> None:
        self._control_records += [each for each in records if isinstance(each[1], _KEPT_CONTROL_RECORDS)]

    @property
    def size_bytes(self) -> int:
        """The size of the log and all snapshots."""
        return self._log.size_bytes + self.snapshots.size_bytes

    # ---- life

    async def close(self, *, clean: bool = True) -> None:
        """Waits for the sync that is under way. A disk that fails here costs nothing: the log is looked through at
        every start."""
        while self._sync_task is not None:
            await asyncio.shield(self._sync_task)
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        while self._flush_task is not None:
            await asyncio.shield(self._flush_task)
        await self._flush()
        is_sound = clean and self.failure is None
        try:
            await self._ports.background.run(lambda: self._log.close(clean=is_sound))
        except StorageError as error:
            _log.warning("the metadata log was not closed cleanly", cause=error)
        if self._directory is not None:
            self._directory.close(clean=False)

    def _settle_start(self, found: Inspection) -> None:
        """After a kill the files may be between two states: a snapshot was stored and the log not yet started anew at
        its end, or the start offset was moved and no file tells it."""
        latest, log = self.latest_snapshot, self._log
        if found.runs and log.log_end_offset > found.runs[0].end_offset:
            # The offset of a batch that was not synced is damaged, which other logs could not tell from a compaction.
            log.truncate(found.runs[0].end_offset)
        if latest is not None and (latest.epoch > self.last_epoch or latest.offset > self.end_offset):
            self.install_snapshot(latest)
        if log.log_start_offset > 0:
            start = next(each for each in self.snapshots.ids if each.offset >= log.log_start_offset)
            log.advance_start(start.offset)

    def _take_stock(self, found: Inspection) -> None:
        """The control records, and how much there is above the latest snapshot."""
        snapshot, offset = self.latest_snapshot, self.start_offset
        self._control_records = []
        if snapshot is not None:
            offset = snapshot.offset
            self._note_control((offset - 1, message) for message in self.snapshots.read_control(snapshot))
        self._note_control(each for each in found.control_records if offset <= each[0] < self.end_offset)
        self.unsnapshotted_bytes = found.unsnapshotted_bytes if self.end_offset > offset else 0
