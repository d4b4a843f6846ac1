"""Which quotas hold for a client of this broker, and what it has used of them lately.

What is used is kept apart from what is allowed: a quota that changes holds from the next request on, for all that was
used before it. Who has no quota has no meter.

A client chooses its client id, so the number of meters is bounded (`quota.clients.max`): beyond it those go that count
nothing any more, and then those of client ids, which were used first. Those of users stay: nobody sheds what they have
used by taking many client ids.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tailrace.broker.quotas.windows import Bucket, Rate, Windows
from tailrace.controller.security.limits import find_limit
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.quotas import (
    CLIENT_KEYS,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Quotas,
)
from tailrace.wire.apis.keys import ApiKey

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.controller.image import MetadataImage
    from tailrace.model.config import BrokerConfig
    from tailrace.model.ports import Clock

    Subscriber = Callable[[MetadataImage, MetadataImage], None]

_Place = TypeVar("_Place", bound=tuple[str | None, ...])

# From these versions on clients know the code with which a change is refused (KIP-599). Older ones have it done, and
# are throttled then; so are those who ask for the metadata of topics that come to be by it.
_NEVER = 1 << 15
_STRICT_SINCE = {
    ApiKey.CREATE_TOPICS: 6,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.METADATA: _NEVER,
}


class Metered(NamedTuple):
    """A rate and its bound, of all who are counted together."""

    rate: Rate
    bound: float

    def charge(self, value: float, now_ms: float) -> int:
        """Notes it, and says for how long to throttle."""
        self.rate.note(value, now_ms)
        return self.rate.throttle_ms(self.bound, now_ms)


class ClientMeters(NamedTuple):
    """Those that hold for one user with one client id; None where there is no quota."""

    produced: Metered | None
    fetched: Metered | None
    time: Metered | None
    mutations: tuple[Bucket, float] | None


class Meters:
    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self.number = 0  # 0 while no quota of users or client ids is set anywhere; else it changes with each change.
        self.clock = clock
        # A listener that brokers have among themselves: who is let in there has no quota.
        names = {each.listener_name for each in config.listeners} - set(config.controller_listener_names)
        self.exempt_listener = (config.inter_broker_listener_name or "").upper() if len(names) > 1 else ""
        self.windows = Windows(config.quota_window_num, config.quota_window_size_seconds * 1000.0)
        self._mutation_windows = Windows(
            config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000.0
        )
        self._meters_max = config.quota_clients_max
        self._changes = 0
        self._quotas: Quotas = {}
        # By user and client id, with the quotas as they are: emptied when they change, or it has grown too large.
        self._clients: dict[tuple[str, str], ClientMeters] = {}
        # By key, user and client id, where they are counted: what was used, whatever is allowed.
        self._rates: dict[tuple[str, str | None, str | None], Rate] = {}
        self._buckets: dict[tuple[str | None, str | None], Bucket] = {}

    def follow_image(self, _old: MetadataImage | None, new: MetadataImage) -> None:
        if new.client_quotas is self._quotas:
            return
        self._quotas = new.client_quotas
        self._clients.clear()
        self._changes += 1
        is_set = any(key in CLIENT_KEYS for values in self._quotas.values() for key in values)
        self.number = self._changes if is_set else 0
        if not is_set:
            self._rates.clear()
            self._buckets.clear()

    def of(self, user: str, client_id: str) -> ClientMeters:
        found = self._clients.get((user, client_id))
        if found is None:
            self._make_room()
            found = self._clients[user, client_id] = ClientMeters(
                self._rate(PRODUCER_BYTE_RATE, user, client_id),
                self._rate(CONSUMER_BYTE_RATE, user, client_id),
                self._rate(REQUEST_PERCENTAGE, user, client_id),
                self._bucket(user, client_id),
            )
        return found

    def _rate(self, key: str, user: str, client_id: str) -> Metered | None:
        limit = find_limit(self._quotas, key, user, client_id)
        if limit is None:
            return None
        place = key, limit.user, limit.client_id
        rate = self._rates.get(place)
        if rate is None:
            rate = self._rates[place] = Rate(self.windows)
        return Metered(rate, limit.bound)

    def _bucket(self, user: str, client_id: str) -> tuple[Bucket, float] | None:
        limit = find_limit(self._quotas, CONTROLLER_MUTATION_RATE, user, client_id)
        if limit is None:
            return None
        place = limit.user, limit.client_id
        bucket = self._buckets.get(place)
        if bucket is None:
            bucket = self._buckets[place] = Bucket(self._mutation_windows)
        return bucket, limit.bound

    def _make_room(self) -> None:
        if len(self._clients) < self._meters_max:
            return
        now_ms = self.clock.monotonic_ms()
        self._clients.clear()
        self._rates = {place: rate for place, rate in self._rates.items() if rate.used(now_ms)}
        _drop_client_ids(self._rates, self._meters_max // 2)
        _drop_client_ids(self._buckets, self._meters_max // 2)

    def mutations(self, context: RequestContext) -> MutationCharge | None:
        """What a client's request is charged with by who makes the change; None if it has no quota."""
        if not self.number or context.api_key not in _STRICT_SINCE:
            return None
        metered = self.of(context.principal.name, context.client_id or "").mutations
        if metered is None:
            return None
        return MutationCharge(
            *metered, self.clock, is_strict=context.api_version >= _STRICT_SINCE[ApiKey(context.api_key)]
        )


def _drop_client_ids(meters: dict[_Place, Any], left_max: int) -> None:
    """Those that were made first."""
    by_client_id = [place for place in meters if place[-1] is not None]
    for place in by_client_id[: max(0, len(meters) - left_max)]:
        del meters[place]


def follow_quotas(config: BrokerConfig, clock: Clock, subscribe: Callable[[Subscriber], None]) -> Meters:
    """Told of all changes of the metadata from now on."""
    meters = Meters(config, clock)
    subscribe(meters.follow_image)
    return meters


class MutationCharge:
    """Of one request: told by the controller how many partitions each of its items makes or deletes, before it does."""

    __slots__ = ("_bound", "_bucket", "_clock", "_is_strict", "_until_ms")

    def __init__(self, bucket: Bucket, bound: float, clock: Clock, *, is_strict: bool) -> None:
        self._bucket = bucket
        self._bound = bound
        self._clock = clock
        self._is_strict = is_strict
        self._until_ms = 0.0

    def __call__(self, count: int) -> None:
        """Raises KafkaError if it is not to be done."""
        now_ms = self._clock.monotonic_ms()
        spend = self._bucket.ask if self._is_strict else self._bucket.take
        throttle_ms = spend(count, self._bound, now_ms)
        if throttle_ms:
            self._until_ms = now_ms + throttle_ms
        if throttle_ms and self._is_strict:
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"The quota {CONTROLLER_MUTATION_RATE}={self._bound:g} is used up. Try again in {throttle_ms} ms.",
            )

    @property
    def throttle_ms(self) -> int:
        """What is left of it when the answer goes out."""
        return max(0, int(self._until_ms - self._clock.monotonic_ms())) if self._until_ms else 0
