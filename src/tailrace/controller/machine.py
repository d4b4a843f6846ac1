"""The controller: a pure machine that turns admin requests into metadata records.

    op(request)      reads the image and decides: records for the log, and the response that waits for them
    replay(record)   the only way to change the image; called for each record once it is on the log
    revert(image)    forgets what was replayed but could not be made durable
    on_deadline()    decides by itself: sessions that have ended, elections that were held back, leaders out of balance,
                     throttles that a balancer has left, tokens that have expired

The runtime (broker.quorum) appends the records of an op before it replays them, so the machine is never ahead of the
log; it may be ahead of what is committed, so a response is held back until the log has caught up.

Only the active controller decides. `activate` and `deactivate` tell the machine that it is; what it keeps besides the
image (when it has heard whom) begins anew each time.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tailrace.catalogue import CATALOGUE, AnsweredBy, load
from tailrace.controller.brokers.pace import Pace
from tailrace.controller.brokers.sessions import Sessions, grant_ms
from tailrace.controller.effective import broker_config
from tailrace.controller.image import BrokerImage, MetadataImage
from tailrace.controller.partitions.candidates import Candidates
from tailrace.controller.replay import Replay
from tailrace.controller.view import THE_NODE, Asker, Decision, Result, View
from tailrace.model.config import BrokerConfig
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId
from tailrace.model.ports import Random
from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.controller.security.token_keys import TokenKeys
    from tailrace.wire.apis.quorum import BrokerHeartbeatRequest


class Controller:
    def __init__(self, config: BrokerConfig, random: Random, *, cluster_id: str) -> None:
        self._static_config = config
        self._random = random
        self._replay = Replay(MetadataImage(cluster_id))
        # With the dynamic settings applied, and those that they were applied from: most ops find them unchanged.
        self._config = config
        self._configs: object = None
        self._pace = Pace(config.controller_partition_changes_max_per_second)
        self._sessions = Sessions(
            config.broker_session_timeout_ms,
            config.lease_ms,
            self._pace,
            flapping_pause_max_ms=config.broker_flapping_pause_max_ms,
        )
        self._candidates = Candidates(config.eligible_leader_wait_ms)
        self._token_keys = _token_keys(config.delegation_token_secret_key)
        # When tokens that have expired are looked for; None where there are no tokens.
        self._tokens_due_ms: float | None = None
        # When the balance of leaders is looked at, and which brokers that look has yet to come to.
        self._balance_due_ms: float | None = None
        self._unbalanced: list[int] = []

    @property
    def image(self) -> MetadataImage:
        """As of the last record replayed."""
        return self._replay.image()

    def op(self, request: Message, now_ms: int, monotonic_ms: float | None = None, asker: Asker = THE_NODE) -> Result:
        """Raises KafkaError if the request fails as a whole; else each of its items has its own error."""
        if monotonic_ms is not None:
            self._advance(monotonic_ms)
        result = _find_op(request)(self._view(now_ms, asker), request)
        self._pace.spend(result.records, self._sessions.now_ms)
        return result

    def activate(self, monotonic_ms: float) -> None:
        """The log is replayed and this node decides: every unfenced broker has a session time to be heard."""
        unfenced = [node_id for node_id, broker in self.image.brokers.items() if not broker.fenced]
        self._sessions.activate(
            monotonic_ms,
            unfenced,
            offset=self.image.next_offset - 1,
            granted_ms=grant_ms(self._static_config.controller_quorum_fetch_timeout_ms),
        )
        self._candidates.advance(monotonic_ms)
        self._balance_due_ms = monotonic_ms + self._balance_interval_ms
        self._unbalanced = []
        if self._token_keys is not None:
            self._tokens_due_ms = monotonic_ms + self._static_config.delegation_token_expiry_check_interval_ms

    def deactivate(self) -> None:
        self._sessions.deactivate()
        self._candidates.clear()
        self._balance_due_ms = self._tokens_due_ms = None

    def next_deadline_ms(self) -> float | None:
        """When `on_deadline` wants to be called, by the monotonic clock; it changes with every op and replay."""
        deadlines = (
            self._sessions.next_deadline_ms(self.image),
            self._candidates.next_deadline_ms(),
            self._balance_due_ms,
            self._tokens_due_ms,
        )
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def on_deadline(self, monotonic_ms: float, now_ms: int = 0) -> Decision | None:
        """What is due, if anything. Its records are appended and replayed as those of an op are."""
        self._advance(monotonic_ms)
        decision = self._decide_due(self._view(now_ms), monotonic_ms)
        if decision is not None:
            self._pace.spend(decision.records, monotonic_ms)
        return decision

    def _decide_due(self, view: View, monotonic_ms: float) -> Decision | None:
        if self._sessions.expired(view.image):
            return Decision(_import("brokers.heartbeats").decide_expired(view))
        if self._candidates.due(view.image):
            return Decision(_import("partitions.reports").decide_held_back(view))
        if self._tokens_due_ms is not None and monotonic_ms >= self._tokens_due_ms:
            self._tokens_due_ms = monotonic_ms + self._static_config.delegation_token_expiry_check_interval_ms
            return Decision(_import("security.tokens").decide_expired(view))
        if self._balance_due_ms is not None and monotonic_ms >= self._balance_due_ms:
            wait_ms = self._pace.wait_ms(monotonic_ms)
            if not wait_ms:
                return self._balance(view, monotonic_ms)
            self._balance_due_ms = monotonic_ms + wait_ms
        return None

    def silent_brokers(self, monotonic_ms: float) -> list[BrokerImage]:
        """Who has missed heartbeats, and may be dead."""
        self._advance(monotonic_ms)
        image = self.image
        return [image.brokers[node_id] for node_id in self._sessions.silent(image)]

    def note_refused(self, node_id: NodeId, since_ms: float) -> None:
        """A connection to a silent broker, tried at `since_ms`, was refused: its session ends earlier."""
        self._sessions.note_refused(node_id, since_ms)

    def note_life(self, request: BrokerHeartbeatRequest) -> None:
        """A heartbeat that comes while nothing may be decided."""
        _import("brokers.heartbeats").note_life(self.image, self._sessions, request)

    def replay(self, offset: int, record: Message) -> None:
        self._replay.replay_record(offset, record)

    def replay_control(self, next_offset: int) -> None:
        self._replay.replay_control(next_offset)

    def revert(self, image: MetadataImage) -> None:
        self._replay = Replay(image)

    def _advance(self, monotonic_ms: float) -> None:
        self._sessions.advance(monotonic_ms)
        self._candidates.advance(monotonic_ms)

    def _balance(self, view: View, monotonic_ms: float) -> Decision | None:
        """Takes the next broker of the round; when the round comes to an end the next is due after the interval."""
        balance = _import("partitions.balance")
        self._unbalanced = self._unbalanced or sorted(view.image.brokers, reverse=True)
        records: list[Message] = balance.decide_balance(view, self._unbalanced[-1]) if self._unbalanced else []
        if self._unbalanced and len(records) < balance.ELECTIONS_MAX:
            self._unbalanced.pop()
        if not self._unbalanced:
            records += _import("partitions.throttles").decide_stale_throttles(view.image)
        self._balance_due_ms = monotonic_ms + (0 if self._unbalanced else self._balance_interval_ms)
        return Decision(records) if records else None

    @property
    def _balance_interval_ms(self) -> float:
        return 1000.0 * self._static_config.leader_imbalance_check_interval_seconds

    def _view(self, now_ms: int, asker: Asker = THE_NODE) -> View:
        image = self.image
        if self._configs is not image.configs:
            self._configs, self._config = image.configs, broker_config(self._static_config, image)
        return View(
            image,
            self._static_config,
            self._config,
            self._random,
            now_ms,
            self._sessions,
            self._candidates,
            self._token_keys,
            asker,
        )


def _find_op(request: Message) -> Callable[[View, Any], Result]:
    """Modules are imported when they are first asked for: a broker that starts needs few of them."""
    api = CATALOGUE.get(request.api_key)
    if api is None or api.answered_by is not AnsweredBy.CONTROLLER:
        reason = f"The controller does not serve {type(request).__name__}."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, reason)
    return load(f"tailrace.controller.{api.op}")


def _token_keys(secret_key: str | None) -> TokenKeys | None:
    if not secret_key:
        return None
    keys: TokenKeys = _import("security.token_keys").TokenKeys(secret_key)
    return keys


def _import(module: str) -> Any:
    return import_module(f"tailrace.controller.{module}")
