"""The metadata quorum as a node sees it: an image of what is committed, and the way to change it.

Every node follows the log of __cluster_metadata: what Raft says is committed is replayed into the controller's machine,
and the image is published to subscribers. The node that leads the quorum is the active controller as soon as the first
record of its epoch is committed and replayed: from then on its machine is ahead of the image, see `active`.

    load      the latest snapshot, at a start and whenever the leader's snapshot has replaced the log
    follow    what is committed, batch by batch, in slices of the loop's time
    lead      one `ActiveController` for each term
    snapshot  of the image, when the log has grown or an hour has passed; then what it covers is removed

Whatever fails here for good (a disk, a bug in a subscriber) ends this node's part in the quorum until it is restarted:
others may lead. A node by itself serves records on, by the image that was published. One of several would never hear
that others lead its partitions, or that it is to lead theirs: `on_failure` ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

from tailrace.broker.quorum.active import ActiveController, not_controller, storage_error
from tailrace.broker.quorum.bootstrap import read_bootstrap
from tailrace.broker.quorum.driver import RaftDriver
from tailrace.broker.quorum.metadata_log import MetadataLog
from tailrace.broker.quorum.snapshots import SnapshotId, read_batches, read_metadata, write_snapshot
from tailrace.controller.image import MetadataImage
from tailrace.controller.machine import Controller
from tailrace.controller.view import THE_NODE, Asker
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError, ProtocolError, StorageError
from tailrace.model.ids import uuid_text
from tailrace.raft.messages import Leadership
from tailrace.raft.types import ReplicaKey, VoterSet
from tailrace.wire.apis.quorum import BrokerHeartbeatRequest
from tailrace.wire.record_envelopes import decode_metadata_record
from tailrace.wire.records import iterate_records

if TYPE_CHECKING:
    from tailrace.broker.cluster.peers import Peers
    from tailrace.broker.quorum.probes import Probes
    from tailrace.model.config import BrokerConfig, Endpoint
    from tailrace.model.ids import Uuid
    from tailrace.model.ports import Ports
    from tailrace.wire.schema import Message

_log = events.logger("quorum")

Subscriber = Callable[[MetadataImage, MetadataImage], None]

# Records that are replayed in one turn of the loop: about a millisecond.
_RECORDS_PER_TURN = 200
# How long a controller that stops waits for what it has written to be committed, before it hands over.
_LAST_COMMITS_SECONDS = 1.0


class Quorum:
    def __init__(
        self,
        config: BrokerConfig,
        ports: Ports,
        *,
        cluster_id: str,
        directory_id: Uuid,
        peers: Peers | None = None,
        endpoints: Sequence[Endpoint] | None = None,
    ) -> None:
        """`endpoints`: of this node's controller listeners; without, as in the settings."""
        # As in the broker's file: dynamic settings are part of the image, and applied by who needs them.
        self.static_config = config
        # Told of an error that only a bug of ours can be, once it was logged.
        self.on_bug: Callable[[Exception], None] | None = None
        # Told why this node takes no part in the quorum any more.
        self.on_failure: Callable[[str], None] | None = None
        self.log: MetadataLog
        self.driver: RaftDriver
        self._ports = ports
        self._key = ReplicaKey(config.node_id, directory_id)
        self._peers = peers
        self._endpoints = endpoints
        self._controller = Controller(config, ports.random, cluster_id=cluster_id)
        # What is committed, and so published.
        self.image = self._controller.image
        self._active: ActiveController | None = None
        self._probes: Probes | None = None  # While this node is active, if there are others.
        self._became_active = asyncio.Event()
        self._subscribers: list[Subscriber] = []
        # Who waits until the image has reached an offset: as many as there are tasks of this node that do.
        self._offset_waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._follow_task: asyncio.Task[None] | None = None
        self._snapshot_task: asyncio.Task[None] | None = None
        self._farewell_task: asyncio.Task[None] | None = None
        self._snapshot_timer: asyncio.TimerHandle | None = None
        self._failure: str | None = None
        self._is_closed = False

    # ---- life

    async def start(self) -> None:
        """Loads the latest snapshot and takes part in the quorum. A quorum's only voter is its active controller when
        this returns; otherwise it waits for nobody, and the image is that of the snapshot. If it raises nothing is left
        open."""
        async with AsyncExitStack() as undo:
            self.log = MetadataLog.open(self.static_config, self._ports, cluster_id=self.image.cluster_id)
            undo.push_async_callback(self.log.close, clean=False)
            if self.log.directory_id is not None:
                self._key = self._key._replace(directory_id=self.log.directory_id)
            if self.log.latest_snapshot is not None:
                await self._load_snapshot(self.log.latest_snapshot)
            self.driver = RaftDriver(
                self.static_config,
                self._ports,
                self.log,
                key=self._key,
                cluster_id=self.image.cluster_id,
                peers=self._peers,
                on_committed=self._on_committed,
                on_leader=self._on_leader,
                endpoints=self._endpoints,
            )
            undo.push_async_callback(self._stop)
            await self.driver.start()
            voters = self.driver.voters
            if voters.ids == (self._key.id,) and not voters.contains(self._key):
                raise StorageError(_describe_stranger(voters, self._key))
            if len(voters) == 1 and voters.contains(self._key) and not self.driver.node.must_catch_up:
                await self._wait_active()
            undo.pop_all()
        self._arm_snapshot_timer()

    async def _wait_active(self) -> None:
        """StorageError if that cannot be."""
        await self._became_active.wait()
        if self.failure is not None:
            raise StorageError(self.failure)

    async def close(self) -> None:
        """Waits a little for what is written to be committed, then hands the leadership over; what still waits is
        answered with NOT_CONTROLLER."""
        await self._stop()
        await self.log.close(clean=self._failure is None)

    async def _stop(self) -> None:
        self._is_closed = True
        if self._snapshot_timer is not None:
            self._snapshot_timer.cancel()
        for task in (self._follow_task, self._snapshot_task):
            if task is not None:
                task.cancel()
                await asyncio.wait((task,))
        if self._farewell_task is not None:
            await asyncio.wait((self._farewell_task,))
        if self._active is not None:
            with suppress(TimeoutError, KafkaError):
                async with asyncio.timeout(_LAST_COMMITS_SECONDS):
                    await self._active.wait_committed()
        await self.driver.close()
        self._end_term()

    # ---- what is known

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller."""
        return self._active is not None

    @property
    def failure(self) -> str | None:
        """Why this node changes no metadata any more, until it is restarted."""
        return self._failure or self.log.failure or self.driver.failure

    @property
    def leadership(self) -> Leadership:
        return self.driver.leadership

    def subscribe(self, subscriber: Subscriber) -> None:
        """Called with the old and the new image when a change is committed, before its answer goes out: a topic can be
        served by the time that its creator knows of it."""
        self._subscribers.append(subscriber)

    async def wait_offset(self, offset: int) -> None:
        """Until the image holds everything before `offset`. KafkaError if it never will."""
        if self.image.next_offset >= offset:
            return
        if self.failure is not None:
            raise storage_error(self.failure)
        waiter = offset, asyncio.get_running_loop().create_future()
        self._offset_waiters.append(waiter)
        try:
            await waiter[1]
        finally:
            if waiter in self._offset_waiters:
                self._offset_waiters.remove(waiter)

    # ---- changes

    async def submit_local(self, request: Message, asker: Asker = THE_NODE) -> Message:
        """Raises KafkaError if the request fails as a whole: NOT_CONTROLLER if this node is not the active controller,
        or ceases to be before the change is committed, which may then be made or not."""
        if self._failure is not None:
            raise storage_error(self._failure)
        active = self._active
        if active is None or not self.driver.may_act:
            if active is not None and isinstance(request, BrokerHeartbeatRequest):
                # Else brokers that are heard all the time would be fenced in the first moment in which it may act.
                active.note_life(request)
            raise self._why_inactive()
        response = active.decide(request, asker)
        if isinstance(request, BrokerHeartbeatRequest) and not self.driver.may_grant:
            # It was heard. But its answer is a lease, and another controller may have been elected a while ago.
            raise self._why_inactive()
        await active.wait_committed()
        return response

    def _why_inactive(self) -> KafkaError:
        return not_controller() if self.failure is None else storage_error(self.failure)

    # ---- what Raft says

    def _on_leader(self, leadership: Leadership) -> None:
        if self._active is not None and self._active.epoch == leadership.epoch and self.driver.is_leader:
            return
        self._end_term()
        if leadership.leader_id == self._key.id:
            self._start_following()
        elif self.failure is not None:
            self._release_waiting()

    def _on_committed(self, high_watermark: int) -> None:
        if self._active is None:
            self._start_following()
            return
        try:
            self._active.on_committed(high_watermark)
        except Exception as error:
            self._fail(error)

    def _end_term(self) -> None:
        if self._active is not None:
            active, self._active = self._active, None
            if self._probes is not None:
                self._probes.close()
            self._became_active.clear()
            active.deactivate(self.image, self._why_inactive())

    def _begin_term(self) -> bool:
        """Once the machine has replayed the whole log, the first record of this epoch included. False: to be tried
        again, as this node was held up for so long that it may not write."""
        if not self.driver.is_leader or self.log.last_epoch != self.driver.leadership.epoch:
            return True
        if self.image.next_offset != self.log.end_offset or self._failure is not None or self._is_closed:
            return True
        config = self.static_config
        self._active = ActiveController(
            config,
            self._controller,
            self.driver,
            self.log,
            self._ports.clock,
            epoch=self.leadership.epoch,
            idle_interval_ms=0 if self._peers is None else config.metadata_max_idle_interval_ms,
            publish=self._publish,
            on_bug=self._fail,
            bootstrap=lambda: read_bootstrap(self._ports.disk, config.metadata_folder),
        )
        try:
            self._active.activate()
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise
            self._end_term()
            return False
        self._became_active.set()
        if self._peers is not None:
            self._probes = self._make_probes(self._active)
            self._probes.start()
        _log.debug("this node is the active controller", epoch=self.leadership.epoch, offset=self.image.next_offset)
        return True

    def _make_probes(self, active: ActiveController) -> Probes:
        # A single node does not pay for it.
        from tailrace.broker.quorum.probes import Probes

        config, ports = self.static_config, self._ports
        name = config.inter_broker_listener_name
        return Probes(ports.network, ports.clock, active, listener_name=name, lease_ms=config.lease_ms)

    # ---- following

    def _start_following(self) -> None:
        if self._follow_task is None and not self._is_closed and self._failure is None:
            self._follow_task = asyncio.create_task(self._supervise_following(), name="metadata replay")

    async def _supervise_following(self) -> None:
        try:
            while self._active is None:
                if self.image.next_offset < self.driver.high_watermark:
                    await self._follow(self.driver.high_watermark)
                elif self._begin_term():
                    break
                else:
                    # Within a few such times it hears of a majority, or resigns.
                    await self.driver.wait_change(self.static_config.controller_quorum_fetch_timeout_ms / 4)
        except Exception as error:
            self._fail(error)
        finally:
            self._follow_task = None

    async def _follow(self, end_offset: int) -> None:
        if self.image.next_offset < self.log.start_offset:
            snapshot = self.log.latest_snapshot
            assert snapshot is not None, "a snapshot holds what the log does not"
            await self._load_snapshot(snapshot)
        count = 0
        async for header, batch in self.log.batches(self.image.next_offset, end_offset):
            if header.is_control:
                self._controller.replay_control(header.next_offset)
            else:
                self._replay_batch(batch)
            count += header.record_count
            if count >= _RECORDS_PER_TURN:
                count = 0
                await asyncio.sleep(0)
        self._publish(self._controller.image)

    def _replay_batch(self, batch: memoryview) -> None:
        limit = self.static_config.metadata_max_batch_bytes
        for record in iterate_records(batch, max_decompressed_bytes=limit):
            try:
                self._controller.replay(record.offset, decode_metadata_record(record.value or b""))
            except ProtocolError as error:
                raise StorageError(
                    f"{self.log.folder} cannot be read at offset {record.offset}: {error}. If a newer version wrote "
                    "it, start that one."
                ) from error

    async def _load_snapshot(self, snapshot: SnapshotId) -> None:
        """Into an empty machine; then publishes it."""
        file = self.log.snapshots.open_file(snapshot)
        assert file is not None, "the latest snapshot is there"
        batches = await self._ports.background.run(lambda: list(read_batches(file)))
        self._controller.revert(MetadataImage(self.image.cluster_id))
        offset = 0
        for header, batch in batches:
            if header.is_control:
                continue
            for record in read_metadata(batch):
                self._controller.replay(offset, record)
                offset += 1
            await asyncio.sleep(0)
        self._controller.replay_control(snapshot.offset)
        self._publish(self._controller.image)
        _log.debug("loaded a snapshot of the metadata", offset=snapshot.offset, epoch=snapshot.epoch, records=offset)

    def _publish(self, new: MetadataImage) -> None:
        old, self.image = self.image, new
        for subscriber in self._subscribers:
            subscriber(old, new)
        if self._offset_waiters:
            for done in [each[1] for each in self._offset_waiters if each[0] <= new.next_offset]:
                if not done.done():
                    done.set_result(None)
        if self.log.unsnapshotted_bytes >= self.static_config.metadata_log_max_record_bytes_between_snapshots:
            self._start_snapshot()

    def _fail(self, error: Exception) -> None:
        """A disk that cannot be read, or a bug of ours or of a subscriber. Whoever waits must not wait for ever."""
        if self._failure is not None:
            return
        _log.error("no more metadata changes are taken: restart the broker", trace=True, reason=repr(error))
        self._failure = str(error) if isinstance(error, StorageError) else f"publishing metadata failed: {error!r}"
        self._end_term()
        self._release_waiting()
        if not self._is_closed:
            # It must not lead, nor be elected again: others can.
            self._farewell_task = asyncio.create_task(self.driver.close(), name="leaving the quorum")
        if self.on_bug is not None:
            self.on_bug(error)

    def _release_waiting(self) -> None:
        """Whoever waits for this node to become active, or for an offset, waits in vain."""
        self._became_active.set()
        for _, done in self._offset_waiters:
            if not done.done():
                done.set_exception(storage_error(self.failure or "this node has left the metadata quorum"))
        if self.on_failure is not None and self.failure is not None:
            self.on_failure(self.failure)

    # ---- snapshots

    def _arm_snapshot_timer(self) -> None:
        interval_ms = self.static_config.metadata_log_max_snapshot_interval_ms
        if interval_ms and not self._is_closed:
            loop = asyncio.get_running_loop()
            self._snapshot_timer = loop.call_later(interval_ms / 1000, self._on_snapshot_timer)

    def _on_snapshot_timer(self) -> None:
        if self.log.unsnapshotted_bytes:
            self._start_snapshot()
        self._arm_snapshot_timer()

    def _start_snapshot(self) -> None:
        snapshot = SnapshotId(self.image.next_offset, self.log.epoch_at(self.image.next_offset))
        latest = self.log.latest_snapshot
        is_new = latest is None or latest.offset < snapshot.offset
        if is_new and self._snapshot_task is None and not self._is_closed and self._failure is None:
            self._snapshot_task = asyncio.create_task(
                self._supervise_snapshot(snapshot, self.image), name="metadata snapshot"
            )

    async def _supervise_snapshot(self, snapshot: SnapshotId, image: MetadataImage) -> None:
        """`image` is the one that the snapshot is named after: a newer one may be published before this runs."""
        from tailrace.controller.snapshot import records_of

        covered_bytes = self.log.unsnapshotted_bytes
        try:
            size_bytes = await write_snapshot(
                self.log.snapshots,
                self._ports,
                snapshot,
                records_of(image),
                control=self.log.control_before(snapshot.offset),
            )
            self.log.note_snapshot(snapshot, covered_bytes)
            _log.info("wrote a snapshot of the metadata", offset=snapshot.offset, size_bytes=size_bytes)
            await self._remove_old()
        except (StorageError, OSError) as error:
            # The log has it all: nothing is lost, and it is tried again later.
            self.log.unsnapshotted_bytes = 0
            _log.warning("no snapshot of the metadata was written", cause=error)
        except Exception as error:
            self._fail(error)
        finally:
            self._snapshot_task = None

    async def _remove_old(self) -> None:
        """By size or age, oldest first; the latest snapshot and the log after it always stay."""
        config, log = self.static_config, self.log
        now_ms = self._ports.clock.wall_ms()
        while len(log.snapshots.ids) > 1:
            following = log.snapshots.ids[1]
            is_large = 0 <= config.metadata_max_retention_bytes < log.size_bytes
            is_old = 0 <= config.metadata_max_retention_ms < now_ms - log.snapshots.modified_ms(following)
            if not is_large and not is_old:
                return
            await self._ports.background.run(log.remove_before(following))


def _describe_stranger(voters: VoterSet, key: ReplicaKey) -> str:
    (voter,) = voters
    return (
        f"The only voter of this cluster is node {key.id} with the directory id {uuid_text(voter.key.directory_id)}, "
        f"but meta.properties of this node says {uuid_text(key.directory_id)}: so nobody can lead. If it is the same "
        f"folder, set directory.id={uuid_text(voter.key.directory_id)} there; else start the node with its own folder."
    )
