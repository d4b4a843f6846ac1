"""Who asks, found out by the brokers: a caller's credential is tried as a login there, and the outcome counts for a
short time.

    Basic        username and password by SASL
    Bearer       the token by OAUTHBEARER; brokers check it, its subject is the principal
    certificate  of TLS, which was checked in the handshake; its subject is the principal

A credential is remembered as a hash with a salt of this process. Tries are bounded in number, and one credential is
tried once at a time, so that nobody floods the brokers with logins through a registry.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from starlette.requests import Request

from tailrace.apps.credentials import CERTIFICATE, CREDENTIAL_MAX, read_credential
from tailrace.apps.registry.access.callers import Caller
from tailrace.apps.registry.errors import RegistryError
from tailrace.apps.registry.settings import RegistrySettings
from tailrace.client.connection import Address, Login, open_connection
from tailrace.client.security.login import SaslLogin
from tailrace.client.security.settings import Security
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ports import Dialer, Ports

_REFUSED = frozenset(
    {ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.UNSUPPORTED_SASL_MECHANISM, ErrorCode.ILLEGAL_SASL_STATE}
)


class _Outcome(NamedTuple):
    principal: str | None  # None: refused.
    ends: float  # On the loop's clock.


class Logins:
    def __init__(
        self,
        *,
        ports: Ports,
        bootstrap: Iterable[Address],
        security: Security,
        settings: RegistrySettings,
        ways: frozenset[str],
        dialer: Dialer,
    ) -> None:
        self._ports = ports
        self._bootstrap = tuple(bootstrap)
        self._security = security
        self._settings = settings
        self._ways = ways
        self._dialer = dialer
        self._salt = secrets.token_bytes(16)
        self._known: OrderedDict[bytes, _Outcome] = OrderedDict()
        self._under_way: dict[bytes, asyncio.Future[_Outcome]] = {}
        self._slots = asyncio.Semaphore(settings.login_rate_max)

    async def enter(self, request: Request) -> Caller:
        host = request.client.host if request.client else ""
        scheme, _, credential = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() in ("basic", "bearer") and scheme.lower() in self._ways:
            return Caller(await self._principal(scheme.lower(), credential.strip()), host)
        subject = request.scope.get(CERTIFICATE)
        if subject is not None and "certificate" in self._ways:
            return Caller(f"User:{subject}", host)
        if "none" in self._ways:
            return Caller("User:ANONYMOUS", host)
        raise _unknown(f"log in by {' or '.join(sorted(self._ways))}")

    async def _principal(self, scheme: str, credential: str) -> str:
        if not credential or len(credential) > CREDENTIAL_MAX:
            raise _unknown("the credential is empty or too long")
        key = hashlib.blake2b(f"{scheme} {credential}".encode(), key=self._salt).digest()
        loop = asyncio.get_running_loop()
        known = self._known.get(key)
        if known is None or known.ends <= loop.time():
            known = await self._try_once(key, scheme, credential)
        else:
            self._known.move_to_end(key)
        if known.principal is None:
            raise _unknown("the cluster does not let this user in")
        return known.principal

    async def _try_once(self, key: bytes, scheme: str, credential: str) -> _Outcome:
        """Those who come with the same credential meanwhile wait for the same try."""
        under_way = self._under_way.get(key)
        if under_way is not None:
            return await asyncio.shield(under_way)
        task = asyncio.ensure_future(self._try(scheme, credential))
        self._under_way[key] = task
        try:
            outcome = await task
        finally:
            del self._under_way[key]
        self._known[key] = outcome
        self._known.move_to_end(key)
        while len(self._known) > self._settings.logins_max:
            self._known.popitem(last=False)
        return outcome

    async def _try(self, scheme: str, credential: str) -> _Outcome:
        loop = asyncio.get_running_loop()
        refused = self._settings.refusal_cache_ms / 1000
        try:
            sasl, principal = read_credential(scheme, credential, self._security.sasl)
        except ValueError:
            return _Outcome(None, loop.time() + refused)
        async with self._slots:
            try:
                await self._knock(SaslLogin(sasl, self._ports))
            except KafkaError as error:
                if error.code in _REFUSED:
                    return _Outcome(None, loop.time() + refused)
                raise RegistryError(
                    503, 50301, f"The brokers cannot be asked who this is: {error.message} ({error.code.name})"
                ) from None
        return _Outcome(principal, loop.time() + self._settings.login_cache_ms / 1000)

    async def _knock(self, login: Login) -> None:
        """Raises KafkaError: the refusal of the first broker that answers, or that none does."""
        failure: KafkaError | None = None
        for address in self._bootstrap:
            try:
                connection = await open_connection(self._dialer, address, login=login)
            except KafkaError as error:
                failure = error
                if error.code in _REFUSED:
                    break
            else:
                connection.close()
                return
        assert failure is not None, "there is one address at least"
        raise failure


def _unknown(reason: str) -> RegistryError:
    return RegistryError(401, 401, f"HTTP 401 Unauthorized: {reason}")
