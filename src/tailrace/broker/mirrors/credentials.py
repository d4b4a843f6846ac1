"""Who this broker is to the source of a link: the client settings in a file of the link's name, on this broker.

`mirror.credentials.dir`/NAME.properties has what a Kafka client needs to log in: security.protocol, sasl.* and ssl.*.
It is read when the link begins here, and again whenever the source did not answer or let nobody in. Without a file the
source is asked as by anybody, in plain text.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tailrace.broker.auth.identities import Identity, SecuredDialer
from tailrace.client.metadata import Cluster, parse_bootstrap
from tailrace.client.security.login import SaslLogin
from tailrace.client.security.properties import parse_properties
from tailrace.client.security.settings import PLAINTEXT, Security, parse_security
from tailrace.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tailrace.broker.node import Node
    from tailrace.client.connection import Login
    from tailrace.controller.image import MirrorLink
    from tailrace.controller.mirrors.settings import LinkSettings
    from tailrace.model.ports import Dialer


async def connect_to_source(node: Node, link: MirrorLink, settings: LinkSettings) -> Cluster:
    """Raises KafkaError INVALID_CONFIG with what is wrong on this broker."""
    try:
        bootstrap = parse_bootstrap(settings.bootstrap_servers)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"bootstrap.servers of the link: {error}") from None
    security = await node.ports.background.run(partial(_read_security, node, link.name))
    dialer: Dialer = node.ports.network
    login: Login | None = None
    if security.tls is not None:
        assert node.ports.tls is not None, "these ports have no TLS"
        tls_settings = security.tls
        identity = Identity(node.ports.tls, lambda _config: tls_settings, link.name, listens=False)
        identity.version = await node.ports.background.run(lambda: identity.read(tls_settings))
        dialer = SecuredDialer(dialer, identity)
    if security.sasl is not None:
        login = SaslLogin(security.sasl, node.ports)
    client_id = f"mirror-{link.name}-{node.node_id}"
    return Cluster(node.ports, bootstrap, client_id=client_id, login=login, dialer=dialer)


def _read_security(node: Node, link_name: str) -> Security:
    """Blocks."""
    folder = node.config.mirror_credentials_dir
    if not folder:
        return PLAINTEXT
    path = f"{folder}/{link_name}.properties"
    try:
        text = node.ports.disk.read(path).decode()
    except FileNotFoundError:
        return PLAINTEXT
    except (OSError, UnicodeDecodeError) as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{path} cannot be read: {error}") from None
    return parse_security(parse_properties(text))
