"""What the source is told and tells about topics that are promoted here, and what it is to be looked at for.

A source that is Tailrace is closed first: nobody writes to the topic there any more, once a leader of each partition
says so, and what it ends with then is all there will ever be. Another Kafka cannot be closed: there nothing but its
operator stops producers. Later the source is looked at for an hour: what comes there is told, for it is not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tailrace.client.connection import error_code
from tailrace.client.fetching import Isolation
from tailrace.client.mirrors.admin import can_mirror
from tailrace.client.offsets import LATEST, list_offsets
from tailrace.controller.features import MIRROR_VERSION
from tailrace.controller.image import MirrorState
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import ZERO_UUID, PartitionIndex, TopicPartition, Uuid
from tailrace.wire.apis.mirrors import (
    CloseMirrorSourceRequest,
    CloseMirrorSourceResponse,
    DescribeMirrorsRequest,
    DescribeMirrorsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tailrace.broker.mirrors.room import LinkRoom
    from tailrace.controller.image import TopicImage
    from tailrace.model.ids import NodeId

_OPEN = MirrorState.OPEN.name.lower()
_WATCHED_MS = 3_600_000.0
_TIMEOUT_MS = 10_000

Progress = DescribeMirrorsResponse.Partition
Closed = DescribeMirrorsResponse.ClosedPartition


class Told(NamedTuple):
    """What a source that is Tailrace tells of its topics."""

    origins: Mapping[str, tuple[str, ...]]  # Of topics that are mirrors there: where they come from.
    closed: Mapping[str, DescribeMirrorsResponse.ClosedTopic]  # By name, without partitions.


class Handover:
    def __init__(self, room: LinkRoom) -> None:
        self._room = room
        self._watched_since_ms: dict[str, float] = {}

    async def ask(self) -> Told:
        """Asked after the source's topics are read, so that no mirror is taken for a topic of the source's own."""
        if not await self._has_mirrors():
            return Told({}, {})
        answer = await self._describe()
        origins = {
            topic.name: (*topic.origins,) or (link.source_cluster_id,)
            for link in answer.links
            for topic in link.topics
            if topic.state != _OPEN
        }
        return Told(origins, {topic.name: topic for topic in answer.closed})

    async def reopen_cancelled(self, told: Told, mirrors: Iterable[TopicImage]) -> None:
        """A promote was taken back: clients write to the source again. None is opened that a later promote closes."""
        taken_back = [
            CloseMirrorSourceRequest.Topic(name=mirror.source_topic, handover_id=mirror.handover_id)
            for topic in mirrors
            if (mirror := topic.mirror) is not None
            and mirror.state in (MirrorState.MIRRORING, MirrorState.CUTTING)
            and mirror.handover_id != ZERO_UUID
            and (closed := told.closed.get(mirror.source_topic)) is not None
            and closed.cluster_id == self._room.node.image.cluster_id
            and Uuid(closed.handover_id) == mirror.handover_id
        ]
        if taken_back:
            await self._send(taken_back, is_closed=False)

    async def close(self, promoting: Sequence[TopicImage]) -> dict[TopicPartition, Closed] | None:
        """The partitions at the source of which a leader has said that it takes nothing more, for this promote. None
        where the source cannot be closed. Raises KafkaError."""
        if not promoting or not await can_mirror(await self._room.cluster.any_connection()):
            return None
        asked = {mirror.source_topic: mirror.handover_id for topic in promoting if (mirror := topic.mirror) is not None}
        await self._send(
            [CloseMirrorSourceRequest.Topic(name=name, handover_id=asked[name]) for name in sorted(asked)],
            is_closed=True,
        )
        closed: dict[TopicPartition, Closed] = {}
        for node_id in sorted(self._room.cluster.brokers):
            try:
                answer = await self._describe(node_id)
            except KafkaError as error:
                self._room.tell(f"broker {node_id} of the source", error.message)
                continue
            self._room.tell(f"broker {node_id} of the source", None)
            for topic in answer.closed:
                if Uuid(topic.handover_id) == asked.get(topic.name):
                    for each in topic.partitions:
                        where = TopicPartition(topic.name, PartitionIndex(each.partition_index))
                        if where not in closed or closed[where].leader_epoch < each.leader_epoch:
                            closed[where] = each
        return closed

    async def watch(self, promoted: Sequence[TopicImage], progress: Mapping[TopicPartition, Progress]) -> None:
        """What comes to the source of topics that were promoted from there."""
        room, now_ms = self._room, self._room.now_ms()
        names = {topic.name for topic in promoted}
        room.forget_others("source of ", names)
        for name in self._watched_since_ms.keys() - names:
            del self._watched_since_ms[name]
        for topic in promoted:
            since_ms = self._watched_since_ms.setdefault(topic.name, now_ms)
            assert topic.mirror is not None, "it was promoted"
            source = room.topics.get(topic.mirror.source_topic)
            if source is None or now_ms - since_ms > _WATCHED_MS:
                room.tell(f"source of {topic.name}", None)
                continue
            asked = {TopicPartition(source.name, PartitionIndex(index)): LATEST for index in source.partitions}
            try:
                ends = await list_offsets(
                    room.cluster, asked, isolation=Isolation.READ_UNCOMMITTED, timeout_ms=_TIMEOUT_MS
                )
            except KafkaError:
                continue  # It may be gone for good: that is nobody's problem any more.
            later = [
                f"partition {index} has offsets {here.opened_offset} to {end - 1}"
                for (_name, index), end in sorted(ends.items())
                if (here := progress.get(TopicPartition(topic.name, index))) is not None
                and 0 <= here.opened_offset < end
            ]
            problem = "records have come to the source after the promote, which are not here: " + "; ".join(later)
            room.tell(f"source of {topic.name}", problem if later else None)

    # ---- questions

    async def _has_mirrors(self) -> bool:
        connection = await self._room.cluster.any_connection()
        await connection.negotiate()  # It may have got its first link since it was connected to.
        return connection.finalized_features.get(MIRROR_VERSION, 0) > 0

    async def _describe(self, node_id: NodeId | None = None) -> DescribeMirrorsResponse:
        cluster = self._room.cluster
        connection = await (cluster.any_connection() if node_id is None else cluster.connection_to(node_id))
        answer = await connection.call(DescribeMirrorsRequest(), DescribeMirrorsResponse)
        if answer.error_code:
            raise KafkaError(
                error_code(answer.error_code),
                "the source does not tell which of its topics are mirrors: this link needs DESCRIBE on its cluster",
            )
        return answer

    async def _send(self, topics: list[CloseMirrorSourceRequest.Topic], *, is_closed: bool) -> None:
        request = CloseMirrorSourceRequest(
            cluster_id=self._room.node.image.cluster_id, topics=topics, is_closed=is_closed
        )
        connection = await self._room.cluster.any_connection()
        answer = await connection.call(request, CloseMirrorSourceResponse)
        if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise KafkaError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                "the source cannot be closed: this link needs ALTER on its cluster. Or stop its producers, take the "
                "promote back, and fail over",
            )
        if answer.error_code:
            code = error_code(answer.error_code)
            raise KafkaError(code, f"the source is not closed: {answer.error_message or code.name}")
