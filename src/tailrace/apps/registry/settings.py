"""The settings of a registry, by Confluent's names where it has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.apps.settings import parse_table, setting
from tailrace.model.errors import KafkaError
from tailrace.model.settings import invalid
from tailrace.schemas import LEVELS
from tailrace.schemas.limits import DEFAULT_LIMITS, NESTING_MAX, PROTOBUF_NESTING_MAX

_AUTOMATIC = "auto"
# Python is given as many frames as this needs: some megabytes of stack.
NESTING_MOST = 1000
AUTHENTICATION = ("none", "basic", "bearer", "certificate")


@dataclass(frozen=True)
class RegistrySettings:
    host: str = setting("host.name", "127.0.0.1", "the name by which other registries reach this one")
    topic: str = setting("kafkastore.topic", "_schemas", "the topic that holds everything")
    replication_factor: int = setting(
        "kafkastore.topic.replication.factor",
        3,
        "of the topic if this registry makes it; fewer brokers, fewer replicas",
        least=1,
    )
    store_timeout_ms: int = setting(
        "kafkastore.timeout.ms", 10_000, "how long a write may take until it is read back", least=1
    )
    init_timeout_ms: int = setting(
        "kafkastore.init.timeout.ms", 60_000, "how long reading the topic at the start may take", least=1
    )
    group_id: str = setting(
        "schema.registry.group.id", "schema-registry", "the group in which registries elect their writer"
    )
    is_eligible: bool = setting("leader.eligibility", True, "whether this registry may be the writer")
    session_timeout_ms: int = setting(
        "schema.registry.session.timeout.ms",
        10_000,
        "after this time without a sign of life another becomes the writer",
        least=1000,
    )
    heartbeat_ms: int = setting(
        "schema.registry.heartbeat.interval.ms", 3000, "how often a sign of life is given", least=100
    )
    compatibility: str = setting(
        "schema.compatibility.level", "BACKWARD", "where nobody has set another", choices=LEVELS
    )
    is_mode_mutable: bool = setting("mode.mutability", True, "whether modes may be changed")
    cache_size: int = setting("schema.cache.size", 1000, "parsed schemas that are kept", least=1)
    answers_size: int = setting("schema.answers.size", 10_000, "answers by id that are kept as bytes", least=1)
    search_limit: int = setting("schema.search.max.limit", 1000, "schemas in one answer of GET /schemas", least=1)
    body_max_bytes: int = setting("request.max.bytes", 8 * 1024 * 1024, "larger requests are refused", least=1024)
    nesting_max: int = setting(
        "schema.nesting.max",
        NESTING_MAX,
        f"levels of a schema, one inside of the other; of Protobuf {PROTOBUF_NESTING_MAX} at most",
        least=1,
        most=NESTING_MOST,
    )
    references_depth_max: int = setting(
        "schema.references.depth.max", 100, "schemas that refer to schemas that refer to schemas", least=1, most=1000
    )
    pairs_max: int = setting(
        "schema.comparison.pairs.max",
        DEFAULT_LIMITS.pairs_max,
        "parts of two JSON Schemas that are compared with each other before it is given up",
        least=1,
    )
    writes_waiting_max: int = setting(
        "writes.waiting.max", 1000, "writes that wait for those before them; more are refused", least=1
    )
    forward_timeout_ms: int = setting(
        "leader.read.timeout.ms", 60_000, "how long the writer may take to answer", least=1
    )
    connect_timeout_ms: int = setting(
        "leader.connect.timeout.ms", 10_000, "how long connecting to the writer may take", least=1
    )
    authentication: str = setting(
        "authentication",
        _AUTOMATIC,
        "of callers: none, or basic, bearer and certificate with commas; auto: none where brokers ask for no login, "
        "else basic and bearer",
    )
    super_users: str = setting(
        "super.users", "", "who may do everything, as User:name;User:other; added to what the brokers tell of theirs"
    )
    login_cache_ms: int = setting("authentication.cache.ms", 60_000, "how long a good login counts", least=0)
    refusal_cache_ms: int = setting("authentication.refusal.cache.ms", 5000, "how long a refused login counts", least=0)
    logins_max: int = setting("authentication.cache.size", 10_000, "logins that are kept", least=1)
    login_rate_max: int = setting(
        "authentication.tries.max", 16, "logins that are tried at the brokers at a time", least=1
    )
    acl_refresh_ms: int = setting("acl.refresh.ms", 5000, "how old the ACLs may be", least=100)


def parse_registry_settings(given: Mapping[str, str]) -> RegistrySettings:
    """Raises KafkaError INVALID_CONFIG."""
    settings = parse_table(RegistrySettings, given, "A registry")
    ways = settings.authentication.split(",")
    if settings.authentication != _AUTOMATIC and not set(ways) <= set(AUTHENTICATION):
        raise invalid("authentication", settings.authentication, f"It must be auto, or of: {', '.join(AUTHENTICATION)}")
    return settings


__all__ = ["KafkaError", "RegistrySettings", "parse_registry_settings"]
