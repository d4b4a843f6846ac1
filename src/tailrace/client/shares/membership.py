"""A member's place in a share group: heartbeats, and the partitions that it is to fetch from."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tailrace.client.groups.coordinator import Coordinator
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition, Uuid
from tailrace.wire.apis.shares import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

_JOIN_EPOCH = 0
_LEAVE_EPOCH = -1
_LEAVE_MS = 5000
_RETRY_MS_MAX = 1000
# After these it joins anew.
_OUT = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)


class ShareMembership:
    """`run` it until it is cancelled, then `leave`."""

    def __init__(self, cluster: Cluster, group_id: str, member_id: str, topics: Sequence[str]) -> None:
        self.assignment: dict[TopicPartition, Uuid] = {}
        self.failure: KafkaError | None = None
        self._cluster = cluster
        self._coordinator = Coordinator(cluster, group_id)
        self._group_id = group_id
        self._member_id = member_id
        self._topics = sorted(topics)
        self._epoch = _JOIN_EPOCH
        self._is_new = True

    async def run(self) -> None:
        """A failure that does not pass ends it, and is for `failure` to tell."""
        attempt = 0
        while True:
            try:
                pause_ms: float = await self._beat()
                attempt = 0
            except KafkaError as error:
                if error.code in _OUT:
                    self._epoch, self._is_new = _JOIN_EPOCH, True
                elif not error.code.retriable:
                    self.failure = error
                    return
                pause_ms = min(self._cluster.backoff_ms(attempt), _RETRY_MS_MAX)
                attempt += 1
            await asyncio.sleep(pause_ms / 1000)

    @property
    def has_joined(self) -> bool:
        """The group has taken it, if perhaps without partitions."""
        return self._epoch != _JOIN_EPOCH

    async def leave(self) -> None:
        """For a while at most: whoever is not heard is out by himself."""
        try:
            async with asyncio.timeout(_LEAVE_MS / 1000):
                await self._call(_LEAVE_EPOCH)
        except (KafkaError, TimeoutError):
            pass
        self.close()

    def close(self) -> None:
        self._coordinator.close()

    async def _beat(self) -> int:
        answer = await self._call(self._epoch)
        self._epoch, self._is_new = answer.member_epoch, False
        if answer.assignment is not None:
            self.assignment = await self._named(answer.assignment)
        return answer.heartbeat_interval_ms

    async def _call(self, epoch: int) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=epoch,
            subscribed_topic_names=self._topics if self._is_new and epoch == _JOIN_EPOCH else None,
        )
        answer = await self._coordinator.call(request, ShareGroupHeartbeatResponse)
        self._coordinator.check(answer.error_code, f"share group {self._group_id}", answer.error_message)
        return answer

    async def _named(self, assigned: ShareGroupHeartbeatResponse.Assignment) -> dict[TopicPartition, Uuid]:
        wanted = {Uuid(topic.topic_id): topic.partitions for topic in assigned.topic_partitions}
        names = {
            topic.id: topic.name for name in self._topics if (topic := self._cluster.known_topic(name)) is not None
        }
        if not wanted.keys() <= names.keys():
            names = {topic.id: topic.name for topic in (await self._cluster.refresh(self._topics)).values()}
        return {
            TopicPartition(names[topic_id], PartitionIndex(index)): topic_id
            for topic_id, partitions in wanted.items()
            if topic_id in names
            for index in partitions
        }
