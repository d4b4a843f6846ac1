"""What every node of a cluster will need, imported and compiled once before nodes are forked from this process.

A node imports and compiles lazily, which is right for one broker; six nodes on two cores would each do it at the same
moment, in the middle of their first election. Preloaded, they share the result and its memory.
"""

from __future__ import annotations

from importlib import import_module

from tailrace.catalogue import CATALOGUE, load_handler
from tailrace.wire.apis import request_type, response_type
from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.compile import decoder, encoder

_MODULES = (
    "encodings.idna",  # socket.getaddrinfo's
    "tailrace.cli.debug.server",
    "tailrace.broker.cluster.peers",
    "tailrace.broker.cluster.registration",
    "tailrace.broker.cluster.assignments",
    "tailrace.broker.metrics.server",
    "tailrace.broker.quorum.service",
    "tailrace.replica.following.fetchers",
    "tailrace.replica.alter_isr",
)
_SECURE_MODULES = (
    "tailrace.broker.auth.security",
    "tailrace.broker.auth.entrance",
    "tailrace.broker.access.judging",
    "tailrace.real.tls.certificates",
    "tailrace.real.tls.client",
    "tailrace.real.tls.server",
)
# What nodes say to each other in the first seconds of a cluster, by its newest version.
_FIRST_WORDS = (
    *(ApiKey.FETCH, ApiKey.API_VERSIONS, ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.ALTER_PARTITION),
    *(ApiKey.ENVELOPE, ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT, ApiKey.CONTROLLER_REGISTRATION),
)


def preload(*, is_secure: bool) -> None:
    for module in (*_MODULES, *(_SECURE_MODULES if is_secure else ())):
        import_module(module)
    for api in CATALOGUE.values():
        for served in (api.for_clients, api.for_controllers):
            if served is not None:
                load_handler(served)
    for api_key in _FIRST_WORDS:
        for message_type in (request_type(api_key), response_type(api_key)):
            version = message_type.versions.stop - 1
            decoder(message_type, version)
            encoder(message_type, version)
