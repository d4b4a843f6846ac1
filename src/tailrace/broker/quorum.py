"""The metadata quorum of a single voter: the log of __cluster_metadata, and the controller that is replayed from it.

A change of metadata takes these steps, and no other way exists:

    decide    the controller's op, on everything written so far
    append    its records, as one batch, to the log; if that fails the machine has not changed
    replay    into the machine, so that the next op builds on it; the machine is never ahead of the log
    sync      in Background; all batches appended while one sync runs share the next (group commit)
    publish   the image as of what is now durable, to subscribers, before any answer goes out
    answer    the requests whose records are durable; one without records waits for what it has read

If a sync fails, nobody knows what is on the device: the machine goes back to what was published, all that waited are
answered with KAFKA_STORAGE_ERROR, and so is every later change until the broker is restarted and recovers its log.
Serving records goes on meanwhile, by the image that was published.

Each start is a new epoch: it is written to quorum-state, synced, before a batch carries it.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from struct import pack
from typing import NamedTuple

from tailrace.controller.image import METADATA_VERSION, METADATA_VERSION_LEVEL, MetadataImage
from tailrace.controller.machine import Controller
from tailrace.log.directory import LogDirectory
from tailrace.log.log import Log
from tailrace.log.validation import Origin
from tailrace.model import events
from tailrace.model.config import BrokerConfig, Endpoint, TopicConfig
from tailrace.model.errors import ErrorCode, KafkaError, ProtocolError, StorageError
from tailrace.model.ids import (
    CLUSTER_METADATA_TOPIC,
    CLUSTER_METADATA_TOPIC_ID,
    PartitionIndex,
    TopicPartition,
    Uuid,
    uuid_text,
)
from tailrace.model.ports import Ports
from tailrace.wire.apis import quorum as messages
from tailrace.wire.apis.stored import FeatureLevelRecord, LeaderChangeMessage
from tailrace.wire.compile import encode
from tailrace.wire.records import Record, build_batch, iterate_headers, iterate_records
from tailrace.wire.schema import Message
from tailrace.wire.stored import decode_metadata_record, encode_metadata_record

_log = events.logger("quorum")

Subscriber = Callable[[MetadataImage, MetadataImage], None]

_PARTITION = TopicPartition(CLUSTER_METADATA_TOPIC, PartitionIndex(0))
_QUORUM_STATE_VERSION = 1
# Version 1 names the directories of voters too, but Kafka 4.3's kafka-dump-log reads every one as version 0.
_LEADER_CHANGE_VERSION = 0
# The key of a control record: its version, then the type "leader change".
_LEADER_CHANGE_KEY = pack(">hh", 0, 2)
_REPLAY_CHUNK_BYTES = 8 << 20


class _Waiter(NamedTuple):
    """A request that is answered once the log is durable up to an offset."""

    end_offset: int
    done: asyncio.Future[None]


class Quorum:
    def __init__(self, config: BrokerConfig, ports: Ports, *, cluster_id: str, directory_id: Uuid) -> None:
        # As in the broker's file: dynamic settings are part of the image, and applied by who needs them.
        self.static_config = config
        self.leader_epoch = 0
        self._ports = ports
        self._directory_id = directory_id
        self._folder = f"{config.metadata_folder}/{_PARTITION}"
        self._controller = Controller(config, ports.random, cluster_id=cluster_id)
        # What is durable, and so published.
        self.image = self._controller.image
        # Images of batches that are written and not yet durable, oldest first. Bounded, as are the waiters, by the
        # requests under way: at most one a connection.
        self._written: deque[MetadataImage] = deque()
        self._waiters: deque[_Waiter] = deque()
        self._subscribers: list[Subscriber] = []
        self._sync_task: asyncio.Task[None] | None = None
        self._failure: str | None = None
        self._directory: LogDirectory | None = None
        self._log: Log

    async def start(self) -> None:
        """Replays the log, takes the leadership of a new epoch, and at the first start writes the first records.
        What was replayed is published at once; it is durable by the time that `register_broker` returns. If it raises
        nothing is left open."""
        with ExitStack() as undo:
            self._open_log(undo)
            record_count = await self._replay_log()
            self.image = self._controller.image
            self.leader_epoch = max(self._read_epoch(), self._log.epochs.latest) + 1
            await self._ports.background.run(self._write_quorum_state)
            self._append_leader_change()
            if METADATA_VERSION not in self.image.features:
                self._append([FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_LEVEL)])
            undo.pop_all()
        self._start_sync()
        _log.debug("replayed the metadata log", records=record_count, epoch=self.leader_epoch)

    def _open_log(self, undo: ExitStack) -> None:
        ports, config = self._ports, self.static_config
        if config.metadata_folder not in config.log_dirs:
            # Locked and checked to be this cluster's, as the folders of data are.
            self._directory = LogDirectory.open(
                ports.disk,
                ports.clock,
                ports.random,
                config.metadata_folder,
                node_id=config.node_id,
                cluster_id=self.image.cluster_id,
            )
            undo.callback(self._directory.close, clean=False)
        self._log = Log.open(
            ports.disk,
            ports.clock,
            self._folder,
            TopicConfig(
                segment_bytes=config.metadata_log_segment_bytes,
                segment_ms=config.metadata_log_segment_ms,
                max_message_bytes=config.metadata_max_batch_bytes,
            ),
            topic_partition=_PARTITION,
            topic_id=CLUSTER_METADATA_TOPIC_ID,
        )
        undo.callback(self._log.close, clean=False)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Called with the old and the new image when a change is durable, before its answer goes out: a topic can be
        served by the time that its creator knows of it."""
        self._subscribers.append(subscriber)

    async def submit(self, request: Message) -> Message:
        """Raises KafkaError if the request fails as a whole."""
        response = self._decide(request)
        await self._wait_durable()
        return response

    async def register_broker(
        self, endpoints: Sequence[Endpoint], *, directories: Sequence[Uuid], previous_broker_epoch: int = -1
    ) -> int:
        """Makes this node known and lets it lead its partitions. Gives its broker epoch, by which the next start can
        prove that this one ended cleanly."""
        registration = messages.BrokerRegistrationRequest(
            broker_id=self.static_config.node_id,
            cluster_id=self.image.cluster_id,
            incarnation_id=self._ports.random.uuid(),
            listeners=[
                messages.BrokerRegistrationRequest.Listener(name=name, host=host, port=port)
                for name, host, port in endpoints
            ],
            features=[
                messages.BrokerRegistrationRequest.Feature(
                    name=METADATA_VERSION,
                    min_supported_version=METADATA_VERSION_LEVEL,
                    max_supported_version=METADATA_VERSION_LEVEL,
                )
            ],
            rack=self.static_config.broker_rack,
            log_dirs=list(directories),
            previous_broker_epoch=previous_broker_epoch,
        )
        registered = self._decide(registration)
        assert isinstance(registered, messages.BrokerRegistrationResponse), "a registration is answered in kind"
        if registered.error_code:
            raise KafkaError(ErrorCode(registered.error_code), "The controller refused to register this broker.")
        self._decide(
            messages.BrokerHeartbeatRequest(
                broker_id=self.static_config.node_id,
                broker_epoch=registered.broker_epoch,
                current_metadata_offset=self._controller.image.next_offset,
            )
        )
        # One sync for both, and for what the start has written.
        await self._wait_durable()
        return registered.broker_epoch

    async def close(self) -> None:
        """Waits for the sync that is under way; what still waits for another one is not answered. A disk that fails
        here costs nothing: all that was answered is durable, and the log is looked through at every start."""
        if self._sync_task is not None:
            await self._sync_task
        try:
            await self._ports.background.run(lambda: self._log.close(clean=self._failure is None))
        except StorageError as error:
            _log.warning("the metadata log was not closed cleanly", cause=error)
        if self._directory is not None:
            self._directory.close(clean=False)

    def _decide(self, request: Message) -> Message:
        self._check_health()
        result = self._controller.op(request, self._ports.clock.wall_ms())
        if result.records:
            self._append(result.records)
        return result.response

    def _append(self, records: Sequence[Message]) -> None:
        """Writes the records as one batch, then replays them. Raises KafkaError and has changed nothing if they cannot
        be written."""
        now_ms = self._ports.clock.wall_ms()
        framed = [
            Record(index, now_ms, None, encode_metadata_record(record), ()) for index, record in enumerate(records)
        ]
        offset = self._write(build_batch(framed))
        for index, record in enumerate(records):
            self._controller.replay(offset + index, record)
        self._written.append(self._controller.image)

    def _append_leader_change(self) -> None:
        """The first batch of an epoch says who leads in it, and by whose votes."""
        voter = LeaderChangeMessage.Voter(voter_id=self.static_config.node_id, voter_directory_id=self._directory_id)
        message = LeaderChangeMessage(
            version=_LEADER_CHANGE_VERSION,
            leader_id=self.static_config.node_id,
            voters=[voter],
            granting_voters=[voter],
        )
        value = bytes(encode(message, _LEADER_CHANGE_VERSION))
        record = Record(0, self._ports.clock.wall_ms(), _LEADER_CHANGE_KEY, value, ())
        offset = self._write(build_batch([record], control=True))
        self._controller.replay_control(offset + 1)
        self._written.append(self._controller.image)

    def _write(self, batch: bytes) -> int:
        """Gives the offset of its first record."""
        limit = self.static_config.metadata_max_batch_bytes
        if len(batch) > limit:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"The request would write {len(batch)} bytes to the metadata log at once, more than "
                f"metadata.max.batch.bytes ({limit}). Split it.",
            )
        try:
            result = self._log.append_as_leader(
                memoryview(bytearray(batch)), leader_epoch=self.leader_epoch, origin=Origin.RAFT
            )
        except StorageError as error:
            raise _storage_error(str(error)) from error
        return result.base_offset

    async def _wait_durable(self) -> None:
        """Until everything written so far is durable and published."""
        if not self._written:
            return
        waiter = _Waiter(self._written[-1].next_offset, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        self._start_sync()
        await waiter.done

    def _start_sync(self) -> None:
        if self._sync_task is None:
            self._sync_task = asyncio.create_task(self._supervise_sync(), name="metadata sync")

    async def _supervise_sync(self) -> None:
        try:
            while self._written:
                work, end_offset = self._log.begin_sync()
                try:
                    await self._ports.background.run(work)
                except (OSError, StorageError) as error:
                    self._log.mark_sync_failed(end_offset, error)
                    self._fail(f"the metadata log could not be synced: {error}")
                    return
                self._log.mark_synced(end_offset)
                self._publish(end_offset)
        except Exception as error:
            # A subscriber or our own code has a bug. Whoever waits must not wait for ever.
            _log.error("publishing metadata failed", trace=True)
            self._fail(f"publishing metadata failed: {error!r}")
        finally:
            self._sync_task = None

    def _publish(self, end_offset: int) -> None:
        old = new = self.image
        while self._written and self._written[0].next_offset <= end_offset:
            new = self._written.popleft()
        self.image = new
        for subscriber in self._subscribers:
            subscriber(old, new)
        while self._waiters and self._waiters[0].end_offset <= end_offset:
            _finish(self._waiters.popleft(), None)

    def _fail(self, reason: str) -> None:
        _log.error("no more metadata changes are taken: restart the broker", reason=reason)
        self._failure = reason
        self._written.clear()
        self._controller.revert(self.image)
        while self._waiters:
            _finish(self._waiters.popleft(), _storage_error(reason))

    def _check_health(self) -> None:
        if self._failure is not None:
            raise _storage_error(self._failure)

    async def _replay_log(self) -> int:
        count = 0
        offset, end = self._log.log_start_offset, self._log.log_end_offset
        while offset < end:
            piece = self._log.read(offset, _REPLAY_CHUNK_BYTES, end_offset=end)
            assert piece is not None, "the metadata log is shorter than it claims"
            data = memoryview(await self._ports.background.run(piece.read))
            for position, header in iterate_headers(data):
                if header.is_control:
                    self._controller.replay_control(header.next_offset)
                else:
                    count += self._replay_batch(data[position : position + header.size_bytes])
                offset = header.next_offset
        return count

    def _replay_batch(self, batch: memoryview) -> int:
        count = 0
        limit = self.static_config.metadata_max_batch_bytes
        for record in iterate_records(batch, max_decompressed_bytes=limit):
            try:
                self._controller.replay(record.offset, decode_metadata_record(record.value or b""))
            except ProtocolError as error:
                raise StorageError(
                    f"{self._folder} cannot be read at offset {record.offset}: {error}. If a newer version wrote it, "
                    "start that one."
                ) from error
            count += 1
        return count

    def _read_epoch(self) -> int:
        """The last epoch that this voter took part in; 0 if it is the first start, or the file is damaged: the log
        knows the epochs that matter to a single voter."""
        path = f"{self._folder}/quorum-state"
        try:
            return int(json.loads(self._ports.disk.read(path))["leaderEpoch"])
        except FileNotFoundError:
            return 0
        except (ValueError, KeyError, TypeError) as error:
            _log.warning("quorum-state is damaged and is written anew", path=path, error=error)
            return 0

    def _write_quorum_state(self) -> None:
        """As Kafka's QuorumStateData of version 1: the vote for oneself, and its result."""
        node_id = self.static_config.node_id
        state = {
            "leaderId": node_id,
            "leaderEpoch": self.leader_epoch,
            "votedId": node_id,
            "votedDirectoryId": uuid_text(self._directory_id),
            "data_version": _QUORUM_STATE_VERSION,
        }
        self._ports.disk.replace(f"{self._folder}/quorum-state", json.dumps(state, separators=(",", ":")).encode())


def _finish(waiter: _Waiter, error: KafkaError | None) -> None:
    if waiter.done.done():
        # Its client is gone and the handler was cancelled; what it has changed stays.
        return
    if error is None:
        waiter.done.set_result(None)
    else:
        waiter.done.set_exception(error)


def _storage_error(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The change was not made: {reason}")
