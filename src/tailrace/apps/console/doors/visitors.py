"""Who looks at the console, and with whose rights.

Where the cluster wants no login, all visitors share the console's own connection. Where it does, a visitor logs in here
as a user of the cluster, by name and password or by a token of an issuer (`oidc`), and everything that is shown or done
for them goes over a connection of their own: the console has no rights to lend. A schema registry is asked by the same
login. A password or a token lives as long as the visit, in memory alone. A token that ends is exchanged for the next
one, if the issuer allows it; else the visit ends with it.

Whoever reads messages does it over connections of their own: a broker answers in order, so that one who waits for
messages, or is sent many, would hold up every other page. They end with the visit, and are bounded in number.

A visit is known by a random cookie that scripts cannot read and that other sites cannot send. Each form carries a token
that follows from the cookie, so that no other page can post in a visitor's name.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tailrace.apps.console.doors.oidc import Tokens
from tailrace.apps.console.picture import Picture, take_picture
from tailrace.apps.console.watcher import Watcher
from tailrace.apps.opening import RecordOpener
from tailrace.client.metadata import Cluster
from tailrace.client.security.settings import Mechanism, SaslSettings, Security, TokenSettings
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.real.registry.client import RegistryClient

COOKIE = "tailrace_console"
_VISITS_MAX = 200
_IDLE_S = 8 * 3600
# A token is exchanged so long before it ends: a request that begins with it also ends with it.
_TOKEN_MARGIN_S = 30.0
# What is larger nobody reads in a page.
_OPENED_BYTES_MAX = 256 * 1024

# Pictures are made for an eighth of the time at most.
_PICTURES_SHARE = 8

OpenRegistry = Callable[[str, str], RegistryClient]  # A user, and a password or, without a user, a token.


@dataclass(eq=False)
class Reading:
    """The connections of one reader."""

    cluster: Cluster
    has_ended: Callable[[], bool]
    is_closed: bool = False

    @property
    def is_over(self) -> bool:
        """Nothing more may be shown: the visit or the console ends, or the visit goes on with another login."""
        return self.is_closed or self.has_ended()

    def end(self) -> None:
        self.is_closed = True
        self.cluster.close()


@dataclass
class Visit:
    cluster: Cluster
    user: str | None
    seen_s: float
    security: Security = field(default=Security(), repr=False)
    schemas: RecordOpener | None = None
    tokens: Tokens | None = field(default=None, repr=False)
    ends_s: float = float("inf")
    readings: set[Reading] = field(default_factory=set, repr=False)
    _picture: Picture | None = field(default=None, repr=False)
    _took_ms: float = 0.0
    # Who opens five pages waits for one picture.
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    async def picture(self, watcher: Watcher, *, age_max_ms: int, groups_max: int, visits: int) -> Picture:
        """What this visitor may see. Raises KafkaError if there is none yet. Of a large cluster with many visitors it
        is older than of others: all their pictures together take the brokers a part of the time."""
        if self.user is None:
            return await watcher.seen()
        clock = self.cluster.ports.clock
        age_max_ms = max(age_max_ms, int(self._took_ms * visits * _PICTURES_SHARE))
        async with self._looking:
            if self._picture is None or not 0 <= clock.wall_ms() - self._picture.taken_ms <= age_max_ms:
                began_ms = clock.monotonic_ms()
                self._picture = await take_picture(self.cluster, groups_max=groups_max)
                self._took_ms = clock.monotonic_ms() - began_ms
        return self._picture

    def forget_picture(self) -> None:
        """Something was changed."""
        self._picture = None

    def end_readings(self) -> None:
        for reading in tuple(self.readings):
            reading.end()


class Visitors:
    def __init__(
        self,
        shared: Cluster,
        security: Security,
        open_cluster: Callable[[Security], Cluster],
        *,
        now_s: Callable[[], float],
        open_registry: OpenRegistry | None = None,
        renew: Callable[[Tokens], Awaitable[Tokens]] | None = None,
        readers_max: int = 200,
    ) -> None:
        self._shared = shared
        self._security = security
        self._open_cluster = open_cluster
        self._now_s = now_s
        self._open_registry = open_registry
        self._renew = renew
        self._readers_max = readers_max
        self._readers_count = 0
        self._is_stopping = False
        self._shared_schemas = None if self.must_log_in else self._schemas("", "")
        self._key = secrets.token_bytes(32)
        self._visits: dict[str, Visit] = {}

    @property
    def must_log_in(self) -> bool:
        return self._security.sasl is not None

    @property
    def count(self) -> int:
        return len(self._visits)

    @property
    def has_schemas(self) -> bool:
        return self._open_registry is not None

    def find(self, cookie: str | None) -> Visit | None:
        if not self.must_log_in:
            return Visit(self._shared, None, self._now_s(), self._security, self._shared_schemas)
        visit = self._visits.get(cookie or "")
        if visit is None or self._has_ended(visit):
            return None
        visit.seen_s = self._now_s()
        return visit

    @contextmanager
    def reading(self, visit: Visit) -> Iterator[Reading]:
        """Raises KafkaError if too many read."""
        if self._readers_count >= self._readers_max:
            reason = f"{self._readers_max} visitors read messages now, which is --readers-max: try again in a moment"
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, reason)
        reading = Reading(self._open_cluster(visit.security), lambda: self._is_stopping or self._has_ended(visit))
        visit.readings.add(reading)
        self._readers_count += 1
        try:
            yield reading
        finally:
            self._readers_count -= 1
            visit.readings.discard(reading)
            reading.end()

    async def find_fresh(self, cookie: str | None) -> Visit | None:
        """The same, with a token that is good for a while."""
        visit = self.find(cookie)
        if visit is None or visit.tokens is None or self._now_s() < visit.ends_s - _TOKEN_MARGIN_S:
            return visit
        if self._renew is None or not visit.tokens.refresh:
            return visit
        ends_s, visit.ends_s = visit.ends_s, visit.ends_s + _TOKEN_MARGIN_S  # Others meanwhile go on with the old one.
        try:
            tokens = await self._renew(visit.tokens)
            renewed = await self._enter(*_token_login(self._security, tokens), tokens)
        except KafkaError:
            visit.ends_s = ends_s
            return visit if self._now_s() < ends_s else None
        if cookie not in self._visits:
            renewed.cluster.close()
            return None
        # What is under way on the old connections has a moment to end; who follows messages comes back by itself.
        readings, visit.readings = visit.readings, set()
        old = Visit(visit.cluster, visit.user, visit.seen_s, readings=readings)
        asyncio.get_running_loop().call_later(_TOKEN_MARGIN_S, _end, old)
        visit.cluster, visit.security, visit.schemas = renewed.cluster, renewed.security, renewed.schemas
        visit.tokens, visit.ends_s = tokens, renewed.ends_s
        return visit

    async def log_in(self, user: str, password: str) -> str:
        """Gives the cookie. Raises KafkaError if the cluster does not let this user in."""
        own = self._security.sasl
        assert own is not None
        # The console's own login may be a token, which no person has.
        mechanism = Mechanism.SCRAM_SHA_512 if own.mechanism is Mechanism.OAUTHBEARER else own.mechanism
        sasl = replace(own, mechanism=mechanism, username=user, password=password, is_by_delegation_token=False)
        return self._keep(await self._enter(replace(self._security, sasl=sasl), user, None))

    async def log_in_by(self, tokens: Tokens) -> str:
        """Gives the cookie. Raises KafkaError if the cluster does not let the owner of the token in."""
        return self._keep(await self._enter(*_token_login(self._security, tokens), tokens))

    async def _enter(self, security: Security, user: str, tokens: Tokens | None) -> Visit:
        cluster = self._open_cluster(security)
        try:
            await cluster.refresh([])
        except BaseException:
            cluster.close()
            raise
        now_s = self._now_s()
        if tokens is not None:
            schemas = self._schemas("", tokens.access)
            return Visit(cluster, user, now_s, security, schemas, tokens, now_s + tokens.lifetime_s)
        assert security.sasl is not None
        return Visit(cluster, user, now_s, security, self._schemas(user, security.sasl.password))

    def _keep(self, visit: Visit) -> str:
        self._make_room()
        cookie = new_cookie()
        self._visits[cookie] = visit
        return cookie

    def _schemas(self, user: str, secret: str) -> RecordOpener | None:
        if self._open_registry is None:
            return None
        return RecordOpener(self._open_registry(user, secret), _OPENED_BYTES_MAX)

    def log_out(self, cookie: str | None) -> None:
        visit = self._visits.pop(cookie or "", None)
        if visit is not None:
            _end(visit)

    def token(self, cookie: str) -> str:
        return hmac.new(self._key, cookie.encode(), hashlib.sha256).hexdigest()

    def is_token_good(self, cookie: str | None, token: str) -> bool:
        return bool(cookie) and hmac.compare_digest(self.token(cookie or ""), token)

    def stop(self) -> None:
        """Who reads is soon done."""
        self._is_stopping = True

    def close(self) -> None:
        for visit in self._visits.values():
            _end(visit)
        self._visits.clear()

    def _has_ended(self, visit: Visit) -> bool:
        if not self.must_log_in:
            return False
        return self._now_s() - visit.seen_s > _IDLE_S or self._now_s() > visit.ends_s

    def _make_room(self) -> None:
        gone = [cookie for cookie, visit in self._visits.items() if self._has_ended(visit)]
        if len(self._visits) - len(gone) >= _VISITS_MAX:
            gone.append(min(self._visits, key=lambda cookie: self._visits[cookie].seen_s))
        for cookie in gone:
            self.log_out(cookie)


def _end(visit: Visit) -> None:
    visit.end_readings()
    visit.cluster.close()


def _token_login(security: Security, tokens: Tokens) -> tuple[Security, str]:
    sasl = SaslSettings(Mechanism.OAUTHBEARER, token=TokenSettings(given=tokens.access))
    return replace(security, sasl=sasl), tokens.user


def new_cookie() -> str:
    return secrets.token_urlsafe(32)


def watcher_security(security: Security) -> Security | None:
    """With what the console itself looks; None if it was given no credential of its own."""
    sasl: SaslSettings | None = security.sasl
    if sasl is None or sasl.username or sasl.token.endpoint_url:
        return security
    return None
