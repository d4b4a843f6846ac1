"""The `kafka.*` options: what they become, what is refused, and what is ignored aloud."""

import pickle
import warnings
from pathlib import Path

import pytest

from tailrace.client.connection import Address, ConnectionLimits
from tailrace.client.consumer import ConsumerOptions, Isolation
from tailrace.client.lanes import ProducerOptions
from tailrace.client.security.settings import SECURITY_SETTINGS, Mechanism
from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.kafka import ClientConfig, KafkaSettings, parse_kafka_settings
from tailrace.spark.options.kafka_names import IGNORED, REFUSED
from tailrace.wire.compression import Compression

BOOTSTRAP = {"kafka.bootstrap.servers": "a:1, b"}


def test_brokers_alone_leave_the_clients_own_defaults():
    settings = parse_kafka_settings(BOOTSTRAP | {"subscribe": "t", "startingoffsets": "earliest"})
    assert settings == KafkaSettings((Address("a", 1), Address("b", 9092)))


@pytest.mark.parametrize("options", [{}, {"kafka.bootstrap.servers": " "}, {"bootstrap.servers": "a:1"}])
def test_no_brokers(options: dict[str, str]):
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        parse_kafka_settings(options)


def test_every_setting_that_means_something_is_used():
    settings = parse_kafka_settings(
        BOOTSTRAP
        | {
            "kafka.client.id": "job",
            "kafka.isolation.level": "read_committed",
            "kafka.request.timeout.ms": "1",
            "kafka.default.api.timeout.ms": "2",
            "kafka.socket.connection.setup.timeout.ms": "3",
            "kafka.retry.backoff.ms": "4",
            "kafka.retry.backoff.max.ms": "5",
            "kafka.fetch.min.bytes": "6",
            "kafka.fetch.max.wait.ms": "7",
            "kafka.fetch.max.bytes": "8",
            "kafka.max.partition.fetch.bytes": "9",
            "kafka.acks": "all",
            "kafka.enable.idempotence": "true",
            "kafka.compression.type": "zstd",
            "kafka.compression.gzip.level": "1",
            "kafka.compression.lz4.level": "2",
            "kafka.compression.zstd.level": "-7",
            "kafka.linger.ms": "10",
            "kafka.batch.size": "11",
            "kafka.buffer.memory": "12",
            "kafka.max.request.size": "13",
            "kafka.delivery.timeout.ms": "14",
            "kafka.transaction.timeout.ms": "15",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.username": "alice",
            "kafka.sasl.password": "secret",
        }
    )
    assert settings.security.sasl is not None
    assert settings.security.sasl.mechanism is Mechanism.SCRAM_SHA_512
    assert settings == KafkaSettings(
        bootstrap=(Address("a", 1), Address("b", 9092)),
        client_id="job",
        limits=ConnectionLimits(connect_timeout_ms=3, request_timeout_ms=1, retry_backoff_ms=4, retry_backoff_max_ms=5),
        security=settings.security,
        isolation=Isolation.READ_COMMITTED,
        consumer=ConsumerOptions(
            isolation=Isolation.READ_COMMITTED,
            fetch_min_bytes=6,
            fetch_max_wait_ms=7,
            fetch_max_bytes=8,
            partition_max_bytes=9,
            retry_timeout_ms=2,
        ),
        producer=ProducerOptions(
            acks=-1,
            idempotent=True,
            compression=Compression.ZSTD,
            level=-7,
            linger_ms=10,
            batch_bytes=11,
            buffer_bytes=12,
            request_timeout_ms=1,
            delivery_timeout_ms=14,
        ),
        request_bytes_max=13,
        transaction_timeout_ms=15,
    )
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(("text", "acks"), [("all", -1), ("-1", -1), ("0", 0), ("1", 1)])
def test_acks(text: str, acks: int):
    assert parse_kafka_settings(BOOTSTRAP | {"kafka.acks": text}).producer.acks == acks


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("bootstrap.servers", "a:port", "'a:port' is not an address: expected host:port"),
        ("acks", "2", "one of: all, -1, 0, 1"),
        ("fetch.min.bytes", "many", r"Invalid value many for configuration fetch\.min\.bytes"),
        ("request.timeout.ms", "0", "at least 1"),
        ("isolation.level", "serializable", "read_uncommitted, read_committed"),
        ("compression.type", "brotli", "none, gzip, snappy, lz4, zstd"),
        ("compression.zstd.level", "23", "no more than 22"),
        ("enable.idempotence", "perhaps", "either true or false"),
        ("security.protocol", "TLS", "must be one of: PLAINTEXT, SSL"),
    ],
)
def test_values_that_cannot_be(name: str, text: str, reason: str):
    with pytest.raises(OptionError, match=reason):
        parse_kafka_settings(BOOTSTRAP | {f"kafka.{name}": text})


def test_idempotence_needs_all_acks():
    with pytest.raises(OptionError, match="It needs acks=all, and acks is 1"):
        parse_kafka_settings(BOOTSTRAP | {"kafka.enable.idempotence": "true", "kafka.acks": "1"})


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_break_the_source_or_sink_is_refused(name: str):
    with pytest.raises(OptionError, match=rf"option kafka\.{name} cannot be set: "):
        parse_kafka_settings(BOOTSTRAP | {f"kafka.{name}": "x"})


def test_what_has_no_meaning_is_ignored_aloud():
    for name, reason in IGNORED.items():
        with pytest.warns(UserWarning, match=rf"^option kafka\.{name} is ignored: ") as warned:
            settings = parse_kafka_settings(BOOTSTRAP | {f"kafka.{name}": "x"})
        assert str(warned[0].message).endswith(reason)
        assert settings == parse_kafka_settings(BOOTSTRAP)


def test_a_setting_that_kafka_does_not_have_names_the_nearest():
    with pytest.warns(UserWarning, match=r"no such setting; did you mean kafka\.fetch\.min\.bytes\?"):
        parse_kafka_settings(BOOTSTRAP | {"kafka.fetch.min.byte": "1"})
    with pytest.warns(UserWarning, match=r"kafka\.nonsense is ignored: Kafka's clients have no such setting$"):
        parse_kafka_settings(BOOTSTRAP | {"kafka.nonsense": "1"})


def test_the_same_warning_is_shown_once():
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for _ in range(3):
            parse_kafka_settings(BOOTSTRAP | {"kafka.metadata.max.age.ms": "1"})
    assert len(shown) == 1


def test_each_name_stands_in_one_table():
    tables = [set(ClientConfig.SETTINGS), set(SECURITY_SETTINGS), set(IGNORED), set(REFUSED)]
    assert sum(map(len, tables)) == len(set().union(*tables))


def test_the_page_of_settings_names_all_that_are_used_or_refused():
    page = (Path(__file__).parents[4] / "docs" / "spark" / "settings.md").read_text()
    names = {*ClientConfig.SETTINGS, *REFUSED}
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []
