"""Who calls, and with whose rights: each caller has connections of their own, by their own login, and a producer.

    no login      all share one caller, which is the gateway itself
    Basic, Bearer the credential is a login at the brokers; what they refuse is refused here

A credential is remembered as a hash with a salt of this process. A good login counts for some time and is then tried
again by a new connection, so that a password that was taken away does not live on in an old one. Callers are bounded:
whoever has been idle longest makes room. Tries are bounded too, and one credential is tried once at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from tailrace.apps.credentials import read_credential
from tailrace.apps.gateway.errors import GatewayError, of_kafka, too_many, unauthorized
from tailrace.apps.gateway.settings import GatewaySettings
from tailrace.client.admin import Admin
from tailrace.client.lanes import ACKS_ALL
from tailrace.client.metadata import Cluster
from tailrace.client.producer import Producer, ProducerOptions
from tailrace.client.security.settings import SaslSettings, Security
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.records import Compression

if TYPE_CHECKING:
    from tailrace.apps.gateway.produce.schemas import Schemas

OpenCluster = Callable[[Security], Cluster]
_REFUSED = frozenset(
    {ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.UNSUPPORTED_SASL_MECHANISM, ErrorCode.ILLEGAL_SASL_STATE}
)


class Caller:
    """`close` it at the end. While it is `in_use` nobody else does."""

    def __init__(
        self,
        open_cluster: Callable[[], Cluster],
        settings: GatewaySettings,
        principal: str,
        sasl: SaslSettings | None,
    ) -> None:
        self.principal = principal
        self.sasl = sasl
        # What this caller may know of a schema registry.
        self.schemas: Schemas | None = None
        self.open_cluster = open_cluster
        self.cluster = open_cluster()
        self.used_at = 0.0
        self.checked_at = 0.0
        self.checking: asyncio.Future[None] | None = None
        self.readers = 0
        self._settings = settings
        self._in_use = 0
        self._producer: Producer | None = None
        # A question to the controller may take long, and records would wait behind it.
        self._admin: Cluster | None = None

    @property
    def producer(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(self.cluster, _producer_options(self._settings))
        return self._producer

    @property
    def admin(self) -> Admin:
        if self._admin is None:
            self._admin = self.open_cluster()
        return Admin(self._admin)

    @property
    def is_idle(self) -> bool:
        return self._in_use == 0

    @contextmanager
    def in_use(self) -> Iterator[Caller]:
        self._in_use += 1
        try:
            yield self
        finally:
            self._in_use -= 1
            self.used_at = asyncio.get_running_loop().time()

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
        self.cluster.close()
        if self._admin is not None:
            self._admin.close()


class Callers:
    """`close` it at the end; `tidy` runs beside it."""

    def __init__(self, open_cluster: OpenCluster, security: Security, settings: GatewaySettings) -> None:
        self._open_cluster = open_cluster
        self._security = security
        self._settings = settings
        self.ways = _ways(security, settings)
        self._salt = secrets.token_bytes(16)
        self._anyone: Caller | None = None
        self._callers: OrderedDict[bytes, Caller] = OrderedDict()
        # Credentials that brokers refuse, and until when that counts.
        self._refused: OrderedDict[bytes, float] = OrderedDict()
        self._slots = asyncio.Semaphore(settings.tries_max)

    async def enter(self, headers: Mapping[str, str]) -> Caller:
        """Raises GatewayError."""
        if "none" in self.ways:
            self._anyone = self._anyone or self._make(self._security, "User:ANONYMOUS")
            return self._anyone
        scheme, _, text = headers.get("authorization", "").partition(" ")
        scheme, text = scheme.lower(), text.strip()
        if scheme not in self.ways:
            raise unauthorized(f"log in by {' or '.join(sorted(self.ways))}")
        key = hashlib.blake2b(f"{scheme} {text}".encode(), key=self._salt).digest()
        now = asyncio.get_running_loop().time()
        if self._refused.get(key, 0) > now:
            raise unauthorized("the cluster does not let this user in")
        caller = self._callers.get(key)
        if caller is None:
            try:
                credential = read_credential(scheme, text, self._security.sasl)
            except ValueError:
                raise unauthorized("that is no credential") from None
            self._make_room()
            caller = self._make(replace(self._security, sasl=credential.sasl), credential.principal)
            self._callers[key] = caller
        self._callers.move_to_end(key)
        with caller.in_use():
            await self._check(key, caller)
        return caller

    def forget(self, caller: Caller) -> None:
        """Brokers have refused this caller in the middle of something: the next request logs in anew."""
        caller.checked_at = 0.0

    async def tidy(self) -> None:
        while True:
            await asyncio.sleep(self._settings.caller_idle_ms / 1000 / 4)
            deadline = asyncio.get_running_loop().time() - self._settings.caller_idle_ms / 1000
            for key in [key for key, each in self._callers.items() if each.is_idle and each.used_at < deadline]:
                self._callers.pop(key).close()
            # Partitions may have been added, and keys have to be spread over those too.
            for caller in (*self._callers.values(), *([self._anyone] if self._anyone else ())):
                caller.cluster.forget_all()

    def close(self) -> None:
        for caller in (*self._callers.values(), *([self._anyone] if self._anyone else ())):
            caller.close()
        self._callers.clear()
        self._anyone = None

    async def _check(self, key: bytes, caller: Caller) -> None:
        """Those who come with the same credential meanwhile wait for the same try."""
        loop = asyncio.get_running_loop()
        if caller.checked_at and loop.time() - caller.checked_at <= self._settings.login_cache_ms / 1000:
            return
        if caller.checking is None:
            caller.checking = asyncio.ensure_future(self._try(caller))
            caller.checking.add_done_callback(lambda done: done.cancelled() or done.exception())
        checking = caller.checking
        try:
            await asyncio.shield(checking)
        except KafkaError as error:
            if error.code in _REFUSED:
                self._refuse(key, caller)
                raise unauthorized("the cluster does not let this user in") from None
            raise GatewayError(
                503, 50003, f"The brokers cannot be asked who this is: {of_kafka(error).message}"
            ) from None
        finally:
            if checking.done() and caller.checking is checking:
                caller.checking = None

    async def _try(self, caller: Caller) -> None:
        async with self._slots:
            if not caller.checked_at:
                await caller.cluster.any_connection()
            else:
                await self._knock(caller.cluster)
        caller.checked_at = asyncio.get_running_loop().time()

    async def _knock(self, cluster: Cluster) -> None:
        failure: KafkaError | None = None
        for address in cluster.addresses():
            try:
                (await cluster.open(address)).close()
            except KafkaError as error:
                failure = error
                if error.code in _REFUSED:
                    break
            else:
                return
        assert failure is not None, "there is one address at least"
        raise failure

    def _refuse(self, key: bytes, caller: Caller) -> None:
        if self._callers.get(key) is caller:
            del self._callers[key]
            caller.close()
        now = asyncio.get_running_loop().time()
        self._refused[key] = now + self._settings.refusal_cache_ms / 1000
        self._refused.move_to_end(key)
        while len(self._refused) > self._settings.refusals_max:
            self._refused.popitem(last=False)

    def _make(self, security: Security, principal: str) -> Caller:
        return Caller(lambda: self._open_cluster(security), self._settings, principal, security.sasl)

    def _make_room(self) -> None:
        while len(self._callers) >= self._settings.callers_max:
            idle = next((key for key, each in self._callers.items() if each.is_idle), None)
            if idle is None:
                raise too_many(
                    f"{self._settings.callers_max} callers are at work, and no more are taken: see callers.max"
                )
            self._callers.pop(idle).close()


def _ways(security: Security, settings: GatewaySettings) -> frozenset[str]:
    if settings.authentication == "auto":
        return frozenset({"none"} if security.sasl is None else {"basic", "bearer"})
    return frozenset(settings.authentication.split(","))


def _producer_options(settings: GatewaySettings) -> ProducerOptions:
    return ProducerOptions(
        acks=ACKS_ALL if settings.acks == "all" else 1,
        compression=Compression[settings.compression.upper()],
        linger_ms=settings.linger_ms,
        batch_bytes=settings.batch_bytes,
        buffer_bytes=settings.buffer_bytes,
        delivery_timeout_ms=settings.delivery_timeout_ms,
        create_topics=settings.creates_topics,
    )
