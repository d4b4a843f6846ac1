"""A scripted coordinator and broker: topic t, whose partitions are empty, and offsets that are kept in a dict."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tailrace.client.consumer import ConsumerOptions
from tailrace.client.groups.consumer import GroupConsumer, GroupOptions, GroupProtocol
from tailrace.client.groups.membership import MemberOptions
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import TopicPartition
from tailrace.wire.apis.data import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from tailrace.wire.apis.groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from tailrace.wire.schema import Message
from tests.unit.client.peer import Peer, Script


class GroupPeer(Peer):
    def __init__(self, scripts: dict[type[Message], Script], *, partitions: int = 3) -> None:
        super().__init__(partitions=partitions)
        self.committed: dict[int, int] = {}  # The offsets of topic t, by partition.
        self.refusals: list[ErrorCode] = []  # The errors of the next commits.
        self.scripts |= {
            FindCoordinatorRequest: self._find_coordinator,
            FetchRequest: self._fetch,
            ListOffsetsRequest: self._list_offsets,
            OffsetCommitRequest: self._commit,
            OffsetFetchRequest: self._fetch_offsets,
        } | scripts

    def _find_coordinator(self, request: FindCoordinatorRequest) -> Message:
        (key,) = request.coordinator_keys
        found = FindCoordinatorResponse.Coordinator(key=key, node_id=1, host=self.address.host, port=self.address.port)
        return FindCoordinatorResponse(coordinators=[found])

    def _fetch(self, request: FetchRequest) -> Message:
        return FetchResponse(
            responses=[
                FetchResponse.FetchableTopicResponse(
                    topic=topic.topic,
                    partitions=[
                        FetchResponse.PartitionData(partition_index=each.partition, high_watermark=100, records=b"")
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _list_offsets(self, request: ListOffsetsRequest) -> Message:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsResponse.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsResponse.ListOffsetsPartitionResponse(
                            partition_index=each.partition_index, offset=0 if each.timestamp == -2 else 100
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _commit(self, request: OffsetCommitRequest) -> Message:
        code = self.refusals.pop(0) if self.refusals else ErrorCode.NONE
        topics = []
        for topic in request.topics:
            answer = OffsetCommitResponse.OffsetCommitResponseTopic(name=topic.name)
            for each in topic.partitions:
                if code is ErrorCode.NONE:
                    self.committed[each.partition_index] = each.committed_offset
                answer.partitions.append(
                    OffsetCommitResponse.OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    )
                )
            topics.append(answer)
        return OffsetCommitResponse(topics=topics)

    def _fetch_offsets(self, request: OffsetFetchRequest) -> Message:
        (group,) = request.groups
        topics = [
            OffsetFetchResponse.OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartitions(
                        partition_index=index, committed_offset=self.committed.get(index, -1)
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in group.topics or ()
        ]
        found = OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)
        return OffsetFetchResponse(groups=[found])


class Watched:
    """A group consumer and what its callbacks were told, as `+0 -0 !0`: assigned, revoked, lost."""

    def __init__(self, peer: Peer, protocol: GroupProtocol, member: MemberOptions, **options: object) -> None:
        self.story: list[str] = []
        self.cluster = peer.cluster()
        options = {"auto_commit_interval_ms": None, "retry_timeout_ms": 2000} | options
        fetching = ConsumerOptions(fetch_max_wait_ms=10)
        self.consumer = GroupConsumer(
            self.cluster,
            GroupOptions("g", member, protocol=protocol, fetching=fetching, **options),
            on_assigned=lambda partitions: self._tell("+", partitions),
            on_revoked=lambda partitions: self._tell("-", partitions),
            on_lost=lambda partitions: self._tell("!", partitions),
        )

    def _tell(self, sign: str, partitions: list[TopicPartition]) -> None:
        self.story.append(" ".join(f"{sign}{partition.partition}" for partition in partitions))

    async def poll_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await self.consumer.poll(20)

    async def __aenter__(self) -> Watched:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.consumer.close()
        self.cluster.close()
