"""Every setting of a broker and of a topic: name, type, default, bounds, documentation. One table each.

The class bodies are the tables: what they declare is what `--set`, config files, CreateTopics and the Alter- and
DescribeConfigs requests know, and docs/configuration.md is generated from them. Names, defaults and bounds are those
of Kafka 4.3; a row with `ours=True` is our own limit, or departs from Kafka on purpose, and says why.
A value is looked up in this order: topic, dynamic setting of the broker, dynamic default of all brokers, the
broker's own file, the default here.
Never reads a file; parsing is in model.settings.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from posixpath import normpath
from typing import Any, NamedTuple

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.listeners import (
    PREFIX,
    check_setting,
    find_setting,
    is_store_setting,
    mapped_protocols,
    protocol_of,
)
from tailrace.model.machines import MachineBrokers, parse_machine_brokers
from tailrace.model.security_settings import SecurityConfig
from tailrace.model.settings import (
    INT_MAX,
    LONG_MAX,
    Config,
    Setting,
    Synonym,
    boolean,
    double,
    flatten,
    format_value,
    integer,
    invalid,
    items,
    long,
    parse_value,
    required_integer,
    short,
    string,
    unknown,
)

__all__ = [
    "GROUP_SETTINGS",
    "SETTINGS",
    "TOPIC_SETTINGS",
    "BrokerConfig",
    "Endpoint",
    "GroupConfig",
    "TopicConfig",
    "apply_dynamic",
    "apply_group",
    "apply_topic",
    "check_turned_off",
    "decide_advertised",
    "flatten",
    "format_value",
    "parse_broker_config",
    "parse_endpoint",
    "parse_group_config",
    "parse_topic_config",
    "split_principals",
    "unknown_broker_setting",
]

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
CLEANUP_POLICIES = ("compact", "delete")
TELEMETRY_RECEIVERS = ("metrics", "otlp")
MIGRATION_POLICIES = ("disabled", "downgrade", "upgrade", "bidirectional")
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

# Settings that are checked and kept, and read by nothing, say so.
_GROWING = "No effect: segments grow as they are written."
_ONE_THREAD = "No effect: a broker has one thread of logic, and helper threads as they are needed."
_NO_JMX = "No effect: there is no JMX."
_NO_KERBEROS = "No effect: GSSAPI is not served."
_NO_PURGATORY = "No effect: what is finished is dropped at once."
_BOUNDED_OTHERWISE = "No effect."

# Of what an object store needs, as the library that speaks with it calls it.
STORE_PREFIX = "rsm.config."
METRICS_PROTOCOLS = ("HTTP", "HTTPS")
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

# Settings of Kafka whose loss would change what is protected or promised, by the beginning or the end of their names.
_REFUSED = (
    (
        ("ssl.", "sasl.", "security."),
        "of TLS and SASL there is what docs/configuration.md has, and nothing else",
    ),
    (("principal.builder.class",), "classes of Java cannot be loaded"),
    ((".policy.class.name",), "classes of Java cannot be loaded"),
    (("client.quota.callback.",), "classes of Java cannot be loaded"),
    (("max.connections.per.ip.overrides",), "all addresses have the same bound, max.connections.per.ip"),
    (
        ("remote.log.storage.manager.", "remote.log.metadata.manager."),
        "classes of Java cannot be loaded; the store is named by remote.log.storage.url",
    ),
    (("remote.", "rlmm.config.", "follower.fetch.last.tiered."), "of remote storage there is no such setting"),
    (("cordoned.log.dirs",), "new partitions are put into any of log.dirs that works"),
    (("transaction.two.phase.commit.enable",), "there are no prepared transactions"),
    (("config.providers",), "values are taken as they are written"),
    (("zookeeper.",), "the metadata is kept by controllers; see `tailrace format --help`"),
)


class QuorumVoter(NamedTuple):
    """One of controller.quorum.voters."""

    node_id: int
    host: str
    port: int

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.node_id}@{self.address}"


class Endpoint(NamedTuple):
    """Where a listener is bound, or reached. An empty host means all addresses of the machine."""

    listener_name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener_name}://{host}:{self.port}"


_ENDPOINT = r"([A-Za-z0-9_-]+)://(?:\[([0-9A-Fa-f:%._]+)\]|([A-Za-z0-9_.%-]*)):([0-9]{1,5})"


def parse_endpoint(text: str) -> Endpoint:
    """`PLAINTEXT://host:port`; an IPv6 address stands in brackets. Raises ValueError."""
    match = re.fullmatch(_ENDPOINT, text)
    if match is None or int(match[4]) > 65535:
        raise ValueError("Write NAME://host:port, such as PLAINTEXT://127.0.0.1:9092 or PLAINTEXT://[::1]:9092.")
    return Endpoint(match[1].upper(), match[2] or match[3], int(match[4]))


def parse_metrics_endpoint(text: str) -> Endpoint:
    """`HTTP://host:port` or `HTTPS://host:port`. Raises ValueError."""
    try:
        endpoint = parse_endpoint(text)
    except ValueError:
        raise ValueError("Write HTTP://host:port, such as HTTP://127.0.0.1:9404.") from None
    if endpoint.listener_name not in METRICS_PROTOCOLS:
        raise ValueError(f"{endpoint.listener_name} is not spoken there: write HTTP://host:port or HTTPS://host:port.")
    return endpoint


def split_principals(text: str) -> tuple[str, ...]:
    """Semicolons stand between them, for a name taken from a certificate has commas."""
    return tuple(part.strip() for part in text.split(";") if part.strip())


def _check_principals(text: str) -> str:
    for principal in split_principals(text):
        if not all(principal.partition(":")):
            raise ValueError(f"{principal!r} is not of the form Type:name. Write User:admin;User:broker.")
    return text


def _parse_quorum_voter(text: str) -> QuorumVoter:
    match = re.fullmatch(r"([0-9]{1,10})@(?:\[([0-9A-Fa-f:%._]+)\]|([^:@\[\]]+)):([0-9]{1,5})", text)
    if match is None or not 0 < int(match[4]) < 65536:
        raise ValueError("Write id@host:port for each controller, such as 1@one:9093,2@two:9093,3@three:9093.")
    return QuorumVoter(int(match[1]), match[2] or match[3], int(match[4]))


def _parse_throttled_replica(text: str) -> str:
    if text != "*" and not re.fullmatch(r"[0-9]+:[0-9]+", text):
        raise ValueError("Must be the literal '*' or a list of replicas: [partitionId]:[brokerId],...")
    return text


_RESET_BY_DURATION = "by_duration:"


def _parse_share_reset(text: str) -> str:
    lowered = text.lower()
    if lowered not in ("earliest", "latest") and not (
        lowered.startswith(_RESET_BY_DURATION) and _DURATION.fullmatch(text[len(_RESET_BY_DURATION) :])
    ):
        raise ValueError(
            "it must be earliest, latest or by_duration: followed by an ISO 8601 duration such as PT1H or P1DT12H"
        )
    return lowered if not lowered.startswith(_RESET_BY_DURATION) else f"{_RESET_BY_DURATION}{text[12:].upper()}"


# As Java's Duration takes them: at least one part, and nothing negative.
_DURATION = re.compile(r"P(?=.)(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{0,9}))?S)?)?", re.IGNORECASE)


def reset_duration_ms(reset: str) -> int | None:
    """Of a by_duration value of share.auto.offset.reset; None for the others."""
    found = (
        _DURATION.fullmatch(reset.removeprefix(_RESET_BY_DURATION)) if reset.startswith(_RESET_BY_DURATION) else None
    )
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[:4])
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * SECOND_MS


def _parse_migration_policy(text: str) -> str:
    if text.lower() not in MIGRATION_POLICIES:
        raise ValueError(f"String must be one of (case insensitive): {', '.join(MIGRATION_POLICIES)}")
    return text.lower()


def _same(name: str) -> tuple[Synonym, ...]:
    return (Synonym(name),)


# The names of Confluent's classes, which its serializers take too.
SUBJECT_NAME_STRATEGIES = tuple(
    f"io.confluent.kafka.serializers.subject.{name}Strategy" for name in ("TopicName", "RecordName", "TopicRecordName")
)


def _refuse_store_alone(_text: str) -> str:
    raise ValueError("Write rsm.config.<setting>, such as rsm.config.region.")


def _check_recovery(text: str) -> str:
    generation, _, name = text.partition("-")
    if text and text != "read-only" and not (generation.isascii() and generation.isdecimal() and name):
        raise ValueError("Only `tailrace tier recover` writes it.")
    return text


class TopicConfig(Config, scope="topic"):
    """The settings of one topic. All of them may be changed while the topic is in use."""

    # ---- segments and indexes
    segment_bytes: int = integer(
        default=GIB,
        minimum=MIB,
        broker_synonyms=_same("log.segment.bytes"),
        doc="Size at which the active segment is rolled. Retention and compaction work on whole segments.",
    )
    internal_segment_bytes: int | None = integer(
        default=None,
        minimum=KIB,
        internal=True,
        doc="Overrides segment.bytes without its lower bound, so that tests can roll segments quickly.",
    )
    segment_ms: int = long(
        default=7 * DAY_MS,
        minimum=1,
        broker_synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS)),
        doc="Age at which the active segment is rolled even if it is not full, so that retention can take it.",
    )
    segment_jitter_ms: int = long(
        default=0,
        minimum=0,
        broker_synonyms=(Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", HOUR_MS)),
        doc="Largest random part taken off segment.ms, so that segments do not all roll at once.",
    )
    segment_index_bytes: int = integer(
        default=10 * MIB,
        minimum=4,
        broker_synonyms=_same("log.index.size.max.bytes"),
        doc="Size of an index at which its segment is rolled.",
    )
    index_interval_bytes: int = integer(
        default=4 * KIB,
        minimum=0,
        broker_synonyms=_same("log.index.interval.bytes"),
        doc="Bytes of log between two index entries: a lookup scans at most that much.",
    )
    preallocate: bool = boolean(
        default=False,
        broker_synonyms=_same("log.preallocate"),
        inert=_GROWING,
        doc="Whether a segment takes its whole size on the disk when it is made.",
    )
    file_delete_delay_ms: int = long(
        default=MINUTE_MS,
        minimum=0,
        broker_synonyms=_same("log.segment.delete.delay.ms"),
        doc="Time between taking a segment out of the log and removing its file.",
    )
    # ---- durability
    flush_messages: int = long(
        default=LONG_MAX,
        minimum=1,
        broker_synonyms=_same("log.flush.interval.messages"),
        doc="Records after which the log is synced to the device; with 1 an acknowledgement waits for the sync.",
    )
    flush_ms: int = long(
        default=LONG_MAX,
        minimum=0,
        broker_synonyms=(Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
        doc="Time after which written records are synced to the device.",
    )
    min_insync_replicas: int = integer(
        default=1,
        minimum=1,
        broker_synonyms=_same("min.insync.replicas"),
        doc="In-sync replicas that a write with acks=all needs; below it fails with NOT_ENOUGH_REPLICAS.",
    )
    unclean_leader_election_enable: bool = boolean(
        default=False,
        broker_synonyms=_same("unclean.leader.election.enable"),
        doc="Whether a replica outside the in-sync set may lead as a last resort, losing records.",
    )
    # ---- retention and compaction
    cleanup_policy: frozenset[str] = items(
        default=frozenset({"delete"}),
        choices=CLEANUP_POLICIES,
        broker_synonyms=_same("log.cleanup.policy"),
        doc="delete: old segments go by retention.ms and retention.bytes; compact: the last value of each key stays; "
        "both; or none, which keeps everything.",
    )
    retention_ms: int = long(
        default=7 * DAY_MS,
        minimum=-1,
        broker_synonyms=(
            Synonym("log.retention.ms"),
            Synonym("log.retention.minutes", MINUTE_MS),
            Synonym("log.retention.hours", HOUR_MS),
        ),
        doc="Age at which a segment is deleted under cleanup.policy delete; -1 for no limit.",
    )
    retention_bytes: int = long(
        default=-1,
        broker_synonyms=_same("log.retention.bytes"),
        doc="Size of a partition above which its oldest segments are deleted; -1 for no limit.",
    )
    delete_retention_ms: int = long(
        default=DAY_MS,
        minimum=0,
        broker_synonyms=_same("log.cleaner.delete.retention.ms"),
        doc="Time for which tombstones stay in a compacted topic, so that a reader from the start sees them.",
    )
    min_cleanable_dirty_ratio: float = double(
        default=0.5,
        minimum=0,
        maximum=1,
        broker_synonyms=_same("log.cleaner.min.cleanable.ratio"),
        doc="Share of the log that must be uncompacted before compaction is worth its cost.",
    )
    min_compaction_lag_ms: int = long(
        default=0,
        minimum=0,
        broker_synonyms=_same("log.cleaner.min.compaction.lag.ms"),
        doc="Time for which a record stays uncompacted at least.",
    )
    max_compaction_lag_ms: int = long(
        default=LONG_MAX,
        minimum=1,
        broker_synonyms=_same("log.cleaner.max.compaction.lag.ms"),
        doc="Time for which a record may stay uncompacted at most.",
    )
    # ---- records
    max_message_bytes: int = integer(
        default=MIB + 12,
        minimum=0,
        broker_synonyms=_same("message.max.bytes"),
        doc="Largest record batch taken, after compression; larger ones fail with MESSAGE_TOO_LARGE.",
    )
    compression_type: str = string(
        default="producer",
        choices=COMPRESSION_TYPES,
        broker_synonyms=_same("compression.type"),
        doc="Codec in which batches are stored; producer keeps what the producer chose.",
    )
    compression_gzip_level: int = integer(
        default=-1,
        minimum=1,
        maximum=9,
        also=-1,
        broker_synonyms=_same("compression.gzip.level"),
        doc="Level used when compression.type is gzip; -1 for the library's default.",
    )
    compression_lz4_level: int = integer(
        default=9,
        minimum=1,
        maximum=17,
        broker_synonyms=_same("compression.lz4.level"),
        doc="Level used when compression.type is lz4.",
    )
    compression_zstd_level: int = integer(
        default=3,
        minimum=-131072,
        maximum=22,
        broker_synonyms=_same("compression.zstd.level"),
        doc="Level used when compression.type is zstd.",
    )
    message_timestamp_type: str = string(
        default="CreateTime",
        choices=TIMESTAMP_TYPES,
        broker_synonyms=_same("log.message.timestamp.type"),
        doc="Whether a record keeps the producer's timestamp or gets the time of its append.",
    )
    message_timestamp_before_max_ms: int = long(
        default=LONG_MAX,
        minimum=0,
        broker_synonyms=_same("log.message.timestamp.before.max.ms"),
        doc="How far a producer's timestamp may lie before the broker's clock.",
    )
    message_timestamp_after_max_ms: int = long(
        default=HOUR_MS,
        minimum=0,
        broker_synonyms=_same("log.message.timestamp.after.max.ms"),
        doc="How far a producer's timestamp may lie after the broker's clock.",
    )
    record_validation_deep: bool = boolean(
        default=False,
        ours=True,
        broker_synonyms=_same("record.validation.deep"),
        doc="Whether every record inside a batch is decoded and checked. It costs work per record, so it is asked for.",
    )
    confluent_key_schema_validation: bool = boolean(
        default=False,
        ours=True,
        doc="Whether the schema id of every key is looked up at confluent.schema.registry.url before it is stored.",
    )
    confluent_value_schema_validation: bool = boolean(
        default=False,
        ours=True,
        doc="Whether the schema id of every value is looked up at confluent.schema.registry.url before it is stored.",
    )
    confluent_key_subject_name_strategy: str = string(
        default=SUBJECT_NAME_STRATEGIES[0],
        choices=SUBJECT_NAME_STRATEGIES,
        ours=True,
        doc="Which subject the schema of a key has to be registered under.",
    )
    confluent_value_subject_name_strategy: str = string(
        default=SUBJECT_NAME_STRATEGIES[0],
        choices=SUBJECT_NAME_STRATEGIES,
        ours=True,
        doc="Which subject the schema of a value has to be registered under.",
    )
    # ---- replication and tiers
    leader_replication_throttled_replicas: tuple[str, ...] = items(
        default=(),
        convert=_parse_throttled_replica,
        doc="Replicas whose leader side is throttled: * or partition:broker pairs.",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = items(
        default=(),
        convert=_parse_throttled_replica,
        doc="Replicas whose follower side is throttled: * or partition:broker pairs.",
    )
    errors_deadletterqueue_group_enable: bool = boolean(
        default=False,
        ours=True,
        doc="Whether share groups may have their dead letters written to the topic, as in Kafka 4.4.",
    )
    remote_storage_enable: bool = boolean(default=False, doc="Whether segments are copied to the remote tier.")
    remote_log_copy_disable: bool = boolean(
        default=False, doc="Whether a topic with remote data stops copying more of it."
    )
    remote_log_delete_on_disable: bool = boolean(
        default=False, doc="Whether turning remote storage off deletes what was copied."
    )
    local_retention_ms: int = long(
        default=-2,
        minimum=-2,
        broker_synonyms=_same("log.local.retention.ms"),
        doc="Age at which a copied segment leaves the local disk; -2 for retention.ms.",
    )
    local_retention_bytes: int = long(
        default=-2,
        minimum=-2,
        broker_synonyms=_same("log.local.retention.bytes"),
        doc="Local size above which copied segments leave the disk; -2 for retention.bytes.",
    )


class GroupConfig(Config, scope="group"):
    """The settings of one consumer group (KIP-848), share group (KIP-932) or streams group (KIP-1071). All of them may
    be changed while the group is in use."""

    consumer_session_timeout_ms: int = integer(
        default=45 * SECOND_MS,
        minimum=1,
        broker_synonyms=_same("group.consumer.session.timeout.ms"),
        doc="Time without a heartbeat after which a member is taken out of the group.",
    )
    consumer_heartbeat_interval_ms: int = integer(
        default=5 * SECOND_MS,
        minimum=1,
        broker_synonyms=_same("group.consumer.heartbeat.interval.ms"),
        doc="How often members are told to send heartbeats.",
    )
    consumer_assignment_interval_ms: int = integer(
        default=SECOND_MS,
        minimum=0,
        broker_synonyms=_same("group.consumer.assignment.interval.ms"),
        doc="Time between two assignments: members that join meanwhile wait for the next one.",
    )
    share_session_timeout_ms: int = integer(
        default=45 * SECOND_MS,
        minimum=1,
        broker_synonyms=_same("group.share.session.timeout.ms"),
        doc="Time without a heartbeat after which a member is taken out of the share group.",
    )
    share_heartbeat_interval_ms: int = integer(
        default=5 * SECOND_MS,
        minimum=1,
        broker_synonyms=_same("group.share.heartbeat.interval.ms"),
        doc="How often members of the share group are told to send heartbeats.",
    )
    share_assignment_interval_ms: int = integer(
        default=SECOND_MS,
        minimum=0,
        broker_synonyms=_same("group.share.assignment.interval.ms"),
        doc="Time between two assignments of the share group.",
    )
    share_record_lock_duration_ms: int = integer(
        default=30 * SECOND_MS,
        minimum=1 * SECOND_MS,
        broker_synonyms=_same("group.share.record.lock.duration.ms"),
        doc="For how long a record that was delivered is kept from other members.",
    )
    share_delivery_count_limit: int = integer(
        default=5,
        minimum=2,
        broker_synonyms=_same("group.share.delivery.count.limit"),
        doc="How often a record is delivered before it is given up.",
    )
    share_partition_max_record_locks: int = integer(
        default=2000,
        minimum=100,
        broker_synonyms=_same("group.share.partition.max.record.locks"),
        doc="How many offsets of a partition, from the first one that is not done with, are delivered at most.",
    )
    share_auto_offset_reset: str = string(
        default="latest",
        convert=_parse_share_reset,
        doc="Where the group begins in a partition that it has not read yet: earliest, latest, or by_duration: and an "
        "ISO 8601 duration, for what is no older than that.",
    )
    share_isolation_level: str = string(
        default="read_uncommitted",
        choices=("read_uncommitted", "read_committed"),
        doc="Whether records of open and aborted transactions are delivered.",
    )
    share_renew_acknowledge_enable: bool = boolean(
        default=True, doc="Whether members may prolong their locks by acknowledgements of type RENEW."
    )
    errors_deadletterqueue_topic_name: str = string(
        default="",
        ours=True,
        doc="The topic to which the broker writes what the share group has given up, as in Kafka 4.4; empty for none.",
    )
    errors_deadletterqueue_copy_record_enable: bool = boolean(
        default=False,
        ours=True,
        doc="Whether dead letters have key and value of their records, or only headers that say which ones they were.",
    )
    share_key_order: bool = boolean(
        default=False,
        ours=True,
        doc="Whether at most one record of a key is out of the share group, the first that is not done with. Records "
        "without a key go at any time.",
    )
    share_retry_backoff_ms: int = integer(
        default=0,
        minimum=0,
        ours=True,
        doc="How long a record that comes back to the share group is kept from all members after its first delivery; 0 "
        "to make it available at once.",
    )
    share_retry_backoff_factor: float = double(
        default=2.0,
        minimum=1.0,
        maximum=100.0,
        ours=True,
        doc="By how much share.retry.backoff.ms is multiplied with each further delivery of a record.",
    )
    share_retry_backoff_max_ms: int = integer(
        default=HOUR_MS,
        minimum=1,
        ours=True,
        doc="The longest time for which a record that comes back is kept from members.",
    )
    streams_session_timeout_ms: int = integer(
        default=45 * SECOND_MS,
        minimum=1,
        broker_synonyms=_same("group.streams.session.timeout.ms"),
        doc="Time without a heartbeat after which a member is taken out of the streams group.",
    )
    streams_heartbeat_interval_ms: int = integer(
        default=5 * SECOND_MS,
        minimum=1,
        broker_synonyms=_same("group.streams.heartbeat.interval.ms"),
        doc="How often members of the streams group are told to send heartbeats.",
    )
    streams_num_standby_replicas: int = integer(
        default=0,
        minimum=0,
        broker_synonyms=_same("group.streams.num.standby.replicas"),
        doc="How many processes keep a copy of the state of each task, beside the one that runs it.",
    )
    streams_initial_rebalance_delay_ms: int = integer(
        default=3 * SECOND_MS,
        minimum=0,
        broker_synonyms=_same("group.streams.initial.rebalance.delay.ms"),
        doc="For how long the first assignment of an empty streams group waits for more members.",
    )
    streams_assignment_interval_ms: int = integer(
        default=SECOND_MS,
        minimum=0,
        broker_synonyms=_same("group.streams.assignment.interval.ms"),
        doc="Time between two assignments of the streams group.",
    )


def validates_schema_ids(config: TopicConfig) -> bool:
    return config.confluent_value_schema_validation or config.confluent_key_schema_validation


class BrokerConfig(SecurityConfig, scope="broker"):
    """The settings of one node. Those declared `dynamic` may be changed by IncrementalAlterConfigs."""

    # ---- identity and folders
    node_id: int = required_integer(minimum=0, doc="The number of this node, unique in its cluster.")
    broker_id: int = integer(default=-1, doc="The older name of node.id. If both are given, they are the same.")
    process_roles: tuple[str, ...] = items(
        default=("broker", "controller"),
        choices=("broker", "controller"),
        ours=True,
        doc="What the node does. Kafka has no default here; a single node is both.",
    )
    cluster_id: str | None = string(
        default=None,
        ours=True,
        doc="The cluster to belong to, 22 base64url characters. Unset: a new one is made at the first start. A data "
        "folder of another cluster is refused.",
    )
    broker_rack: str | None = string(default=None, doc="Rack or zone of this broker, for placement and near fetches.")
    log_dirs: tuple[str, ...] = items(
        default=("tailrace-data",),
        ours=True,
        doc="Folders for partition data. Kafka's default lies under /tmp, which many machines empty at boot.",
    )
    log_dir: str | None = string(default=None, ours=True, doc="A single data folder; used if log.dirs is not set.")
    metadata_log_dir: str | None = string(
        default=None, doc="Folder for the metadata log. Unset: the first of log.dirs."
    )
    # ---- listeners and connections
    listeners: tuple[Endpoint, ...] = items(
        default=(Endpoint("PLAINTEXT", "127.0.0.1", 9092),),
        convert=parse_endpoint,
        ours=True,
        doc="Where to listen: NAME://host:port; an empty host means all addresses, port 0 a free one. Kafka's default "
        "listens on all addresses; without authentication that should be asked for.",
    )
    advertised_listeners: tuple[Endpoint, ...] = items(
        default=(),
        convert=parse_endpoint,
        doc="What clients are told to connect to, if it differs from listeners. A listener without a host is "
        "advertised as localhost.",
    )
    controller_listener_names: tuple[str, ...] = items(
        default=(),
        convert=str.upper,
        ours=True,
        doc="Listeners of the metadata quorum. None are needed for a single combined node.",
    )
    inter_broker_listener_name: str | None = string(
        default=None,
        doc="Listener that other brokers use. Unset: the first one that is not a controller's.",
    )
    socket_request_max_bytes: int = integer(
        default=100 * MIB, minimum=1, doc="Largest request taken; a larger size closes the connection at once."
    )
    socket_receive_buffer_bytes: int = integer(
        default=-1,
        ours=True,
        doc="SO_RCVBUF of connections; -1 leaves it to the kernel, which lets it grow with the load. Kafka's 102400 "
        "costs about a quarter of the throughput of large batches.",
    )
    socket_send_buffer_bytes: int = integer(
        default=-1,
        ours=True,
        doc="SO_SNDBUF of connections; -1 leaves it to the kernel, which lets it grow with the load. Kafka's 102400 "
        "costs about a quarter of the throughput of large batches.",
    )
    socket_listen_backlog_size: int = integer(
        default=512,
        minimum=1,
        ours=True,
        doc="Connections that may wait to be accepted. Kafka's default is 50, but whoever comes beyond it tries again "
        "only after a second, and more than that may come while our one loop is busy.",
    )
    socket_read_bytes_per_turn: int = integer(
        default=MIB,
        minimum=4 * KIB,
        ours=True,
        doc="Bytes taken from one connection before the others have their turn: one loop serves all, so a fast sender "
        "must not hold it.",
    )
    socket_buffer_pool_bytes: int = long(
        default=32 * MIB,
        minimum=0,
        ours=True,
        doc="Receive buffers kept for reuse. More may be lent out; what exceeds this is given back to the system.",
    )
    max_connections: int = integer(
        default=INT_MAX, minimum=0, dynamic=True, doc="Connections in all; further ones are closed at once."
    )
    max_connections_per_ip: int = integer(
        default=INT_MAX, minimum=0, dynamic=True, doc="Connections from one address; further ones are closed at once."
    )
    connections_max_idle_ms: int = long(
        default=10 * MINUTE_MS, doc="Time without a request after which a connection is closed."
    )
    queued_max_request_bytes: int = long(
        default=512 * MIB,
        ours=True,
        doc="Bytes of requests held in memory over all connections; above it no more are read. -1 for no limit, which "
        "is Kafka's default, and lets a thousand slow senders take a thousand times socket.request.max.bytes.",
    )
    queued_max_request_bytes_per_ip: int = long(
        default=256 * MIB,
        ours=True,
        doc="Bytes of requests held in memory for the connections of one address, beyond 64 KB for each; above it they "
        "wait. -1 for no limit. Half of queued.max.request.bytes, so that no single host can take all of it.",
    )
    socket_reserved_request_bytes: int = integer(
        default=32 * KIB,
        minimum=KIB,
        maximum=64 * KIB,
        ours=True,
        doc="Bytes of a request that each connection may hold whatever others hold: smaller requests never wait for "
        "memory. Twice batch.size of Kafka's producer, and less than the kernel takes for a connection.",
    )
    socket_request_max_ms: int = integer(
        default=5 * MINUTE_MS,
        minimum=1,
        ours=True,
        doc="Time that a request may take from its first byte to its last; then its connection is closed. Kafka has no "
        "such limit, but its clients give up after request.timeout.ms, 30 s by default. Ten times that is for those "
        "who have raised it: 1 MB comes through at 3.5 KB/s.",
    )
    socket_request_min_bytes_per_second: int = integer(
        default=KIB,
        minimum=0,
        ours=True,
        doc="Rate below which a request that is not whole closes its connection, measured over "
        "socket.request.rate.window.ms; 0 for no limit. The slowest mobile lines bring several times that. While "
        "others wait for memory it is asked for each 64 KB that the request holds, over a third of the window.",
    )
    socket_request_rate_window_ms: int = integer(
        default=30 * SECOND_MS,
        minimum=1,
        ours=True,
        doc="Time over which socket.request.min.bytes.per.second is measured: a line that stalls for less goes on. "
        "Kafka's clients wait no longer for an answer (request.timeout.ms).",
    )
    max_pending_responses_per_connection: int = integer(
        default=1000,
        minimum=1,
        ours=True,
        doc="Answers that one connection may have outstanding before its next request waits: an appended Produce "
        "lets the next request start, so something must bound them.",
    )
    max_pending_response_bytes_per_connection: int = integer(
        default=MIB,
        minimum=1024,
        ours=True,
        doc="Bytes of answers that one connection may have outstanding before its next request waits: a small request "
        "can ask for a large answer, and its sender need not read it.",
    )
    max_request_items: int = integer(
        default=100_000,
        minimum=100,
        ours=True,
        doc="Topics, partitions, settings and the like that one request may list in all; more close the connection. "
        "Each costs about 10 microseconds of the loop and half a kilobyte, and takes as little as six bytes on the "
        "wire.",
    )
    request_timeout_ms: int = integer(default=30 * SECOND_MS, doc="How long a request to another node may take.")
    request_controller_wait_ms: int = integer(
        default=100,
        minimum=0,
        ours=True,
        doc="How long a request that finds that it needs the controller (for a missing topic, or for a block of "
        "producer ids) waits for it, and with it the later requests of its connection. Most creations are done by "
        "then; what is not is answered with an error to try again, as Kafka does at once, and goes on.",
    )
    loop_lag_warning_ms: int = integer(
        default=250,
        minimum=1,
        ours=True,
        doc="Delay of the event loop from which on it is logged: all connections wait that long.",
    )
    # ---- metrics and health
    metrics_listeners: tuple[Endpoint, ...] = items(
        default=(),
        convert=parse_metrics_endpoint,
        ours=True,
        doc="Where /metrics and /health are served: HTTP://host:port, HTTPS://host:port or both; port 0 is a free one. "
        "Empty: nowhere, and nothing is measured. By HTTP /metrics is for peers of this machine alone; by HTTPS for "
        "users of the cluster, who log in by HTTP's Basic and may describe the cluster. Health is for everyone. "
        "Certificates are those of listener.name.https.ssl.*, or of ssl.*. See metrics.md.",
    )
    metrics_kafka_names: str = string(
        default="total",
        choices=("total", "plain"),
        ours=True,
        doc="How Kafka's meters are called: as by rules for the JMX exporter that end in _total, or by plain ones, "
        "such as ..._messagesinpersec_count.",
    )
    metrics_topics_max: int = integer(
        default=10_000,
        minimum=0,
        ours=True,
        dynamic=True,
        doc="Topics that have series of their own. tailrace_metrics_topics_left_out tells how many have none.",
    )
    metrics_partitions_max: int = integer(
        default=10_000,
        minimum=0,
        ours=True,
        dynamic=True,
        doc="Partitions that have series of their own: 17 each where they are led. "
        "tailrace_metrics_partitions_left_out tells how many have none.",
    )
    metrics_request_sample_every: int = integer(
        default=64,
        minimum=1,
        ours=True,
        doc="Of so many requests of an API about one has its time taken, once there were a thousand in a quarter of a "
        "minute; all of them are counted.",
    )
    metrics_express_sample_every: int = integer(
        default=16,
        minimum=1,
        ours=True,
        doc="Of so many runs of small produces about one has its time taken, once there were a thousand in a quarter "
        "of a minute; all of them are counted.",
    )
    metrics_lag_interval_ms: int = integer(
        default=10 * SECOND_MS,
        minimum=100,
        ours=True,
        dynamic=True,
        doc="How often the lag of groups is looked at: leaders note where their logs end, and coordinators ask them.",
    )
    metrics_lag_window: int = integer(
        default=10,
        minimum=2,
        maximum=1000,
        ours=True,
        doc="Commits of a group in a partition by which it is judged: whether it gets on, has stopped or went back.",
    )
    metrics_group_partitions_max: int = integer(
        default=10_000,
        minimum=0,
        ours=True,
        dynamic=True,
        doc="Partitions of groups whose lag is watched by one broker. tailrace_metrics_group_partitions_left_out tells "
        "how many are not.",
    )
    metrics_max_connections: int = integer(
        default=64,
        minimum=1,
        ours=True,
        doc="Connections to all of metrics.listeners together. Where all are taken the oldest that asks nothing gives "
        "way, and else whoever comes is turned away.",
    )
    metrics_connections_max_idle_ms: int = integer(
        default=5 * MINUTE_MS,
        minimum=100,
        ours=True,
        doc="A connection to metrics.listeners on which nothing happens for so long is closed.",
    )
    metrics_request_max_bytes: int = integer(
        default=8 * KIB, minimum=512, ours=True, doc="Largest head of a request to metrics.listeners."
    )
    metrics_request_max_ms: int = integer(
        default=30 * SECOND_MS,
        minimum=100,
        ours=True,
        doc="Time from the first byte of a request to metrics.listeners to the last one of its answer: then it closes.",
    )
    # ---- where replicas lie
    tailrace_machines: tuple[MachineBrokers, ...] = items(
        default=(),
        convert=parse_machine_brokers,
        ours=True,
        doc="Which brokers stand on one machine, as machine:first-last for each, such as one:1-4,two:5-8. Others "
        "share one if they are reached under the same hosts. Replicas of a partition go to different machines while "
        "there is room. The same for all nodes of a cluster.",
    )
    # ---- the balancer
    tailrace_balancer_enable: bool = boolean(
        default=False,
        ours=True,
        doc="Whether a process beside each broker keeps the cluster in balance by itself; that of the live broker with "
        "the lowest id works. See balancing.md.",
    )
    tailrace_balancer_interval_ms: int = long(
        default=5 * MINUTE_MS, minimum=1000, ours=True, doc="How often it looks whether something should move."
    )
    tailrace_balancer_throttle_bytes_per_second: int = long(
        default=10_000_000, minimum=1, ours=True, doc="The most that a broker copies for it, each way."
    )
    tailrace_balancer_metrics: str = string(
        default="",
        ours=True,
        doc="Where brokers tell their metrics, as URLs or the data folder of `tailrace up`. Empty: it goes by sizes.",
    )
    tailrace_balancer_command_config: str = string(
        default="", ours=True, doc="A .properties file by which it logs in, as Kafka's tools do. Empty: PLAINTEXT."
    )
    audit_log_max_lines_per_second: int = integer(
        default=100,
        minimum=1,
        dynamic=True,
        ours=True,
        doc="Lines that the log of administrative actions (tailrace.audit) gets in a second; what is left out is "
        "counted.",
    )
    audit_log_kept_lines: int = integer(
        default=500,
        minimum=0,
        dynamic=True,
        ours=True,
        doc="The last lines of that log that are kept in memory, for the console to show.",
    )
    request_log_client_ids: tuple[str, ...] = items(
        default=(),
        dynamic=True,
        ours=True,
        doc="Client ids whose requests are all written to the log of requests (tailrace.requests).",
    )
    request_log_sample_every: int = integer(
        default=0,
        minimum=0,
        dynamic=True,
        ours=True,
        doc="Of all requests one in so many is written to the log of requests; 0 for none.",
    )
    request_log_slow_ms: int = integer(
        default=0,
        minimum=0,
        dynamic=True,
        ours=True,
        doc="Requests that take so long, waiting included, are written to the log of requests; 0 for none.",
    )
    request_log_max_lines_per_second: int = integer(
        default=100,
        minimum=1,
        dynamic=True,
        ours=True,
        doc="Lines that the log of requests gets in a second; what is left out is counted.",
    )
    # ---- what clients tell of themselves
    client_telemetry_receivers: tuple[str, ...] = items(
        default=(),
        choices=TELEMETRY_RECEIVERS,
        ours=True,
        doc="Who gets what clients push of their own metrics (KIP-714): `metrics` shows them on the metrics listener, "
        "`otlp` hands them on over HTTP. While it is empty clients are not asked for any, as in Kafka without a "
        "receiver.",
    )
    telemetry_max_bytes: int = integer(
        default=MIB, minimum=1, doc="Largest metrics that a client may push at once; unpacked, too."
    )
    client_telemetry_max_series: int = integer(
        default=20_000,
        minimum=1,
        ours=True,
        doc="Series of all clients that are kept for the metrics listener; those that come later are counted and left "
        "out.",
    )
    client_telemetry_max_series_per_client: int = integer(
        default=1_000, minimum=1, ours=True, doc="The same for one client: no single one uses up the room of all."
    )
    client_telemetry_otlp_endpoint: str = string(
        default="",
        ours=True,
        doc="Where the receiver `otlp` sends clients' metrics to: the full address, such as "
        "http://collector:4318/v1/metrics.",
    )
    client_telemetry_otlp_max_queued_bytes: int = integer(
        default=16 * MIB,
        minimum=1,
        ours=True,
        doc="Metrics that wait for the receiver `otlp`; what comes while they are too many is counted and left out.",
    )
    # ---- who may do what
    authorizer_class_name: str = string(
        default="",
        choices=("", STANDARD_AUTHORIZER),
        doc="What decides who may do what: ACLs, or nothing if it is empty, and then everyone may do everything. All "
        "nodes of a cluster should have the same.",
    )
    super_users: str = string(
        default="",
        convert=_check_principals,
        doc="Principals that may do everything, separated by semicolons: User:admin;User:broker. The nodes of a "
        "cluster have to be among them, or need CLUSTER_ACTION by an ACL.",
    )
    allow_everyone_if_no_acl_found: bool = boolean(
        default=False, doc="Whether everyone may do everything with a resource that no ACL is about."
    )
    early_start_listeners: frozenset[str] = items(
        default=frozenset(),
        convert=str.upper,
        inert="No effect: those of controllers always are, and let super users alone pass until then; those of clients "
        "wait for the metadata, as on Kafka.",
        doc="Listeners that may be served before the ACLs are loaded.",
    )
    authorizer_cache_max_entries: int = integer(
        default=20_000,
        minimum=1,
        ours=True,
        doc="Decisions that are remembered until the next change of an ACL, each some 300 bytes. A client may ask for "
        "names that do not exist: when it is full it is begun anew.",
    )
    authorizer_log_interval_ms: int = integer(
        default=10 * SECOND_MS,
        minimum=1,
        ours=True,
        doc="How long a denial that was written to the log of the authorizer is not written again; then it is counted.",
    )
    authorizer_log_max_lines: int = integer(
        default=100,
        minimum=1,
        ours=True,
        doc="Different denials that are written in such an interval: no client can fill the disk with what it may not "
        "do.",
    )
    # ---- topics
    auto_create_topics_enable: bool = boolean(
        default=True, doc="Whether asking for the metadata of a missing topic creates it, if the client allows it."
    )
    auto_create_topics_max_pending: int = integer(
        default=1000,
        minimum=1,
        ours=True,
        doc="Missing topics that are being created at one time because someone asked for their metadata. Without a "
        "controller they pile up; what is asked for beyond that is created when it is asked for again.",
    )
    num_partitions: int = integer(default=1, minimum=1, doc="Partitions of a topic created without a number.")
    default_replication_factor: int = integer(default=1, doc="Replicas of a topic created without a number.")
    delete_topic_enable: bool = boolean(default=True, doc="Whether topics may be deleted.")
    max_partitions_per_request: int = integer(
        default=10_000,
        minimum=1,
        ours=True,
        doc="Partitions that one request may create, as Kafka's controller bounds its batches: one request becomes "
        "one atomic batch of the metadata log.",
    )
    max_partitions_per_cluster: int = integer(
        default=200_000,
        minimum=1,
        ours=True,
        doc="Partitions that the cluster may have: topic creation is open to clients, and each costs memory and files.",
    )
    max_request_partition_size_limit: int = integer(
        default=2000, minimum=1, doc="Partitions in one answer to DescribeTopicPartitions."
    )
    max_resources_per_describe: int = integer(
        default=10_000,
        minimum=1,
        ours=True,
        doc="Resources in one DescribeConfigs: each is answered with all its settings, a thousand times the bytes that "
        "asked for it.",
    )
    # ---- defaults of topics
    log_segment_bytes: int = integer(default=GIB, minimum=MIB, dynamic=True, doc="Default of segment.bytes.")
    log_roll_ms: int | None = long(default=None, dynamic=True, doc="Default of segment.ms.")
    log_roll_hours: int = integer(default=168, minimum=1, doc="Default of segment.ms in hours, after log.roll.ms.")
    log_roll_jitter_ms: int | None = long(default=None, dynamic=True, doc="Default of segment.jitter.ms.")
    log_roll_jitter_hours: int = integer(
        default=0, minimum=0, doc="Default of segment.jitter.ms in hours, after log.roll.jitter.ms."
    )
    log_index_size_max_bytes: int = integer(
        default=10 * MIB, minimum=4, dynamic=True, doc="Default of segment.index.bytes."
    )
    log_index_interval_bytes: int = integer(
        default=4 * KIB, minimum=0, dynamic=True, doc="Default of index.interval.bytes."
    )
    log_preallocate: bool = boolean(default=False, dynamic=True, inert=_GROWING, doc="Default of preallocate.")
    log_segment_delete_delay_ms: int = long(
        default=MINUTE_MS, minimum=0, dynamic=True, doc="Default of file.delete.delay.ms."
    )
    log_flush_interval_messages: int = long(default=LONG_MAX, minimum=1, dynamic=True, doc="Default of flush.messages.")
    log_flush_interval_ms: int | None = long(default=None, dynamic=True, doc="Default of flush.ms.")
    log_flush_scheduler_interval_ms: int = long(
        default=LONG_MAX,
        doc="Default of flush.ms, after log.flush.interval.ms. Logs are looked at as often as their flush.ms needs, "
        "whatever this is.",
    )
    min_insync_replicas: int = integer(
        default=1, minimum=1, dynamic=True, doc="Default of the topic setting of the same name."
    )
    unclean_leader_election_enable: bool = boolean(
        default=False, dynamic=True, doc="Default of the topic setting of the same name."
    )
    log_cleanup_policy: frozenset[str] = items(
        default=frozenset({"delete"}), choices=CLEANUP_POLICIES, dynamic=True, doc="Default of cleanup.policy."
    )
    log_retention_ms: int | None = long(default=None, dynamic=True, doc="Default of retention.ms.")
    log_retention_minutes: int | None = integer(
        default=None, doc="Default of retention.ms in minutes, after log.retention.ms."
    )
    log_retention_hours: int = integer(
        default=168, doc="Default of retention.ms in hours, after log.retention.ms and log.retention.minutes."
    )
    log_retention_bytes: int = long(default=-1, dynamic=True, doc="Default of retention.bytes.")
    message_max_bytes: int = integer(default=MIB + 12, minimum=0, dynamic=True, doc="Default of max.message.bytes.")
    compression_type: str = string(
        default="producer",
        choices=COMPRESSION_TYPES,
        dynamic=True,
        doc="Default of the topic setting of the same name.",
    )
    compression_gzip_level: int = integer(
        default=-1, minimum=1, maximum=9, also=-1, dynamic=True, doc="Default of the topic setting of the same name."
    )
    compression_lz4_level: int = integer(
        default=9, minimum=1, maximum=17, dynamic=True, doc="Default of the topic setting of the same name."
    )
    compression_zstd_level: int = integer(
        default=3, minimum=-131072, maximum=22, dynamic=True, doc="Default of the topic setting of the same name."
    )
    log_message_timestamp_type: str = string(
        default="CreateTime", choices=TIMESTAMP_TYPES, dynamic=True, doc="Default of message.timestamp.type."
    )
    log_message_timestamp_before_max_ms: int = long(
        default=LONG_MAX, minimum=0, dynamic=True, doc="Default of message.timestamp.before.max.ms."
    )
    log_message_timestamp_after_max_ms: int = long(
        default=HOUR_MS, minimum=0, dynamic=True, doc="Default of message.timestamp.after.max.ms."
    )
    record_validation_deep: bool = boolean(
        default=False, dynamic=True, ours=True, doc="Default of the topic setting of the same name."
    )
    log_local_retention_ms: int = long(default=-2, minimum=-2, dynamic=True, doc="Default of local.retention.ms.")
    log_local_retention_bytes: int = long(default=-2, minimum=-2, dynamic=True, doc="Default of local.retention.bytes.")
    # ---- schema ids
    confluent_schema_registry_url: str | None = string(
        default=None,
        ours=True,
        doc="Where the schema ids of records are looked up, for topics with confluent.value.schema.validation or "
        "confluent.key.schema.validation: the address of a registry that speaks Confluent's API, or of several, with "
        "commas: while one is away the next is asked.",
    )
    confluent_basic_auth_user_info: str | None = string(
        default=None, sensitive=True, ours=True, doc="User and password for the schema registry, with a colon between."
    )
    schema_validation_timeout_ms: int = integer(
        default=5 * SECOND_MS,
        minimum=1,
        ours=True,
        doc="How long a Produce waits until the registry has told of its schema ids.",
    )
    schema_validation_lookups_per_second: int = integer(
        default=50,
        minimum=1,
        ours=True,
        doc="Questions to the schema registry in a second: whoever writes random ids must not make a flood of them.",
    )
    schema_validation_cache_max_ids: int = integer(
        default=10_000, minimum=1, ours=True, doc="Schema ids, known and unknown, that a broker remembers."
    )
    schema_validation_unknown_ms: int = integer(
        default=10 * SECOND_MS,
        minimum=0,
        ours=True,
        doc="How long a schema id that the registry does not know, or not under the right subject, is refused unasked.",
    )
    schema_validation_without_registry: str = string(
        default="refuse",
        choices=("refuse", "accept"),
        ours=True,
        doc="What happens to records with a schema id that is not known yet while the registry does not answer: they "
        "are refused with an error that producers try again on, or taken unchecked.",
    )
    # ---- upkeep of logs
    log_retention_check_interval_ms: int = long(
        default=5 * MINUTE_MS, minimum=1, doc="How often logs are checked for segments to delete."
    )
    log_initial_task_delay_ms: int = long(
        default=30 * SECOND_MS, minimum=0, internal=True, doc="Time after the start before the first such check."
    )
    log_flush_offset_checkpoint_interval_ms: int = integer(
        default=MINUTE_MS, minimum=0, doc="How often the recovery points of all logs are saved."
    )
    log_flush_start_offset_checkpoint_interval_ms: int = integer(
        default=MINUTE_MS, minimum=0, doc="How often the start offsets of all logs are saved."
    )
    log_unsynced_max_bytes: int = long(
        default=GIB,
        minimum=MIB,
        ours=True,
        doc="Bytes written and not yet synced, over all logs. From half of it on logs are synced in the background, "
        "above it producers are not read: at its own bound on dirty memory the kernel would hold the whole process.",
    )
    log_scrub_max_bytes_per_second: int = long(
        default=10 * MIB,
        minimum=0,
        dynamic=True,
        ours=True,
        doc="Rate at which segments are read again to find damage. It never takes more than a hundredth of a "
        "processor, whatever the rate. 0 turns it off; what readers have met trouble with is checked all the same.",
    )
    log_scrub_interval_ms: int = long(
        default=7 * DAY_MS,
        minimum=SECOND_MS,
        dynamic=True,
        ours=True,
        doc="Time between the beginnings of two rounds in which all segments are read again to find damage. A "
        "round that takes longer is followed by the next one.",
    )
    replica_high_watermark_checkpoint_interval_ms: int = long(
        default=5 * SECOND_MS, doc="How often the high watermarks of all partitions are saved."
    )
    log_cleaner_enable: bool = boolean(default=True, doc="Whether compacted topics are compacted.")
    log_cleaner_backoff_ms: int = long(
        default=15 * SECOND_MS, minimum=0, dynamic=True, doc="Pause of the cleaner when there is nothing to compact."
    )
    log_cleaner_dedupe_buffer_size: int = long(
        default=128 * MIB,
        minimum=MIB,
        dynamic=True,
        doc="Memory for the map of keys; a log whose keys do not fit is compacted in several passes.",
    )
    log_cleaner_io_buffer_size: int = integer(
        default=512 * KIB, minimum=0, dynamic=True, doc="Bytes that the cleaner reads at once."
    )
    log_cleaner_io_max_bytes_per_second: float = double(
        default=1.7976931348623157e308, dynamic=True, doc="Rate of the cleaner's reads and writes together."
    )
    log_cleaner_delete_retention_ms: int = long(
        default=DAY_MS, minimum=0, dynamic=True, doc="Default of delete.retention.ms."
    )
    log_cleaner_min_cleanable_ratio: float = double(
        default=0.5, minimum=0, maximum=1, dynamic=True, doc="Default of min.cleanable.dirty.ratio."
    )
    log_cleaner_min_compaction_lag_ms: int = long(
        default=0, minimum=0, dynamic=True, doc="Default of min.compaction.lag.ms."
    )
    log_cleaner_max_compaction_lag_ms: int = long(
        default=LONG_MAX, minimum=1, dynamic=True, doc="Default of max.compaction.lag.ms."
    )
    # ---- fetches and producers
    fetch_max_bytes: int = integer(
        default=55 * MIB, minimum=1024, doc="Most bytes of records in one answer, whatever the client asks for."
    )
    max_incremental_fetch_session_cache_slots: int = integer(
        default=1000,
        minimum=0,
        doc="Fetch sessions kept; above it clients send their whole list each time. Followers come first: they put "
        "consumers out.",
    )
    max_incremental_fetch_session_partitions: int = integer(
        default=200_000,
        minimum=0,
        ours=True,
        doc="Partitions that all fetch sessions together remember, at half a kilobyte each; above it clients send "
        "their whole list each time. They need not exist, so any client can make them up.",
    )
    producer_id_expiration_ms: int = integer(
        default=DAY_MS, minimum=1, dynamic=True, doc="Idle time after which a producer's sequence state is dropped."
    )
    producer_id_expiration_check_interval_ms: int = integer(
        default=10 * MINUTE_MS, minimum=1, internal=True, doc="How often idle producers are looked for."
    )
    max_producer_ids_per_partition: int = integer(
        default=10_000,
        minimum=1,
        ours=True,
        doc="Producers whose sequence state one partition keeps. Above it the longest idle one is dropped: each costs "
        "about a kilobyte, and any client can make up ids.",
    )
    max_decompressed_bytes: int = integer(
        default=100 * MIB,
        minimum=MIB,
        ours=True,
        doc="Size to which one batch may expand when the broker must decompress it: a few kilobytes can claim "
        "gigabytes.",
    )
    # ---- metadata quorum
    controller_quorum_bootstrap_servers: tuple[str, ...] = items(
        default=(),
        doc="Addresses host:port of controllers to find the quorum. None for a single combined node.",
    )
    controller_quorum_voters: tuple[QuorumVoter, ...] = items(
        default=(),
        convert=_parse_quorum_voter,
        doc="id@host:port of each controller, the same on all nodes. `tailrace format` makes them the first voters of "
        "a new quorum; who votes from then on is kept in the metadata. Their addresses are what "
        "controller.quorum.bootstrap.servers is without a value.",
    )
    controller_quorum_election_timeout_ms: int = integer(
        default=SECOND_MS, minimum=0, doc="Time to wait for votes before trying again."
    )
    controller_quorum_election_backoff_max_ms: int = integer(
        default=SECOND_MS, minimum=0, doc="Longest random pause before another election."
    )
    controller_quorum_fetch_timeout_ms: int = integer(
        default=2 * SECOND_MS,
        minimum=0,
        doc="Time without a fetch from the leader before an election.",
    )
    controller_quorum_request_timeout_ms: int = integer(
        default=2 * SECOND_MS, minimum=0, doc="How long a request of the quorum may take."
    )
    controller_quorum_retry_backoff_ms: int = integer(
        default=20, minimum=0, doc="Pause before a request of the quorum is tried again."
    )
    controller_quorum_auto_join_enable: bool = boolean(
        default=False, doc="Whether a controller that is no voter of the quorum asks to become one."
    )
    broker_heartbeat_interval_ms: int = integer(
        default=500,
        minimum=1,
        ours=True,
        doc="How often a broker tells the controller that it lives; at least four times in broker.lease.ms. Kafka's "
        "default is 2000.",
    )
    broker_session_timeout_ms: int = integer(
        default=9 * SECOND_MS,
        minimum=1,
        doc="Time without a heartbeat after which the controller fences a broker of which nothing else is known. One "
        "whose port refuses connections is fenced after broker.lease.ms, one that is known to be dead at once.",
    )
    broker_lease_ms: int = integer(
        default=2 * SECOND_MS,
        minimum=1,
        ours=True,
        doc="How long after a heartbeat that was answered a broker leads without being confirmed by all who could take "
        "over. The same on brokers and controllers; never longer than broker.session.timeout.ms.",
    )
    broker_flapping_pause_max_ms: int = integer(
        default=30 * SECOND_MS,
        ours=True,
        doc="Longest time for which a live broker that falls silent again and again is kept fenced. Each time it comes "
        "back, all its partitions are rewritten in the metadata. 0: it comes back at once.",
    )
    controller_partition_changes_max_per_second: int = integer(
        default=500,
        minimum=1,
        ours=True,
        doc="Partition changes a second, on average, above which the controller waits with what repeats itself: fencing"
        " and letting in brokers that have been silent before, and moving leaders back to their preferred replicas. "
        "Each change is a record that every node replays; a broker that comes and goes brings three for each replica.",
    )
    initial_broker_registration_timeout_ms: int = integer(
        default=MINUTE_MS, doc="How long a starting broker tries to register before it gives up."
    )
    controlled_shutdown_enable: bool = boolean(
        default=True, doc="Whether a broker that stops hands its leaderships over first."
    )
    controlled_shutdown_timeout_ms: int = integer(
        default=10 * SECOND_MS,
        minimum=0,
        ours=True,
        doc="How long a stopping broker waits for the controller to take its leaderships away.",
    )
    auto_leader_rebalance_enable: bool = boolean(
        default=True, doc="Whether leaderships go back to preferred leaders by themselves."
    )
    leader_imbalance_check_interval_seconds: int = long(
        default=300, minimum=1, doc="How often the balance of leaders is looked at."
    )
    log_dir_failure_timeout_ms: int = long(
        default=30 * SECOND_MS,
        minimum=1,
        doc="How long a broker with a failed data folder tries to tell the controller before it stops.",
    )
    metadata_log_segment_bytes: int = integer(
        default=GIB, minimum=8 * MIB, doc="Size at which a segment of the metadata log is rolled."
    )
    metadata_log_segment_ms: int = long(default=7 * DAY_MS, doc="Age at which a segment of the metadata log is rolled.")
    metadata_log_max_record_bytes_between_snapshots: int = long(
        default=20 * MIB,
        minimum=1,
        doc="Bytes of metadata records after which a snapshot is written.",
    )
    metadata_log_max_snapshot_interval_ms: int = long(
        default=HOUR_MS, minimum=0, doc="Time after which a snapshot is written if there are new records; 0 for never."
    )
    metadata_max_retention_bytes: int = long(
        default=100 * MIB, doc="Size of metadata log and snapshots above which the oldest that a snapshot covers go."
    )
    metadata_max_retention_ms: int = long(
        default=7 * DAY_MS, doc="Age at which segments and snapshots go that a newer snapshot covers."
    )
    metadata_max_idle_interval_ms: int = integer(
        default=5 * SECOND_MS,
        minimum=0,
        ours=True,
        doc="How often the active controller writes a no-op record while nothing happens; 0 for never. Kafka's default "
        "is 500: on a small machine twice a second all nodes at once would wake, and write, and sync.",
    )
    metadata_max_batch_bytes: int = integer(
        default=8 * MIB,
        minimum=MIB,
        ours=True,
        doc="Largest batch of the metadata log: bounds how much one request can make the controller write.",
    )
    # ---- replication
    eligible_leader_wait_ms: int = integer(
        default=3 * SECOND_MS,
        minimum=0,
        ours=True,
        doc="How long an election among replicas that have all been away waits for the rest of them, so that the "
        "longest log leads. Of controllers.",
    )
    replica_cut_retention_bytes: int = long(
        default=GIB,
        minimum=0,
        ours=True,
        doc="Bytes of confirmed records that a follower keeps, for each partition, in files *.cut beside its log when "
        "it has to cut them off; the oldest files go first. 0 keeps none.",
    )
    replica_lag_time_max_ms: int = long(
        default=30 * SECOND_MS,
        doc="Time behind the leader after which a follower leaves the in-sync set.",
    )
    replica_fetch_wait_max_ms: int = integer(default=500, doc="How long a follower's fetch may wait for records.")
    replica_fetch_min_bytes: int = integer(default=1, doc="Bytes that a follower's fetch waits for.")
    replica_fetch_max_bytes: int = integer(
        default=MIB,
        minimum=0,
        doc="Bytes per partition that a follower asks for; a larger first batch still comes.",
    )
    replica_fetch_response_max_bytes: int = integer(
        default=10 * MIB, minimum=0, doc="Bytes in all that a follower asks for."
    )
    replica_changes_per_turn: int = integer(
        default=50,
        minimum=1,
        ours=True,
        doc="Partitions that follow a change of the metadata at once; of more, the others follow in the next turns of "
        "the loop, so that requests are served meanwhile. 50 take about half a millisecond.",
    )
    replica_fetch_backoff_ms: int = integer(default=SECOND_MS, minimum=0, doc="Pause of a follower after an error.")
    replica_socket_timeout_ms: int = integer(
        default=30 * SECOND_MS, doc="How long a follower waits for the answer to a fetch."
    )
    replica_selector_class: str | None = string(
        default=None,
        choices=(RACK_AWARE_SELECTOR,),
        doc="How a consumer is sent to a replica other than the leader. Unset: never; the one choice sends it to one "
        "in its rack (client.rack).",
    )
    leader_replication_throttled_rate: int = long(
        default=LONG_MAX,
        minimum=0,
        dynamic=True,
        doc="Bytes a second that leaders here send to the followers in leader.replication.throttled.replicas.",
    )
    follower_replication_throttled_rate: int = long(
        default=LONG_MAX,
        minimum=0,
        dynamic=True,
        doc="Bytes a second that followers here fetch for follower.replication.throttled.replicas.",
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = long(
        default=LONG_MAX,
        minimum=0,
        dynamic=True,
        doc="Bytes a second that are copied between data folders of this broker.",
    )
    # ---- groups and offsets
    group_initial_rebalance_delay_ms: int = integer(
        default=3 * SECOND_MS, doc="How long a new classic group waits for more members before its first assignment."
    )
    group_min_session_timeout_ms: int = integer(
        default=6 * SECOND_MS, doc="Shortest session timeout that a classic member may ask for."
    )
    group_max_session_timeout_ms: int = integer(
        default=30 * MINUTE_MS, doc="Longest session timeout that a classic member may ask for."
    )
    group_max_size: int = integer(default=INT_MAX, minimum=1, doc="Members of one classic group.")
    group_consumer_session_timeout_ms: int = integer(
        default=45 * SECOND_MS, minimum=1, doc="Default of the group setting consumer.session.timeout.ms."
    )
    group_consumer_min_session_timeout_ms: int = integer(
        default=45 * SECOND_MS, minimum=1, doc="Shortest session timeout that a consumer group can be given."
    )
    group_consumer_max_session_timeout_ms: int = integer(
        default=MINUTE_MS, minimum=1, doc="Longest session timeout that a consumer group can be given."
    )
    group_consumer_heartbeat_interval_ms: int = integer(
        default=5 * SECOND_MS, minimum=1, doc="Default of the group setting consumer.heartbeat.interval.ms."
    )
    group_consumer_min_heartbeat_interval_ms: int = integer(
        default=5 * SECOND_MS, minimum=1, doc="Shortest heartbeat interval that a consumer group can be given."
    )
    group_consumer_max_heartbeat_interval_ms: int = integer(
        default=15 * SECOND_MS, minimum=1, doc="Longest heartbeat interval that a consumer group can be given."
    )
    group_consumer_assignment_interval_ms: int = integer(
        default=SECOND_MS, minimum=0, dynamic=True, doc="Default of the group setting consumer.assignment.interval.ms."
    )
    group_consumer_min_assignment_interval_ms: int = integer(
        default=0, minimum=0, doc="Shortest time between two assignments that a consumer group can be given."
    )
    group_consumer_max_assignment_interval_ms: int = integer(
        default=15 * SECOND_MS,
        minimum=0,
        doc="Longest time between two assignments that a consumer group can be given.",
    )
    group_consumer_max_size: int = integer(default=INT_MAX, minimum=1, doc="Members of one consumer group.")
    group_consumer_assignors: tuple[str, ...] = items(
        default=("uniform", "range"),
        choices=("uniform", "range"),
        doc="Assignors that the members of a consumer group may choose from; the first one is the default.",
    )
    group_coordinator_rebalance_protocols: frozenset[str] = items(
        default=frozenset(("classic", "consumer", "streams")),
        choices=("classic", "consumer", "streams", "share"),
        doc="Protocols that groups may speak. Classic and consumer groups are always served, share groups as the "
        "feature share.version says; without streams there are no streams groups, whatever streams.version says.",
    )
    group_consumer_migration_policy: str = string(
        default="bidirectional",
        convert=_parse_migration_policy,
        doc="Whether a group may change, while it works, from the classic to the consumer protocol (upgrade), back "
        "(downgrade), or both ways.",
    )
    group_consumer_regex_refresh_interval_ms: int = integer(
        default=10 * MINUTE_MS,
        minimum=10 * SECOND_MS,
        internal=True,
        doc="How often the regular expressions of a group are matched again at the latest, topics changed or not.",
    )
    group_streams_session_timeout_ms: int = integer(
        default=45 * SECOND_MS,
        minimum=1,
        doc="Default of the group setting streams.session.timeout.ms.",
    )
    group_streams_min_session_timeout_ms: int = integer(
        default=45 * SECOND_MS,
        minimum=1,
        doc="Shortest session timeout that a streams group can be given.",
    )
    group_streams_max_session_timeout_ms: int = integer(
        default=MINUTE_MS,
        minimum=1,
        doc="Longest session timeout that a streams group can be given.",
    )
    group_streams_heartbeat_interval_ms: int = integer(
        default=5 * SECOND_MS,
        minimum=1,
        doc="Default of the group setting streams.heartbeat.interval.ms.",
    )
    group_streams_min_heartbeat_interval_ms: int = integer(
        default=5 * SECOND_MS,
        minimum=1,
        doc="Shortest heartbeat interval that a streams group can be given.",
    )
    group_streams_max_heartbeat_interval_ms: int = integer(
        default=15 * SECOND_MS,
        minimum=1,
        doc="Longest heartbeat interval that a streams group can be given.",
    )
    group_streams_max_size: int = integer(default=INT_MAX, minimum=1, doc="Members of one streams group.")
    group_streams_num_standby_replicas: int = integer(
        default=0,
        minimum=0,
        doc="Default of the group setting streams.num.standby.replicas.",
    )
    group_streams_max_standby_replicas: int = integer(
        default=2,
        minimum=0,
        doc="Most standby replicas that a streams group can be given.",
    )
    group_streams_initial_rebalance_delay_ms: int = integer(
        default=3 * SECOND_MS,
        minimum=0,
        doc="Default of the group setting streams.initial.rebalance.delay.ms.",
    )
    group_streams_assignment_interval_ms: int = integer(
        default=SECOND_MS,
        minimum=0,
        dynamic=True,
        doc="Default of the group setting streams.assignment.interval.ms.",
    )
    group_streams_min_assignment_interval_ms: int = integer(
        default=0,
        minimum=0,
        doc="Shortest time between two assignments that a streams group can be given.",
    )
    group_streams_max_assignment_interval_ms: int = integer(
        default=15 * SECOND_MS,
        minimum=0,
        doc="Longest time between two assignments that a streams group can be given.",
    )
    group_share_session_timeout_ms: int = integer(
        default=45 * SECOND_MS,
        minimum=1,
        doc="Default of the group setting share.session.timeout.ms.",
    )
    group_share_min_session_timeout_ms: int = integer(
        default=45 * SECOND_MS,
        minimum=1,
        doc="Shortest session timeout that a share group can be given.",
    )
    group_share_max_session_timeout_ms: int = integer(
        default=MINUTE_MS,
        minimum=1,
        doc="Longest session timeout that a share group can be given.",
    )
    group_share_heartbeat_interval_ms: int = integer(
        default=5 * SECOND_MS,
        minimum=1,
        doc="Default of the group setting share.heartbeat.interval.ms.",
    )
    group_share_min_heartbeat_interval_ms: int = integer(
        default=5 * SECOND_MS,
        minimum=1,
        doc="Shortest heartbeat interval that a share group can be given.",
    )
    group_share_max_heartbeat_interval_ms: int = integer(
        default=15 * SECOND_MS,
        minimum=1,
        doc="Longest heartbeat interval that a share group can be given.",
    )
    group_share_assignment_interval_ms: int = integer(
        default=SECOND_MS,
        minimum=0,
        dynamic=True,
        doc="Default of the group setting share.assignment.interval.ms.",
    )
    group_share_min_assignment_interval_ms: int = integer(
        default=0,
        minimum=0,
        doc="Shortest time between two assignments that a share group can be given.",
    )
    group_share_max_assignment_interval_ms: int = integer(
        default=15 * SECOND_MS,
        minimum=0,
        doc="Longest time between two assignments that a share group can be given.",
    )
    group_share_max_size: int = integer(
        default=200,
        minimum=1,
        maximum=1000,
        doc="Members of one share group.",
    )
    group_share_assignors: tuple[str, ...] = items(
        default=("simple",), choices=("simple",), doc="Assignors of share groups; the first one is used."
    )
    group_share_delivery_count_limit: int = integer(
        default=5,
        minimum=2,
        maximum=10,
        doc="Default of the group setting share.delivery.count.limit.",
    )
    group_share_min_delivery_count_limit: int = integer(
        default=2,
        minimum=2,
        maximum=5,
        doc="Smallest limit of deliveries that a share group can be given.",
    )
    group_share_max_delivery_count_limit: int = integer(
        default=10,
        minimum=5,
        maximum=25,
        doc="Largest limit of deliveries that a share group can be given.",
    )
    group_share_record_lock_duration_ms: int = integer(
        default=30 * SECOND_MS,
        minimum=SECOND_MS,
        maximum=HOUR_MS,
        doc="Default of the group setting share.record.lock.duration.ms.",
    )
    group_share_min_record_lock_duration_ms: int = integer(
        default=15 * SECOND_MS,
        minimum=SECOND_MS,
        maximum=30 * SECOND_MS,
        doc="Shortest lock that a share group can be given.",
    )
    group_share_max_record_lock_duration_ms: int = integer(
        default=MINUTE_MS,
        minimum=30 * SECOND_MS,
        maximum=HOUR_MS,
        doc="Longest lock that a share group can be given.",
    )
    group_share_partition_max_record_locks: int = integer(
        default=2000,
        minimum=100,
        maximum=10000,
        doc="Default of the group setting share.partition.max.record.locks.",
    )
    group_share_min_partition_max_record_locks: int = integer(
        default=100,
        minimum=100,
        maximum=2000,
        doc="Smallest window that a share group can be given.",
    )
    group_share_max_partition_max_record_locks: int = integer(
        default=4000,
        minimum=2000,
        maximum=10000,
        doc="Largest window that a share group can be given.",
    )
    group_share_initialize_retry_interval_ms: int = integer(
        default=30 * SECOND_MS,
        minimum=1,
        internal=True,
        doc="After which time the state of new share-partitions is asked for again.",
    )
    group_share_max_share_sessions: int = integer(
        default=2000,
        minimum=1,
        doc="Share sessions of this broker: one for each member that fetches from it.",
    )
    share_coordinator_state_topic_num_partitions: int = integer(
        default=50,
        minimum=1,
        doc="Partitions of __share_group_state; never change it once the topic exists.",
    )
    share_coordinator_state_topic_replication_factor: int = short(
        default=3, minimum=1, doc="Replicas of __share_group_state."
    )
    share_coordinator_state_topic_min_isr: int = short(
        default=2, minimum=1, doc="In-sync replicas that a write to __share_group_state needs."
    )
    share_coordinator_state_topic_segment_bytes: int = integer(
        default=100 * MIB,
        minimum=1,
        doc="Segment size of __share_group_state.",
    )
    share_coordinator_state_topic_prune_interval_ms: int = integer(
        default=5 * MINUTE_MS,
        minimum=1,
        internal=True,
        doc="How often it is looked for records of __share_group_state that newer ones have made superfluous.",
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = integer(
        default=500,
        minimum=0,
        maximum=500,
        doc="Updates of a share-partition between two snapshots of its state.",
    )
    share_coordinator_write_timeout_ms: int = integer(
        default=5 * SECOND_MS,
        minimum=1,
        doc="How long a write of a share-partition's state may take.",
    )
    errors_deadletterqueue_auto_create_topics_enable: bool = boolean(
        default=False,
        ours=True,
        dynamic=True,
        doc="Whether the topic that a share group names for its dead letters is created when the first one is written, "
        "as in Kafka 4.4.",
    )
    errors_deadletterqueue_topic_name_prefix: str = string(
        default="dlq.",
        ours=True,
        dynamic=True,
        doc="How names of topics have to begin that share groups write dead letters to, as in Kafka 4.4; empty for any "
        "name.",
    )
    group_history_max_groups: int = integer(
        default=1000,
        minimum=1,
        ours=True,
        doc="Groups whose last rebalances a broker remembers: any client can make up groups.",
    )
    group_history_max_rebalances: int = integer(
        default=50, minimum=1, ours=True, doc="Rebalances of one group that its coordinator remembers."
    )
    offset_metadata_max_bytes: int = integer(default=4 * KIB, doc="Largest text beside a committed offset.")
    offsets_retention_minutes: int = integer(
        default=10_080, minimum=1, doc="Time for which the offsets of an empty group are kept."
    )
    offsets_retention_check_interval_ms: int = long(
        default=10 * MINUTE_MS, minimum=1, doc="How often such offsets are looked for."
    )
    offsets_commit_timeout_ms: int = integer(
        default=5 * SECOND_MS, minimum=1, doc="How long an offset commit may wait for its replicas."
    )
    offsets_topic_num_partitions: int = integer(
        default=50, minimum=1, doc="Partitions of __consumer_offsets; never change it once the topic exists."
    )
    offsets_topic_replication_factor: int = short(default=3, minimum=1, doc="Replicas of __consumer_offsets.")
    offsets_topic_segment_bytes: int = integer(
        default=100 * MIB, minimum=1, doc="Segment size of __consumer_offsets: small, so that it loads quickly."
    )
    # ---- transactions
    transactional_id_expiration_ms: int = integer(
        default=7 * DAY_MS,
        minimum=1,
        doc="Idle time after which a transactional id is forgotten.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        default=HOUR_MS, minimum=1, doc="How often such ids are looked for."
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = integer(
        default=100,
        minimum=0,
        doc="How long a request may wait for the last transaction of its id to be ended, before the client is told to "
        "try again.",
    )
    transaction_max_timeout_ms: int = integer(
        default=15 * MINUTE_MS,
        minimum=1,
        doc="Longest transaction timeout that a producer may ask for.",
    )
    transaction_state_log_num_partitions: int = integer(
        default=50,
        minimum=1,
        doc="Partitions of __transaction_state; never change it once the topic exists.",
    )
    transaction_state_log_replication_factor: int = short(default=3, minimum=1, doc="Replicas of __transaction_state.")
    transaction_state_log_min_isr: int = integer(
        default=2,
        minimum=1,
        doc="In-sync replicas that a write to __transaction_state needs.",
    )
    transaction_state_log_segment_bytes: int = integer(
        default=100 * MIB,
        minimum=1,
        doc="Segment size of __transaction_state: small, so that it loads quickly.",
    )
    # ---- mirrors of other clusters
    mirror_credentials_dir: str | None = string(
        default=None,
        ours=True,
        doc="A folder with one file for each link, NAME.properties: the client settings (security.protocol, sasl.*, "
        "ssl.*) by which this broker reads from the link's source. Without a file it asks in plain text, as nobody.",
    )
    # ---- remote storage
    remote_log_storage_system_enable: bool = boolean(
        default=False,
        doc="Whether topics may have remote.storage.enable: closed segments are copied to the store that "
        "remote.log.storage.url names. The same for all nodes of a cluster, controllers included.",
    )
    remote_log_storage_url: str | None = string(
        default=None,
        ours=True,
        doc="The store: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///folder. What else it "
        "needs stands in settings that begin with rsm.config., such as rsm.config.region, or in the environment.",
    )
    store_settings: tuple[tuple[str, str], ...] = items(
        default=(),
        internal=True,
        ours=True,
        sensitive=True,
        convert=_refuse_store_alone,
        doc="What was written for the store, by name and text.",
    )
    remote_log_manager_task_interval_ms: int = long(
        default=30 * SECOND_MS,
        minimum=1,
        doc="How often a leader looks for segments to copy and for copies that have had their time.",
    )
    remote_log_manager_copy_max_bytes_per_second: int = long(
        default=LONG_MAX, minimum=1, dynamic=True, doc="How fast this broker copies, all its partitions together."
    )
    remote_log_manager_fetch_max_bytes_per_second: int = long(
        default=LONG_MAX, minimum=1, dynamic=True, doc="How fast this broker downloads what clients read."
    )
    remote_log_reader_max_pending_tasks: int = integer(
        default=100,
        minimum=1,
        doc="Reads of the store that are under way or wait; what is asked for beyond them is answered empty.",
    )
    remote_log_reader_max_bytes: int = integer(
        default=4 * MIB, minimum=1, ours=True, doc="Most that one partition of a fetch is given from the store."
    )
    remote_log_reader_memory_bytes: int = long(
        default=32 * MIB,
        minimum=4 * MIB,
        ours=True,
        doc="Memory for reads of the store: two thirds for what was downloaded or is read ahead, one for answers until "
        "they are sent. With many readers answers become smaller.",
    )
    remote_log_disk_warning_percent: int = integer(
        default=15,
        minimum=0,
        maximum=100,
        dynamic=True,
        ours=True,
        doc="With less than this free on a disk the broker tells, in its log and as unhealthy, what lies there only "
        "because it is not copied yet. 0: never.",
    )
    remote_log_index_file_cache_total_size_bytes: int = long(
        default=GIB,
        minimum=1,
        dynamic=True,
        doc="Most that what was read from the store takes on the local disk, in remote-log-cache of the metadata "
        "folder. Kafka keeps indexes alone there.",
    )
    remote_fetch_max_wait_ms: int = integer(
        default=500,
        minimum=1,
        dynamic=True,
        doc="How long a fetch waits for the store. Then it is answered without what has not come.",
    )
    remote_list_offsets_request_timeout_ms: int = long(
        default=30 * SECOND_MS, minimum=1, dynamic=True, doc="How long a lookup by time waits for the store."
    )
    remote_log_deletion_delay_ms: int = long(
        default=15 * MINUTE_MS,
        minimum=0,
        ours=True,
        doc="How long the object of a copy stays after nobody is to read it any more, and after an upload that nobody "
        "finished has begun.",
    )
    remote_log_sweep_interval_ms: int = long(
        default=6 * HOUR_MS,
        minimum=1,
        ours=True,
        doc="How often a leader lists the objects of its partitions, and deletes those that nothing refers to.",
    )
    remote_log_manifest_interval_ms: int = long(
        default=10 * SECOND_MS,
        minimum=1,
        ours=True,
        doc="How much later than the records of __remote_log_metadata the manifest of a partition may be, by which "
        "Spark and other readers without a broker learn what is in the store.",
    )
    remote_log_export_interval_ms: int = long(
        default=MINUTE_MS,
        minimum=1,
        ours=True,
        doc="How often topics with remote storage, and what groups have committed in them, are written to the store "
        "for `tailrace tier recover`.",
    )
    remote_log_storage_recovery: str = string(
        default="",
        ours=True,
        dynamic=True,
        convert=_check_recovery,
        doc="Which recovery from the store made this cluster: `tailrace tier recover` writes it, nobody else. Empty if "
        "the cluster has begun the store itself; with read-only nothing is copied to the store or deleted there.",
    )
    remote_log_metadata_restate_records: int = integer(
        default=10_000,
        minimum=1,
        ours=True,
        doc="When a partition of __remote_log_metadata has so many more records than there is to know, and twice as "
        "many, what is known is written once more, and what goes before is deleted.",
    )
    remote_log_storage_timeout_ms: int = integer(
        default=10 * SECOND_MS, minimum=1, ours=True, doc="How long one request to the store may take."
    )
    remote_log_storage_upload_timeout_ms: int = integer(
        default=10 * MINUTE_MS, minimum=1, ours=True, doc="How long one try of uploading a segment may take."
    )
    remote_log_storage_reads_max: int = integer(
        default=16, minimum=1, ours=True, doc="Reads of the store that are under way at a time."
    )
    remote_log_storage_read_max_bytes: int = integer(
        default=64 * MIB, minimum=MIB, ours=True, doc="Memory for reads of the store that are under way."
    )
    remote_log_storage_uploads_max: int = integer(
        default=2, minimum=1, ours=True, doc="Segments that are uploaded at a time; each takes some 16 MiB of memory."
    )
    rlmm_config_remote_log_metadata_topic_num_partitions: int = integer(
        default=50, minimum=1, ours=True, doc="Partitions of __remote_log_metadata, set when the topic is created."
    )
    rlmm_config_remote_log_metadata_topic_replication_factor: int = short(
        default=3, minimum=1, ours=True, doc="Replicas of __remote_log_metadata, at most as many as there are brokers."
    )
    rlmm_config_remote_log_metadata_topic_min_isr: int = short(
        default=2, minimum=1, ours=True, doc="In-sync replicas that a write to __remote_log_metadata needs."
    )
    rlmm_config_remote_log_metadata_topic_retention_ms: int = long(
        default=-1,
        minimum=-1,
        ours=True,
        doc="How long records of __remote_log_metadata are kept; -1 for ever. Copies whose "
        "records are gone cannot be found again.",
    )
    rlmm_config_remote_log_metadata_consume_wait_ms: int = long(
        default=2 * MINUTE_MS,
        minimum=1,
        ours=True,
        doc="How long a leader waits until its own record of a copy is committed.",
    )
    # ---- taken for files that were written for Kafka, and without effect here
    remote_log_manager_thread_pool_size: int = integer(
        default=2, minimum=1, inert=_ONE_THREAD, doc="Threads for remote storage."
    )
    remote_log_manager_copier_thread_pool_size: int = integer(
        default=10, minimum=1, dynamic=True, inert=_ONE_THREAD, doc="Threads that copy segments."
    )
    remote_log_manager_expiration_thread_pool_size: int = integer(
        default=10, minimum=1, dynamic=True, inert=_ONE_THREAD, doc="Threads that delete copies."
    )
    remote_log_manager_follower_thread_pool_size: int = integer(
        default=2, minimum=1, dynamic=True, inert=_ONE_THREAD, doc="Threads that follow remote storage."
    )
    remote_log_reader_threads: int = integer(
        default=2,
        minimum=1,
        dynamic=True,
        ours=True,
        doc="How many helper threads work for reads of remote storage at a time. Kafka's default is 10; with more than "
        "there are cores for, others wait longer, and readers get no more.",
    )
    background_threads: int = integer(
        default=10, minimum=1, dynamic=True, inert=_ONE_THREAD, doc="Threads for background tasks."
    )
    num_io_threads: int = integer(
        default=8, minimum=1, dynamic=True, inert=_ONE_THREAD, doc="Threads that serve requests."
    )
    num_network_threads: int = integer(
        default=3, minimum=1, dynamic=True, inert=_ONE_THREAD, doc="Threads that serve connections."
    )
    num_recovery_threads_per_data_dir: int = integer(
        default=2, minimum=1, dynamic=True, inert=_ONE_THREAD, doc="Threads that recover the logs of one data folder."
    )
    num_replica_alter_log_dirs_threads: int | None = integer(
        default=None, inert=_ONE_THREAD, doc="Threads that move replicas between data folders."
    )
    num_replica_fetchers: int = integer(
        default=1, minimum=1, dynamic=True, inert=_ONE_THREAD, doc="Threads that fetch from one other broker."
    )
    log_cleaner_threads: int = integer(
        default=1, minimum=0, dynamic=True, inert=_ONE_THREAD, doc="Threads that compact."
    )
    group_coordinator_threads: int = integer(
        default=4, minimum=1, inert=_ONE_THREAD, doc="Threads of the group coordinator."
    )
    group_coordinator_background_threads: int = integer(
        default=2, minimum=1, inert=_ONE_THREAD, doc="Threads for the long tasks of the group coordinator."
    )
    metric_reporters: tuple[str, ...] = items(
        default=("org.apache.kafka.common.metrics.JmxReporter",),
        dynamic=True,
        inert=_NO_JMX,
        doc="Classes that metrics are given to.",
    )
    metrics_num_samples: int = integer(
        default=2, minimum=1, inert=_NO_JMX, doc="Samples that a metric is computed from."
    )
    metrics_recording_level: str = string(default="INFO", inert=_NO_JMX, doc="How many metrics there are.")
    metrics_sample_window_ms: int = long(default=30000, minimum=1, inert=_NO_JMX, doc="The time of one sample.")
    kafka_metrics_reporters: tuple[str, ...] = items(
        default=(), inert=_NO_JMX, doc="Classes that the older metrics are given to."
    )
    kafka_metrics_polling_interval_secs: int = integer(
        default=10, minimum=1, inert=_NO_JMX, doc="How often those look."
    )
    sasl_kerberos_kinit_cmd: str = string(
        default="/usr/bin/kinit", dynamic=True, inert=_NO_KERBEROS, doc="Where kinit is."
    )
    sasl_kerberos_min_time_before_relogin: int = long(
        default=60000, dynamic=True, inert=_NO_KERBEROS, doc="Pause between two logins."
    )
    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = items(
        default=("DEFAULT",), dynamic=True, inert=_NO_KERBEROS, doc="How principals become short names."
    )
    sasl_kerberos_service_name: str | None = string(
        default=None, dynamic=True, inert=_NO_KERBEROS, doc="The principal of the brokers."
    )
    sasl_kerberos_ticket_renew_jitter: float = double(
        default=0.05, dynamic=True, inert=_NO_KERBEROS, doc="What is added at random to the time of renewal."
    )
    sasl_kerberos_ticket_renew_window_factor: float = double(
        default=0.8, dynamic=True, inert=_NO_KERBEROS, doc="After which share of its time a ticket is renewed."
    )
    fetch_purgatory_purge_interval_requests: int = integer(
        default=1000, inert=_NO_PURGATORY, doc="Finished fetches that are kept before they are dropped."
    )
    producer_purgatory_purge_interval_requests: int = integer(
        default=1000, inert=_NO_PURGATORY, doc="Finished produces that are kept before they are dropped."
    )
    delete_records_purgatory_purge_interval_requests: int = integer(
        default=1, inert=_NO_PURGATORY, doc="Finished deletions that are kept before they are dropped."
    )
    queued_max_requests: int = integer(
        default=500,
        minimum=1,
        inert=_BOUNDED_OTHERWISE,
        doc="Requests that wait; here queued.max.request.bytes bounds them.",
    )
    offsets_topic_compression_codec: int = integer(
        default=0, inert=_BOUNDED_OTHERWISE, doc="How committed offsets are compressed; here they are not."
    )
    controller_quorum_fetch_max_bytes: int = integer(
        default=1048576,
        minimum=1,
        inert=_BOUNDED_OTHERWISE,
        doc="Metadata that is asked for at once; here 8 MB.",
    )
    controller_quorum_fetch_snapshot_max_bytes: int = integer(
        default=1048576,
        minimum=1,
        inert=_BOUNDED_OTHERWISE,
        doc="The part of a snapshot that is asked for at once; here 1 MB.",
    )
    socket_connection_setup_timeout_ms: int = long(
        default=10000, inert=_BOUNDED_OTHERWISE, doc="How long a node waits for a connection to another; here 2 s."
    )
    socket_connection_setup_timeout_max_ms: int = long(
        default=30000, inert=_BOUNDED_OTHERWISE, doc="The same after several failures."
    )
    offsets_load_buffer_size: int = integer(
        default=5242880,
        minimum=1,
        inert=_BOUNDED_OTHERWISE,
        doc="What is read at once while offsets are loaded; here it is bounded by time.",
    )
    transaction_state_log_load_buffer_size: int = integer(
        default=5242880,
        minimum=1,
        inert=_BOUNDED_OTHERWISE,
        doc="What is read at once while transactions are loaded; here it is bounded by time.",
    )
    log_cleaner_io_buffer_load_factor: float = double(
        default=0.9,
        dynamic=True,
        inert=_BOUNDED_OTHERWISE,
        doc="How full the cleaner's map of keys may be; here it grows by itself.",
    )
    group_coordinator_append_linger_ms: int = integer(
        default=-1,
        minimum=-1,
        inert=_BOUNDED_OTHERWISE,
        doc="How long a write of the group coordinator waits for more; here it is one turn of the loop.",
    )
    group_coordinator_cached_buffer_max_bytes: int = integer(
        default=1048588,
        minimum=524288,
        dynamic=True,
        inert=_BOUNDED_OTHERWISE,
        doc="The largest buffer that the group coordinator keeps.",
    )
    controller_quorum_append_linger_ms: int = integer(
        default=25,
        minimum=0,
        inert=_BOUNDED_OTHERWISE,
        doc="How long a write of the controller waits for more; here it is one sync of the device.",
    )
    controller_socket_timeout_ms: int = integer(
        default=30000,
        inert=_BOUNDED_OTHERWISE,
        doc="How long the controller waits for a broker; here request.timeout.ms bounds all requests.",
    )
    replica_socket_receive_buffer_bytes: int = integer(
        default=65536, inert=_BOUNDED_OTHERWISE, doc="The kernel's buffer for replication; here the kernel chooses."
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        default=10000,
        minimum=1,
        inert=_BOUNDED_OTHERWISE,
        doc="How often transactions that are too old are looked for; here each has its timer.",
    )
    transaction_partition_verification_enable: bool = boolean(
        default=True,
        dynamic=True,
        inert="No effect: it is always asked.",
        doc="Whether the coordinator is asked if a partition is in the transaction that is written to it.",
    )
    add_partitions_to_txn_retry_backoff_ms: int = integer(
        default=20,
        minimum=1,
        inert=_BOUNDED_OTHERWISE,
        doc="Pause of a request that waits for the end of a transaction; here it is woken.",
    )
    replication_quota_window_num: int = integer(
        default=11, minimum=1, inert=_BOUNDED_OTHERWISE, doc="Samples that throttles of replication are measured by."
    )
    replication_quota_window_size_seconds: int = integer(
        default=1, minimum=1, inert=_BOUNDED_OTHERWISE, doc="The time of one such sample."
    )
    alter_log_dirs_replication_quota_window_num: int = integer(
        default=11,
        minimum=1,
        inert=_BOUNDED_OTHERWISE,
        doc="Samples that throttles of moves between folders are measured by.",
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = integer(
        default=1, minimum=1, inert=_BOUNDED_OTHERWISE, doc="The time of one such sample."
    )
    # ---- quotas of clients
    quota_window_num: int = integer(
        default=11,
        minimum=1,
        doc="Windows in which the use of clients is counted. A burst of what a quota lets pass in all of them but one "
        "is free.",
    )
    quota_window_size_seconds: int = integer(
        default=1,
        minimum=1,
        doc="The time of one such window; and the longest time for which request_percentage and the rates of "
        "connections throttle at once.",
    )
    controller_quota_window_num: int = integer(
        default=11, minimum=1, doc="Windows that controller_mutation_rate lets pass at once, when none was used before."
    )
    controller_quota_window_size_seconds: int = integer(default=1, minimum=1, doc="The time of one such window.")
    quota_clients_max: int = integer(
        default=10_000,
        minimum=10,
        ours=True,
        doc="Clients whose use is kept, while there are quotas. A client chooses its client.id, and could fill the "
        "memory with them: beyond this number the use of client ids is forgotten.",
    )
    share_coordinator_append_linger_ms: int = integer(
        default=-1,
        minimum=-1,
        inert=_BOUNDED_OTHERWISE,
        doc="How long a write of the share coordinator waits for more.",
    )
    share_coordinator_cached_buffer_max_bytes: int = integer(
        default=1048588,
        minimum=524288,
        dynamic=True,
        inert=_BOUNDED_OTHERWISE,
        doc="The largest buffer that the share coordinator keeps.",
    )
    share_coordinator_load_buffer_size: int = integer(
        default=5242880, minimum=1, inert=_BOUNDED_OTHERWISE, doc="What is read at once while their state is loaded."
    )
    share_coordinator_state_topic_compression_codec: int = integer(
        default=0, inert=_BOUNDED_OTHERWISE, doc="Compression of __share_group_state."
    )
    share_coordinator_threads: int = integer(
        default=1, minimum=1, inert=_BOUNDED_OTHERWISE, doc="Threads of the share coordinator."
    )
    share_fetch_purgatory_purge_interval_requests: int = integer(
        default=1000, inert=_BOUNDED_OTHERWISE, doc="Finished share fetches that are kept before they are dropped."
    )

    @property
    def lease_ms(self) -> int:
        """Nobody is fenced before it is over."""
        return min(self.broker_lease_ms, self.broker_session_timeout_ms)

    @property
    def metadata_folder(self) -> str:
        return self.metadata_log_dir or self.log_dirs[0]

    @cached_property
    def topic_defaults(self) -> TopicConfig:
        """What a topic without settings of its own has; shared by all of them."""
        return TopicConfig(**_topic_defaults(self))

    @cached_property
    def group_defaults(self) -> GroupConfig:
        """What a group without settings of its own has; shared by all of them."""
        return GroupConfig(**_within_bounds(_group_defaults(self), self))


TOPIC_SETTINGS: Mapping[str, Setting] = TopicConfig.SETTINGS
GROUP_SETTINGS: Mapping[str, Setting] = GroupConfig.SETTINGS
SETTINGS: Mapping[str, Setting] = BrokerConfig.SETTINGS


def parse_topic_config(overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
    """Raises KafkaError INVALID_CONFIG for what is unknown, does not parse, is out of range or contradicts itself."""
    if not overrides:
        return broker.topic_defaults
    config = broker.topic_defaults.replace(**_parse_all(overrides, TOPIC_SETTINGS, what="topic"))
    _check_topic(config)
    if config.remote_storage_enable:
        _check_tiered(config, broker)
    return config


def parse_group_config(overrides: Mapping[str, str], broker: BrokerConfig) -> GroupConfig:
    """Raises KafkaError INVALID_CONFIG as parse_topic_config does."""
    config = broker.group_defaults.replace(**_parse_all(overrides, GROUP_SETTINGS, what="group"))
    _check_group(config, broker)
    return config


def parse_broker_config(values: Mapping[str, str]) -> BrokerConfig:
    """Raises KafkaError INVALID_CONFIG as parse_topic_config does."""
    parsed = _parse_all(values, SETTINGS, what="broker")
    if parsed.get("broker_id", -1) >= 0:
        node_id = parsed.setdefault("node_id", parsed["broker_id"])
        if node_id != parsed["broker_id"]:
            raise invalid("broker.id", parsed["broker_id"], f"It is the older name of node.id, which is {node_id}.")
    if "node_id" not in parsed:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, 'Missing required configuration "node.id": give each node its number, such as 1.'
        )
    if "log_dirs" not in parsed and parsed.get("log_dir"):
        parsed["log_dirs"] = (parsed["log_dir"],)
    voters = parsed.get("controller_quorum_voters")
    if voters and not parsed.get("controller_quorum_bootstrap_servers"):
        parsed["controller_quorum_bootstrap_servers"] = tuple(each.address for each in voters)
    config = BrokerConfig(**parsed)
    _check_broker(config)
    return config


def apply_dynamic(broker: BrokerConfig, *layers: Mapping[str, str]) -> BrokerConfig:
    """The broker's settings under dynamic ones, the later layer winning."""
    values: dict[str, Any] = {}
    of_listeners: dict[str, str] = {}
    for layer in layers:
        values |= _parse_stored({name: text for name, text in layer.items() if _is_dynamic(name)}, SETTINGS)
        of_listeners |= {name: text for name, text in layer.items() if is_store_setting(name)}
    if of_listeners:
        values["listener_settings"] = tuple((dict(broker.listener_settings) | of_listeners).items())
    return broker.replace(**values) if values else broker


def apply_topic(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """The settings of an existing topic, whose texts were checked when they were set."""
    if not overrides:
        return broker.topic_defaults
    return broker.topic_defaults.replace(**_parse_stored(overrides, TOPIC_SETTINGS))


def apply_group(broker: BrokerConfig, overrides: Mapping[str, str]) -> GroupConfig:
    """The settings of a group, within the bounds that the broker has now: they may have changed since."""
    if not overrides:
        return broker.group_defaults
    return broker.group_defaults.replace(**_within_bounds(_parse_stored(overrides, GROUP_SETTINGS), broker))


def decide_advertised(broker: BrokerConfig, bound_ports: Mapping[str, int]) -> tuple[Endpoint, ...]:
    """What clients and other nodes are told, given the ports that listeners with port 0 really got, by name."""
    return tuple(
        Endpoint(name, host or "localhost", port or bound_ports.get(name, 0))
        for name, host, port in _advertised(broker)
    )


def _advertised(broker: BrokerConfig) -> tuple[Endpoint, ...]:
    """advertised.listeners may be for clients alone; the quorum's listeners are then told as they are bound."""
    if not broker.advertised_listeners:
        return broker.listeners
    named = {endpoint.listener_name for endpoint in broker.advertised_listeners}
    quorum = [
        each
        for each in broker.listeners
        if each.listener_name in broker.controller_listener_names and each.listener_name not in named
    ]
    return (*broker.advertised_listeners, *quorum)


def _parse_all(texts: Mapping[str, str], settings: Mapping[str, Setting], *, what: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, text in texts.items():
        if settings is SETTINGS and name.startswith(PREFIX):
            check_setting(name, text)
            values["listener_settings"] = (*values.get("listener_settings", ()), (name, text))
            continue
        if settings is SETTINGS and name.startswith(STORE_PREFIX):
            values["store_settings"] = (*values.get("store_settings", ()), (name.removeprefix(STORE_PREFIX), text))
            continue
        setting = settings.get(name)
        if setting is None:
            raise unknown_broker_setting(name) if settings is SETTINGS else unknown(name, settings, what=what)
        values[setting.attribute] = parse_value(setting, text)
    _prefer_internal(values)
    return values


def unknown_broker_setting(name: str) -> KafkaError:
    return refused_broker_setting(name) or unknown(name, SETTINGS, what="broker")


def refused_broker_setting(name: str) -> KafkaError | None:
    """Says why, if Kafka has such a setting and it must not be ignored."""
    for parts, reason in _REFUSED:
        if any(name.startswith(part) or name.endswith(part) for part in parts):
            return KafkaError(
                ErrorCode.INVALID_CONFIG, f"{name} is not served: {reason}. Remove the setting if that will do."
            )
    return None


def _parse_stored(texts: Mapping[str, str], settings: Mapping[str, Setting]) -> dict[str, Any]:
    """What this version cannot read any more is left out, rather than keeping the broker from starting."""
    values: dict[str, Any] = {}
    for name, text in texts.items():
        setting = settings.get(name)
        if setting is not None:
            with suppress(KafkaError):
                values[setting.attribute] = parse_value(setting, text)
    _prefer_internal(values)
    return values


def _prefer_internal(values: dict[str, Any]) -> None:
    if values.get("internal_segment_bytes") is not None:
        values["segment_bytes"] = values["internal_segment_bytes"]


def _is_dynamic(name: str) -> bool:
    return name in SETTINGS and SETTINGS[name].dynamic


def _topic_defaults(broker: BrokerConfig) -> dict[str, Any]:
    """Each topic setting from the first of its synonyms that has a value."""
    values: dict[str, Any] = {}
    for setting in TOPIC_SETTINGS.values():
        for synonym in setting.broker_synonyms:
            value = broker.value(SETTINGS[synonym.name])
            if value is not None:
                values[setting.attribute] = value * synonym.factor if synonym.factor != 1 else value
                break
    # -1 hours or minutes mean no limit, not minus one hour.
    values["retention_ms"] = max(-1, values["retention_ms"])
    return values


def _check_topic(config: TopicConfig) -> None:
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({config.max_compaction_lag_ms})",
        )


def _check_tiered(config: TopicConfig, broker: BrokerConfig) -> None:
    """Kafka's rules, in its words."""
    if not broker.remote_log_storage_system_enable:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        )
    if any(policy != "delete" for policy in config.cleanup_policy):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list.",
        )
    for unit, local, total in (
        ("bytes", config.local_retention_bytes, config.retention_bytes),
        ("ms", config.local_retention_ms, config.retention_ms),
    ):
        name, whole = f"local.retention.{unit}", f"retention.{unit}"
        if total > -1 and local == -1:
            raise invalid(name, local, f"Value must not be -1 as {whole} value is set as {total}.")
        if total > -1 and local > total:
            raise invalid(name, local, f"Value must not be more than {whole} property value: {total}")
        if config.remote_log_copy_disable and local not in (-2, total):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"When `remote.log.copy.disable` is set to true, the `{name}` and `{whole}` must be set to the "
                "identical value because there will be no more logs copied to the remote storage.",
            )


def check_turned_off(before: Mapping[str, str], config: TopicConfig) -> None:
    """Whether a topic with the texts of `before` may be without remote storage. KafkaError INVALID_CONFIG."""
    was_enabled = before.get("remote.storage.enable", "false").strip().lower() == "true"
    if was_enabled and not config.remote_storage_enable and not config.remote_log_delete_on_disable:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote data "
            "and turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If you want "
            "to disable remote storage and delete all remote data, please set "
            "`remote.storage.enable=false,remote.log.delete.on.disable=true`.",
        )


def _group_defaults(broker: BrokerConfig) -> dict[str, Any]:
    return {
        row.attribute: broker.value(SETTINGS[synonym.name])
        for row in GROUP_SETTINGS.values()
        for synonym in row.broker_synonyms
    }


def _within_bounds(values: Mapping[str, Any], broker: BrokerConfig) -> dict[str, Any]:
    bounds = _group_bounds(broker)
    return {
        name: min(max(value, bounds[name][0]), bounds[name][1]) if name in bounds else value
        for name, value in values.items()
    }


def _group_bounds(broker: BrokerConfig) -> Mapping[str, tuple[int, int]]:
    return {
        "consumer_heartbeat_interval_ms": (
            broker.group_consumer_min_heartbeat_interval_ms,
            broker.group_consumer_max_heartbeat_interval_ms,
        ),
        "consumer_session_timeout_ms": (
            broker.group_consumer_min_session_timeout_ms,
            broker.group_consumer_max_session_timeout_ms,
        ),
        "consumer_assignment_interval_ms": (
            broker.group_consumer_min_assignment_interval_ms,
            broker.group_consumer_max_assignment_interval_ms,
        ),
        "streams_heartbeat_interval_ms": (
            broker.group_streams_min_heartbeat_interval_ms,
            broker.group_streams_max_heartbeat_interval_ms,
        ),
        "streams_session_timeout_ms": (
            broker.group_streams_min_session_timeout_ms,
            broker.group_streams_max_session_timeout_ms,
        ),
        "streams_assignment_interval_ms": (
            broker.group_streams_min_assignment_interval_ms,
            broker.group_streams_max_assignment_interval_ms,
        ),
        "streams_num_standby_replicas": (0, broker.group_streams_max_standby_replicas),
        "share_heartbeat_interval_ms": (
            broker.group_share_min_heartbeat_interval_ms,
            broker.group_share_max_heartbeat_interval_ms,
        ),
        "share_session_timeout_ms": (
            broker.group_share_min_session_timeout_ms,
            broker.group_share_max_session_timeout_ms,
        ),
        "share_assignment_interval_ms": (
            broker.group_share_min_assignment_interval_ms,
            broker.group_share_max_assignment_interval_ms,
        ),
        "share_record_lock_duration_ms": (
            broker.group_share_min_record_lock_duration_ms,
            broker.group_share_max_record_lock_duration_ms,
        ),
        "share_delivery_count_limit": (
            broker.group_share_min_delivery_count_limit,
            broker.group_share_max_delivery_count_limit,
        ),
        "share_partition_max_record_locks": (
            broker.group_share_min_partition_max_record_locks,
            broker.group_share_max_partition_max_record_locks,
        ),
    }


def _check_group(config: GroupConfig, broker: BrokerConfig) -> None:
    for attribute, (low, high) in _group_bounds(broker).items():
        name, value = attribute.replace("_", "."), config.value(GROUP_SETTINGS[attribute.replace("_", ".")])
        protocol, _, kind = name.partition(".")
        if value < low:
            raise _out_of_bounds(f"{name} must be greater than or equal to group.{protocol}.min.{kind}", low)
        if value > high:
            bound = f"group.{protocol}.max.{kind.removeprefix('num.')}"
            raise _out_of_bounds(f"{name} must be less than or equal to {bound}", high)
    for protocol, session_ms, interval_ms in (
        ("consumer", config.consumer_session_timeout_ms, config.consumer_heartbeat_interval_ms),
        ("share", config.share_session_timeout_ms, config.share_heartbeat_interval_ms),
        ("streams", config.streams_session_timeout_ms, config.streams_heartbeat_interval_ms),
    ):
        if session_ms <= interval_ms:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{protocol}.session.timeout.ms must be greater than {protocol}.heartbeat.interval.ms",
            )


def _out_of_bounds(sentence: str, bound: int) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, f"{sentence}, which is {bound}")


def _check_broker(config: BrokerConfig) -> None:
    if not config.listeners:
        raise invalid("listeners", "", "At least one listener is needed, such as PLAINTEXT://127.0.0.1:9092.")
    if not config.log_dirs:
        raise invalid("log.dirs", "", "At least one data folder is needed.")
    folders = [normpath(folder) for folder in config.log_dirs]
    if len(set(folders)) != len(folders):
        raise invalid("log.dirs", ",".join(config.log_dirs), "A data folder is named twice: name each of them once.")
    ports = [endpoint.port for endpoint in config.listeners if endpoint.port]
    names = [endpoint.listener_name for endpoint in config.listeners]
    if len(set(ports)) != len(ports) or len(set(names)) != len(names):
        text = ",".join(map(str, config.listeners))
        raise invalid("listeners", text, "Each listener must have a different name and port.")
    _check_security(config, names)
    _check_advertised(config, names)
    _check_roles(config, names)
    if config.remote_log_storage_system_enable and not config.remote_log_storage_url:
        raise invalid("remote.log.storage.url", "", "Remote storage needs a store, such as s3://bucket/prefix.")
    if not {"classic", "consumer"} <= config.group_coordinator_rebalance_protocols:
        text = ",".join(config.group_coordinator_rebalance_protocols)
        raise invalid("group.coordinator.rebalance.protocols", text, "Neither of classic and consumer can be left out.")
    _check_group(GroupConfig(**_group_defaults(config)), config)
    if config.cluster_id is not None and not re.fullmatch(r"[A-Za-z0-9_-]{22}", config.cluster_id):
        raise invalid("cluster.id", config.cluster_id, "A cluster id is 22 base64url characters.")


def _check_security(config: BrokerConfig, names: list[str]) -> None:
    known = dict.fromkeys((*names, *config.controller_listener_names))
    for name in known:
        protocol_of(config, name)
    for endpoint in config.metrics_listeners:
        if endpoint.listener_name in known:
            raise invalid("listeners", endpoint.listener_name, "A listener of metrics has this name: choose another.")
        known[endpoint.listener_name] = None
    if len({endpoint.listener_name for endpoint in config.metrics_listeners}) < len(config.metrics_listeners):
        text = ",".join(map(str, config.metrics_listeners))
        raise invalid("metrics.listeners", text, "There may be one of HTTP and one of HTTPS.")
    # A file may be the same for nodes that have a listener and for those that have not.
    mapped = mapped_protocols(config)
    for name, _text in config.listener_settings:
        found = find_setting(name)
        if found is not None and found[0] not in known and found[0] not in mapped:
            raise invalid(name, "(hidden)", f"There is no listener {found[0]}: it must be one of {', '.join(known)}.")


def _check_roles(config: BrokerConfig, names: list[str]) -> None:
    quorum = config.controller_listener_names
    clients = [name for name in names if name not in quorum]
    if not config.process_roles:
        raise invalid("process.roles", "", "A node is a broker, a controller or both.")
    if "broker" not in config.process_roles and not quorum:
        raise invalid("controller.listener.names", "", "A controller needs a listener for the metadata quorum.")
    if "controller" not in config.process_roles and not config.controller_quorum_bootstrap_servers:
        raise invalid(
            "controller.quorum.bootstrap.servers", "", "A broker has to know where to find the controllers: host:port."
        )
    _check_voters(config)
    if "controller" in config.process_roles and quorum and not set(quorum) & set(names):
        raise invalid("controller.listener.names", ",".join(quorum), "One of them must be among the listeners.")
    if "broker" in config.process_roles and not clients:
        raise invalid("listeners", ",".join(names), "A broker needs a listener that is not a controller's.")
    inter_broker = config.inter_broker_listener_name
    if "broker" not in config.process_roles:
        return
    if inter_broker is not None and inter_broker.upper() not in clients:
        raise invalid("inter.broker.listener.name", inter_broker, "It must be a listener, and not a controller's.")
    if "security_inter_broker_protocol" in config.given:
        protocol = config.security_inter_broker_protocol
        if inter_broker is not None:
            reason = "inter.broker.listener.name says the same thing: set one of the two."
            raise invalid("security.inter.broker.protocol", protocol, reason)
        if protocol not in [protocol_of(config, name) for name in clients]:
            reason = "No listener has it that is not a controller's."
            raise invalid("security.inter.broker.protocol", protocol, reason)


def _check_voters(config: BrokerConfig) -> None:
    voters = config.controller_quorum_voters
    ids = [each.node_id for each in voters]
    text = ",".join(map(str, voters))
    if len(set(ids)) < len(ids):
        raise invalid("controller.quorum.voters", text, "A node is named twice.")
    if ids and ("controller" in config.process_roles) != (config.node_id in ids):
        is_are = "is a controller and must be" if config.node_id not in ids else "is no controller and must not be"
        raise invalid("controller.quorum.voters", text, f"Node {config.node_id} {is_are} among them (process.roles).")


def _check_advertised(config: BrokerConfig, names: list[str]) -> None:
    name = "advertised.listeners" if config.advertised_listeners else "listeners"
    for endpoint in _advertised(config):
        if endpoint.listener_name not in names:
            raise invalid(name, endpoint, "Each advertised listener must be one of listeners.")
        if endpoint.host in ("0.0.0.0", "::"):  # noqa: S104 (compared, not bound)
            raise invalid(
                name,
                endpoint,
                "Clients cannot connect to the meta-address 0.0.0.0. Set advertised.listeners to an address that they "
                "can reach.",
            )
