"""When what a source tells of a group is written here."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tailrace.broker.mirrors.groups.sync import GroupSync
from tailrace.client.groups.admin import CONSUMER, SHARE, ListedGroup
from tailrace.client.groups.offsets import Committed
from tailrace.controller.image import MetadataImage, MirrorState, MirrorTopic, PartitionImage, TopicImage
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, PartitionIndex, TopicPartition, Uuid
from tailrace.wire.apis.mirrors import DescribeMirrorsResponse

LINK = Uuid(b"l" * 16)
HERE, THERE = TopicPartition("dc1.jobs", PartitionIndex(0)), TopicPartition("jobs", PartitionIndex(0))
PARTITION = PartitionImage((NodeId(1),), (NodeId(1),), NodeId(1), 0, 0)


class Kind:
    """Stands for a source that tells an offset, and for the coordinator here."""

    def __init__(self) -> None:
        self.offset = 5
        self.answer = ErrorCode.NONE
        self.written: list[int] = []

    async def read(self, _group_id: str) -> dict[TopicPartition, Committed]:
        return {THERE: Committed(self.offset), THERE._replace(topic="others"): Committed(1)}

    async def write(self, _group_id: str, offsets: dict[TopicPartition, Committed]) -> ErrorCode:
        assert offsets.keys() == {HERE}
        self.written.append(offsets[HERE].offset)
        if self.answer is ErrorCode.NETWORK_EXCEPTION:
            raise KafkaError(self.answer, "nobody answers")
        return self.answer


class Scene:
    def __init__(self, kind: str) -> None:
        self.problems: dict[str, str | None] = {}
        self.node = SimpleNamespace(image=None)
        room = SimpleNamespace(node=self.node, link=SimpleNamespace(id=LINK), tell=self.problems.__setitem__)
        self.sync = GroupSync(cast("Any", room))
        self.told = Kind()
        self.sync._consumers = self.sync._shares = cast("Any", self.told)
        self.group = ListedGroup("g", kind, "Empty", "", 1)
        self.make(1)

    def make(self, number: int) -> None:
        """The mirror; made anew it is another topic."""
        mirror = MirrorTopic(LINK, "jobs", Uuid(b"s" * 16), MirrorState.MIRRORING)
        topic = TopicImage("dc1.jobs", Uuid(bytes([number]) * 16), {PartitionIndex(0): PARTITION}, mirror=mirror)
        self.node.image = MetadataImage("c", topics={"dc1.jobs": topic})

    async def look(self, high_watermark: int = 10, log_start_offset: int = 0) -> bool:
        progress = DescribeMirrorsResponse.Partition(
            high_watermark=high_watermark, log_start_offset=log_start_offset, partition_index=0
        )
        return await self.sync._sync_group(self.group, {HERE: progress})


@pytest.mark.parametrize("kind", [CONSUMER, SHARE])
async def test_an_offset_is_written_once_and_within_what_is_here(kind: str) -> None:
    scene = Scene(kind)
    assert await scene.look(3)
    assert await scene.look()
    assert await scene.look()
    assert await scene.look(log_start_offset=7)
    assert scene.told.written == [3, 5, 7]


@pytest.mark.parametrize("kind", [CONSUMER, SHARE])
async def test_a_mirror_that_is_made_anew_has_it_written_again(kind: str) -> None:
    scene = Scene(kind)
    assert await scene.look()
    scene.make(2)
    assert await scene.look()
    assert scene.told.written == [5, 5]


@pytest.mark.parametrize("refusal", [ErrorCode.NON_EMPTY_GROUP, ErrorCode.UNKNOWN_MEMBER_ID])
async def test_a_group_with_members_here_is_left_alone_and_holds_nothing_up(refusal: ErrorCode) -> None:
    scene = Scene(SHARE)
    scene.told.answer = refusal
    assert await scene.look()
    assert scene.problems == {"group g": None}
    scene.told.answer = ErrorCode.NONE
    assert await scene.look()
    assert scene.told.written == [5, 5], "tried again until it is taken"


@pytest.mark.parametrize("refusal", [ErrorCode.NETWORK_EXCEPTION, ErrorCode.UNSUPPORTED_VERSION])
async def test_what_cannot_be_written_is_told_and_is_not_in_step(refusal: ErrorCode) -> None:
    scene = Scene(SHARE)
    scene.told.answer = refusal
    assert not await scene.look()
    assert refusal.name in (scene.problems["group g"] or "")


async def test_other_kinds_do_not_follow() -> None:
    assert Scene(SHARE).sync._kind_of(ListedGroup("g", "streams", "Empty", "", 1)) is None
    assert Scene(SHARE).sync._kind_of(ListedGroup("g", "classic", "Empty", "connect", 1)) is None
