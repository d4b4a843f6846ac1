"""Who looks at the console, and with whose rights.

Where the cluster wants no login, all visitors share the console's own connection. Where it does, a visitor logs in here
by name and password as a user of the cluster, and everything that is shown or done for them goes over a connection of
their own: the console has no rights to lend. A password lives as long as the visit, in memory alone.

A visit is known by a random cookie that scripts cannot read and that other sites cannot send. Each form carries a token
that follows from the cookie, so that no other page can post in a visitor's name.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tailrace.apps.console.picture import Picture, take_picture
from tailrace.apps.console.watcher import Watcher
from tailrace.client.metadata import Cluster
from tailrace.client.security.settings import SaslSettings, Security

COOKIE = "tailrace_console"
_VISITS_MAX = 200
_IDLE_S = 8 * 3600


@dataclass
class Visit:
    cluster: Cluster
    user: str | None
    seen_s: float
    _picture: Picture | None = field(default=None, repr=False)

    async def picture(self, watcher: Watcher, *, age_max_ms: int, groups_max: int) -> Picture:
        """What this visitor may see. Raises KafkaError if there is none yet."""
        if self.user is None:
            return await watcher.seen()
        now_ms = self.cluster.ports.clock.wall_ms()
        if self._picture is None or not 0 <= now_ms - self._picture.taken_ms <= age_max_ms:
            self._picture = await take_picture(self.cluster, groups_max=groups_max)
        return self._picture


class Visitors:
    def __init__(
        self,
        shared: Cluster,
        security: Security,
        open_cluster: Callable[[Security], Cluster],
        *,
        now_s: Callable[[], float],
    ) -> None:
        self._shared = shared
        self._security = security
        self._open_cluster = open_cluster
        self._now_s = now_s
        self._key = secrets.token_bytes(32)
        self._visits: dict[str, Visit] = {}

    @property
    def must_log_in(self) -> bool:
        return self._security.sasl is not None

    def find(self, cookie: str | None) -> Visit | None:
        if not self.must_log_in:
            return Visit(self._shared, None, self._now_s())
        visit = self._visits.get(cookie or "")
        if visit is None or self._now_s() - visit.seen_s > _IDLE_S:
            return None
        visit.seen_s = self._now_s()
        return visit

    async def log_in(self, user: str, password: str) -> str:
        """Gives the cookie. Raises KafkaError if the cluster does not let this user in."""
        self._make_room()
        assert self._security.sasl is not None
        sasl = replace(self._security.sasl, username=user, password=password, is_by_delegation_token=False)
        cluster = self._open_cluster(replace(self._security, sasl=sasl))
        try:
            await cluster.refresh([])
        except BaseException:
            cluster.close()
            raise
        cookie = new_cookie()
        self._visits[cookie] = Visit(cluster, user, self._now_s())
        return cookie

    def log_out(self, cookie: str | None) -> None:
        visit = self._visits.pop(cookie or "", None)
        if visit is not None:
            visit.cluster.close()

    def token(self, cookie: str) -> str:
        return hmac.new(self._key, cookie.encode(), hashlib.sha256).hexdigest()

    def is_token_good(self, cookie: str | None, token: str) -> bool:
        return bool(cookie) and hmac.compare_digest(self.token(cookie or ""), token)

    def close(self) -> None:
        for visit in self._visits.values():
            visit.cluster.close()
        self._visits.clear()

    def _make_room(self) -> None:
        now_s = self._now_s()
        gone = [cookie for cookie, visit in self._visits.items() if now_s - visit.seen_s > _IDLE_S]
        if len(self._visits) - len(gone) >= _VISITS_MAX:
            gone.append(min(self._visits, key=lambda cookie: self._visits[cookie].seen_s))
        for cookie in gone:
            self.log_out(cookie)


def new_cookie() -> str:
    return secrets.token_urlsafe(32)


def watcher_security(security: Security) -> Security | None:
    """With what the console itself looks; None if it was given no credential of its own."""
    sasl: SaslSettings | None = security.sasl
    if sasl is None or sasl.username or sasl.token.endpoint_url:
        return security
    return None
