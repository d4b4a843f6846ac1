"""The settings of a link, by their names: what CreateMirrorLink takes and MirrorLinkRecord keeps.

Who a broker is to the source (passwords, certificates) is not among them: that lies in a file on each broker, so that
neither the metadata nor a snapshot of it holds a secret.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS, REMOTE_LOG_METADATA_TOPIC

BOOTSTRAP_SERVERS = "bootstrap.servers"
TOPICS, TOPICS_EXCLUDE, TOPIC_PREFIX = "topics", "topics.exclude", "topic.prefix"
GROUPS, GROUPS_EXCLUDE = "groups", "groups.exclude"
ACLS = "acls"
START, CONFIGS, REPLICATION_FACTOR = "start", "configs", "replication.factor"
SYNC_INTERVAL_MS, PROMOTE_QUIET_MS, BYTES_PER_SECOND = "sync.interval.ms", "promote.quiet.ms", "max.bytes.per.second"
EARLIEST, LATEST, OFFSET = "earliest", "latest", "offset:"

DEFAULTS: Mapping[str, str] = {
    TOPICS: "*",
    TOPICS_EXCLUDE: "",
    TOPIC_PREFIX: "",
    GROUPS: "*",
    GROUPS_EXCLUDE: "",
    ACLS: "",
    START: EARLIEST,
    CONFIGS: "cleanup.policy,retention.ms,retention.bytes,delete.retention.ms,max.message.bytes,compression.type,"
    "message.timestamp.type,min.compaction.lag.ms,max.compaction.lag.ms,segment.bytes,segment.ms",
    REPLICATION_FACTOR: "-1",
    SYNC_INTERVAL_MS: "5000",
    PROMOTE_QUIET_MS: "5000",
    BYTES_PER_SECOND: "0",
}
# What each cluster has of itself alone: a mirror of where the source's copies lie would keep this one from copying.
_NEVER = INTERNAL_TOPICS | {CLUSTER_METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC}
# What a link of any length may hold in the metadata.
_TEXT_MAX = 100_000


class Filter(NamedTuple):
    """Names, and beginnings of names that end in `*`."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]

    def takes(self, name: str) -> bool:
        return _matches(self.include, name) and not _matches(self.exclude, name)


class LinkSettings(NamedTuple):
    bootstrap_servers: str
    topics: Filter
    groups: Filter
    acls: Filter  # Principals.
    topic_prefix: str
    # Where a new mirror begins: EARLIEST, LATEST, or the first record of this time on.
    start: str | int
    start_offset: int  # The same in each partition; -1 where `start` says it.
    configs: tuple[str, ...]
    replication_factor: int
    sync_interval_ms: int
    promote_quiet_ms: int
    bytes_per_second: int  # Of each broker; 0 for no limit.

    def takes_topic(self, name: str) -> bool:
        """Coordinators' topics are never mirrored: what they say holds for their own cluster."""
        return name not in _NEVER and self.topics.takes(name)


def parse_link_settings(texts: Mapping[str, str]) -> LinkSettings:
    """Raises KafkaError INVALID_CONFIG."""
    unknown = sorted(texts.keys() - DEFAULTS.keys() - {BOOTSTRAP_SERVERS})
    if unknown:
        known = ", ".join(sorted([BOOTSTRAP_SERVERS, *DEFAULTS]))
        raise _invalid(f"A link has no setting {unknown[0]!r}. It has: {known}.")
    for name, text in texts.items():
        if len(text) > _TEXT_MAX:
            raise _invalid(f"{name} has {len(text)} characters, more than {_TEXT_MAX}.")
    values = {**DEFAULTS, **texts}
    if not values.get(BOOTSTRAP_SERVERS, "").strip():
        raise _invalid(f"A link needs {BOOTSTRAP_SERVERS}: where brokers of the source listen, as host:port,host:port.")
    factor = _integer(values, REPLICATION_FACTOR, minimum=-1, maximum=1 << 15)
    if factor == 0:
        raise _invalid(f"{REPLICATION_FACTOR} must be positive, or -1 for this cluster's default.")
    return LinkSettings(
        bootstrap_servers=values[BOOTSTRAP_SERVERS],
        topics=Filter(_words(values[TOPICS]), _words(values[TOPICS_EXCLUDE])),
        groups=Filter(_words(values[GROUPS]), _words(values[GROUPS_EXCLUDE])),
        acls=Filter(_words(values[ACLS]), ()),
        topic_prefix=values[TOPIC_PREFIX],
        start=_start(values[START]),
        start_offset=_start_offset(values[START]),
        configs=_words(values[CONFIGS]),
        replication_factor=factor,
        sync_interval_ms=_integer(values, SYNC_INTERVAL_MS, minimum=100, maximum=86_400_000),
        promote_quiet_ms=_integer(values, PROMOTE_QUIET_MS, minimum=0, maximum=86_400_000),
        bytes_per_second=_integer(values, BYTES_PER_SECOND, minimum=0, maximum=1 << 50),
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for each in text.split(",") if (word := each.strip()))


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(name.startswith(each[:-1]) if each.endswith("*") else name == each for each in patterns)


def _start(text: str) -> str | int:
    if text in (EARLIEST, LATEST) or _start_offset(text) >= 0:
        return text
    if _is_number(text):
        return int(text)
    raise _invalid(
        f"{START} is {text!r}: it must be {EARLIEST}, {LATEST}, a time in milliseconds since 1970, or {OFFSET}NUMBER."
    )


def _start_offset(text: str) -> int:
    number = text.removeprefix(OFFSET)
    return int(number) if text.startswith(OFFSET) and _is_number(number) else -1


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) < 1 << 62


def _integer(values: Mapping[str, str], name: str, *, minimum: int, maximum: int) -> int:
    try:
        value = int(values[name])
    except ValueError:
        raise _invalid(f"{name} is {values[name]!r}: it must be a whole number.") from None
    if not minimum <= value <= maximum:
        raise _invalid(f"{name} is {value}: it must be between {minimum} and {maximum}.")
    return value


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
