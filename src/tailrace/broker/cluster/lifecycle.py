"""A broker's membership: it registers, catches up, heartbeats, is unfenced, and leaves in good order.

    register -> (catch up) -> heartbeat, fenced -> unfence -> heartbeat -> shut down

Rules
- One task sends heartbeats, one at a time, from the registration until the end: while the logs are recovered too.
- The lease: a broker may act as a leader for broker.lease.ms, but for what clocks may differ by, from the moment at
  which it SENT the last heartbeat that was answered as unfenced. The controller counts from the moment at which it
  received it, so the lease ends before anyone else can be made leader.
- An epoch that the controller does not know any more (it was unregistered, or another process took its id and left) is
  got anew by registering again; in a live process nothing was lost, so the last epoch is the proof of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ids import Uuid, uuid_text
from tailrace.wire.apis.quorum import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.cluster.forwarding import Forwarding
    from tailrace.model.config import BrokerConfig, Endpoint
    from tailrace.model.ports import Ports
    from tailrace.replica.directories import LogDirectories

_log = events.logger("lifecycle")

# Kafka's are 100 ms, doubling up to the session timeout; a cluster that starts as a whole elects within that.
_REGISTRATION_PAUSE_MS = 50.0
_REGISTRATION_PAUSE_MAX_MS = 1000.0
# Between the first heartbeats while something is waited for: to be unfenced, or to be let go. It doubles up to
# broker.heartbeat.interval.ms: who is kept waiting is kept for a reason, and a busy controller has better things to do.
_EAGER_PAUSE_MS = 20.0
_EAGER_DOUBLINGS_MAX = 10
# How often it is looked, past the lease, who of those that wait is to be told.
_PAST_LEASE_LOOK_SECONDS = 0.2
# Answers after which the same registration may succeed later: the controller is moving, or the session of the last
# incarnation still runs.
_LATER = (
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
_WHY_FORGOTTEN = {
    ErrorCode.BROKER_ID_NOT_REGISTERED: "the controller does not know this broker any more: it registers again",
    ErrorCode.STALE_BROKER_EPOCH: "someone else has registered as this broker: an earlier start of it whose request "
    "came late, or another process with a copy of its data folder, which has to be stopped. It registers again",
}
# What an operator can do; the answer has no place for a message.
_REFUSALS = {
    ErrorCode.INVALID_REGISTRATION: "One of its data folders is registered for another broker: one is a copy of the "
    "other, and only who made it can tell which. Stop the broker that has the copy, and empty that folder.",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "Another one with the same node.id was heard just now: give each broker a "
    "node.id of its own, and stop the one that has a copy of its data folder.",
    ErrorCode.UNSUPPORTED_VERSION: "It cannot do what the cluster uses: a feature at the level that kafka-features "
    "--describe shows, or, where topics have remote.storage.enable, remote.log.storage.system.enable.",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "Its data folders belong to another cluster: check "
    "controller.quorum.bootstrap.servers and log.dirs.",
}
_CHANNEL = "heartbeat"
# A lease is this share of the time that the controller waits: the clocks of both may differ in speed by two percent.
LEASE_SHARE = 0.97
# Heartbeats in a lease, at least: one that is lost or late does not end it.
_HEARTBEATS_IN_LEASE = 4


class BrokerIdentity(NamedTuple):
    """What a broker says of itself when it registers."""

    cluster_id: str
    incarnation_id: Uuid
    endpoints: Sequence[Endpoint]
    # name -> lowest and highest level
    features: Sequence[tuple[str, int, int]]


class Lifecycle:
    """`metadata_offset` gives the last offset that this broker has followed; `find_epoch` the epoch that the metadata
    has for an incarnation of this broker, the last one; `on_epoch` is told of each new epoch,
    `on_lease` of how long the lease lasts, `on_lease_end` when it has ended and again while there is no other,
    `on_failure` if the broker has to stop."""

    def __init__(
        self,
        config: BrokerConfig,
        ports: Ports,
        forwarding: Forwarding,
        identity: BrokerIdentity,
        directories: LogDirectories,
        *,
        metadata_offset: Callable[[], int],
        find_epoch: Callable[[str], Awaitable[int | None]],
        on_epoch: Callable[[int], None],
        on_lease: Callable[[float], None],
        on_lease_end: Callable[[], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.broker_epoch = -1
        self.is_fenced = True
        self._config = config
        self._clock = ports.clock
        self._forwarding = forwarding
        self._identity = identity
        self._metadata_offset = metadata_offset
        self._find_epoch = find_epoch
        self._background = ports.background
        self._directories = directories
        self._on_epoch = on_epoch
        self._on_lease = on_lease
        self._on_lease_end = on_lease_end
        self._on_failure = on_failure
        self._proof_epoch = directories.previous_broker_epoch
        self._lease_ends_ms = 0.0
        self._lease_timer: asyncio.TimerHandle | None = None
        self._wants_fence = True
        self._wants_shut_down = False
        # Failed data folders of which the controller knows, and since when there are others.
        self._told: list[Uuid] = []
        self._untold_since_ms: float | None = None
        self._eager_count = 0  # Heartbeats in a row while something is waited for.
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._unfenced: asyncio.Future[None] | None = None
        self._let_go: asyncio.Future[None] | None = None

    async def register(self) -> int:
        """Gives the broker epoch. Raises KafkaError after initial.broker.registration.timeout.ms, or at once if the
        controller will never take this broker (another cluster, features that do not fit)."""
        await self._settle_proof()
        deadline_ms = self._clock.monotonic_ms() + self._config.initial_broker_registration_timeout_ms
        pause_ms = _REGISTRATION_PAUSE_MS
        while True:
            remaining_ms = deadline_ms - self._clock.monotonic_ms()
            try:
                await self._register_once(timeout_ms=max(1.0, remaining_ms))
                return self.broker_epoch
            except KafkaError as error:
                if error.code not in _LATER or self._clock.monotonic_ms() + pause_ms >= deadline_ms:
                    raise
                _log.debug("not registered yet", cause=error)
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(pause_ms * 2, _REGISTRATION_PAUSE_MAX_MS)

    def start(self) -> None:
        """Heartbeats from now on."""
        self._task = asyncio.create_task(self._heartbeat_for_ever(), name="heartbeats")

    async def unfence(self) -> None:
        """Returns when the controller sends clients here. Needs an image that holds the registration."""
        self._wants_fence = False
        self._unfenced = asyncio.get_running_loop().create_future()
        self._hurry.set()
        await self._unfenced

    def hurry(self) -> None:
        """Something has to be told soon, such as a data folder that failed."""
        self._hurry.set()

    async def shut_down(self) -> None:
        """Returns when the controller has moved the leaderships away, after controlled.shutdown.timeout.ms, or once the
        lease has ended: who does not hear from a controller any more leads nothing that could be handed over."""
        if self._task is None or self.is_fenced or not self._config.controlled_shutdown_enable:
            return
        self._wants_shut_down = True
        self._let_go = asyncio.get_running_loop().create_future()
        self._hurry.set()
        deadline_ms = self._clock.monotonic_ms() + self._config.controlled_shutdown_timeout_ms
        while not self._let_go.done():
            remaining_ms = min(deadline_ms, self._lease_ends_ms) - self._clock.monotonic_ms()
            if remaining_ms <= 0:
                _log.warning("stopping though leaders could not be moved away in time")
                return
            await asyncio.wait((self._let_go,), timeout=remaining_ms / 1000)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._task = None
        for future in (self._unfenced, self._let_go, self._lease_timer):
            if future is not None:
                future.cancel()

    # ---- registering

    async def _settle_proof(self) -> None:
        """The last run may have been killed between its registration and the mark of its epoch (`log.run_marks`)."""
        incarnation = self._directories.previous_incarnation
        found = await self._find_epoch(incarnation) if incarnation else None
        if found is not None:
            self._proof_epoch = found
        own = uuid_text(self._identity.incarnation_id)
        await self._background.run(lambda: self._directories.note_registering(own, self._proof_epoch))

    async def _register_once(self, *, timeout_ms: float) -> None:
        identity = self._identity
        request = BrokerRegistrationRequest(
            broker_id=self._config.node_id,
            cluster_id=identity.cluster_id,
            incarnation_id=identity.incarnation_id,
            listeners=[
                BrokerRegistrationRequest.Listener(name=name, host=host, port=port)
                for name, host, port in identity.endpoints
            ],
            features=[
                BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, low, high in identity.features
            ],
            rack=self._config.broker_rack,
            log_dirs=list[bytes](self._directories.online_directory_ids()),
            previous_broker_epoch=self._proof_epoch,
        )
        response = await self._forwarding.ask(
            request, BrokerRegistrationResponse, timeout_ms=timeout_ms, channel=_CHANNEL
        )
        if response.error_code:
            code = ErrorCode(response.error_code)
            raise KafkaError(
                code, f"The controller refused to register broker {self._config.node_id}. {_REFUSALS.get(code, '')}"
            )
        self.broker_epoch = self._proof_epoch = response.broker_epoch
        self.is_fenced = True
        self._on_epoch(response.broker_epoch)
        await self._background.run(lambda: self._directories.note_running(response.broker_epoch))

    # ---- heartbeats

    async def _heartbeat_for_ever(self) -> None:
        while True:
            self._hurry.clear()
            sent_ms = self._clock.monotonic_ms()
            try:
                await self._heartbeat(sent_ms)
            except KafkaError as error:
                _log.warning("a heartbeat failed", cause=error)
            except Exception:
                # The broker must not go silent for good because of one answer that it did not understand.
                _log.error("a heartbeat failed", trace=True)
            self._judge_untold()
            await self._wait_next(sent_ms)

    def _judge_untold(self) -> None:
        """A controller that does not know of a failed folder keeps leaders there that cannot lead (KIP-858)."""
        timeout_ms = self._config.log_dir_failure_timeout_ms
        since_ms = self._untold_since_ms
        if since_ms is not None and self._clock.monotonic_ms() - since_ms > timeout_ms:
            self._on_failure(
                StorageError(f"A data folder has failed, and the controller could not be told within {timeout_ms} ms.")
            )

    async def _heartbeat(self, sent_ms: float) -> None:
        offline = self._directories.offline_directory_ids()
        if offline != self._told and self._untold_since_ms is None:
            self._untold_since_ms = sent_ms
        request = BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._metadata_offset(),
            want_fence=self._wants_fence,
            want_shut_down=self._wants_shut_down,
            offline_log_dirs=list[bytes](offline),
        )
        response = await self._forwarding.ask(
            request,
            BrokerHeartbeatResponse,
            timeout_ms=self._config.lease_ms / 2,
            channel=_CHANNEL,
            # The lease would run out before the metadata log tells of the next controller.
            is_urgent=True,
        )
        if response.error_code in _WHY_FORGOTTEN:
            _log.warning(_WHY_FORGOTTEN[ErrorCode(response.error_code)], code=response.error_code)
            await self._register_once(timeout_ms=self._config.broker_session_timeout_ms)
            self._hurry.set()
            return
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), "The controller refused a heartbeat.")
        self._told, self._untold_since_ms = offline, None
        self._take_answer(response, sent_ms)

    def _take_answer(self, response: BrokerHeartbeatResponse, sent_ms: float) -> None:
        if self.is_fenced != response.is_fenced:
            _log.info(
                "fenced" if response.is_fenced else "unfenced", node=self._config.node_id, epoch=self.broker_epoch
            )
        self.is_fenced = response.is_fenced
        if not response.is_fenced:
            self._lease_ends_ms = sent_ms + self._config.lease_ms * LEASE_SHARE
            self._on_lease(self._lease_ends_ms)
            self._watch_lease()
            _complete(self._unfenced)
        if response.should_shut_down:
            _complete(self._let_go)

    def _watch_lease(self) -> None:
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        # Timers may fire a little early: a millisecond later it has ended by every clock.
        delay_ms = max(0.0, self._lease_ends_ms - self._clock.monotonic_ms()) + 1.0
        self._lease_timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._go_past_lease)

    def _go_past_lease(self) -> None:
        """Again and again until there is a new one: followers may fall silent one after the other."""
        self._on_lease_end()
        self._lease_timer = asyncio.get_running_loop().call_later(_PAST_LEASE_LOOK_SECONDS, self._go_past_lease)

    async def _wait_next(self, sent_ms: float) -> None:
        is_waited_for = (self.is_fenced and not self._wants_fence) or self._wants_shut_down
        often_ms = self._config.lease_ms / _HEARTBEATS_IN_LEASE
        interval_ms, least_ms = min(float(self._config.broker_heartbeat_interval_ms), often_ms), 0.0
        if is_waited_for:
            interval_ms = least_ms = min(interval_ms, _EAGER_PAUSE_MS * 2**self._eager_count)
        self._eager_count = min(self._eager_count + 1, _EAGER_DOUBLINGS_MAX) if is_waited_for else 0
        pause_ms = max(sent_ms + interval_ms - self._clock.monotonic_ms(), least_ms)
        try:
            async with asyncio.timeout(pause_ms / 1000):
                await self._hurry.wait()
        except TimeoutError:
            pass


def _complete(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
