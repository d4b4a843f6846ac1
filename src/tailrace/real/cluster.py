"""A client's Cluster over the real ports, secured as its settings say."""

from __future__ import annotations

from collections.abc import Collection

from tailrace.client.connection import CLIENT_SOFTWARE, Address, ConnectionLimits
from tailrace.client.metadata import Cluster
from tailrace.client.security.settings import PLAINTEXT, Security
from tailrace.real.ports import real_ports


def open_cluster(
    bootstrap: Collection[Address],
    *,
    security: Security = PLAINTEXT,
    client_id: str = CLIENT_SOFTWARE,
    limits: ConnectionLimits | None = None,
) -> Cluster:
    """Connects to nobody yet, but reads the certificates: raises KafkaError INVALID_CONFIG if they are no good."""
    ports = real_ports()
    login = dialer = None
    # Only who needs them pays for these imports.
    if security.tls is not None:
        from tailrace.real.tls.certificates import make_tls_context
        from tailrace.real.tls.client import TlsDialer

        dialer = TlsDialer(ports.network, make_tls_context(security.tls))
    if security.sasl is not None:
        from tailrace.client.security.login import SaslLogin

        login = SaslLogin(security.sasl, ports)
    return Cluster(ports, bootstrap, client_id=client_id, limits=limits, login=login, dialer=dialer)
