"""The `kafka.*` options: Kafka's own client settings, by their own names, as Spark's connector takes them.

Every setting of Kafka's consumer, producer and of security is known here. Those that mean something to this client are
declared in the table below or in `client.security`; those that would break the source or the sink are refused as in
Spark's connector; all others are ignored with a warning that names them, since a job that moves here brings them along.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tailrace.client.connection import CLIENT_SOFTWARE, Address, ConnectionLimits
from tailrace.client.consumer import ConsumerOptions, Isolation
from tailrace.client.lanes import ACKS_ALL, ProducerOptions
from tailrace.client.metadata import parse_bootstrap
from tailrace.client.security.settings import PLAINTEXT, SECURITY_SETTINGS, Security, parse_security
from tailrace.model.errors import KafkaError
from tailrace.model.settings import Config, boolean, integer, invalid, long, parse_value, string
from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.kafka_names import IGNORED, REFUSED
from tailrace.spark.options.parsing import parse_integer
from tailrace.wire.compression import Compression

_PREFIX = "kafka."
_BOOTSTRAP = "bootstrap.servers"
# A task reads one partition at a time, and a record costs it half as much in fetches of this size as in those of 1 MB
# that Kafka's consumer makes by default.
_CONSUMER = ConsumerOptions(partition_max_bytes=4 * 1024 * 1024)

Options = TypeVar("Options", ConnectionLimits, ConsumerOptions, ProducerOptions)


@dataclass(frozen=True)
class KafkaSettings:
    """What a task needs to talk to the cluster; it crosses to the executors by pickle."""

    bootstrap: tuple[Address, ...]  # Empty where no broker is asked.
    client_id: str = CLIENT_SOFTWARE
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    security: Security = PLAINTEXT
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    consumer: ConsumerOptions = _CONSUMER
    producer: ProducerOptions = field(default_factory=ProducerOptions)
    request_bytes_max: int = 1024 * 1024
    transaction_timeout_ms: int | None = None
    # How long a worker process uses connections and metadata again, and of how many clusters; 0: each task its own.
    kept_ms: int = 60_000
    kept_max: int = 8

    @property
    def identity(self) -> Hashable:
        """Whoever has the same one talks to the same brokers in the same name."""
        return self.bootstrap, self.client_id, self.limits, self.security


def parse_kafka_settings(options: Mapping[str, str], *, needs_brokers: bool = True) -> KafkaSettings:
    """From all options of a source or sink, with names in lower case. Raises OptionError."""
    given = {name.removeprefix(_PREFIX): text for name, text in options.items() if name.startswith(_PREFIX)}
    if not given.get(_BOOTSTRAP, "").strip() and needs_brokers:
        raise OptionError("option kafka.bootstrap.servers is missing: name a broker, such as 127.0.0.1:9092")
    _check_names(given)
    try:
        rows = ClientConfig.SETTINGS
        texts = {rows[name]: text for name, text in given.items() if name in rows}
        config = ClientConfig(**{row.attribute: parse_value(row, text) for row, text in texts.items()})
        settings = _settings(config, parse_security(given))
    except KafkaError as error:
        raise OptionError(f"an option kafka.* cannot be used: {error.message}") from None
    kept_ms, kept_max = (parse_integer(options, f"connectionCache.{name}") for name in ("ttlMs", "capacity"))
    return replace(
        settings,
        kept_ms=settings.kept_ms if kept_ms is None else kept_ms,
        kept_max=settings.kept_max if kept_max is None else kept_max,
    )


class ClientConfig(Config, scope="client"):
    """Where the default is None, it is the one of our own client, which stands with its options."""

    bootstrap_servers: tuple[Address, ...] | None = string(
        default=None, convert=parse_bootstrap, doc="Brokers to ask first, as host:port with commas between them."
    )
    client_id: str | None = string(default=None, doc="A name that brokers write into their logs.")
    isolation_level: Isolation | None = string(
        default=None,
        choices=("read_uncommitted", "read_committed"),
        convert=lambda text: Isolation[text.upper()],
        doc="Whether records of open and aborted transactions are read.",
    )
    # --- how long, how often
    request_timeout_ms: int | None = integer(default=None, minimum=1, doc="How long an answer may take.")
    default_api_timeout_ms: int | None = integer(
        default=None, minimum=1, doc="How long planning tries again when a broker is lost or a leader moves."
    )
    socket_connection_setup_timeout_ms: int | None = long(
        default=None, minimum=1, doc="How long connecting may take, the TLS handshake included."
    )
    retry_backoff_ms: int | None = long(default=None, minimum=0, doc="The first pause before something is tried again.")
    retry_backoff_max_ms: int | None = long(default=None, minimum=0, doc="What that pause grows to.")
    # --- reading
    fetch_min_bytes: int | None = integer(default=None, minimum=0, doc="How much a broker waits for before it answers.")
    fetch_max_wait_ms: int | None = integer(default=None, minimum=0, doc="How long it waits for that.")
    fetch_max_bytes: int | None = integer(default=None, minimum=0, doc="How much one fetch brings at most.")
    max_partition_fetch_bytes: int | None = integer(default=None, minimum=0, doc="The same, for each partition.")
    # --- writing
    acks: int | None = string(
        default=None,
        choices=("all", "-1", "0", "1"),
        convert=lambda text: ACKS_ALL if text == "all" else int(text),
        doc="Who must have a record before it counts as written.",
    )
    enable_idempotence: bool | None = boolean(default=None, doc="Whether what is sent again is written once.")
    compression_type: Compression | None = string(
        default=None,
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        convert=lambda text: Compression[text.upper()],
        doc="How batches are compressed.",
    )
    compression_gzip_level: int | None = integer(default=None, minimum=1, maximum=9, also=-1, doc="For gzip.")
    compression_lz4_level: int | None = integer(default=None, minimum=1, maximum=17, doc="For lz4.")
    compression_zstd_level: int | None = integer(default=None, minimum=-131072, maximum=22, doc="For zstd.")
    linger_ms: int | None = long(default=None, minimum=0, doc="How long a batch of dead letters waits for more.")
    batch_size: int | None = integer(default=None, minimum=0, doc="How large a batch grows.")
    buffer_memory: int | None = long(default=None, minimum=0, doc="How much may wait to be sent.")
    max_request_size: int = integer(default=1024 * 1024, minimum=1, doc="The largest record, and the largest request.")
    delivery_timeout_ms: int | None = integer(
        default=None, minimum=1, doc="How long a batch is sent again before the write fails."
    )
    transaction_timeout_ms: int | None = integer(
        default=None, minimum=1, doc="How long a transaction of an exactly-once sink may stay open."
    )


def _check_names(given: Mapping[str, str]) -> None:
    for name in given:
        if name in REFUSED:
            raise OptionError(f"option kafka.{name} cannot be set: {REFUSED[name]}")
        if name in ClientConfig.SETTINGS or name in SECURITY_SETTINGS:
            continue
        if name in IGNORED:
            _warn(f"option kafka.{name} is ignored: {IGNORED[name]}")
        else:
            known = [*ClientConfig.SETTINGS, *SECURITY_SETTINGS, *IGNORED]
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
            hint = f"; did you mean kafka.{close[0]}?" if close else ""
            _warn(f"option kafka.{name} is ignored: Kafka's clients have no such setting{hint}")


def _warn(text: str) -> None:
    # Python shows the same text once a process.
    warnings.warn(text, stacklevel=4)


def _settings(config: ClientConfig, security: Security) -> KafkaSettings:
    return KafkaSettings(
        config.bootstrap_servers or (),
        config.client_id or CLIENT_SOFTWARE,
        security=security,
        isolation=config.isolation_level or Isolation.READ_UNCOMMITTED,
        limits=_changed(
            ConnectionLimits(),
            connect_timeout_ms=config.socket_connection_setup_timeout_ms,
            request_timeout_ms=config.request_timeout_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
        ),
        consumer=_changed(
            _CONSUMER,
            isolation=config.isolation_level,
            fetch_min_bytes=config.fetch_min_bytes,
            fetch_max_wait_ms=config.fetch_max_wait_ms,
            fetch_max_bytes=config.fetch_max_bytes,
            partition_max_bytes=config.max_partition_fetch_bytes,
            retry_timeout_ms=config.default_api_timeout_ms,
        ),
        producer=_producer(config),
        request_bytes_max=config.max_request_size,
        transaction_timeout_ms=config.transaction_timeout_ms,
    )


def _producer(config: ClientConfig) -> ProducerOptions:
    if config.enable_idempotence and config.acks not in (None, ACKS_ALL):
        raise invalid("enable.idempotence", "true", f"It needs acks=all, and acks is {config.acks}")
    levels = {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }
    return _changed(
        ProducerOptions(),
        acks=config.acks,
        idempotent=config.enable_idempotence,
        compression=config.compression_type,
        level=levels.get(config.compression_type or Compression.NONE),
        linger_ms=config.linger_ms,
        batch_bytes=config.batch_size,
        buffer_bytes=config.buffer_memory,
        request_timeout_ms=config.request_timeout_ms,
        delivery_timeout_ms=config.delivery_timeout_ms,
    )


def _changed(options: Options, **values: Any) -> Options:
    """With the values that were given; None is one that was not."""
    return options._replace(**{name: value for name, value in values.items() if value is not None})
