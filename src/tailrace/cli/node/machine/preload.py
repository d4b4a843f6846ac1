"""What every node of a cluster will need, imported and compiled once before nodes are forked from this process.

A node imports and compiles lazily, which is right for one broker; six nodes on two cores would each do it at the same
moment, in the middle of their first election. Preloaded, they share the result and its memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from tailrace.broker.cluster.roles import decide_roles
from tailrace.catalogue import CATALOGUE, load_handler
from tailrace.cli.node.machine.plan import CONTROLLER_HOST
from tailrace.model.config import BrokerConfig
from tailrace.real.ports import real_ports
from tailrace.wire.apis import request_type, response_type
from tailrace.wire.apis import stored_records as stored
from tailrace.wire.apis.data import ApiVersionsRequest, ApiVersionsResponse
from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.compile import decoder, encoder
from tailrace.wire.frame import RequestHeader, ResponseHeader
from tailrace.wire.schema import Message

_MODULES = (
    "encodings.idna",  # socket.getaddrinfo's
    "tailrace.cli.debug.server",
    "tailrace.broker.cluster.peers",
    "tailrace.broker.cluster.registration",
    "tailrace.broker.cluster.assignments",
    "tailrace.broker.metrics.server",
    "tailrace.broker.mirrors.mirrors",
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
    *(ApiKey.FETCH, ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.ALTER_PARTITION, ApiKey.ALLOCATE_PRODUCER_IDS),
    *(ApiKey.ENVELOPE, ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT, ApiKey.CONTROLLER_REGISTRATION),
)
# How they begin to, in the versions that our client uses.
_GREETINGS: tuple[tuple[type[Message], int], ...] = (
    *((RequestHeader, 2), (ResponseHeader, 0), (ResponseHeader, 1)),
    *((ApiVersionsRequest, 3), (ApiVersionsResponse, 3)),
)
# What every one of them reads in its data folder, or in its first metadata.
_FIRST_RECORDS: tuple[tuple[type[Message], int], ...] = (
    *((stored.SnapshotHeaderRecord, 0), (stored.SnapshotFooterRecord, 0), (stored.LeaderChangeMessage, 0)),
    *((stored.KRaftVersionRecord, 0), (stored.VotersRecord, 0), (stored.FeatureLevelRecord, 0)),
    *((stored.ConfigRecord, 0), (stored.UserScramCredentialRecord, 0), (stored.ProducerIdsRecord, 0)),
    *((stored.RegisterControllerRecord, 0), (stored.RegisterBrokerRecord, 4)),
    (stored.BrokerRegistrationChangeRecord, 3),
)


def preload(*, is_secure: bool) -> None:
    for module in (*_MODULES, *(_SECURE_MODULES if is_secure else ())):
        import_module(module)
    for api in CATALOGUE.values():
        for served in (api.for_clients, api.for_controllers):
            if served is not None:
                load_handler(served)
    words = [(kind, kind.versions.stop - 1) for key in _FIRST_WORDS for kind in (request_type(key), response_type(key))]
    for message_type, version in (*_GREETINGS, *words):
        decoder(message_type, version)
        encoder(message_type, version)
    for message_type, version in _FIRST_RECORDS:
        decoder(message_type, version)


def preload_stores(configs: Iterable[BrokerConfig]) -> None:
    """Certificates and keys, and what OpenSSL makes ready when it first shakes hands. Raises KafkaError INVALID_CONFIG:
    what no node could start with is told once."""
    from tailrace.broker.auth.security import tls_settings

    tls = real_ports().tls
    assert tls is not None
    read = {
        (listener_name, listens): tls.read_identity(settings, listens=listens)
        for config in configs
        for listener_name, listens, settings in tls_settings(config, decide_roles(config))
    }
    for listener_name, listens in read:
        if listens and (listener_name, False) in read:
            tls.check_terms(read[listener_name, True], read[listener_name, False], CONTROLLER_HOST)
