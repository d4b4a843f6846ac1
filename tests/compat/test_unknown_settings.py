"""Settings of a broker that no broker knows, as of a plugin, or a topic's name by mistake: Apache Kafka takes them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tailrace.testing import Broker
from tests.apache_kafka import ApacheKafka

pytestmark = pytest.mark.long

WAIT_S = 20
SET, DELETE = AlterConfigOpType.SET, AlterConfigOpType.DELETE
# A setting, its value, and what is done; in this order.
CHANGES = [
    ("cleanup.policy", "compact", SET),
    ("cleanup.policy", "nonsense", SET),
    ("my.plugin.setting", "1", SET),
    ("listener.name.nowhere.my.setting", "1", SET),
    ("log.cleanup.policy", "nonsense", SET),
    ("broker.rack", "elsewhere", SET),
    ("my.plugin.setting", "2", AlterConfigOpType.APPEND),
    ("cleanup.policy", None, DELETE),
    ("never.set", None, DELETE),
]


@pytest.fixture(scope="module")
def answers_of_kafka(kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[object]]:
    folder: Path = tmp_path_factory.mktemp("kafka")
    with ApacheKafka(kafka_class_path, folder) as kafka:
        yield answers(kafka.bootstrap)


def answers(bootstrap: str) -> list[object]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return [ask(admin, *change) for change in CHANGES]


def ask(admin: AdminClient, setting: str, value: str | None, operation: AlterConfigOpType) -> tuple[object, ...]:
    """What was answered, and what is told of the setting then."""
    entry = ConfigEntry(setting, value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    (altered,) = admin.incremental_alter_configs([resource]).values()
    try:
        altered.result(WAIT_S)
        error = None
    except KafkaException as refused:
        error = refused.args[0].name()
    told = describe(admin, setting)
    ends = time.monotonic() + 5
    # A broker of Kafka hears of a change a little later than the controller.
    while error is None and (told is None) != (operation is DELETE) and time.monotonic() < ends:
        time.sleep(0.1)
        told = describe(admin, setting)
    return setting, value, error, told and (told.value, told.source, told.is_sensitive, told.is_read_only)


def describe(admin: AdminClient, setting: str) -> ConfigEntry | None:
    (described,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    return described.result(WAIT_S).get(setting)


def test_unknown_settings_of_brokers_are_as_in_kafka(answers_of_kafka: list[object]):
    with Broker() as broker:
        assert answers(broker.bootstrap) == answers_of_kafka
