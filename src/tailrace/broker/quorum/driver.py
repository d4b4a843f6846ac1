"""Joins the pure Raft node to its log, its file, timers and peers.

Inputs are taken one at a time. What a step demands is done in the order of `Ready`: the state is synced, the log
written, and only then is anything answered or sent; meanwhile no other input is taken. Syncs of the log run beside it
and come back as an input.

A disk that fails at a vote, an append or a sync ends this node's part in the quorum: it answers KAFKA_STORAGE_ERROR to
everything, leads no more, and the others elect somebody else. Never guesses what is on the device.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tailrace.broker.quorum.control_records import KRAFT_VERSION, KRAFT_VOTERS, LEADER_CHANGE, find_control_records
from tailrace.broker.quorum.identity import (
    controller_endpoints,
    identity_of,
    read_state,
    read_voters,
    timing_of,
    voters_of,
)
from tailrace.broker.quorum.metadata_log import MetadataLog
from tailrace.broker.quorum.service import Answered, handle
from tailrace.broker.quorum.state_file import store_quorum_state
from tailrace.controller.brokers.sessions import grant_ms
from tailrace.model import events
from tailrace.model.attention import timer_seconds
from tailrace.model.config import BrokerConfig, Endpoint
from tailrace.model.errors import ErrorCode, KafkaError, ProtocolError, StorageError
from tailrace.model.ports import Bytes, FileSlice, Ports
from tailrace.raft.leader import Leader
from tailrace.raft.messages import (
    AddVoter,
    Failed,
    Fetch,
    Input,
    Leadership,
    QuorumState,
    Ready,
    Received,
    Replied,
    Reply,
    Request,
    Resign,
    Send,
    SnapshotInstalled,
    Synced,
    Tick,
    Unwritable,
    Waited,
    Written,
)
from tailrace.raft.node import RaftNode
from tailrace.raft.roles import Resigned
from tailrace.raft.step import step
from tailrace.raft.translation import of_wire_response, to_wire_request
from tailrace.raft.types import OffsetAndEpoch, ReplicaKey, VoterSet
from tailrace.wire.apis import response_type
from tailrace.wire.apis.stored_records import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from tailrace.wire.records import iterate_headers
from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.broker.quorum.snapshot_transfer import Downloads

_log = events.logger("quorum")
R = TypeVar("R", bound=Message)

_CONTROL_TYPES: dict[type[Message], int] = {
    LeaderChangeMessage: LEADER_CHANGE,
    KRaftVersionRecord: KRAFT_VERSION,
    VotersRecord: KRAFT_VOTERS,
}
# How long a fetch may wait at the leader (Kafka's figure); with short fetch timeouts, half of that.
_FETCH_WAIT_MAX_MS = 500
# A leader that stops waits so long for the others to know of it.
_FAREWELL_MAX_MS = 1000
# Inputs that wait while the state is synced: more than all peers can have under way. Beyond it requests are refused.
_INPUTS_MAX = 10_000


class Peers(Protocol):
    """Connections to other nodes. Raises KafkaError if no answer comes."""

    async def call_address(
        self, host: str, port: int, request: Message, response_type: type[R], *, timeout_ms: int, channel: str
    ) -> R: ...


class RaftDriver:
    def __init__(
        self,
        config: BrokerConfig,
        ports: Ports,
        log: MetadataLog,
        *,
        key: ReplicaKey,
        cluster_id: str,
        peers: Peers | None,
        on_committed: Callable[[int], None],
        on_leader: Callable[[Leadership], None],
        endpoints: Sequence[Endpoint] | None = None,
    ) -> None:
        """`endpoints`: of this node's controller listeners; without, as in the settings."""
        self.config = config
        self.ports = ports
        self.log = log
        self.key = key
        self.cluster_id = cluster_id
        self.peers = peers
        # Why this node takes no part any more.
        self.failure: str | None = None
        # As told to `on_leader` and `on_committed`; the node may be a step ahead.
        self.leadership = Leadership(0)
        self.high_watermark = 0
        self.node: RaftNode
        self._on_committed = on_committed
        self._on_leader = on_leader
        self._endpoints = controller_endpoints(config) if endpoints is None else tuple(endpoints)
        self._inputs: deque[Input] = deque()
        self._is_busy = False
        self._has_voice = True
        self._is_started = self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = inf
        self._answered = Answered(ports.clock)
        self._next_token = 0
        # Requests that the node has not answered yet; bounded by the connections.
        self._answers: dict[int, asyncio.Future[Reply]] = {}
        self._waiters: list[asyncio.Future[None]] = []
        self._is_waking = False
        # A dict, for its order; bounded by the requests that the node has under way.
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._sync_task: asyncio.Task[None] | None = None
        self._downloads: Downloads | None = None

    # ---- life

    async def start(self) -> None:
        """Everything that the log holds is synced first: only that may be counted. StorageError."""
        await self.log.sync()
        history = read_voters(self.config, self.log, self.key, self._endpoints)
        state = read_state(self.ports.disk, self.log, history.latest, self.key)
        identity, timing = identity_of(self.config, self.key, self._endpoints), timing_of(self.config)
        self.node = RaftNode(
            identity, timing, self.log, self.ports.random, voters=history, state=state, now_ms=self._now_ms()
        )
        self.leadership = self.node.leadership
        self._has_voice = not self.node.must_catch_up
        if not self._has_voice:
            _log.warning("this voter lost metadata records: it has no vote until it has caught up with a leader")
        self._is_started = True
        self.feed(Tick())

    async def close(self) -> None:
        """A leader hands over first, as far as the others can be reached."""
        if self.failure is None and self.is_leader:
            self.feed(Resign())
            deadline_ms = self._now_ms() + min(_FAREWELL_MAX_MS, self.config.controller_quorum_request_timeout_ms)
            while not self.node.is_told and self.failure is None and self._now_ms() < deadline_ms:
                await self.wait_change(deadline_ms - self._now_ms())
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._downloads is not None:
            self._downloads.follow(None)
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        tasks += [self._sync_task] if self._sync_task is not None else []
        if tasks:
            await asyncio.wait(tasks)
        self._refuse_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._wake_waiters()

    # ---- what the rest of the node knows and does

    @property
    def is_leader(self) -> bool:
        """Whether it leads the epoch in `leadership`; its first records need not be committed yet."""
        leadership = self.leadership
        return self.failure is None and leadership.active_from_offset is not None and self.node.leadership == leadership

    @property
    def voters(self) -> VoterSet:
        return self.node.voters

    @property
    def may_act(self) -> bool:
        """Whether anything may be done in a leader's name: one that was stopped for a while may have been replaced."""
        role = self.node.role
        return self.is_leader and isinstance(role, Leader) and self.ports.clock.monotonic_ms() < role.ends_ms

    @property
    def may_grant(self) -> bool:
        """Whether a majority has fetched so lately that leases may be granted to brokers."""
        role, timeout_ms = self.node.role, self.config.controller_quorum_fetch_timeout_ms
        ends_ms = role.ends_ms - timeout_ms + grant_ms(timeout_ms) if isinstance(role, Leader) else 0.0
        return self.may_act and self.ports.clock.monotonic_ms() < ends_ms

    def append(self, records: Sequence[Message]) -> int:
        """Gives the end offset: the records are committed once the high watermark is there. If it raises, nothing was
        written: KafkaError NOT_CONTROLLER if this node does not lead; StorageError."""
        if not self.may_act or self._is_closed:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node does not lead the metadata quorum.")
        try:
            _, end_offset = self.log.append(records, epoch=self.leadership.epoch)
        except StorageError as error:
            if len(self.voters) > 1:
                # Another node may have space.
                _log.warning("the metadata log takes no records: the lead is given up", cause=error)
                self.feed(Resign())
            raise
        self._after_write()
        return end_offset

    async def handle(self, request: Message, listener_name: str = "", peer: str = "") -> Message:
        """A request of the quorum, from a peer or an admin client: the listener that it came in by, and the address at
        the other end of its connection."""
        with self._answered.question(peer) as after_ms:
            return await handle(self, request, listener_name, after_ms)

    async def ask(self, request: Request, after_ms: float = inf) -> Reply:
        """What the node says to a request of a peer, sent after a moment. KafkaError if it cannot say anything."""
        return await self._put(lambda token: Received(token, request, after_ms))

    async def ask_again(self, request: Fetch) -> Reply:
        return await self._put(lambda token: Waited(token, request))

    async def wait_change(self, timeout_ms: float) -> None:
        """Until there may be something new for whoever waits: records, a high watermark, a leader; or time is up."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(max(timeout_ms, 0) / 1000):
                await waiter
        except TimeoutError:
            self._waiters = [each for each in self._waiters if each is not waiter]

    # ---- inputs, one at a time

    async def _put(self, event_of: Callable[[int], Input]) -> Reply:
        self._check_health()
        if len(self._inputs) >= _INPUTS_MAX:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The disk of this node is too slow for the quorum.")
        token = self._next_token
        self._next_token += 1
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._answers[token] = future
        try:
            self.feed(event_of(token))
            return await future
        finally:
            self._answers.pop(token, None)

    def feed(self, event: Input) -> None:
        if self._is_closed or self.failure is not None:
            return
        self._inputs.append(event)
        self._drain()

    def _drain(self) -> None:
        if self._is_busy:
            return
        self._is_busy, clock = True, self.ports.clock
        try:
            while self._inputs and self.failure is None:
                times = {"clock_ms": clock.monotonic_ms(), "looked_ms": clock.looked_ms()}
                ready = step(self.node, self._inputs.popleft(), clock.patient_ms(), **times)
                if ready.persist is not None:
                    self._spawn(self._persist(ready, ready.persist), "quorum state")
                    return
                self._execute(ready)
                if not self._inputs:
                    self._settle()
        except Exception as error:
            self.fail(error)
        self._is_busy = False

    async def _persist(self, ready: Ready, state: QuorumState) -> None:
        """The rest of a step whose state has to be on the device first."""
        try:
            await store_quorum_state(self.ports, self.log.folder, state)
            self._execute(ready)
            if not self._inputs:
                self._settle()
        except Exception as error:
            self.fail(error)
        self._is_busy = False
        self._drain()

    def _execute(self, ready: Ready) -> None:
        if ready.truncate_to is not None:
            self._inputs.appendleft(Written(self.log.truncate(ready.truncate_to)))
            _log.info("cut what the leader does not have", end_offset=self.log.end_offset, epoch=self.node.epoch)
            self._after_write()
        if ready.append_fetched is not None:
            self._append_fetched(ready.append_fetched)
        if ready.append_control:
            self._append_control(ready.append_control)
        for token, reply in ready.answers:
            future = self._answers.get(token)
            if future is not None and not future.done():
                future.set_result(reply)
        for send in ready.sends:
            self._spawn(self._call(send), "quorum request")

    def _append_control(self, records: Sequence[Message]) -> None:
        typed = [(_CONTROL_TYPES[type(message)], message) for message in records]
        try:
            base_offset, _ = self.log.append_control(typed, epoch=self.node.epoch)
        except StorageError as error:
            if self.log.failure is not None or len(self.voters) == 1:
                raise
            # Nothing was written. Another node may have space.
            _log.warning("the metadata log takes no records: the lead is given up", cause=error)
            self._inputs.appendleft(Resign())
            return
        self._inputs.appendleft(Written(base_offset, voters_of(enumerate(records, base_offset))))
        self._after_write()

    def _append_fetched(self, records: Bytes | FileSlice) -> None:
        """What is damaged, or finds no space, is not written, and asked for again."""
        base_offset = self.log.end_offset
        view = memoryview(records.read() if isinstance(records, FileSlice) else records)
        try:
            for _, header in iterate_headers(view, allow_partial=True):
                if header.leader_epoch > self.node.epoch:
                    raise ProtocolError(f"a batch of epoch {header.leader_epoch} in epoch {self.node.epoch}")
            voters = voters_of(find_control_records(view))
            end_offset = self.log.append_fetched(view)
        except (KafkaError, ProtocolError, StorageError) as error:
            if self.log.failure is not None:
                raise
            _log.warning("what the leader sent cannot be written", offset=base_offset, cause=error)
            self._inputs.appendleft(Unwritable())
            return
        self._inputs.appendleft(Written(base_offset, tuple(each for each in voters if each[0] < end_offset)))
        self._after_write()

    def _settle(self) -> None:
        """What is level, not edge: it holds as of now, whatever steps led here."""
        node = self.node
        is_new = node.leadership != self.leadership
        if is_new:
            self.leadership = node.leadership
            self._on_leader(self.leadership)
        if node.high_watermark > self.high_watermark:
            is_new = True
            self.high_watermark = node.high_watermark
            self._on_committed(self.high_watermark)
        if is_new or isinstance(node.role, Resigned):
            self.wake()
        if node.is_voter and not self.log.is_counted:
            # It was made a voter, though it has not the role: from here on its fetches are promises.
            self.log.is_counted = True
            self._after_write()
        if not self._has_voice and not node.must_catch_up:
            self._has_voice = True
            _log.info("this voter has caught up, and votes again", offset=self.log.end_offset, epoch=node.epoch)
        self._settle_download(node.snapshot_to_fetch)
        self._set_timer(node.next_deadline_ms)

    # ---- time, syncs and peers

    def _set_timer(self, deadline_ms: float) -> None:
        if deadline_ms >= self._timer_ms or deadline_ms == inf:
            return  # The one that is set comes before; it sets the next.
        if self._timer is not None:
            self._timer.cancel()
        delay_seconds = timer_seconds(deadline_ms - self._now_ms())
        self._timer_ms = deadline_ms
        self._timer = asyncio.get_running_loop().call_later(delay_seconds, self._tick)

    def _tick(self) -> None:
        self._timer, self._timer_ms = None, inf
        self.feed(Tick())

    def _after_write(self) -> None:
        self.wake()
        if self._sync_task is None:
            self._sync_task = asyncio.create_task(self._supervise_sync(), name="quorum sync")

    async def _supervise_sync(self) -> None:
        try:
            while not self._is_closed and self.log.synced_end_offset < self.log.end_offset:
                await self.log.sync()
                self.feed(Synced())
        except Exception as error:
            self.fail(error)
        finally:
            self._sync_task = None

    def wake(self) -> None:
        """Once a turn of the loop, however much was written in it."""
        if not self._is_waking:
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._wake_waiters)

    def _wake_waiters(self) -> None:
        self._is_waking = False
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _call(self, send: Send) -> None:
        try:
            response = await self.call(send.endpoint, send.request)
            event: Input = Replied(send.id, of_wire_response(response))
        except (KafkaError, ProtocolError, OSError) as error:
            _log.debug("no answer from a node of the quorum", node=send.node_id, to=send.endpoint, cause=error)
            event = Failed(send.id)
        except Exception:
            # A bug, of ours or of a peer, in one exchange; the node goes by what it has on its disk.
            _log.error("a request to a node of the quorum failed", trace=True, node=send.node_id)
            event = Failed(send.id)
        self.feed(event)

    async def call(self, endpoint: Endpoint, request: Request) -> Message:
        wait_ms = int(min(_FETCH_WAIT_MAX_MS, self.config.controller_quorum_fetch_timeout_ms / 2))
        message = to_wire_request(request, cluster_id=self.cluster_id, max_wait_ms=wait_ms)
        timeout_ms = self.config.controller_quorum_request_timeout_ms
        if isinstance(request, AddVoter):
            timeout_ms += request.timeout_ms
        # A fetch waits at the leader, and would hold up what comes after it on its connection.
        channel = "raft-fetch" if isinstance(request, Fetch) else "raft"
        return await self.call_peer(
            endpoint, message, response_type(message.api_key), timeout_ms=timeout_ms, channel=channel
        )

    async def call_peer(
        self, endpoint: Endpoint, request: Message, response: type[R], *, timeout_ms: int, channel: str
    ) -> R:
        if self.peers is None:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "This node has no connections to others.")
        return await self.peers.call_address(
            endpoint.host, endpoint.port, request, response, timeout_ms=timeout_ms, channel=channel
        )

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    # ---- snapshots

    def _settle_download(self, wanted: OffsetAndEpoch | None) -> None:
        if wanted is None and self._downloads is None:
            return
        if self._downloads is None:
            from tailrace.broker.quorum.snapshot_transfer import Downloads

            self._downloads = Downloads(self)
        self._downloads.follow(None if self._is_closed else wanted)

    def install(self, snapshot: OffsetAndEpoch) -> None:
        """The file is complete and on the device. If the node follows another leader by now, it stays unused."""
        if self._is_closed or self.failure is not None or self.node.snapshot_to_fetch != snapshot:
            return
        assert not self._is_busy, "a node that changes its state wants no snapshot"
        self.log.snapshots.add(snapshot)
        self.log.install_snapshot(snapshot)
        control = [(snapshot.offset - 1, message) for message in self.log.snapshots.read_control(snapshot)]
        voters = voters_of(control)
        self.feed(SnapshotInstalled(snapshot, voters[-1][1] if voters else self.node.voters))

    # ---- the end

    def fail(self, error: Exception) -> None:
        if self.failure is not None or self._is_closed:
            return
        is_bug = not isinstance(error, StorageError | OSError)
        self.failure = f"the metadata quorum has stopped on this node: {error!r}"
        _log.error("no more part in the metadata quorum: restart this node", trace=is_bug, cause=error)
        self._inputs.clear()
        self.leadership = Leadership(self.node.epoch)
        self._refuse_all(ErrorCode.KAFKA_STORAGE_ERROR)
        self.wake()
        self._on_leader(self.leadership)

    def _refuse_all(self, code: ErrorCode) -> None:
        for future in self._answers.values():
            if not future.done():
                future.set_exception(KafkaError(code, self.failure or "This node is stopping."))

    def _check_health(self) -> None:
        if self.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)
        if self._is_closed or not self._is_started:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "This node is starting or stopping.")

    def _now_ms(self) -> float:
        return self.ports.clock.patient_ms()
