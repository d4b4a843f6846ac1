"""The real Tls. What it needs is imported when it is first used: a broker without TLS does not pay for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tailrace.model.ports import Network, SecureStream, Stream
from tailrace.model.security import TlsSettings

if TYPE_CHECKING:
    import ssl


class RealTls:
    def read_identity(self, settings: TlsSettings, *, listens: bool) -> ssl.SSLContext:
        from tailrace.real.tls.certificates import make_server_context, make_tls_context

        return make_server_context(settings) if listens else make_tls_context(settings)

    def stamp(self, settings: TlsSettings) -> object:
        """A file that is replaced has another number, one that is written to another time."""
        stamps: list[tuple[int, int, int] | None] = []
        for source in (settings.certificates, settings.key, settings.authorities):
            if source is not None and source.path is not None:
                try:
                    facts = os.stat(source.path)
                    stamps.append((facts.st_ino, facts.st_mtime_ns, facts.st_size))
                except OSError:
                    stamps.append(None)
        return stamps

    def accept(self, stream: Stream, identity: ssl.SSLContext) -> SecureStream:
        from tailrace.real.network import SocketStream
        from tailrace.real.tls.server import TlsServerStream

        assert isinstance(stream, SocketStream), "TLS is spoken on sockets"
        return TlsServerStream(stream, identity)

    def network(self, below: Network, identity: ssl.SSLContext) -> Network:
        from tailrace.real.tls.client import TlsNetwork

        return TlsNetwork(below, identity)
