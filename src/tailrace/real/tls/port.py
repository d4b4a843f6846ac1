"""The real Tls. What it needs is imported when it is first used: a broker without TLS does not pay for it."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

from tailrace.model.ports import Dialer, SecureStream, Stream
from tailrace.model.security import TlsSettings

if TYPE_CHECKING:
    from tailrace.real.tls.certificates import TlsIdentity

# A broker with five listeners and ways to others has two or three different ones.
_KNOWN_MAX = 16


class RealTls:
    def read_identity(self, settings: TlsSettings, *, listens: bool) -> TlsIdentity:
        return _read_identity(settings, listens, self.stamp(settings))

    def check_terms(self, server: TlsIdentity, client: TlsIdentity, host: str) -> None:
        from tailrace.real.tls.certificates import check_terms

        check_terms(server, client, host)

    def stamp(self, settings: TlsSettings) -> tuple[object, ...]:
        """A file that is replaced has another number, one that is written to another time."""
        stamps: list[tuple[int, int, int] | None] = []
        for source in (settings.certificates, settings.key, settings.authorities, settings.revoked):
            if source is not None and source.path is not None:
                try:
                    facts = os.stat(source.path)
                    stamps.append((facts.st_ino, facts.st_mtime_ns, facts.st_size))
                except OSError:
                    stamps.append(None)
        return tuple(stamps)

    def accept(self, stream: Stream, identity: TlsIdentity) -> SecureStream:
        from tailrace.real.network import SocketStream
        from tailrace.real.tls.server import TlsServerStream

        assert isinstance(stream, SocketStream), "TLS is spoken on sockets"
        return TlsServerStream(stream, identity.context)

    def dialer(self, below: Dialer, identity: TlsIdentity) -> Dialer:
        from tailrace.real.tls.client import TlsDialer

        return TlsDialer(below, identity.context)


@lru_cache(maxsize=_KNOWN_MAX)
def _read_identity(settings: TlsSettings, listens: bool, _stamp: tuple[object, ...]) -> TlsIdentity:
    """Once for all listeners that have the same, and for the nodes that are forked from this process: it takes some
    milliseconds each time. Files that change have another stamp; what cannot be read is tried anew."""
    from tailrace.real.tls.certificates import read_tls_identity

    return read_tls_identity(settings, listens=listens)
