"""Subscriptions to the metrics of clients (KIP-714): settings of the resource type CLIENT_METRICS, by a name.

    metrics       prefixes of names; `*` asks for all, nothing for none
    interval.ms   how often a client pushes
    match         key=pattern: each must fit the whole of what is known of a client; without one, all clients fit

Names, bounds, codes and messages are Kafka's. Patterns are those of RE2, which cannot be held up by any text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.controller.patterns import compile_pattern
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.settings import Config, Setting, integer, items, parse_value
from tailrace.wire.checksum import crc32c

if TYPE_CHECKING:
    import re2  # type: ignore[import-untyped]

INTERVAL_DEFAULT_MS = 300_000
_INTERVAL_MIN_MS, _INTERVAL_MAX_MS = 100, 3_600_000
ALL_METRICS = "*"


class ClientMetricsConfig(Config, scope="client metrics"):
    metrics: tuple[str, ...] = items(default=(), doc="Telemetry metric name prefix list")
    interval_ms: int = integer(default=INTERVAL_DEFAULT_MS, doc="Metrics push interval in milliseconds")
    match: tuple[str, ...] = items(default=(), doc="Client match criteria")


CLIENT_METRICS_SETTINGS: Mapping[str, Setting] = ClientMetricsConfig.SETTINGS


class Client(NamedTuple):
    """What patterns are compared with; the names are those of the keys."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


class Subscription(NamedTuple):
    metrics: frozenset[str]
    interval_ms: int
    patterns: tuple[tuple[str, re2._Regexp], ...]

    def fits(self, client: Client) -> bool:
        return all(pattern.fullmatch(getattr(client, key)) is not None for key, pattern in self.patterns)


class Wanted(NamedTuple):
    """What all subscriptions that fit a client want of it, and the number by which the client names just that."""

    metrics: tuple[str, ...]
    interval_ms: int
    subscription_id: int


def parse_subscription(texts: Mapping[str, str]) -> Subscription:
    """Raises KafkaError: INVALID_REQUEST for a wrong name or interval, INVALID_CONFIG for a wrong pattern."""
    values: dict[str, Any] = {}
    for name, text in texts.items():
        setting = CLIENT_METRICS_SETTINGS.get(name)
        if setting is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
        values[setting.attribute] = parse_value(setting, text)
    config = ClientMetricsConfig(**values)
    if not _INTERVAL_MIN_MS <= config.interval_ms <= _INTERVAL_MAX_MS:
        reason = (
            f"Invalid value {config.interval_ms} for interval.ms, interval must be between {_INTERVAL_MIN_MS} and "
            f"{_INTERVAL_MAX_MS} (1 hour)"
        )
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    # Of a key that is there twice the last pattern counts, as in Kafka.
    patterns = dict(_parse_pattern(each) for each in config.match)
    return Subscription(frozenset(config.metrics), config.interval_ms, tuple(patterns.items()))


@lru_cache(maxsize=256)
def _parse_pattern(text: str) -> tuple[str, re2._Regexp]:
    illegal = KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {text}")
    parts = text.split("=")
    if len(parts) != 2 or parts[0].strip() not in Client._fields:
        raise illegal
    try:
        return parts[0].strip(), compile_pattern(parts[1].strip())
    except KafkaError as error:
        raise KafkaError(illegal.code, f"{illegal.message}. {error.message}") from error


def decide_wanted(subscriptions: Iterable[Subscription], client: Client, instance_id: bytes) -> Wanted:
    """The shortest interval holds; who asks for all metrics asks for them instead of the others."""
    fitting = [each for each in subscriptions if each.fits(client)]
    metrics = frozenset[str]().union(*(each.metrics for each in fitting))
    if ALL_METRICS in metrics:
        metrics = frozenset((ALL_METRICS,))
    interval_ms = min((each.interval_ms for each in fitting), default=INTERVAL_DEFAULT_MS)
    interval_ms = min(interval_ms, INTERVAL_DEFAULT_MS)
    ordered = tuple(sorted(metrics))
    folded = 0
    for start in range(0, len(instance_id), 4):
        folded ^= int.from_bytes(instance_id[start : start + 4], "big")
    number = crc32c(f"{ordered}{interval_ms}".encode()) ^ folded
    return Wanted(ordered, interval_ms, number - (1 << 32) if number >= 1 << 31 else number)
