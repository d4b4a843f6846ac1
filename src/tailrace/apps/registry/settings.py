"""The settings of a registry, by Confluent's names where it has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast

from tailrace.model.errors import KafkaError
from tailrace.model.settings import invalid
from tailrace.schemas import LEVELS
from tailrace.schemas.limits import DEFAULT_LIMITS, NESTING_MAX, PROTOBUF_NESTING_MAX

_AUTOMATIC = "auto"
# Python is given as many frames as this needs: some megabytes of stack.
NESTING_MOST = 1000
AUTHENTICATION = ("none", "basic", "bearer", "certificate")


def _setting(
    name: str,
    default: Any,
    doc: str,
    *,
    least: int | None = None,
    most: int | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    row = {"name": name, "doc": doc, "least": least, "most": most, "choices": choices}
    return field(default=default, metadata=row)


@dataclass(frozen=True)
class RegistrySettings:
    host: str = _setting("host.name", "127.0.0.1", "the name by which other registries reach this one")
    topic: str = _setting("kafkastore.topic", "_schemas", "the topic that holds everything")
    replication_factor: int = _setting(
        "kafkastore.topic.replication.factor",
        3,
        "of the topic if this registry makes it; fewer brokers, fewer replicas",
        least=1,
    )
    store_timeout_ms: int = _setting(
        "kafkastore.timeout.ms", 10_000, "how long a write may take until it is read back", least=1
    )
    init_timeout_ms: int = _setting(
        "kafkastore.init.timeout.ms", 60_000, "how long reading the topic at the start may take", least=1
    )
    group_id: str = _setting(
        "schema.registry.group.id", "schema-registry", "the group in which registries elect their writer"
    )
    is_eligible: bool = _setting("leader.eligibility", True, "whether this registry may be the writer")
    session_timeout_ms: int = _setting(
        "schema.registry.session.timeout.ms",
        10_000,
        "after this time without a sign of life another becomes the writer",
        least=1000,
    )
    heartbeat_ms: int = _setting(
        "schema.registry.heartbeat.interval.ms", 3000, "how often a sign of life is given", least=100
    )
    compatibility: str = _setting(
        "schema.compatibility.level", "BACKWARD", "where nobody has set another", choices=LEVELS
    )
    is_mode_mutable: bool = _setting("mode.mutability", True, "whether modes may be changed")
    cache_size: int = _setting("schema.cache.size", 1000, "parsed schemas that are kept", least=1)
    answers_size: int = _setting("schema.answers.size", 10_000, "answers by id that are kept as bytes", least=1)
    search_limit: int = _setting("schema.search.max.limit", 1000, "schemas in one answer of GET /schemas", least=1)
    body_max_bytes: int = _setting("request.max.bytes", 8 * 1024 * 1024, "larger requests are refused", least=1024)
    nesting_max: int = _setting(
        "schema.nesting.max",
        NESTING_MAX,
        f"levels of a schema, one inside of the other; of Protobuf {PROTOBUF_NESTING_MAX} at most",
        least=1,
        most=NESTING_MOST,
    )
    references_depth_max: int = _setting(
        "schema.references.depth.max", 100, "schemas that refer to schemas that refer to schemas", least=1, most=1000
    )
    pairs_max: int = _setting(
        "schema.comparison.pairs.max",
        DEFAULT_LIMITS.pairs_max,
        "parts of two JSON Schemas that are compared with each other before it is given up",
        least=1,
    )
    writes_waiting_max: int = _setting(
        "writes.waiting.max", 1000, "writes that wait for those before them; more are refused", least=1
    )
    forward_timeout_ms: int = _setting(
        "leader.read.timeout.ms", 60_000, "how long the writer may take to answer", least=1
    )
    connect_timeout_ms: int = _setting(
        "leader.connect.timeout.ms", 10_000, "how long connecting to the writer may take", least=1
    )
    authentication: str = _setting(
        "authentication",
        _AUTOMATIC,
        "of callers: none, or basic, bearer and certificate with commas; auto: none where brokers ask for no login, "
        "else basic and bearer",
    )
    super_users: str = _setting(
        "super.users", "", "who may do everything, as User:name;User:other; added to what the brokers tell of theirs"
    )
    login_cache_ms: int = _setting("authentication.cache.ms", 60_000, "how long a good login counts", least=0)
    refusal_cache_ms: int = _setting(
        "authentication.refusal.cache.ms", 5000, "how long a refused login counts", least=0
    )
    logins_max: int = _setting("authentication.cache.size", 10_000, "logins that are kept", least=1)
    login_rate_max: int = _setting(
        "authentication.tries.max", 16, "logins that are tried at the brokers at a time", least=1
    )
    acl_refresh_ms: int = _setting("acl.refresh.ms", 5000, "how old the ACLs may be", least=100)


def parse_registry_settings(given: Mapping[str, str]) -> RegistrySettings:
    """Raises KafkaError INVALID_CONFIG."""
    rows = {row.metadata["name"]: row for row in fields(RegistrySettings)}
    values: dict[str, Any] = {}
    for name, text in given.items():
        row = rows.get(name)
        if row is None:
            raise invalid(name, text, f"A registry has no such setting; it has: {', '.join(sorted(rows))}")
        values[row.name] = _parse(name, text.strip(), row.default, cast(Mapping[str, Any], row.metadata))
    settings = RegistrySettings(**values)
    ways = settings.authentication.split(",")
    if settings.authentication != _AUTOMATIC and not set(ways) <= set(AUTHENTICATION):
        raise invalid("authentication", settings.authentication, f"It must be auto, or of: {', '.join(AUTHENTICATION)}")
    return settings


def _parse(name: str, text: str, default: Any, row: Mapping[str, Any]) -> Any:
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise invalid(name, text, "It must be true or false")
        return text.lower() == "true"
    if isinstance(default, int):
        try:
            number = int(text)
        except ValueError:
            raise invalid(name, text, "Not a number") from None
        if row["least"] is not None and number < row["least"]:
            raise invalid(name, text, f"It must be at least {row['least']}")
        if row["most"] is not None and number > row["most"]:
            raise invalid(name, text, f"It must be at most {row['most']}")
        return number
    if row["choices"]:
        if text.upper() not in row["choices"]:
            raise invalid(name, text, f"It must be one of: {', '.join(row['choices'])}")
        return text.upper()
    return text


__all__ = ["KafkaError", "RegistrySettings", "parse_registry_settings"]
