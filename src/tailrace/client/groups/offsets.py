"""Committed offsets of one group: read and written through its coordinator.

Commits and fetches are repeated while the coordinator moves or loads: a commit that arrived twice says the same twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tailrace.client.groups.coordinator import Coordinator
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.wire.apis.groups import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

_NO_GENERATION = -1
# OffsetFetch: the first version that waits for transactions, and the first that is asked for several groups.
_STABLE_VERSION, _SEVERAL_GROUPS_VERSION = 7, 8


class Committer(NamedTuple):
    """A member in its epoch or generation, or nobody in particular: that is taken while the group has no members."""

    member_id: str = ""
    epoch: int = _NO_GENERATION
    instance_id: str | None = None


NOBODY = Committer()


class GroupMetadata(NamedTuple):
    """In whose name offsets are committed within a transaction (KIP-447)."""

    group_id: str
    committer: Committer = NOBODY


class Committed(NamedTuple):
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


Offsets = Mapping[TopicPartition, int | Committed]


def offset_of(offset: int | Committed) -> Committed:
    return offset if isinstance(offset, Committed) else Committed(offset)


class GroupOffsets:
    def __init__(self, coordinator: Coordinator, *, timeout_ms: int) -> None:
        self._coordinator = coordinator
        self._timeout_ms = timeout_ms

    async def commit(self, offsets: Offsets, committer: Committer = NOBODY) -> None:
        """Raises the first refusal; the partitions that were not refused are committed."""
        if offsets:
            await self._coordinator.cluster.with_retries(
                lambda: self.commit_once(offsets, committer), timeout_ms=self._timeout_ms
            )

    async def commit_once(self, offsets: Offsets, committer: Committer) -> None:
        request = OffsetCommitRequest(
            group_id=self._coordinator.group_id,
            generation_id_or_member_epoch=committer.epoch,
            member_id=committer.member_id,
            group_instance_id=committer.instance_id,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=each.offset,
                            committed_leader_epoch=each.leader_epoch,
                            committed_metadata=each.metadata,
                        )
                        for index, each in given.items()
                    ],
                )
                for topic, given in offsets_by_topic(offsets).items()
            ],
        )
        answer = await self._coordinator.call(request, OffsetCommitResponse)
        for topic in answer.topics:
            for result in topic.partitions:
                failure = f"the offset of {topic.name}-{result.partition_index} was not committed"
                self._coordinator.check(result.error_code, failure)

    async def fetch(
        self, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = True
    ) -> dict[TopicPartition, Committed]:
        """The committed offsets of these partitions, or of all (None); those without one are left out. Waits for open
        transactions that would change one, unless what is committed now will do."""
        wanted = None if partitions is None else by_topic(partitions)
        return await self._coordinator.cluster.with_retries(
            lambda: self._fetch(wanted, require_stable=require_stable), timeout_ms=self._timeout_ms
        )

    async def _fetch(
        self, wanted: Mapping[str, Sequence[int]] | None, *, require_stable: bool
    ) -> dict[TopicPartition, Committed]:
        version = (await self._coordinator.connect()).version_of(OffsetFetchRequest)
        request = _request(self._coordinator.group_id, wanted, version, require_stable=require_stable)
        answer = await self._coordinator.call(request, OffsetFetchResponse)
        found = answer.groups[0] if answer.groups else answer
        failure = f"the offsets of group {self._coordinator.group_id} are not told"
        self._coordinator.check(found.error_code, failure)
        committed = {}
        for topic in found.topics:
            for result in topic.partitions:
                self._coordinator.check(result.error_code, failure)
                if result.committed_offset >= 0:
                    where = TopicPartition(topic.name, PartitionIndex(result.partition_index))
                    committed[where] = Committed(
                        result.committed_offset, result.committed_leader_epoch, result.metadata
                    )
        return committed


def _request(
    group_id: str, wanted: Mapping[str, Sequence[int]] | None, version: int, *, require_stable: bool
) -> OffsetFetchRequest:
    """Brokers before Kafka 3.0 are asked for one group, and those before 2.5 never tell what is not stable."""
    items = None if wanted is None else wanted.items()
    if version < _SEVERAL_GROUPS_VERSION:
        kind = OffsetFetchRequest.OffsetFetchRequestTopic
        topics = None if items is None else [kind(name=name, partition_indexes=list(each)) for name, each in items]
        is_stable = require_stable and version >= _STABLE_VERSION
        return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=is_stable)
    several = OffsetFetchRequest.OffsetFetchRequestTopics
    group = OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id=group_id,
        topics=None if items is None else [several(name=name, partition_indexes=list(each)) for name, each in items],
    )
    return OffsetFetchRequest(groups=[group], require_stable=require_stable)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """In order, so that the same partitions make the same request."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics


def offsets_by_topic(offsets: Offsets) -> dict[str, dict[int, Committed]]:
    """In order, too."""
    topics: dict[str, dict[int, Committed]] = {}
    for (topic, index), offset in sorted(offsets.items(), key=lambda each: each[0]):
        topics.setdefault(topic, {})[index] = offset_of(offset)
    return topics
