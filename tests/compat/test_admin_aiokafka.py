"""aiokafka's admin client: the older versions of the admin requests, and the full AlterConfigs."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from .clients.aio import Aiokafka
from .clients.corpus import small


@pytest.fixture
async def aio_admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    yield admin
    await admin.close()


async def _settings(admin: AIOKafkaAdminClient, topic: str) -> dict[str, Any]:
    (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    ((code, _, _, _, entries),) = answer.resources
    assert code == 0
    return {entry[0]: entry[1] for entry in entries}


async def test_a_topic_lives_and_dies(aio_admin: AIOKafkaAdminClient, fresh_name: Callable[[], str]):
    name = fresh_name()
    created = await aio_admin.create_topics([NewTopic(name, 2, 1, topic_configs={"retention.ms": "60000"})])
    assert [error[1] for error in created.topic_errors] == [0]
    assert name in await aio_admin.list_topics()
    (described,) = await aio_admin.describe_topics([name])
    assert (described["error_code"], len(described["partitions"])) == (0, 2)
    grown = await aio_admin.create_partitions({name: NewPartitions(3)})
    assert [error[1] for error in grown.topic_errors] == [0]
    assert len((await aio_admin.describe_topics([name]))[0]["partitions"]) == 3
    deleted = await aio_admin.delete_topics([name])
    assert [error[1] for error in deleted.topic_error_codes] == [0]
    assert name not in await aio_admin.list_topics()


async def test_the_full_alter_replaces_what_was_set(aio_admin: AIOKafkaAdminClient, create_topic: Callable[..., str]):
    topic = create_topic(**{"retention.ms": "60000", "segment.bytes": "2000000"})
    await aio_admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "70000"})])
    settings = await _settings(aio_admin, topic)
    assert (settings["retention.ms"], settings["segment.bytes"]) == ("70000", "1073741824")


async def test_records_are_deleted(bootstrap: str, aio_admin: AIOKafkaAdminClient, topic: str):
    await Aiokafka.write(bootstrap, topic, small(10))
    partition = TopicPartition(topic, 0)
    assert await aio_admin.delete_records({partition: RecordsToDelete(before_offset=4)}) == {partition: 4}


async def test_the_cluster_is_described(bootstrap: str, aio_admin: AIOKafkaAdminClient):
    cluster = await aio_admin.describe_cluster()
    assert [f"{broker['host']}:{broker['port']}" for broker in cluster["brokers"]] == [bootstrap]
    assert cluster["controller_id"] == cluster["brokers"][0]["node_id"]
    assert cluster["cluster_id"]
