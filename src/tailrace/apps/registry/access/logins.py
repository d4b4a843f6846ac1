"""Who asks, found out by the brokers: a caller's credential is tried as a login there, and the outcome counts for a
short time.

    Basic        username and password by SASL, with the mechanism that the registry itself uses (SCRAM-SHA-512 if that
    is a token's) Bearer       the token by OAUTHBEARER; brokers check it, its subject is the principal certificate  of
    TLS, which was checked in the handshake; its subject is the principal

A credential is remembered as a hash with a salt of this process. Tries are bounded in number, and one credential is
tried once at a time, so that nobody floods the brokers with logins through a registry.
"""

from __future__ import annotations

import asyncio
import binascii
import hashlib
import json
import secrets
from base64 import b64decode, urlsafe_b64decode
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from starlette.requests import Request

from tailrace.apps.registry.access.callers import Caller
from tailrace.apps.registry.errors import RegistryError
from tailrace.apps.registry.settings import RegistrySettings
from tailrace.client.connection import Address, Connection, Login, open_connection
from tailrace.client.security.login import SaslLogin
from tailrace.client.security.mechanisms import speak_oauthbearer
from tailrace.client.security.settings import Mechanism, SaslSettings, Security
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ports import Dialer, Ports
from tailrace.wire.apis.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

# Where the protocol puts the certificate of a connection.
CERTIFICATE = "tailrace.certificate"
_CREDENTIAL_MAX = 64 * 1024
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
        if not credential or len(credential) > _CREDENTIAL_MAX:
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
            login, principal = self._login(scheme, credential)
        except ValueError:
            return _Outcome(None, loop.time() + refused)
        async with self._slots:
            try:
                await self._knock(login)
            except KafkaError as error:
                if error.code in _REFUSED:
                    return _Outcome(None, loop.time() + refused)
                raise RegistryError(
                    503, 50301, f"The brokers cannot be asked who this is: {error.message} ({error.code.name})"
                ) from None
        return _Outcome(principal, loop.time() + self._settings.login_cache_ms / 1000)

    def _login(self, scheme: str, credential: str) -> tuple[Login, str]:
        """Raises ValueError for what is no credential."""
        if scheme == "bearer":
            return _TokenLogin(credential), f"User:{_subject_of(credential)}"
        username, colon, password = b64decode(credential, validate=True).decode().partition(":")
        if not username or not colon or not password:
            raise ValueError("a username and a password")
        own = self._security.sasl
        mechanism = Mechanism.SCRAM_SHA_512 if own is None or own.mechanism is Mechanism.OAUTHBEARER else own.mechanism
        return SaslLogin(SaslSettings(mechanism, username, password), self._ports), f"User:{username}"

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


class _TokenLogin:
    """OAUTHBEARER with a token that is there already."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def log_in(self, connection: Connection) -> int:
        handshake = SaslHandshakeRequest(mechanism=Mechanism.OAUTHBEARER.value)
        answer = await connection.ask(handshake, SaslHandshakeResponse)
        if answer.error_code:
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"{connection.address} takes no tokens")
        conversation = speak_oauthbearer(self._token, ())
        result = await connection.ask(SaslAuthenticateRequest(auth_bytes=next(conversation)), SaslAuthenticateResponse)
        if result.error_code:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, result.error_message or "the token is refused")
        with suppress(StopIteration):
            # A broker that refuses a token tells why in an answer that looks like success.
            conversation.send(result.auth_bytes)
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "the token is refused")
        return 0


def _subject_of(token: str) -> str:
    """Of a token that brokers are about to check. Raises ValueError."""
    parts = token.split(".")
    if len(parts) != 3:
        raise ValueError("a token has three parts")
    try:
        claims = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except binascii.Error as error:
        raise ValueError(str(error)) from None
    subject = claims.get("sub") if isinstance(claims, dict) else None
    if not isinstance(subject, str) or not subject:
        raise ValueError("a token names its subject")
    return subject


def _unknown(reason: str) -> RegistryError:
    return RegistryError(401, 401, f"HTTP 401 Unauthorized: {reason}")
