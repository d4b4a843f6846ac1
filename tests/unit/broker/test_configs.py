"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources over the wire."""

import errno

import pytest

from tailrace.controller.configs import Operation
from tailrace.controller.image import ResourceType
from tailrace.model.config import SETTINGS, TOPIC_SETTINGS
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.admin import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from tests.unit.broker.world import Peer, batch, create_topic, produce, produced, running

TOPIC_CONFIG, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT, GROUP_CONFIG = 1, 2, 3, 4, 5, 8


async def describe(
    peer: Peer, resource_type: int, name: str, *keys: str, version: int = 4, documentation: bool = False
):
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=list(keys) or None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=documentation)
    (result,) = (await peer.request(request, version)).results
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    return {config.name: config for config in result.configs}, result


async def change(peer: Peer, resource_type: int, name: str, **settings: str | None) -> ErrorCode:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(
            name=key.replace("_", "."),
            config_operation=Operation.DELETE if value is None else Operation.SET,
            value=value,
        )
        for key, value in settings.items()
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=resource_type, resource_name=name, configs=configs)]
    )
    (response,) = (await peer.request(request, 1)).responses
    return ErrorCode(response.error_code)


def synonyms_of(config) -> list[tuple[str, str, int]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms]


@pytest.mark.parametrize("version", range(1, 5))
async def test_describe_a_topic_in_every_version(version: int) -> None:
    async with running({"log.retention.bytes": "99"}) as world:
        peer = await world.connect()
        await create_topic(peer, "orders", retention_ms="77")
        configs, result = await describe(peer, ResourceType.TOPIC, "orders", version=version)
        assert (result.error_code, result.error_message) == (ErrorCode.NONE, "")
        assert set(configs) == {name for name, row in TOPIC_SETTINGS.items() if not row.internal}
        assert not any(config.read_only or config.is_sensitive for config in configs.values())
        found = {name: (configs[name].value, configs[name].config_source) for name in configs}
        assert found["retention.ms"] == ("77", TOPIC_CONFIG)
        assert found["retention.bytes"] == ("99", STATIC)
        assert found["segment.bytes"] == ("1073741824", DEFAULT)
        assert found["min.cleanable.dirty.ratio"] == ("0.5", DEFAULT)
        assert configs["segment.bytes"].config_type == (3 if version >= 3 else 0)
        assert synonyms_of(configs["retention.bytes"]) == [
            ("log.retention.bytes", "99", STATIC),
            ("log.retention.bytes", "-1", DEFAULT),
        ]
        # As in Kafka: the value in hours is no synonym where none is given in milliseconds.
        assert synonyms_of(configs["retention.ms"]) == [("retention.ms", "77", TOPIC_CONFIG)]


async def test_documentation_is_given_if_asked_for() -> None:
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "orders")
        configs, _ = await describe(peer, ResourceType.TOPIC, "orders", "segment.ms", documentation=True)
        assert configs["segment.ms"].documentation == TOPIC_SETTINGS["segment.ms"].doc
        configs, _ = await describe(peer, ResourceType.TOPIC, "orders", "segment.ms")
        assert configs["segment.ms"].documentation is None


async def test_only_the_keys_asked_for() -> None:
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "orders")
        configs, _ = await describe(peer, ResourceType.TOPIC, "orders", "segment.ms", "nope")
        assert list(configs) == ["segment.ms"]


async def test_describe_a_broker() -> None:
    async with running({"log.retention.hours": "5"}) as world:
        peer = await world.connect()
        configs, _ = await describe(peer, ResourceType.BROKER, "1")
        assert set(configs) == {name for name, row in SETTINGS.items() if not row.internal}
        assert configs["node.id"].read_only
        assert not configs["max.connections"].read_only
        hours = configs["log.retention.hours"]
        assert (hours.value, hours.config_source) == ("5", STATIC)
        assert synonyms_of(hours) == [("log.retention.hours", "5", STATIC), ("log.retention.hours", "168", DEFAULT)]
        unset = configs["log.retention.ms"]
        assert (unset.value, unset.config_source, unset.synonyms) == (None, DEFAULT, [])


async def test_what_has_no_effect_is_shown_as_it_was_given() -> None:
    async with running({"num.io.threads": "5"}) as world:
        peer = await world.connect()
        configs, _ = await describe(peer, ResourceType.BROKER, "1", "num.io.threads", "log.cleaner.threads")
        assert {name: (each.value, each.config_source) for name, each in configs.items()} == {
            "num.io.threads": ("5", STATIC),
            "log.cleaner.threads": ("1", DEFAULT),
        }


async def test_dynamic_settings_come_first() -> None:
    async with running({"max.connections": "50"}) as world:
        peer = await world.connect()
        assert await change(peer, ResourceType.BROKER, "", max_connections="60", log_retention_ms="7") == 0
        assert await change(peer, ResourceType.BROKER, "1", max_connections="70") == 0
        configs, _ = await describe(peer, ResourceType.BROKER, "1", "max.connections", "log.retention.ms")
        assert (configs["max.connections"].value, configs["max.connections"].config_source) == ("70", DYNAMIC_BROKER)
        assert synonyms_of(configs["max.connections"]) == [
            ("max.connections", "70", DYNAMIC_BROKER),
            ("max.connections", "60", DYNAMIC_DEFAULT),
            ("max.connections", "50", STATIC),
            ("max.connections", "2147483647", DEFAULT),
        ]
        everyone, _ = await describe(peer, ResourceType.BROKER, "")
        assert {name: config.value for name, config in everyone.items()} == {
            "max.connections": "60",
            "log.retention.ms": "7",
            "min.insync.replicas": "1",
        }
        assert synonyms_of(everyone["max.connections"]) == [("max.connections", "60", DYNAMIC_DEFAULT)]
        await create_topic(peer, "orders")
        topic, _ = await describe(peer, ResourceType.TOPIC, "orders", "retention.ms")
        assert (topic["retention.ms"].value, topic["retention.ms"].config_source) == ("7", DYNAMIC_DEFAULT)
        assert synonyms_of(topic["retention.ms"]) == [
            ("log.retention.ms", "7", DYNAMIC_DEFAULT),
            ("log.retention.hours", "168", DEFAULT),
        ]


@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        (ResourceType.TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ResourceType.TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (ResourceType.BROKER, "2", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER, "x", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER, "9" * 5000, ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_cannot_be_described(resource_type: int, name: str, code: ErrorCode) -> None:
    async with running() as world:
        peer = await world.connect()
        configs, result = await describe(peer, resource_type, name)
        assert (configs, result.error_code) == ({}, code)
        assert result.error_message


async def test_a_request_for_too_many_resources_is_refused_for_each_of_them() -> None:
    async with running({"max.resources.per.describe": "2"}) as world:
        resource = DescribeConfigsRequest.DescribeConfigsResource(resource_type=ResourceType.BROKER, resource_name="1")
        peer = await world.connect()
        assert len((await peer.request(DescribeConfigsRequest(resources=[resource] * 2), 4)).results) == 2
        refused = (await peer.request(DescribeConfigsRequest(resources=[resource] * 3), 4)).results
        assert [each.error_code for each in refused] == [ErrorCode.INVALID_REQUEST] * 3


async def test_a_topic_setting_takes_effect_at_once() -> None:
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "orders")
        large = produce("orders", batch(b"x" * 1000))
        assert produced(await peer.request(large, 9)).error_code == ErrorCode.NONE
        assert await change(peer, ResourceType.TOPIC, "orders", max_message_bytes="500") == ErrorCode.NONE
        assert produced(await peer.request(large, 9)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert await change(peer, ResourceType.TOPIC, "orders", max_message_bytes=None) == ErrorCode.NONE
        assert produced(await peer.request(large, 9)).error_code == ErrorCode.NONE


async def test_a_broker_setting_takes_effect_at_once() -> None:
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "orders")
        large = produce("orders", batch(b"x" * 1000))
        assert await change(peer, ResourceType.BROKER, "", message_max_bytes="500") == ErrorCode.NONE
        assert world.broker.config.message_max_bytes == 500
        assert produced(await peer.request(large, 9)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert await change(peer, ResourceType.BROKER, "1", message_max_bytes="5000") == ErrorCode.NONE
        assert produced(await peer.request(large, 9)).error_code == ErrorCode.NONE


async def test_settings_survive_a_restart() -> None:
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "orders", segment_ms="9000")
        await change(peer, ResourceType.TOPIC, "orders", retention_ms="77")
        await change(peer, ResourceType.BROKER, "1", max_connections="44")
        await world.broker.stop()
        await world.start()
        peer = await world.connect()
        configs, _ = await describe(peer, ResourceType.TOPIC, "orders", "retention.ms", "segment.ms")
        assert {name: config.value for name, config in configs.items()} == {
            "retention.ms": "77",
            "segment.ms": "9000",
        }
        assert world.broker.config.max_connections == 44


@pytest.mark.parametrize("version", range(3))
async def test_alter_configs_in_every_version(version: int) -> None:
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "orders", retention_ms="77")
        resource = AlterConfigsRequest.AlterConfigsResource
        config = AlterConfigsRequest.AlterableConfig(name="retention.bytes", value="5")
        request = AlterConfigsRequest(
            resources=[
                resource(resource_type=ResourceType.TOPIC, resource_name="orders", configs=[config]),
                resource(resource_type=ResourceType.TOPIC, resource_name="none", configs=[config]),
            ]
        )
        good, bad = (await peer.request(request, version)).responses
        assert (good.error_code, bad.error_code) == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert world.broker.image.config(ResourceType.TOPIC, "orders") == {"retention.bytes": "5"}


async def test_a_disk_that_fails_is_told_for_every_resource() -> None:
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "orders")
        world.disk.fail("append", "*__cluster_metadata*", error=errno.ENOSPC)
        assert await change(peer, ResourceType.TOPIC, "orders", retention_ms="5") == ErrorCode.KAFKA_STORAGE_ERROR
        resource = AlterConfigsRequest.AlterConfigsResource(
            resource_type=ResourceType.TOPIC,
            resource_name="orders",
            configs=[AlterConfigsRequest.AlterableConfig(name="retention.bytes", value="5")],
        )
        (answer,) = (await peer.request(AlterConfigsRequest(resources=[resource]), 2)).responses
        assert (answer.resource_name, answer.error_code) == ("orders", ErrorCode.KAFKA_STORAGE_ERROR)


async def test_list_config_resources() -> None:
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "orders")
        old = await peer.request(ListConfigResourcesRequest(), 0)
        assert (old.error_code, old.config_resources) == (ErrorCode.NONE, [])
        everything = await peer.request(ListConfigResourcesRequest(), 1)
        assert [(each.resource_type, each.resource_name) for each in everything.config_resources] == [
            (ResourceType.TOPIC, "orders"),
            (ResourceType.BROKER, "1"),
            (ResourceType.BROKER_LOGGER, "1"),
        ]
        brokers = await peer.request(ListConfigResourcesRequest(resource_types=[ResourceType.BROKER]), 1)
        assert [each.resource_name for each in brokers.config_resources] == ["1"]
        unknown = await peer.request(ListConfigResourcesRequest(resource_types=[77]), 1)
        assert unknown.error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_settings_of_a_group() -> None:
    async with running({"group.consumer.heartbeat.interval.ms": "6000"}) as world:
        peer = await world.connect()
        assert await change(peer, ResourceType.GROUP, "g", consumer_session_timeout_ms="50000") == ErrorCode.NONE
        configs, _ = await describe(peer, ResourceType.GROUP, "g")
        assert {name: (config.value, config.config_source, config.read_only) for name, config in configs.items()} == {
            "consumer.session.timeout.ms": ("50000", GROUP_CONFIG, False),
            "consumer.heartbeat.interval.ms": ("6000", STATIC, False),
            "consumer.assignment.interval.ms": ("1000", DEFAULT, False),
            "share.session.timeout.ms": ("45000", DEFAULT, False),
            "streams.assignment.interval.ms": ("1000", DEFAULT, False),
            "streams.heartbeat.interval.ms": ("5000", DEFAULT, False),
            "streams.initial.rebalance.delay.ms": ("3000", DEFAULT, False),
            "streams.num.standby.replicas": ("0", DEFAULT, False),
            "streams.session.timeout.ms": ("45000", DEFAULT, False),
            "share.heartbeat.interval.ms": ("5000", DEFAULT, False),
            "share.assignment.interval.ms": ("1000", DEFAULT, False),
            "share.record.lock.duration.ms": ("30000", DEFAULT, False),
            "share.delivery.count.limit": ("5", DEFAULT, False),
            "share.partition.max.record.locks": ("2000", DEFAULT, False),
            "share.auto.offset.reset": ("latest", DEFAULT, False),
            "share.isolation.level": ("read_uncommitted", DEFAULT, False),
            "share.renew.acknowledge.enable": ("true", DEFAULT, False),
            "errors.deadletterqueue.copy.record.enable": ("false", DEFAULT, False),
            "errors.deadletterqueue.topic.name": ("", DEFAULT, False),
            "share.key.order": ("false", DEFAULT, False),
            "share.retry.backoff.factor": ("2.0", DEFAULT, False),
            "share.retry.backoff.max.ms": ("3600000", DEFAULT, False),
            "share.retry.backoff.ms": ("0", DEFAULT, False),
        }
        assert synonyms_of(configs["consumer.session.timeout.ms"]) == [
            ("consumer.session.timeout.ms", "50000", GROUP_CONFIG),
            ("group.consumer.session.timeout.ms", "45000", DEFAULT),
        ]
        # A group need not exist to be asked for.
        configs, _ = await describe(peer, ResourceType.GROUP, "h", "consumer.session.timeout.ms")
        assert [(config.value, config.config_source) for config in configs.values()] == [("45000", DEFAULT)]
        _, refused = await describe(peer, ResourceType.GROUP, "")
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        groups = await peer.request(ListConfigResourcesRequest(resource_types=[ResourceType.GROUP]), 1)
        assert [each.resource_name for each in groups.config_resources] == ["g"]
