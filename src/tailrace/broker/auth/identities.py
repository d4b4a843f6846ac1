"""As whom a node answers at one of its listeners, or calls one of others: certificates as they were last read. They are
replaced as a whole (`broker.auth.renewal`); connections that are there keep what they began with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from tailrace.model.ports import Dialer, Stream, Tls, TlsIdentity
from tailrace.model.security import TlsSettings

if TYPE_CHECKING:
    from tailrace.model.config import BrokerConfig


class Version(NamedTuple):
    settings: TlsSettings
    stamp: object  # Of the files.
    identity: TlsIdentity


class Identity:
    """`listens` says for which side. `find_settings` gives what it is made of by the settings of the node."""

    def __init__(
        self, tls: Tls, find_settings: Callable[[BrokerConfig], TlsSettings], listener_name: str, *, listens: bool
    ) -> None:
        self.tls = tls
        self.find_settings = find_settings
        self.listener_name = listener_name
        self.listens = listens
        self.version: Version  # Set by whoever reads the first one.
        self._tried: tuple[TlsSettings, object] | None = None

    @property
    def current(self) -> TlsIdentity:
        return self.version.identity

    def read(self, settings: TlsSettings) -> Version:
        """Blocks. Raises KafkaError INVALID_CONFIG."""
        stamp = self.tls.stamp(settings)
        self._tried = settings, stamp
        return Version(settings, stamp, self.tls.read_identity(settings, listens=self.listens))

    def read_if_changed(self, settings: TlsSettings, *, again: bool) -> Version | None:
        """Blocks. None if it is the same as the current one, or, unless it is tried `again`, as the one that was read
        last: so each change is tried once."""
        seen = settings, self.tls.stamp(settings)
        known = (self.version.settings, self.version.stamp)
        return None if seen == known or (seen == self._tried and not again) else self.read(settings)


class SecuredDialer:
    """Connects by TLS, as whoever the identity is at that moment."""

    def __init__(self, below: Dialer, identity: Identity) -> None:
        self._below = below
        self._identity = identity

    async def connect(self, host: str, port: int) -> Stream:
        return await self._identity.tls.dialer(self._below, self._identity.current).connect(host, port)
