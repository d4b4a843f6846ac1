"""Consuming by our own client, in a group or without."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from tailrace.client.consumer import EARLIEST, LATEST, Consumer
from tailrace.client.groups.consumer import GroupConsumer
from tailrace.client.groups.coordinator import Coordinator
from tailrace.client.groups.offsets import Committed, GroupMetadata, GroupOffsets, Offsets
from tailrace.client.metadata import Cluster
from tailrace.kit.engines.port import ConsumerEngine, Subscription
from tailrace.kit.options import ParsedOptions
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.real.cluster import open_cluster
from tailrace.wire.records import Record


class TailraceConsumer(ConsumerEngine):
    def __init__(self, options: ParsedOptions) -> None:
        self._options = options
        self._cluster: Cluster | None = None
        self._member: GroupConsumer | None = None
        self._alone: Consumer | None = None  # Partitions that the caller has assigned.
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._offsets: tuple[Coordinator, GroupOffsets] | None = None

    async def start(self) -> None:
        options = self._options
        self._cluster = open_cluster(
            options.bootstrap,
            security=options.security,
            client_id=options.config.client_id,
            limits=options.limits(),
        )

    async def subscribe(self, subscription: Subscription) -> None:
        options = self._options.membership(subscription.topics, subscription.pattern)
        await self._give_up()
        self._member = GroupConsumer(
            self._started,
            options,
            on_assigned=subscription.hooks.on_assigned,
            on_revoked=subscription.hooks.on_revoked,
            on_lost=subscription.hooks.on_lost,
        )

    async def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        if self._member is not None:
            await self._give_up()
        if self._alone is None:
            self._alone = Consumer(self._started, self._options.fetching())
        places = dict(positions)
        for timestamp in (EARLIEST, LATEST):
            asked = [partition for partition, offset in positions.items() if offset == timestamp]
            places |= await self._alone.offsets_at(asked, timestamp)
        await self._alone.assign(places)
        self._assigned = frozenset(places)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._assigned if self._member is None else self._member.assignment

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return self._reader.paused

    async def poll(self, timeout_ms: float, max_records: int) -> Mapping[TopicPartition, Sequence[Record]]:
        if self._member is None and not self._assigned:
            await asyncio.sleep(timeout_ms / 1000)
            return {}
        return await self._reader.poll(timeout_ms, max_records)

    async def commit(self, offsets: Offsets | None) -> None:
        if self._member is not None:
            await self._member.commit(offsets)
            return
        moved = {each: self.position(each) for each in self._assigned} if offsets is None else offsets
        await self._group_offsets().commit(moved)

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed]:
        wanted = list(partitions)
        return await self._group_offsets().fetch(wanted) if wanted else {}

    def position(self, partition: TopicPartition) -> int:
        self._check_assigned(partition)
        if self._member is not None:
            return self._member.position(partition)
        assert self._alone is not None, "it is assigned"
        return self._alone.position(partition).offset

    def end_offset(self, partition: TopicPartition) -> int:
        self._check_assigned(partition)
        return self._reader.end_offset(partition)

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        self._check_assigned(partition)
        if offset in (EARLIEST, LATEST):
            offset = (await self._reader.offsets_at([partition], offset))[partition]
        if self._member is not None:
            self._member.seek(partition, offset)
        elif self._alone is not None:
            self._alone.change(added={partition: offset})

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._reader.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._reader.resume(partitions)

    async def offsets_at(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        if self._member is None and self._alone is None:
            self._alone = Consumer(self._started, self._options.fetching())
        return await self._reader.offsets_at(partitions, timestamp)

    def group_metadata(self) -> GroupMetadata:
        if self._member is not None:
            return self._member.group_metadata()
        return GroupMetadata(self._group_id)

    async def close(self, *, leave: bool) -> None:
        try:
            await self._give_up(leave=leave)
        finally:
            if self._offsets is not None:
                self._offsets[0].close()
            if self._cluster is not None:
                self._cluster.close()

    async def _give_up(self, *, leave: bool = True) -> None:
        if self._alone is not None:
            alone, self._alone = self._alone, None
            self._assigned = frozenset()
            await alone.close()
        if self._member is not None:
            try:
                await self._member.close(leave=leave)  # Hooks may still commit in its name.
            finally:
                self._member = None

    def _check_assigned(self, partition: TopicPartition) -> None:
        if partition not in self.assignment:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} is not assigned to this consumer (any more)"
            )

    def _group_offsets(self) -> GroupOffsets:
        if self._offsets is None:
            coordinator = Coordinator(self._started, self._group_id)
            timeout_ms = self._options.config.default_api_timeout_ms
            self._offsets = coordinator, GroupOffsets(coordinator, timeout_ms=timeout_ms)
        return self._offsets[1]

    @property
    def _group_id(self) -> str:
        group_id = self._options.config.group_id
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "this consumer is of no group: give it a group.id")
        return group_id

    @property
    def _started(self) -> Cluster:
        assert self._cluster is not None, "the engine was not started"
        return self._cluster

    @property
    def _reader(self) -> GroupConsumer | Consumer:
        reader = self._member or self._alone
        if reader is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "this consumer reads nothing yet: let it subscribe, or assign partitions"
            )
        return reader
