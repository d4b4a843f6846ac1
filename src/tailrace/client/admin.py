"""The admin client: topics, partitions and their settings.

Each call raises KafkaError with the broker's own message if the broker refuses. Changes are sent to any broker, which
takes them to the controller; they are not repeated by themselves, since a change whose answer was lost may have been
made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from tailrace.client.connection import error_code
from tailrace.client.metadata import Cluster, TopicMetadata
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.admin import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

T = TypeVar("T")

RESOURCE_TOPIC = 2
_OPERATION_SET = 0
_OPERATION_DELETE = 1
# Left to the broker's num.partitions and default.replication.factor (KIP-464).
BROKER_DEFAULT = -1

# ConfigSource of DescribeConfigs, in words.
CONFIG_SOURCES = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "broker's file",
    5: "default",
    6: "broker's logger",
    7: "client metrics",
    8: "group",
}
SOURCE_TOPIC = 1


class CreatedTopic(NamedTuple):
    """Numbers are -1 if the broker is too old to tell."""

    name: str
    id: bytes
    partition_count: int
    replication_factor: int


class ConfigEntry(NamedTuple):
    name: str
    value: str | None  # None if it is sensitive
    source: int
    is_read_only: bool


class Admin:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def topics(self) -> list[TopicMetadata]:
        """All of them, by name."""
        return [topic for _, topic in sorted((await self.cluster.refresh(None)).items())]

    async def describe_topics(self, names: Sequence[str]) -> list[TopicMetadata]:
        found = await self.cluster.refresh(names)
        return [found[name] for name in names]

    async def create_topic(
        self,
        name: str,
        *,
        partition_count: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partition_count,
            replication_factor=replication_factor,
            assignments=[
                CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                for index, replicas in (assignments or {}).items()
            ],
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=setting, value=value)
                for setting, value in (configs or {}).items()
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=self._timeout_ms, validate_only=validate_only)
        connection = await self.cluster.any_connection()
        result = _only((await connection.call(request, CreateTopicsResponse)).topics)
        _check(result.error_code, result.error_message, f"topic {name} was not created")
        return CreatedTopic(name, result.topic_id, result.num_partitions, result.replication_factor)

    async def delete_topic(self, name: str) -> None:
        connection = await self.cluster.any_connection()
        request = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], topic_names=[name], timeout_ms=self._timeout_ms
        )
        result = _only((await connection.call(request, DeleteTopicsResponse)).responses)
        _check(result.error_code, result.error_message, f"topic {name} was not deleted")
        self.cluster.forget(name)

    async def create_partitions(self, name: str, count: int, *, validate_only: bool = False) -> None:
        """`count` is how many there are to be in all."""
        connection = await self.cluster.any_connection()
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )
        result = _only((await connection.call(request, CreatePartitionsResponse)).results)
        _check(result.error_code, result.error_message, f"topic {name} did not get {count} partitions")
        self.cluster.forget(name)

    async def configs_of(self, resource_type: int, name: str) -> list[ConfigEntry]:
        connection = await self.cluster.any_connection()
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=resource_type, resource_name=name, configuration_keys=None
                )
            ]
        )
        result = _only((await connection.call(request, DescribeConfigsResponse)).results)
        _check(result.error_code, result.error_message, f"the settings of {name} are not told")
        return [
            ConfigEntry(entry.name, entry.value, entry.config_source, entry.read_only)
            for entry in sorted(result.configs, key=lambda entry: entry.name)
        ]

    async def alter_configs(
        self,
        resource_type: int,
        name: str,
        *,
        changes: Mapping[str, str],
        removals: Sequence[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Removed settings go back to their defaults; those not mentioned stay (KIP-339)."""
        configs = [
            IncrementalAlterConfigsRequest.AlterableConfig(name=setting, config_operation=_OPERATION_SET, value=value)
            for setting, value in changes.items()
        ] + [
            IncrementalAlterConfigsRequest.AlterableConfig(name=setting, config_operation=_OPERATION_DELETE, value=None)
            for setting in removals
        ]
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsRequest.AlterConfigsResource(
                    resource_type=resource_type, resource_name=name, configs=configs
                )
            ],
            validate_only=validate_only,
        )
        connection = await self.cluster.any_connection()
        result = _only((await connection.call(request, IncrementalAlterConfigsResponse)).responses)
        _check(result.error_code, result.error_message, f"the settings of {name} were not changed")

    @property
    def _timeout_ms(self) -> int:
        return self.cluster.limits.request_timeout_ms


def _only(results: Sequence[T]) -> T:
    if len(results) != 1:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker gave {len(results)} answers to one question")
    return results[0]


def _check(number: int, message: str | None, failure: str) -> None:
    code = error_code(number)
    if code is not ErrorCode.NONE:
        raise KafkaError(code, f"{failure}: {message}" if message else failure)
