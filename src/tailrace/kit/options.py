"""The options of producers, consumers and admins: one table, with the names of Kafka's own client settings.

They come as a mapping of names and values ("linger.ms": 20), as keywords (linger_ms=20), or both. Values may be texts,
as in a .properties file, or numbers and booleans. Settings of security have Kafka's or librdkafka's names. A name that
nobody knows is refused: a setting that was mistyped must not go unnoticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace.client.connection import CLIENT_SOFTWARE, Address, ConnectionLimits
from tailrace.client.consumer import EARLIEST, LATEST, ConsumerOptions, Isolation
from tailrace.client.groups.consumer import GroupOptions, GroupProtocol
from tailrace.client.groups.membership import MemberOptions
from tailrace.client.lanes import ACKS_ALL, ProducerOptions
from tailrace.client.metadata import parse_bootstrap
from tailrace.client.security.settings import SECURITY_SETTINGS, Security, parse_security
from tailrace.model.settings import Config, boolean, integer, invalid, items, long, parse_value, string, unknown
from tailrace.wire.compression import Compression

Value = str | int | float | bool
Options = Mapping[str, Value]

_EXAMPLE = "such as 127.0.0.1:9092"


class KitConfig(Config, scope="kit"):
    """Where a default differs from Kafka's, the text says so."""

    bootstrap_servers: tuple[Address, ...] | None = string(
        default=None, convert=parse_bootstrap, doc="Brokers to ask first, as host:port with commas between them."
    )
    engine: str = string(
        default="tailrace",
        choices=("tailrace", "librdkafka"),
        ours=True,
        doc="Who speaks the protocol: our own client, or librdkafka, which needs confluent-kafka.",
    )
    client_id: str = string(default=CLIENT_SOFTWARE, doc="A name that brokers write into their logs.")
    # --- how long, how often
    request_timeout_ms: int = integer(default=30_000, minimum=1, doc="How long an answer may take.")
    default_api_timeout_ms: int = integer(
        default=60_000, minimum=1, doc="How long a call of a consumer or an admin tries again when a broker is away."
    )
    max_block_ms: int = long(
        default=60_000, minimum=0, doc="How long sending waits for a broker that tells of the topic."
    )
    socket_connection_setup_timeout_ms: int = long(default=10_000, minimum=1, doc="How long connecting may take.")
    retry_backoff_ms: int = long(default=100, minimum=0, doc="The first pause before something is tried again.")
    retry_backoff_max_ms: int = long(default=1000, minimum=0, doc="What that pause grows to.")
    # --- producing
    acks: int = string(
        default="all",
        choices=("all", "-1", "0", "1"),
        convert=lambda text: ACKS_ALL if text == "all" else int(text),
        doc="Who must have a record before it counts as written.",
    )
    enable_idempotence: bool | None = boolean(
        default=None, doc="Whether what is sent again is written once; by default it is with acks=all."
    )
    compression_type: Compression = string(
        default="none",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        convert=lambda text: Compression[text.upper()],
        doc="How batches are compressed.",
    )
    linger_ms: int = long(default=5, minimum=0, doc="How long a record waits for others to go with it.")
    batch_size: int = integer(
        default=256 * 1024,
        minimum=1,
        doc="How large a batch grows. Kafka's default is 16384, which costs many requests.",
    )
    buffer_memory: int = long(
        default=32 * 1024 * 1024, minimum=1, doc="How much may be on its way; who sends more waits."
    )
    max_request_size: int = integer(default=1024 * 1024, minimum=1, doc="The largest record.")
    delivery_timeout_ms: int = integer(
        default=120_000, minimum=1, doc="How long a record is sent again before its delivery fails."
    )
    allow_auto_create_topics: bool = boolean(
        default=True, doc="Whether brokers may create a topic that is sent to, if they are set up to do so."
    )
    transactional_id: str | None = string(
        default=None, doc="Makes the producer transactional; whoever has the same id later fences it."
    )
    transaction_timeout_ms: int = integer(
        default=60_000, minimum=1, doc="After this time the coordinator aborts a transaction that is open."
    )
    # --- consuming
    group_id: str | None = string(default=None, doc="The group that shares the topics.")
    group_instance_id: str | None = string(
        default=None, doc="Makes the member static: it may be away for a session, and keeps its partitions."
    )
    group_protocol: GroupProtocol = string(
        default="consumer",
        choices=("classic", "consumer"),
        convert=GroupProtocol,
        doc="consumer is KIP-848, in which a rebalance stops nobody. Kafka's default is classic.",
    )
    group_remote_assignor: str | None = string(
        default=None, doc="With the protocol consumer: who assigns partitions, uniform or range."
    )
    partition_assignment_strategy: tuple[str, ...] = items(
        default=("range", "cooperative-sticky"), doc="With the protocol classic: assignors, the preferred one first."
    )
    session_timeout_ms: int = integer(
        default=45_000, minimum=1, doc="With the protocol classic: a member that is silent for longer is out."
    )
    heartbeat_interval_ms: int = integer(
        default=3000, minimum=1, doc="With the protocol classic: how often a member is heard of."
    )
    max_poll_interval_ms: int = integer(
        default=300_000, minimum=1, doc="A member that does not poll for longer gives up its partitions."
    )
    max_poll_records: int = integer(default=500, minimum=1, doc="How many records a poll gives at most.")
    auto_offset_reset: str = string(
        default="latest",
        choices=("earliest", "latest"),
        doc="Where to begin without a committed offset, or where the committed one is gone.",
    )
    enable_auto_commit: bool = boolean(
        default=True, doc="Whether what a poll gave counts as done at the next one, and is committed from time to time."
    )
    auto_commit_interval_ms: int = integer(default=5000, minimum=1, doc="How often that is.")
    isolation_level: Isolation = string(
        default="read_uncommitted",
        choices=("read_uncommitted", "read_committed"),
        convert=lambda text: Isolation[text.upper()],
        doc="Whether records of open and aborted transactions are read.",
    )
    fetch_min_bytes: int = integer(default=1, minimum=0, doc="How much a broker waits for before it answers.")
    fetch_max_wait_ms: int = integer(default=500, minimum=0, doc="How long it waits for that.")
    fetch_max_bytes: int = integer(default=50 * 1024 * 1024, minimum=0, doc="How much one fetch brings at most.")
    max_partition_fetch_bytes: int = integer(default=1024 * 1024, minimum=0, doc="The same, for each partition.")
    client_rack: str | None = string(default=None, doc="Where this client is.")
    metadata_max_age_ms: int = long(default=300_000, minimum=0, doc="How often new partitions are looked for.")


class ParsedOptions:
    """What was given, in the form in which our own client takes it. Raises KafkaError INVALID_CONFIG."""

    def __init__(self, options: Options | None, named: Options) -> None:
        texts = _texts({**(options or {}), **{name.replace("_", "."): value for name, value in named.items()}})
        rows = KitConfig.SETTINGS
        for name in texts:
            if name not in rows and name not in SECURITY_SETTINGS:
                raise unknown(name, [*rows, *SECURITY_SETTINGS], what="client")
        self.texts: dict[str, str] = texts
        defaults: dict[str, Any] = {row.attribute: _default(row.default, row.convert) for row in rows.values()}
        given = {rows[name].attribute: parse_value(rows[name], text) for name, text in texts.items() if name in rows}
        self.config = KitConfig(**(defaults | given))
        self.security: Security = parse_security(
            {name: each for name, each in texts.items() if name in SECURITY_SETTINGS}
        )
        if self.config.bootstrap_servers is None:
            raise invalid("bootstrap.servers", "(none)", f"Name a broker, {_EXAMPLE}")

    @property
    def bootstrap(self) -> tuple[Address, ...]:
        assert self.config.bootstrap_servers is not None, "checked when the options were read"
        return self.config.bootstrap_servers

    def limits(self) -> ConnectionLimits:
        config = self.config
        return ConnectionLimits()._replace(
            connect_timeout_ms=config.socket_connection_setup_timeout_ms,
            request_timeout_ms=config.request_timeout_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
        )

    def producing(self) -> ProducerOptions:
        config = self.config
        is_idempotent = config.acks == ACKS_ALL if config.enable_idempotence is None else config.enable_idempotence
        if config.acks != ACKS_ALL and (is_idempotent or config.transactional_id is not None):
            name = "enable.idempotence" if is_idempotent else "transactional.id"
            raise invalid("acks", config.acks, f"{name} needs acks=all")
        return ProducerOptions(
            acks=config.acks,
            idempotent=is_idempotent,
            compression=config.compression_type,
            linger_ms=config.linger_ms,
            batch_bytes=config.batch_size,
            buffer_bytes=config.buffer_memory,
            request_timeout_ms=config.request_timeout_ms,
            delivery_timeout_ms=config.delivery_timeout_ms,
            create_topics=config.allow_auto_create_topics,
        )

    def fetching(self) -> ConsumerOptions:
        config = self.config
        return ConsumerOptions(
            isolation=config.isolation_level,
            fetch_min_bytes=config.fetch_min_bytes,
            fetch_max_wait_ms=config.fetch_max_wait_ms,
            fetch_max_bytes=config.fetch_max_bytes,
            partition_max_bytes=config.max_partition_fetch_bytes,
            retry_timeout_ms=config.default_api_timeout_ms,
        )

    @property
    def start(self) -> int:
        return EARLIEST if self.config.auto_offset_reset == "earliest" else LATEST

    def membership(self, topics: tuple[str, ...], pattern: str | None) -> GroupOptions:
        config = self.config
        if not config.group_id:
            raise invalid("group.id", "(none)", "A consumer that subscribes shares topics in a group: name it")
        return GroupOptions(
            config.group_id,
            MemberOptions(
                topics=topics,
                topic_regex=pattern,
                instance_id=config.group_instance_id,
                rack_id=config.client_rack,
                session_timeout_ms=config.session_timeout_ms,
                heartbeat_interval_ms=config.heartbeat_interval_ms,
                rebalance_timeout_ms=config.max_poll_interval_ms,
                assignors=config.partition_assignment_strategy,
                server_assignor=config.group_remote_assignor,
                metadata_max_age_ms=config.metadata_max_age_ms,
            ),
            protocol=config.group_protocol,
            start=self.start,
            auto_commit_interval_ms=config.auto_commit_interval_ms if config.enable_auto_commit else None,
            retry_timeout_ms=config.default_api_timeout_ms,
            fetching=self.fetching(),
        )


def _texts(options: Options) -> dict[str, str]:
    return {
        name: ("true" if value else "false") if isinstance(value, bool) else str(value)
        for name, value in options.items()
        if value is not None
    }


def _default(value: object, convert: object) -> object:
    return convert(value) if callable(convert) and isinstance(value, str) else value
