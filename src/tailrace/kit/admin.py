"""The admin: topics and their settings, groups and their offsets, over any Kafka.

Each call raises KafkaError with the broker's own message if the broker refuses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from tailrace.client.admin import BROKER_DEFAULT, RESOURCE_TOPIC, BrokerEntry, CreatedTopic
from tailrace.client.admin import Admin as ClientAdmin
from tailrace.client.consumer import EARLIEST, LATEST, Isolation
from tailrace.client.groups.admin import DescribedGroup, GroupAdmin, ListedGroup
from tailrace.client.groups.offsets import GroupOffsets
from tailrace.client.metadata import Cluster, TopicMetadata
from tailrace.client.offsets import list_offsets
from tailrace.kit.messages import Place, TopicPartition
from tailrace.kit.options import Options, ParsedOptions, Value
from tailrace.model import ids
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.real.cluster import open_cluster

T = TypeVar("T")


class Admin:
    """Use it as an async context manager. Options have Kafka's names."""

    def __init__(self, options: Options | None = None, /, **named: Value) -> None:
        self.options = ParsedOptions(options, named)
        self._cluster: Cluster | None = None

    async def __aenter__(self) -> Admin:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()

    # --- topics

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        config: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> CreatedTopic | None:
        """None if it was there and may be. Without numbers they are the broker's to choose."""

        async def create() -> CreatedTopic:
            return await ClientAdmin(self._open()).create_topic(
                name, partition_count=partitions, replication_factor=replication_factor, configs=config
            )

        try:
            return await self._while_away(create)
        except KafkaError as error:
            if exist_ok and error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                return None
            raise

    async def delete_topic(self, name: str, *, missing_ok: bool = False) -> None:
        try:
            await self._while_away(lambda: ClientAdmin(self._open()).delete_topic(name))
        except KafkaError as error:
            if not missing_ok or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise

    async def add_partitions(self, name: str, count: int) -> None:
        """`count` is how many there are to be in all."""
        await self._while_away(lambda: ClientAdmin(self._open()).create_partitions(name, count))

    async def topics(self) -> list[str]:
        return [topic.name for topic in await self._while_away(lambda: ClientAdmin(self._open()).topics())]

    async def describe_topics(self, names: Sequence[str]) -> list[TopicMetadata]:
        return await self._while_away(lambda: ClientAdmin(self._open()).describe_topics(names))

    async def partitions_of(self, topic: str) -> list[TopicPartition]:
        (found,) = await self.describe_topics([topic])
        return [TopicPartition(topic, index) for index in found.partitions]

    async def topic_config(self, name: str) -> dict[str, str | None]:
        """All settings, those that are not set too; None where a value is secret."""
        found = await self._while_away(lambda: ClientAdmin(self._open()).configs_of(RESOURCE_TOPIC, name))
        return {entry.name: entry.value for entry in found}

    async def alter_topic_config(
        self, name: str, changes: Mapping[str, str] | None = None, *, removals: Sequence[str] = ()
    ) -> None:
        """Removed settings go back to their defaults; those not mentioned stay."""
        await self._while_away(
            lambda: ClientAdmin(self._open()).alter_configs(
                RESOURCE_TOPIC, name, changes=changes or {}, removals=removals
            )
        )

    async def beginning_offsets(self, partitions: Iterable[ids.TopicPartition]) -> dict[TopicPartition, int]:
        return await self._offsets(partitions, EARLIEST, Isolation.READ_UNCOMMITTED)

    async def end_offsets(
        self, partitions: Iterable[ids.TopicPartition], *, committed_only: bool = False
    ) -> dict[TopicPartition, int]:
        """`committed_only`: where reading ends for readers of committed records."""
        isolation = Isolation.READ_COMMITTED if committed_only else Isolation.READ_UNCOMMITTED
        return await self._offsets(partitions, LATEST, isolation)

    async def _offsets(
        self, partitions: Iterable[ids.TopicPartition], timestamp: int, isolation: Isolation
    ) -> dict[TopicPartition, int]:
        timeout_ms = self.options.config.default_api_timeout_ms
        asked = dict.fromkeys(partitions, timestamp)
        found = await list_offsets(self._open(), asked, isolation=isolation, timeout_ms=timeout_ms)
        return {TopicPartition.of(partition): offset for partition, offset in found.items()}

    async def brokers(self) -> list[BrokerEntry]:
        return await self._while_away(lambda: ClientAdmin(self._open()).brokers())

    # --- groups

    async def groups(self) -> list[ListedGroup]:
        return await GroupAdmin(self._open()).groups()

    async def describe_group(self, group_id: str) -> DescribedGroup:
        return await GroupAdmin(self._open()).describe(group_id)

    async def delete_group(self, group_id: str) -> None:
        await GroupAdmin(self._open()).delete(group_id)

    async def group_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """What it has committed."""

        async def ask(offsets: GroupOffsets) -> dict[TopicPartition, int]:
            return {TopicPartition.of(each): found.offset for each, found in (await offsets.fetch()).items()}

        return await GroupAdmin(self._open()).offsets_of(group_id, ask)

    async def alter_group_offsets(self, group_id: str, offsets: Mapping[Place, int]) -> None:
        """Taken while the group has no members."""
        await GroupAdmin(self._open()).offsets_of(group_id, lambda found: found.commit(dict(offsets.items())))

    async def group_lag(self, group_id: str) -> dict[TopicPartition, int]:
        """How many offsets lie between what it has committed and the end of each partition."""
        committed = await self.group_offsets(group_id)
        ends = await self.end_offsets(committed)
        return {partition: max(0, ends[partition] - offset) for partition, offset in committed.items()}

    async def _while_away(self, action: Callable[[], Awaitable[T]]) -> T:
        """Tries again while no broker can be reached: the request was not sent then."""
        cluster = self._open()
        await cluster.with_retries(cluster.any_connection, timeout_ms=self.options.config.default_api_timeout_ms)
        return await action()

    def _open(self) -> Cluster:
        if self._cluster is None:
            options = self.options
            self._cluster = open_cluster(
                options.bootstrap,
                security=options.security,
                client_id=options.config.client_id,
                limits=options.limits(),
            )
        return self._cluster
