"""The `kafka.*` options: Kafka's own client settings, by their own names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tailrace.client.connection import CLIENT_SOFTWARE, Address, ConnectionLimits
from tailrace.client.consumer import ConsumerOptions, Isolation
from tailrace.client.lanes import ProducerOptions
from tailrace.client.metadata import parse_bootstrap
from tailrace.spark.options.errors import OptionError


@dataclass(frozen=True)
class KafkaSettings:
    bootstrap: tuple[Address, ...]
    client_id: str = CLIENT_SOFTWARE
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    consumer: ConsumerOptions = field(default_factory=ConsumerOptions)
    producer: ProducerOptions = field(default_factory=ProducerOptions)


def parse_kafka_settings(options: Mapping[str, str]) -> KafkaSettings:
    bootstrap = options.get("kafka.bootstrap.servers")
    if not bootstrap:
        raise OptionError("option kafka.bootstrap.servers is missing: name a broker, such as 127.0.0.1:9092")
    try:
        return KafkaSettings(parse_bootstrap(bootstrap))
    except ValueError as error:
        raise OptionError(f"option kafka.bootstrap.servers: {error}") from None
