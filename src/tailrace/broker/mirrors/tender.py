"""What one broker does for all: topics that are new at the source, or have grown; settings; promotes that wait; groups.

Which broker that is follows from the metadata. Two that think so for a moment do the same, and the second changes
nothing. A promote is done once each partition has had, for promote.quiet.ms, just what the source has, with no
transaction open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.broker.mirrors.acls import AclSync
from tailrace.broker.mirrors.groups.sync import GroupSync
from tailrace.broker.mirrors.handover import Handover
from tailrace.client.connection import error_code
from tailrace.client.fetching import Isolation
from tailrace.client.offsets import LATEST, list_offsets
from tailrace.controller.image import MirrorState, ResourceType
from tailrace.controller.mirrors.links import mirrors_of
from tailrace.model.errors import KafkaError
from tailrace.model.ids import ZERO_UUID, PartitionIndex, TopicPartition
from tailrace.wire.apis.admin import DescribeConfigsRequest, DescribeConfigsResponse
from tailrace.wire.apis.mirrors import DescribeMirrorsRequest, DescribeMirrorsResponse, FollowMirrorSourceRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tailrace.broker.mirrors.handover import Closed, Told
    from tailrace.broker.mirrors.room import LinkRoom
    from tailrace.client.metadata import TopicMetadata
    from tailrace.controller.image import TopicImage

_TOPICS_PER_REQUEST, _PARTITIONS_PER_REQUEST = 50, 1000
_SOURCE_TOPIC_CONFIG = 1
_TIMEOUT_MS = 10_000

Found = FollowMirrorSourceRequest.Topic
CaughtUp = FollowMirrorSourceRequest.CaughtUp
Progress = DescribeMirrorsResponse.Partition


class Tender:
    def __init__(self, room: LinkRoom) -> None:
        self._room = room
        self._groups = GroupSync(room)
        self._acls = AclSync(room)
        self._handover = Handover(room)
        # Since when all of a promoted topic has been here without a change, and where its partitions ended then.
        self._quiet: dict[str, tuple[float, tuple[int, ...]]] = {}

    @property
    def is_ours(self) -> bool:
        node, link = self._room.node, self._room.link
        active = sorted(node_id for node_id, broker in node.image.brokers.items() if broker.is_active)
        return bool(active) and active[sum(link.id) % len(active)] == node.node_id

    async def tend(self) -> None:
        """Raises KafkaError if the source or the controller does not answer; what concerns one topic is told."""
        room = self._room
        if not self.is_ours:
            self._quiet.clear()
            for what in [each for each in room.problems if each not in ("source", "leader epochs")]:
                room.tell(what, None)
            return
        told = await self._handover.ask()
        here = room.node.image.cluster_id
        wanted = {
            name: topic
            for name, topic in room.topics.items()
            if room.settings.takes_topic(name) and not topic.is_internal and here not in told.origins.get(name, ())
        }
        await self._follow(wanted, told)
        progress = await self._ask_progress()
        await self._end_cutting(wanted, progress)
        await self._acls.sync()
        are_groups_in_step = await self._groups.sync(progress)
        await self._handover.reopen_cancelled(told, self._mirrors())
        await self._finish_promotes(wanted, progress, are_groups_in_step=are_groups_in_step)
        await self._handover.watch(self._promoted(wanted), progress)

    # ---- topics

    async def _follow(self, wanted: Mapping[str, TopicMetadata], told: Told) -> None:
        settings = await self._read_settings(wanted)
        mirrors = {topic.mirror.source_topic: topic for topic in self._mirrors() if topic.mirror is not None}
        self._room.forget_others("topic ", wanted)
        news = []
        for name, topic in sorted(wanted.items()):
            found = self._found(topic, settings.get(name, []), told.origins.get(name, ()))
            if self._is_news(mirrors.get(name), found):
                news.append(found)
            else:
                self._room.tell(f"topic {name}", None)
        for part in _in_parts(news):
            answer = await self._room.tell_controller(part)
            refused = {each.source_topic: each.error_message for each in answer.topics}
            for found in part:
                self._room.tell(f"topic {found.source_topic}", refused.get(found.source_topic))

    def _mirrors(self) -> Iterable[TopicImage]:
        return mirrors_of(self._room.node.image, self._room.link.id)

    def _promoted(self, wanted: Mapping[str, TopicMetadata]) -> list[TopicImage]:
        """Not those that were failed over, whose source had more, nor those that go the other way now."""
        return [
            topic
            for topic in self._mirrors()
            if (mirror := topic.mirror) is not None
            and not mirror.is_read_only
            and mirror.handover_id != ZERO_UUID
            and mirror.source_topic in wanted
        ]

    def _found(
        self,
        topic: TopicMetadata,
        settings: list[FollowMirrorSourceRequest.Setting],
        origins: Sequence[str] = (),
    ) -> Found:
        return Found(
            source_topic=topic.name,
            source_topic_id=topic.id,
            leader_epochs=[topic.partitions[index].leader_epoch for index in sorted(topic.partitions)],
            origins=list(origins),
            settings=settings,
        )

    def _is_news(self, mirror: TopicImage | None, found: Found) -> bool:
        if mirror is None or mirror.mirror is None:
            return True
        if not mirror.mirror.is_read_only:
            return False
        now = self._room.node.image.config(ResourceType.TOPIC, mirror.name)
        return (
            bytes(mirror.mirror.source_topic_id) != bytes(found.source_topic_id)
            or len(found.leader_epochs) != len(mirror.partitions)
            or any(mirror.partitions[index].leader_epoch < epoch for index, epoch in enumerate(found.leader_epochs))
            or any(now.get(each.name) != each.value for each in found.settings)
        )

    async def _read_settings(
        self, wanted: Mapping[str, TopicMetadata]
    ) -> dict[str, list[FollowMirrorSourceRequest.Setting]]:
        """Those that are set for the topics themselves at the source; who may not read them mirrors without them."""
        room, names = self._room, list(self._room.settings.configs)
        if not wanted or not names:
            return {}
        settings: dict[str, list[FollowMirrorSourceRequest.Setting]] = {}
        try:
            connection = await room.cluster.any_connection()
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsRequest.DescribeConfigsResource(
                        resource_type=ResourceType.TOPIC, resource_name=name, configuration_keys=names
                    )
                    for name in sorted(wanted)
                ]
            )
            answer = await connection.call(request, DescribeConfigsResponse)
            for result in answer.results:
                if result.error_code:
                    code = error_code(result.error_code)
                    raise KafkaError(code, f"the settings of {result.resource_name} are not told: {code.name}")
                own = {each.name: each.value for each in result.configs if each.config_source == _SOURCE_TOPIC_CONFIG}
                settings[result.resource_name] = [
                    FollowMirrorSourceRequest.Setting(name=name, value=own.get(name)) for name in names
                ]
            room.tell("settings", None)
        except KafkaError as error:
            room.tell("settings", error.message)
        return settings

    # ---- progress, wherever the leaders are

    async def _ask_progress(self) -> dict[TopicPartition, Progress]:
        """Of all mirrors of the link, by their names here."""
        node, link = self._room.node, self._room.link
        leaders = {
            state.leader
            for topic in self._mirrors()
            if topic.mirror is not None and (topic.mirror.is_read_only or topic.mirror.handover_id != ZERO_UUID)
            for state in topic.partitions.values()
            if state.leader >= 0
        }
        progress: dict[TopicPartition, Progress] = {}
        for leader in sorted(leaders):
            if leader == node.node_id:
                answer = self._room.describe(link.name)
            else:
                request = DescribeMirrorsRequest(link_name=link.name)
                try:
                    answer = await node.call_broker(leader, request, DescribeMirrorsResponse, channel="mirrors")
                except KafkaError as error:
                    self._room.tell(f"broker {leader}", error.message)
                    continue
                self._room.tell(f"broker {leader}", None)
            for each in answer.links:
                for topic in each.topics:
                    for partition in topic.partitions:
                        progress[TopicPartition(topic.name, PartitionIndex(partition.partition_index))] = partition
        return progress

    async def _end_cutting(
        self, wanted: Mapping[str, TopicMetadata], progress: Mapping[TopicPartition, Progress]
    ) -> None:
        """Of topics whose partitions all go on with what the source has: from now on nothing is cut any more."""
        agreeing = []
        for topic in self._mirrors():
            mirror = topic.mirror
            if mirror is None or mirror.state is not MirrorState.CUTTING or mirror.source_topic not in wanted:
                continue
            here = [progress.get(TopicPartition(topic.name, PartitionIndex(index))) for index in topic.partitions]
            if all(each is not None and each.is_agreeing for each in here):
                agreeing.append(self._found(wanted[mirror.source_topic], []))
            else:
                self._room.look_again()
        for part in _in_parts(agreeing):
            await self._room.tell_controller(part, agreeing=[found.source_topic for found in part])

    # ---- promotes

    async def _finish_promotes(
        self,
        wanted: Mapping[str, TopicMetadata],
        progress: Mapping[TopicPartition, Progress],
        *,
        are_groups_in_step: bool,
    ) -> None:
        """What groups have committed at the source is committed here before a topic is opened: later it is left."""
        promoting = [topic for topic in self._mirrors() if topic.mirror and topic.mirror.state is MirrorState.PROMOTING]
        names = {topic.name for topic in promoting}
        self._room.forget_others("promote of ", names)
        for name in self._quiet.keys() - names:
            del self._quiet[name]
        ready: list[tuple[Found, CaughtUp]] = []
        closed = await self._handover.close([each for each in promoting if _source_of(each) in wanted])
        for topic in promoting:
            assert topic.mirror is not None, "it is promoted"
            found = wanted.get(topic.mirror.source_topic)
            is_quiet = found is not None and await self._is_quiet(topic, found, progress, closed)
            if is_quiet and not are_groups_in_step:
                self._room.tell(f"promote of {topic.name}", "it waits for the offsets of groups")
            elif is_quiet and found is not None:
                promote = CaughtUp(source_topic=found.name, handover_id=topic.mirror.handover_id)
                ready.append((self._found(found, []), promote))
        promotes = {found.source_topic: promote for found, promote in ready}
        for part in _in_parts([found for found, _promote in ready]):
            await self._room.tell_controller(part, caught_up=[promotes[found.source_topic] for found in part])
        if promoting and len(ready) < len(promoting):
            self._room.look_again()

    async def _is_quiet(
        self,
        topic: TopicImage,
        found: TopicMetadata,
        progress: Mapping[TopicPartition, Progress],
        closed: Mapping[TopicPartition, Closed] | None,
    ) -> bool:
        room, now_ms = self._room, self._room.now_ms()
        asked = {TopicPartition(found.name, PartitionIndex(index)): LATEST for index in found.partitions}
        found_ends = await list_offsets(
            room.cluster, asked, isolation=Isolation.READ_UNCOMMITTED, timeout_ms=_TIMEOUT_MS
        )
        ends = tuple(found_ends[each] for each in sorted(asked))
        here = [progress.get(TopicPartition(topic.name, PartitionIndex(index))) for index in sorted(topic.partitions)]
        problem = _why_not_quiet(topic.name, ends, here)
        if problem is None and closed is not None:
            problem = _why_not_closed(found.name, ends, [closed.get(each) for each in sorted(asked)])
        room.tell(f"promote of {topic.name}", problem)
        if problem is not None:
            self._quiet.pop(topic.name, None)
            return False
        since_ms, before = self._quiet.get(topic.name, (now_ms, ends))
        if before != ends:
            since_ms = now_ms
        self._quiet[topic.name] = since_ms, ends
        return now_ms - since_ms >= room.settings.promote_quiet_ms


def _why_not_quiet(name: str, ends: Sequence[int], here: Sequence[Progress | None]) -> str | None:
    if len(here) != len(ends):
        return f"it waits: the source has {len(ends)} partitions, here are {len(here)}"
    for index, (end, partition) in enumerate(zip(ends, here, strict=True)):
        if partition is None:
            return f"it waits for {name}-{index}, whose leader does not tell how far it is"
        if partition.problem is not None:
            return f"it waits for {name}-{index}: {partition.problem}"
        if partition.high_watermark != end:
            return (
                f"it waits for {name}-{index}: the source ends at {end}, here is all up to {partition.high_watermark}"
            )
        if partition.open_transactions:
            producers = ", ".join(str(each.producer_id) for each in partition.open_transactions[:5])
            return f"it waits for {name}-{index}: transactions of the producers {producers} are open at the source"
    return None


def _why_not_closed(name: str, ends: Sequence[int], closed: Sequence[Closed | None]) -> str | None:
    """Asked after the ends: what a closed leader ends with is all there will be, but for what is not confirmed yet."""
    for index, (end, partition) in enumerate(zip(ends, closed, strict=True)):
        if partition is None:
            return f"it waits for {name}-{index} at the source, no leader of which has said that it is closed"
        if partition.has_open_transactions:
            return f"it waits for {name}-{index}: transactions are open at the source"
        if not end == partition.high_watermark == partition.log_end_offset:
            return (
                f"it waits for {name}-{index}: here is all up to {end}, and the source, which is closed, ends at "
                f"{partition.log_end_offset}, with its high watermark at {partition.high_watermark}"
            )
    return None


def _source_of(topic: TopicImage) -> str | None:
    return topic.mirror.source_topic if topic.mirror is not None else None


def _in_parts(topics: Sequence[Found]) -> Iterable[list[Found]]:
    part: list[Found] = []
    partitions = 0
    for topic in topics:
        if part and (
            len(part) == _TOPICS_PER_REQUEST or partitions + len(topic.leader_epochs) > _PARTITIONS_PER_REQUEST
        ):
            yield part
            part, partitions = [], 0
        part.append(topic)
        partitions += len(topic.leader_epochs)
    if part:
        yield part
