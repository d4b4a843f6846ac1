"""The settings of a gateway."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.apps.settings import parse_table, setting
from tailrace.model.settings import invalid

AUTOMATIC = "auto"
AUTHENTICATION = ("none", "basic", "bearer")


@dataclass(frozen=True)
class GatewaySettings:
    host: str = setting("host.name", "127.0.0.1", "the name that is printed where it listens on all addresses")
    authentication: str = setting(
        "authentication",
        AUTOMATIC,
        "of callers: none, or basic and bearer with commas; auto: none where brokers ask for no login, else both",
    )
    login_cache_ms: int = setting(
        "authentication.cache.ms", 60_000, "how long a good login counts before it is tried again", least=0
    )
    refusal_cache_ms: int = setting("authentication.refusal.cache.ms", 5000, "how long a refused login counts", least=0)
    tries_max: int = setting("authentication.tries.max", 16, "logins that are tried at the brokers at a time", least=1)
    refusals_max: int = setting("authentication.refusal.cache.size", 10_000, "refused logins that are kept", least=1)
    allowed_origins: str = setting(
        "access.control.allow.origin",
        "",
        "pages that browsers may ask from, as https://page.example, with commas, or *",
    )
    callers_max: int = setting("callers.max", 200, "callers with connections of their own at a time", least=1)
    caller_idle_ms: int = setting(
        "callers.idle.ms", 300_000, "after this time without a request a caller's connections are closed", least=100
    )
    connections_max: int = setting(
        "connections.max", 2000, "requests and readers under way; more are answered with 503", least=1
    )
    body_max_bytes: int = setting(
        "request.max.bytes",
        16 * 1024 * 1024,
        "larger bodies are refused; a stream of records may be longer",
        least=1024,
    )
    record_max_bytes: int = setting(
        "record.max.bytes", 8 * 1024 * 1024, "the JSON of one record in a stream", least=1024
    )
    records_max: int = setting("request.max.records", 10_000, "records in a request that is not a stream", least=1)
    headers_max: int = setting("record.max.headers", 1000, "headers of a record", least=0)
    acks: str = setting("acks", "all", "when a record counts as written", choices=("all", "1"))
    compression: str = setting(
        "compression.type", "none", "of the batches that are written", choices=("none", "gzip", "snappy", "lz4", "zstd")
    )
    linger_ms: int = setting("linger.ms", 0, "how long a record waits for others of its partition", least=0)
    batch_bytes: int = setting("batch.size", 256 * 1024, "the size of a batch that waits no longer", least=1)
    buffer_bytes: int = setting(
        "buffer.memory", 32 * 1024 * 1024, "of one caller: records that are not acknowledged", least=1024
    )
    delivery_timeout_ms: int = setting(
        "delivery.timeout.ms", 30_000, "how long a record is tried before its failure is told", least=1
    )
    creates_topics: bool = setting(
        "allow.auto.create.topics", True, "whether brokers that create topics on first use are let do so"
    )
    readers_max: int = setting("readers.max", 500, "readers at a time", least=1)
    caller_readers_max: int = setting("readers.per.caller.max", 200, "readers of one caller at a time", least=1)
    reader_fetch_bytes: int = setting(
        "reader.fetch.max.bytes", 256 * 1024, "of one reader: what is fetched at a time from each broker", least=1024
    )
    reader_batch_bytes: int = setting(
        "reader.batch.max.bytes",
        32 * 1024 * 1024,
        "of one reader: what a batch may be when it is decompressed",
        least=1024,
    )
    reader_stall_ms: int = setting(
        "reader.stall.ms", 300_000, "a reader that takes nothing for this time is let go", least=100
    )
    reader_unacknowledged_max: int = setting(
        "reader.unacknowledged.max", 1000, "records that a socket in a group may leave unacknowledged", least=1
    )
    ping_ms: int = setting(
        "reader.ping.ms", 15_000, "how often a reader without records is sent a sign of life", least=10
    )
    commit_interval_ms: int = setting(
        "reader.commit.interval.ms", 1000, "how often offsets of a group are committed", least=10
    )
    group_protocol: str = setting("group.protocol", "classic", "of readers in a group", choices=("classic", "consumer"))
    session_timeout_ms: int = setting(
        "session.timeout.ms",
        45_000,
        "after this time without a sign of life a reader's partitions go to others",
        least=1000,
    )


def parse_gateway_settings(given: Mapping[str, str]) -> GatewaySettings:
    """Raises KafkaError INVALID_CONFIG."""
    settings = parse_table(GatewaySettings, given, "A gateway")
    ways = settings.authentication.split(",")
    if settings.authentication != AUTOMATIC and not set(ways) <= set(AUTHENTICATION):
        raise invalid("authentication", settings.authentication, f"It must be auto, or of: {', '.join(AUTHENTICATION)}")
    if "none" in ways and len(ways) > 1:
        raise invalid("authentication", settings.authentication, "none cannot be combined: who says nothing gets in")
    return settings
