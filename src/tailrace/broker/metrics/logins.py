"""Who asks for metrics by TLS: a user of the cluster, with HTTP's Basic login.

The password is checked against what SCRAM keeps of it, in a helper thread, one at a time: that takes milliseconds on
purpose. Who was let in is remembered by a hash until its credential changes, for a scrape comes every few seconds. A
refusal is held back for connection.failed.authentication.delay.ms. Nothing that was sent is logged.
"""

from __future__ import annotations

import hashlib
import hmac
from asyncio import Semaphore, sleep
from base64 import b64decode
from typing import TYPE_CHECKING

from tailrace.controller.security.credentials import derive_keys, salt_password
from tailrace.model.security import Principal, ScramMechanism

if TYPE_CHECKING:
    from tailrace.broker.services import Services
    from tailrace.controller.image import ScramCredential

_REMEMBERED_MAX = 32
# Checks that may wait for their turn; beyond it a login is refused at once.
_WAITING_MAX = 8


class Logins:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._turns = Semaphore(1)
        self._waiting = 0
        # By user and a hash of the password with a salt of this process: the credential that it fits.
        self._remembered: dict[tuple[str, bytes], ScramCredential] = {}
        self._salt = services.ports.random.uuid()

    async def find(self, authorization: str) -> Principal | None:
        """Who that is; None if it is nobody."""
        given = _read(authorization)
        if given is not None and self._waiting < _WAITING_MAX:
            user, password = given
            key = user, hashlib.sha256(self._salt + password.encode()).digest()
            for mechanism in reversed(ScramMechanism):
                credential = self._services.image.scram_credentials.get((user, mechanism))
                if credential is None:
                    continue
                if self._remembered.get(key) is credential or await self._fits(mechanism, credential, password):
                    self._remember(key, credential)
                    return Principal("User", user)
        await sleep(self._services.config.connection_failed_authentication_delay_ms / 1000)
        return None

    async def _fits(self, mechanism: ScramMechanism, credential: ScramCredential, password: str) -> bool:
        self._waiting += 1
        try:
            async with self._turns:
                return await self._services.ports.background.run(
                    lambda: hmac.compare_digest(
                        derive_keys(
                            mechanism, salt_password(mechanism, password, credential.salt, credential.iterations)
                        ).stored_key,
                        credential.stored_key,
                    )
                )
        finally:
            self._waiting -= 1

    def _remember(self, key: tuple[str, bytes], credential: ScramCredential) -> None:
        self._remembered.pop(key, None)
        self._remembered[key] = credential
        if len(self._remembered) > _REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]


def _read(authorization: str) -> tuple[str, str] | None:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = b64decode(encoded.strip(), validate=True).decode().partition(":")
    except ValueError:
        return None
    return (user, password) if colon else None
