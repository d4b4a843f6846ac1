"""Many partitions that change at once: who leads no more hears of it first, the others some a turn, or when asked."""

import asyncio

import pytest

from tailrace.controller.image import MetadataImage, PartitionImage, TopicImage
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, Uuid
from tailrace.replica.late import AT_ONCE_MAX, OwedLogs
from tests.unit.replica.replicas import Cluster

PER_TURN = 10
COUNT = 60
ME, OTHER = NodeId(1), NodeId(2)
TOPIC_ID = Uuid(b"t" * 16)


class Following:
    """Partitions of one topic: those with an even number are led here at first, the others elsewhere."""

    def __init__(self) -> None:
        self.cluster = Cluster(replica_changes_per_turn=PER_TURN)
        self.replicas = self.cluster.replicas
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.image = self._image({index: state(index % 2 == 0) for index in range(COUNT)}, offset=10)
        self.replicas.follow_image(None, self.image)
        for index in range(COUNT):
            self.replicas.find_any("t", index)

    def publish(self, *, leads: bool | None = None, epoch: int = 1, settings: dict[str, str] | None = None) -> None:
        """All partitions lose a member of their in-sync sets; with `leads` this broker gets all of them, or none."""
        if settings is not None:
            self.configs = {(2, "t"): settings}
        states = {
            index: state(index % 2 == 0 if leads is None else leads, epoch=epoch, isr=(ME,), is_new=leads is not None)
            for index in range(COUNT)
        }
        old, self.image = self.image, self._image(states, offset=10 + epoch)
        self.replicas.follow_image(old, self.image)

    def _image(self, states: dict[int, PartitionImage], *, offset: int) -> MetadataImage:
        topics = {"t": TopicImage("t", TOPIC_ID, states)}
        return MetadataImage(
            "c" * 22, topics=topics, topic_names={TOPIC_ID: "t"}, configs=self.configs, next_offset=offset
        )

    @property
    def followed(self) -> list[int]:
        """The partitions that know the newest image."""
        partitions = self.image.topics["t"].partitions
        epochs = {index: each.partition_epoch for index, each in partitions.items()}
        return [
            index for index in range(COUNT) if self.replicas.partitions["t", index].partition_epoch == epochs[index]
        ]

    @property
    def offset(self) -> int:
        return self.replicas.late.followed_offset(self.image)


def state(
    leads: bool, *, epoch: int = 0, isr: tuple[NodeId, ...] = (ME, OTHER), is_new: bool = False
) -> PartitionImage:
    return PartitionImage(
        replicas=(ME, OTHER),
        isr=isr,
        leader=ME if leads else OTHER,
        leader_epoch=epoch if is_new else 0,
        partition_epoch=epoch,
    )


async def test_some_follow_in_each_turn():
    following = Following()
    told: list[int] = []
    following.replicas.late.on_followed = lambda: told.append(len(following.followed))
    following.publish()
    seen = [len(following.followed)]
    while seen[-1] < COUNT:
        assert following.offset == 9, "the controller counts on what everybody has followed"
        await asyncio.sleep(0)
        seen.append(len(following.followed))
    assert seen == list(range(0, COUNT + 1, PER_TURN))
    assert following.offset == 10
    assert told == [COUNT]


async def test_who_leads_no_more_hears_of_it_at_once():
    following = Following()
    waits = following.replicas.find("t", 0)
    told: list[KafkaError | None] = []
    waits.wait_for_high_watermark(1, told.append)
    following.publish(leads=False)
    assert following.followed == list(range(0, COUNT, 2))
    assert not any(each.is_leader for each in following.replicas.partitions.values())
    assert [error.code for error in told if error is not None] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def test_who_leads_again_in_another_epoch_hears_of_it_at_once():
    following = Following()
    following.publish(leads=True)
    assert following.followed == list(range(0, COUNT, 2))


@pytest.mark.parametrize("find", ["find", "find_any"])
async def test_what_is_asked_for_is_up_to_date(find: str):
    following = Following()
    following.publish(leads=True)
    assert not following.replicas.partitions["t", 59].is_leader
    assert getattr(following.replicas, find)("t", 59).is_leader
    assert following.offset == 9


async def test_the_newest_image_is_followed():
    following = Following()
    following.publish()
    await asyncio.sleep(0)
    following.publish(leads=True, epoch=2)
    following.publish(leads=False, epoch=3)
    assert not any(each.is_leader for each in following.replicas.partitions.values())
    for _ in range(COUNT):
        await asyncio.sleep(0)
    assert following.followed == list(range(COUNT))
    assert following.offset == 12


async def test_settings_and_in_sync_sets_stay_together():
    following = Following()
    following.publish()
    assert following.followed == []
    following.publish(epoch=2, settings={"min.insync.replicas": "2"})
    assert following.followed == list(range(COUNT))
    assert all(each.is_under_min_isr for each in following.replicas.partitions.values())


async def test_what_is_deleted_meanwhile_stays_away():
    following = Following()
    following.publish()
    empty = MetadataImage("c" * 22, configs=following.configs, next_offset=20)
    following.replicas.follow_image(following.image, empty)
    for _ in range(COUNT):
        await asyncio.sleep(0)
    assert following.replicas.partitions == {}
    assert following.replicas.late.followed_offset(empty) == 19


async def test_nothing_follows_after_the_end():
    following = Following()
    following.publish()
    following.replicas.close()
    for _ in range(COUNT):
        await asyncio.sleep(0)
    assert following.followed == []


# ---- new partitions, whose logs are made later

KEYS = [("t", index) for index in range(100)]


async def turns_until_all_are_made(owed: OwedLogs, made: list[tuple[str, int]]) -> list[int]:
    """How many were made in each turn."""
    counts = []
    while owed:
        before = len(made)
        await asyncio.sleep(0)
        counts.append(len(made) - before)
    return counts


async def test_they_are_made_in_order_a_few_a_turn():
    made: list[tuple[str, int]] = []
    owed = OwedLogs(made.append)
    owed.add(KEYS[:50])
    owed.add(KEYS[50:])
    assert made == []
    assert max(await turns_until_all_are_made(owed, made)) <= 4
    assert made == KEYS


async def test_who_asks_for_many_has_them_first():
    made: list[tuple[str, int]] = []
    owed = OwedLogs(made.append)
    owed.add(KEYS)
    wanted = KEYS[-30:]
    assert owed.among(wanted) == wanted
    assert await owed.then(wanted, lambda: set(wanted) <= set(made))
    assert len(made) < len(KEYS)
    await turns_until_all_are_made(owed, made)
    assert sorted(made) == sorted(KEYS)


async def test_a_few_are_made_by_who_asks_for_them():
    owed = OwedLogs(lambda _: None)
    assert not owed
    owed.add(KEYS)
    assert owed.among(KEYS[:AT_ONCE_MAX]) == []
    owed.clear()
    assert not owed
    await asyncio.sleep(0)
