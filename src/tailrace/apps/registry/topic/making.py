"""The topic is there, and is one that schemas are safe in: one partition, compacted. A topic with retention would
forget schemas of data that is still there."""

from __future__ import annotations

from tailrace.apps.registry.settings import RegistrySettings
from tailrace.client.admin import RESOURCE_TOPIC, Admin
from tailrace.client.metadata import Cluster
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError

_log = events.logger("registry")
# With three replicas, what was confirmed is on two disks at least.
_REPLICAS_FOR_TWO = 3


async def ensure_topic(cluster: Cluster, settings: RegistrySettings) -> None:
    """Raises KafkaError that says what is wrong with the topic that is there."""
    await cluster.with_retries(lambda: _ensure(cluster, settings), timeout_ms=settings.init_timeout_ms)


async def _ensure(cluster: Cluster, settings: RegistrySettings) -> None:
    name = settings.topic
    try:
        topic = (await cluster.refresh([name]))[name]
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        await _create(cluster, settings)
        topic = (await cluster.refresh([name]))[name]
    if len(topic.partitions) != 1:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"topic {name} has {len(topic.partitions)} partitions, and a registry's order of writes needs exactly one: "
            "name another with kafkastore.topic",
        )
    try:
        configs = await Admin(cluster).configs_of(RESOURCE_TOPIC, name)
    except KafkaError as error:
        _log.warning("cannot see whether the topic is compacted", topic=name, cause=error.message)
        return
    policy = next((each.value for each in configs if each.name == "cleanup.policy"), None)
    if policy is not None and policy.strip() != "compact":
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"topic {name} has cleanup.policy={policy}, so schemas would be deleted by age; make it safe with: "
            f"tailrace topic alter {name} --set cleanup.policy=compact",
        )


async def _create(cluster: Cluster, settings: RegistrySettings) -> None:
    await cluster.refresh(None)
    replicas = min(settings.replication_factor, len(cluster.brokers))
    configs = {"cleanup.policy": "compact"}
    if replicas >= _REPLICAS_FOR_TWO:
        configs["min.insync.replicas"] = "2"
    if replicas < settings.replication_factor:
        _log.info("the topic has fewer replicas than wanted", topic=settings.topic, replicas=replicas)
    try:
        await Admin(cluster).create_topic(
            settings.topic, partition_count=1, replication_factor=replicas, configs=configs
        )
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # Another registry was faster.
            raise
