"""The tables against Kafka's own, and the parsing of files and of topic settings."""

import ast
from pathlib import Path

import pytest

from tailrace.model.config import (
    GROUP_SETTINGS,
    SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    Endpoint,
    TopicConfig,
    apply_dynamic,
    apply_topic,
    decide_advertised,
    flatten,
    parse_broker_config,
    parse_endpoint,
    parse_topic_config,
)
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.settings import Kind, Setting, format_value, parse_value

BROKER = BrokerConfig(node_id=1)
PACKAGE = Path(__file__).parents[3] / "src" / "tailrace"
TABLES = {"broker": SETTINGS, "topic": TOPIC_SETTINGS, "group": GROUP_SETTINGS}
# What holds for a listener is read by Kafka's names.
SECURITY_READERS = (
    PACKAGE / "model" / "listeners.py",
    PACKAGE / "client" / "security" / "settings.py",
    PACKAGE / "broker" / "auth" / "security.py",
    PACKAGE / "broker" / "auth" / "bearer" / "settings.py",
)
ALL_SETTINGS = [row for table in TABLES.values() for row in table.values()]


def _kafka_rows() -> list[list[str]]:
    lines = (Path(__file__).parent / "kafka_settings.txt").read_text().splitlines()
    return [(line + "\t" * 6).split("\t")[:7] for line in lines if not line.startswith("#")]


def _valid_values(setting: Setting) -> str:
    """As Kafka prints its validators."""
    low, high = setting.minimum, setting.maximum
    if setting.choices:
        return f"[{', '.join(setting.choices)}]"
    if setting.also is not None:
        return f"[{low},...,{high}] or {setting.also}"
    if high is not None:
        return f"[{low},...,{high}]"
    return "" if low is None else f"[{low},...]"


def _parts(valid: str) -> set[str]:
    return {part.strip() for part in valid.strip("[]").split(",")}


@pytest.mark.parametrize("row", _kafka_rows(), ids=lambda row: f"{row[0]}-{row[1]}")
def test_a_setting_is_as_in_kafka(row: list[str]) -> None:
    scope, name, kind, default, valid, update, internal = row
    setting = TABLES[scope][name]
    assert setting.internal == (internal == "internal")
    if scope == "broker" and update == "read-only":
        assert not setting.dynamic, "what Kafka reads once we read once"
    if setting.ours:
        return  # It departs on purpose, and its documentation says why.
    assert setting.kind.name == kind
    assert setting.required == (default == "<required>")
    assert setting.required or (format_value(setting, setting.default) or "null") == (default or "null")
    if valid.startswith("[") and setting.convert is None:
        assert _parts(_valid_values(setting)) == _parts(valid)


# Bounds that Kafka does not have: ours are stricter where a value could only fail later.
STRICTER = {
    "broker.session.timeout.ms",
    "group.consumer.assignors",
    "group.share.assignors",
    "log.cleaner.dedupe.buffer.size",
    "internal.segment.bytes",
    "replica.selector.class",
}


def test_bounds_that_kafka_lacks_are_listed() -> None:
    unbounded = {(scope, name) for scope, name, _, _, valid, *_ in _kafka_rows() if not valid}
    stricter = {
        setting.name
        for setting in ALL_SETTINGS
        if (setting.scope, setting.name) in unbounded and _valid_values(setting) and not setting.ours
    }
    assert stricter == STRICTER


def test_settings_that_kafka_does_not_have_are_marked() -> None:
    of_kafka = {(row[0], row[1]) for row in _kafka_rows()}
    unmarked = [row.name for row in ALL_SETTINGS if (row.scope, row.name) not in of_kafka and not row.ours]
    assert unmarked == []


def _attributes_read() -> set[str]:
    """What the code reads of a config: `config.name`, `topic_config(...).name`, and by name where configs are made."""
    read = set()
    for path in PACKAGE.rglob("*.py"):
        if any(path.is_relative_to(PACKAGE / each) for each in ("spark", "kit")):
            continue  # Their options have some of the same names.
        is_table = path == PACKAGE / "model" / "config.py"
        reads_texts = path in SECURITY_READERS
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                value = node.value.func if isinstance(node.value, ast.Call) else node.value
                owner = getattr(value, "id", None) or getattr(value, "attr", "")
                if owner.endswith(("config", "static", "broker")) or (is_table and owner == "self"):
                    read.add(node.attr)
            elif is_table and isinstance(node, ast.Constant) and isinstance(node.value, str):
                read.add(node.value)
            elif reads_texts and isinstance(node, ast.Constant) and isinstance(node.value, str):
                read.add(node.value.replace(".", "_"))
    return read


def test_a_setting_is_read_or_says_that_it_has_no_effect() -> None:
    read = _attributes_read()
    read_settings = [row for row in ALL_SETTINGS if row.attribute in read]
    defaults = {synonym.name for row in read_settings for synonym in row.broker_synonyms}
    wrong = {
        f"{row.scope} {row.name}": "read, but said to have no effect" if row.inert else "never read"
        for row in ALL_SETTINGS
        if bool(row.inert) == (row.attribute in read or (row.scope == "broker" and row.name in defaults))
    }
    assert wrong == {}


@pytest.mark.parametrize(
    "name",
    [
        "ssl.provider",
        "sasl.login.class",
        "security.providers",
        "principal.builder.class",
        "create.topic.policy.class.name",
        "alter.config.policy.class.name",
        "client.quota.callback.class",
        "remote.log.storage.manager.class.name",
        "cordoned.log.dirs",
    ],
)
def test_what_changes_a_promise_is_not_ignored(name: str) -> None:
    with pytest.raises(KafkaError, match=f"{name} is not served: ") as caught:
        parse_broker_config({"node.id": "1", name: "x"})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_classic_and_consumer_groups_are_always_served() -> None:
    name = "group.coordinator.rebalance.protocols"
    config = parse_broker_config({"node.id": "1", name: "consumer, classic"})
    assert sorted(config.group_coordinator_rebalance_protocols) == ["classic", "consumer"]
    assert "streams" in parse_broker_config({"node.id": "1"}).group_coordinator_rebalance_protocols
    for text in ("classic", "consumer", "", "classic,streams", "classic,consumer,other"):
        with pytest.raises(KafkaError, match=f"Invalid value .* for configuration {name}: "):
            parse_broker_config({"node.id": "1", name: text})


def test_voters_tell_where_the_quorum_is() -> None:
    settings = {"node.id": "9", "process.roles": "broker", "controller.quorum.voters": "1@one:9093, 2@[::1]:9094"}
    config = parse_broker_config(settings)
    assert config.controller_quorum_bootstrap_servers == ("one:9093", "[::1]:9094")
    other = parse_broker_config(settings | {"controller.quorum.bootstrap.servers": "any:1"})
    assert other.controller_quorum_bootstrap_servers == ("any:1",)


@pytest.mark.parametrize(
    ("voters", "told"),
    [
        ("1@one", "Write id@host:port"),
        ("one:9093", "Write id@host:port"),
        ("1@one:0", "Write id@host:port"),
        ("1@one:9093,1@two:9093", "named twice"),
        ("1@one:9093,9@two:9093", "Node 9 is no controller and must not be among them"),
    ],
)
def test_voters_that_are_refused(voters: str, told: str) -> None:
    with pytest.raises(KafkaError, match=told):
        parse_broker_config({"node.id": "9", "process.roles": "broker", "controller.quorum.voters": voters})


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"listener.security.protocol.map": "PLAINTEXT:TLS"}, "Listener PLAINTEXT cannot have TLS"),
        ({"listener.security.protocol.map": "CONTROLLER:PLAINTEXT"}, "It does not name listener PLAINTEXT"),
        ({"security.inter.broker.protocol": "SASL_SSL"}, "No listener has it"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "Served are: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"ssl.keystore.type": "BCFKS"}, "keytool -importkeystore"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "String must be one of: TLSv1.2, TLSv1.3"),
        ({"listener.settings": "x"}, "Write listener.name"),
        ({"remote.log.storage.system.enable": "true"}, "Remote storage needs a store, such as s3://"),
        ({"store.settings": "x"}, "Write rsm.config"),
        ({"broker.id": "2"}, "It is the older name of node.id, which is 1"),
    ],
)
def test_values_that_would_promise_what_is_not_served(settings: dict[str, str], told: str) -> None:
    with pytest.raises(KafkaError, match=told):
        parse_broker_config({"node.id": "1", **settings})


def test_values_that_say_what_is_so() -> None:
    config = parse_broker_config(
        {
            "broker.id": "3",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL",
            "security.inter.broker.protocol": "PLAINTEXT",
            "remote.log.storage.system.enable": "false",
            "num.io.threads": "16",
            "sasl.kerberos.service.name": "kafka",
        }
    )
    assert (config.node_id, config.num_io_threads, config.sasl_kerberos_service_name) == (3, 16, "kafka")


@pytest.mark.parametrize("setting", ALL_SETTINGS, ids=lambda setting: f"{setting.scope}-{setting.name}")
def test_a_default_parses_from_its_own_text(setting: Setting) -> None:
    text = format_value(setting, setting.default)
    if text is not None:
        assert parse_value(setting, text) == setting.default
    assert setting.doc.endswith(".")


def test_topic_defaults_come_from_the_broker() -> None:
    assert BROKER.topic_defaults == TopicConfig()
    broker = parse_broker_config({"node.id": "1", "log.segment.bytes": "2097152", "message.max.bytes": "99"})
    config = parse_topic_config({"retention.bytes": "5"}, broker)
    assert (config.segment_bytes, config.max_message_bytes, config.retention_bytes) == (2097152, 99, 5)


@pytest.mark.parametrize(
    ("settings", "retention_ms"),
    [
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-1", "log.retention.hours": "1"}, -1),
    ],
)
def test_the_finest_unit_of_a_synonym_wins(settings: dict[str, str], retention_ms: int) -> None:
    broker = parse_broker_config({"node.id": "1", **settings})
    assert broker.topic_defaults.retention_ms == retention_ms


def test_a_topic_without_settings_shares_the_defaults() -> None:
    assert parse_topic_config({}, BROKER) is BROKER.topic_defaults


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("cleanup.policy", "compact, delete", frozenset({"compact", "delete"})),
        ("cleanup.policy", "delete,delete", frozenset({"delete"})),
        ("cleanup.policy", "", frozenset()),
        ("segment.bytes", " 2000000 ", 2_000_000),
        ("segment.bytes", "+2000000", 2_000_000),
        ("preallocate", "TRUE ", True),
        ("compression.type", " gzip", "gzip"),
        ("compression.gzip.level", "-1", -1),
        ("retention.bytes", "-5", -5),
        ("min.cleanable.dirty.ratio", "1e-1", 0.1),
        ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("retention.ms", "9223372036854775807", (1 << 63) - 1),
    ],
)
def test_values_that_kafka_takes(name: str, text: str, value: object) -> None:
    config = parse_topic_config({name: text}, BROKER)
    assert config.value(TOPIC_SETTINGS[name]) == value
    assert apply_topic(BROKER, {name: text}) == config


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("segment.bytes", "5", "Invalid value 5 for configuration segment.bytes: Value must be at least 1048576"),
        ("segment.bytes", "abc", "Invalid value abc for configuration segment.bytes: Not a number of type INT"),
        ("segment.bytes", "", "Invalid value  for configuration segment.bytes: Not a number of type INT"),
        ("segment.bytes", "1_000_000_0", "Not a number of type INT"),
        ("segment.bytes", "99999999999", "Not a number of type INT"),
        ("retention.ms", "9223372036854775808", "Not a number of type LONG"),
        ("retention.ms", "9" * 1_000_000, "Not a number of type LONG"),
        ("retention.ms", "-5", "Value must be at least -1"),
        ("preallocate", "yes", "Expected value to be either true or false"),
        ("min.cleanable.dirty.ratio", "2", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "NaN", "Not a number of type DOUBLE"),
        ("compression.type", "GZIP", "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("cleanup.policy", "foo", "String must be one of: compact, delete"),
        ("cleanup.policy", ",delete", "Elements of the list must not be empty"),
        ("leader.replication.throttled.replicas", "x", "Must be the literal '*' or a list of replicas"),
        ("remote.storage.enable", "true", "Tiered Storage functionality is disabled in the broker"),
        ("retention.milliseconds", "1", "Unknown topic config name: retention.milliseconds"),
        ("retenion.ms", "1", "Unknown topic config name: retenion.ms. Did you mean retention.ms?"),
    ],
)
def test_values_that_are_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(KafkaError) as refusal:
        parse_topic_config({name: text}, BROKER)
    assert refusal.value.code is ErrorCode.INVALID_CONFIG
    assert message in refusal.value.message


def test_settings_that_contradict_each_other() -> None:
    with pytest.raises(KafkaError, match=r"min.compaction.lag.ms \(10\) > max.compaction.lag.ms \(5\)"):
        parse_topic_config({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, BROKER)


def test_the_internal_segment_size_overrides_the_other() -> None:
    config = parse_topic_config({"internal.segment.bytes": "2048", "segment.bytes": "2097152"}, BROKER)
    assert config.segment_bytes == 2048


def test_stored_settings_never_keep_a_broker_from_starting() -> None:
    stored = {"retention.ms": "7", "of.the.future": "1", "segment.bytes": "none"}
    assert apply_topic(BROKER, stored) == TopicConfig(retention_ms=7)


def test_a_config_is_immutable_and_compares_by_value() -> None:
    config = TopicConfig(segment_bytes=1024)
    assert config != TopicConfig()
    assert config.replace(segment_bytes=1 << 30) == TopicConfig()
    assert hash(config) == hash(TopicConfig(segment_bytes=1024))
    assert config.given == {"segment_bytes"}
    with pytest.raises(AttributeError, match="immutable"):
        config.segment_bytes = 1  # type: ignore[misc]
    with pytest.raises(TypeError, match="segment_byte"):
        TopicConfig(segment_byte=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="node_id"):
        BrokerConfig()  # type: ignore[call-arg]


def test_a_broker_file() -> None:
    config = parse_broker_config(
        {
            "node.id": "3",
            "listeners": "PLAINTEXT://:9092, local://[::1]:0",
            "advertised.listeners": "PLAINTEXT://kafka.example.com:19092",
            "log.dir": "/data",
            "cluster.id": "AAAAAAAAAAAAAAAAAAAAAA",
        }
    )
    assert config.listeners == (Endpoint("PLAINTEXT", "", 9092), Endpoint("LOCAL", "::1", 0))
    assert config.log_dirs == ("/data",)
    assert config.metadata_folder == "/data"
    assert decide_advertised(config, {}) == (Endpoint("PLAINTEXT", "kafka.example.com", 19092),)
    assert str(config.listeners[1]) == "LOCAL://[::1]:0"


def test_what_is_advertised_where_nothing_is_said() -> None:
    config = parse_broker_config({"node.id": "1", "listeners": "PLAINTEXT://:0,OTHER://10.0.0.1:1"})
    advertised = decide_advertised(config, {"PLAINTEXT": 34567, "OTHER": 1})
    assert advertised == (Endpoint("PLAINTEXT", "localhost", 34567), Endpoint("OTHER", "10.0.0.1", 1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"log.dirs": "/data"}, 'Missing required configuration "node.id"'),
        ({"node.id": "-1"}, "Value must be at least 0"),
        ({"node.id": "1", "nod.id": "1"}, "Unknown broker config name: nod.id. Did you mean node.id?"),
        ({"node.id": "1", "listeners": "localhost:9092"}, "Write NAME://host:port"),
        ({"node.id": "1", "listeners": "PLAINTEXT://h:70000"}, "Write NAME://host:port"),
        ({"node.id": "1", "listener.name.gone.ssl.client.auth": "none"}, "There is no listener GONE"),
        ({"node.id": "1", "listener.name.plaintext.node.id": "2"}, "There is no such setting of a listener"),
        ({"node.id": "1", "listener.name.plaintext.ssl.client.auth": "maybe"}, "String must be one of: none"),
        ({"node.id": "1", "listener.name.plaintext.plain.ssl.client.auth": "none"}, "There is no such setting"),
        ({"node.id": "1", "listeners": ""}, "At least one listener is needed"),
        ({"node.id": "1", "listeners": "A://h:1,B://h:1"}, "Each listener must have a different name and port"),
        ({"node.id": "1", "listeners": "A://h:1,A://h:2"}, "Each listener must have a different name and port"),
        ({"node.id": "1", "listeners": "A://0.0.0.0:1"}, "Set advertised.listeners to an address that they can reach"),
        ({"node.id": "1", "advertised.listeners": "B://h:1"}, "Each advertised listener must be one of listeners"),
        ({"node.id": "1", "log.dirs": ""}, "At least one data folder is needed"),
        ({"node.id": "1", "log.dirs": "/a/b,/c,/a/./b/"}, "A data folder is named twice"),
        ({"node.id": "1", "cluster.id": "short"}, "A cluster id is 22 base64url characters"),
        ({"node.id": "1", "process.roles": "worker"}, "String must be one of: broker, controller"),
    ],
)
def test_broker_files_that_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(KafkaError) as refusal:
        parse_broker_config(settings)
    assert refusal.value.code is ErrorCode.INVALID_CONFIG
    assert message in refusal.value.message


@pytest.mark.parametrize("text", ["PLAINTEXT://", "PLAINTEXT://h", "PLAINTEXT://[::1:9092", "://h:1", "A://a b:1"])
def test_endpoints_that_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Write NAME://host:port"):
        parse_endpoint(text)


def test_dynamic_settings_lie_over_the_file() -> None:
    broker = parse_broker_config({"node.id": "1", "log.retention.hours": "1", "max.connections": "5"})
    everyone = {"log.retention.ms": "100", "max.connections": "6", "node.id": "9", "gone": "1"}
    config = apply_dynamic(broker, everyone, {"max.connections": "7"})
    assert (config.node_id, config.max_connections, config.topic_defaults.retention_ms) == (1, 7, 100)
    assert apply_dynamic(broker, {}, {}) is broker


def test_a_toml_document_may_nest_its_tables() -> None:
    document = {
        "node": {"id": 1},
        "log.dirs": ["/a", "/b"],
        "log": {"retention": {"hours": 2}, "cleaner.enable": False},
        "min.cleanable": {"ratio": 0.5},
    }
    assert flatten(document) == {
        "node.id": "1",
        "log.dirs": "/a,/b",
        "log.retention.hours": "2",
        "log.cleaner.enable": "false",
        "min.cleanable.ratio": "0.5",
    }
    with pytest.raises(KafkaError, match="set twice"):
        flatten({"node.id": 1, "node": {"id": 2}})
    with pytest.raises(KafkaError, match="Write a string, a number"):
        flatten({"node.id": None})


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.5"), (0.0, "0.0"), (1e7, "1.0E7"), (1.7976931348623157e308, "1.7976931348623157E308"), (1e-4, "1.0E-4")],
)
def test_doubles_are_printed_as_java_prints_them(value: float, text: str) -> None:
    setting = Setting(Kind.DOUBLE, default=0.0, doc="")
    assert format_value(setting, value) == text
    assert parse_value(setting, text) == value


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"process.roles": "controller"}, "needs a listener for the metadata quorum"),
        ({"process.roles": "broker"}, "where to find the controllers"),
        ({"controller.listener.names": "OTHER"}, "must be among the listeners"),
        ({"controller.listener.names": "plaintext"}, "a listener that is not a controller's"),
        ({"inter.broker.listener.name": "OTHER"}, "It must be a listener"),
        (
            {
                "listeners": "A://127.0.0.1:1,B://127.0.0.1:2",
                "controller.listener.names": "B",
                "inter.broker.listener.name": "B",
            },
            "not a controller's",
        ),
    ],
)
def test_roles_and_listeners_must_fit(values: dict[str, str], problem: str) -> None:
    with pytest.raises(KafkaError, match=problem):
        parse_broker_config({"node.id": "1", "listeners": "PLAINTEXT://127.0.0.1:9092", **values})


def test_listeners_of_the_quorum_need_not_be_advertised() -> None:
    config = parse_broker_config(
        {
            "node.id": "1",
            "listeners": "CLIENTS://:0,QUORUM://10.0.0.1:0",
            "advertised.listeners": "CLIENTS://queue.example:9092",
            "controller.listener.names": "QUORUM",
        }
    )
    assert decide_advertised(config, {"QUORUM": 7, "CLIENTS": 8}) == (
        Endpoint("CLIENTS", "queue.example", 9092),
        Endpoint("QUORUM", "10.0.0.1", 7),
    )


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"group.consumer.session.timeout.ms": "44999"}, "group.consumer.min.session.timeout.ms"),
        ({"group.consumer.heartbeat.interval.ms": "15001"}, "group.consumer.max.heartbeat.interval.ms"),
        (
            {
                "group.consumer.min.session.timeout.ms": "6000",
                "group.consumer.session.timeout.ms": "6000",
                "group.consumer.heartbeat.interval.ms": "6000",
            },
            "must be greater than consumer.heartbeat.interval.ms",
        ),
    ],
)
def test_bounds_of_groups(values: dict[str, str], reason: str) -> None:
    with pytest.raises(KafkaError, match=reason):
        parse_broker_config({"node.id": "1", **values})


def test_a_migration_policy_is_read_in_any_case() -> None:
    config = parse_broker_config({"node.id": "1", "group.consumer.migration.policy": "Upgrade"})
    assert config.group_consumer_migration_policy == "upgrade"
    with pytest.raises(KafkaError, match="must be one of"):
        parse_broker_config({"node.id": "1", "group.consumer.migration.policy": "sideways"})
