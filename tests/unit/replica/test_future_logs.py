"""Logs that move between data folders: nothing is lost or doubled, whatever happens to the log meanwhile."""

import asyncio
import errno

import pytest

from tailrace.controller.image import UNASSIGNED_DIRECTORY, MetadataImage, PartitionImage, TopicImage
from tailrace.model.config import BrokerConfig
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.replica.directories import LogDirectories, find_log
from tailrace.replica.future_logs import FutureLogs
from tailrace.replica.leading.deletion import delete_records
from tailrace.replica.manager import ReplicaManager
from tailrace.sim.background import HeldBackground, SimBackground
from tailrace.sim.clock import SimClock
from tailrace.sim.disk import SimDisk
from tailrace.sim.random import SimRandom
from tests.unit.replica.replicas import ME, TOPIC_ID, batch, release

T0 = TopicPartition("t", PartitionIndex(0))
PATIENCE_SECONDS = 5


class Moving:
    """A broker with two folders and a topic of one partition in one of them."""

    def __init__(self, background=None):
        self.disk = SimDisk(SimClock())
        self.config = BrokerConfig(node_id=ME, log_dirs=("data0", "data1"))
        self.random = SimRandom(3)
        self.background = background
        self.image = None
        self.start()

    def start(self, assigned=UNASSIGNED_DIRECTORY):
        """With the metadata naming a folder, or none."""
        self.disk.crash()
        directories = LogDirectories.open(
            self.disk,
            self.disk.clock,
            self.random,
            self.config.log_dirs,
            node_id=ME,
            cluster_id="c" * 22,
            required="data0",
        )
        self.replicas = ReplicaManager(self.config, directories, background=SimBackground())
        self.moves = FutureLogs(self.replicas, directories, background=self.background or SimBackground())
        state = PartitionImage(
            replicas=(ME,), isr=(ME,), leader=ME, leader_epoch=0, partition_epoch=0, directories=(assigned,)
        )
        topic = TopicImage("t", TOPIC_ID, {0: state})
        self.image = None
        self.publish({"t": topic})

    def publish(self, topics):
        old, self.image = self.image, MetadataImage("c" * 22, topics=topics, topic_names={TOPIC_ID: "t"})
        self.replicas.follow_image(old, self.image)

    @property
    def partition(self):
        return self.replicas.partitions[T0]

    @property
    def folders(self):
        return self.replicas.directories

    def append(self, *values):
        self.partition.append(batch(*values), required_acks=1)

    def content(self):
        log = self.partition.log
        data, offset = b"", log.log_start_offset
        while (found := log.read(offset, 1 << 20, end_offset=log.log_end_offset)) is not None:
            data += found.read()
            offset = log.log_end_offset
        return data

    def where(self):
        return [each.path for each in self.folders if T0 in each.logs]

    def leftovers(self):
        names = [name for each in self.folders for name in self.disk.list(each.path)]
        return [name for name in names if name.endswith("-future")]

    async def wait(self):
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.moves.is_moving(T0):
                await asyncio.sleep(0)


def target_of(moving):
    (here,) = moving.where()
    return next(each.path for each in moving.folders if each.path != here)


async def test_a_log_moves_with_all_it_has():
    moving = Moving()
    for number in range(20):
        moving.append(b"%d" % number)
    before, target = moving.content(), target_of(moving)
    old = moving.partition.log
    moving.moves.move(T0, target)
    await moving.wait()
    assert moving.where() == [target]
    assert moving.partition.log is not old
    assert moving.partition.log.folder == f"{target}/t-0"
    assert moving.content() == before
    assert moving.leftovers() == []
    moving.append(b"after")
    moving.start()
    assert moving.where() == [target]
    assert moving.partition.log.log_end_offset == 21


async def test_what_is_written_during_the_copy_is_there():
    background = HeldBackground()
    moving = Moving(background)
    moving.append(b"a" * 100)
    moving.moves.move(T0, target_of(moving))
    count = 1
    async with asyncio.timeout(PATIENCE_SECONDS):
        while moving.moves.is_moving(T0):
            await asyncio.sleep(0)
            if background.held:
                if count < 12:
                    moving.append(b"b" * 100)
                    count += 1
                await release(background)
    assert moving.partition.log.log_end_offset == count
    assert len(moving.where()) == 1


async def test_a_log_that_is_cut_during_the_copy_cuts_the_copy():
    background = HeldBackground()
    moving = Moving(background)
    for number in range(10):
        moving.append(b"old %d" % number)
    target = target_of(moving)
    moving.moves.move(T0, target)
    await asyncio.sleep(0)
    await release(background)  # All was read, and is in the copy.
    assert next(each for each in moving.folders if each.path == target).futures[T0].log_end_offset == 10
    moving.partition.log.truncate(4)
    moving.partition.high_watermark = 4
    for number in range(6):
        moving.append(b"new %d" % number)
    expected = moving.content()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while moving.moves.is_moving(T0):
            await asyncio.sleep(0)
            if background.held:
                await release(background)
    assert moving.where() == [target]
    assert moving.content() == expected


async def test_what_was_read_before_a_cut_is_not_written_after_it():
    background = HeldBackground()
    moving = Moving(background)
    for number in range(10):
        moving.append(b"old %d" % number)
    moving.moves.move(T0, target_of(moving))
    await asyncio.sleep(0)
    work, done = background.held.pop()
    data = work()
    moving.partition.log.truncate(0)
    moving.partition.high_watermark = 0
    for number in range(10):
        moving.append(b"new %d" % number)
    done.set_result(data)
    expected = moving.content()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while moving.moves.is_moving(T0):
            await asyncio.sleep(0)
            if background.held:
                await release(background)
    assert moving.content() == expected


async def test_a_log_start_amid_a_batch_is_kept():
    moving = Moving()
    moving.append(*[b"%d" % number for number in range(10)])
    moving.append(b"last")
    delete_records(moving.partition, 7)
    moving.moves.move(T0, target_of(moving))
    await moving.wait()
    assert (moving.partition.log.log_start_offset, moving.partition.log.log_end_offset) == (7, 11)
    moving.start()
    assert (moving.partition.log.log_start_offset, moving.partition.log.log_end_offset) == (7, 11)


async def test_an_epoch_without_a_record_and_the_producers_come_along():
    moving = Moving()
    moving.partition.append(batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0), required_acks=1)
    log = moving.partition.log
    log.epochs.assign(5, 1)
    moving.moves.move(T0, target_of(moving))
    await moving.wait()
    assert moving.partition.log is not log
    assert moving.partition.log.epochs.entries[-1] == (5, 1)
    assert list(moving.partition.log.producers.states) == [7]


async def test_a_power_loss_at_any_time_leaves_every_synced_record():
    for seed in range(30):
        random = SimRandom(seed)
        background = HeldBackground()
        moving = Moving(background)
        for number in range(5):
            moving.append(b"%d" % number)
        work, end_offset = moving.partition.log.begin_sync()
        work()
        moving.partition.log.mark_synced(end_offset)
        source, target = find_log(moving.folders, T0), target_of(moving)
        assigned = []

        async def assign(_partition, directory, assigned=assigned):
            assigned.append(directory.directory_id)

        moving.moves.assign = assign
        moving.moves.move(T0, target)
        for _ in range(random.randrange(12)):
            await asyncio.sleep(0)
            if background.held:
                await release(background)
        await moving.moves.close()
        moving.disk.power_loss(random)
        directory_id = assigned[-1] if assigned else source.directory_id
        moving.start(assigned=directory_id)
        assert moving.partition.log.log_end_offset == 5, f"seed {seed}"
        assert len(moving.where()) == 1


async def test_a_restart_goes_on_with_a_copy_and_drops_what_is_of_no_use():
    background = HeldBackground()
    moving = Moving(background)
    for number in range(10):
        moving.append(b"%d" % number)
    target = target_of(moving)
    moving.moves.move(T0, target)
    await asyncio.sleep(0)
    await release(background)
    await moving.moves.close()
    moving.disk.make_folder(f"{target}/gone-3.{'0' * 32}-future")
    moving.background = None
    moving.start()
    assert len(moving.leftovers()) == 2
    moving.moves.resume()
    await moving.wait()
    assert moving.where() == [target]
    assert moving.leftovers() == []
    assert moving.partition.log.log_end_offset == 10


async def test_a_move_ends_with_its_topic():
    moving = Moving(HeldBackground())
    moving.append(b"x")
    moving.moves.move(T0, target_of(moving))
    await asyncio.sleep(0)
    moving.publish({})
    await asyncio.sleep(0)
    assert not moving.moves.is_moving(T0)
    assert moving.leftovers() == []


async def test_another_target_begins_anew_and_the_own_folder_ends_a_move():
    moving = Moving(HeldBackground())
    moving.append(b"x")
    (source,) = moving.where()
    moving.moves.move(T0, target_of(moving))
    await asyncio.sleep(0)
    moving.moves.move(T0, target_of(moving))
    assert moving.moves.is_moving(T0)
    moving.moves.move(T0, source)
    await asyncio.sleep(0)
    assert not moving.moves.is_moving(T0)
    assert (moving.where(), moving.leftovers()) == ([source], [])


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
async def test_a_target_that_refuses_leaves_the_log_where_it_is(error, caplog):
    moving = Moving()
    for number in range(10):
        moving.append(b"%d" % number)
    (source,) = moving.where()
    target = target_of(moving)
    moving.disk.fail("append", f"{target}/*", error=error)
    moving.moves.move(T0, target)
    await moving.wait()
    assert "a log cannot be moved" in caplog.text
    assert moving.where() == [source]
    assert not moving.partition.log.is_offline
    assert [each.is_offline for each in moving.folders if each.path == target] == [error == errno.EIO]
    moving.append(b"still there")


async def test_unknown_and_failed_folders_are_refused():
    moving = Moving()
    with pytest.raises(KafkaError) as raised:
        moving.moves.move(T0, "elsewhere")
    assert raised.value.code is ErrorCode.LOG_DIR_NOT_FOUND
    target = target_of(moving)
    next(each for each in moving.folders if each.path == target).fail("the test says so")
    with pytest.raises(KafkaError) as raised:
        moving.moves.move(T0, target)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError) as raised:
        moving.moves.move(TopicPartition("u", PartitionIndex(0)), moving.where()[0])
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_the_controller_hears_of_it_before_the_swap():
    moving = Moving()
    moving.append(b"x")
    target = target_of(moving)
    asked = []

    async def assign(topic_partition, directory):
        asked.append((topic_partition, directory.path, moving.where()))
        moving.append(b"y")

    moving.moves.assign = assign
    (source,) = moving.where()
    moving.moves.move(T0, target)
    await moving.wait()
    assert asked == [(T0, target, [source])]
    assert moving.where() == [target]
    assert moving.partition.log.log_end_offset == 2


async def test_a_controller_that_cannot_be_told_keeps_the_log_where_it_is():
    moving = Moving()
    moving.append(b"x")
    (source,) = moving.where()

    async def assign(_partition, _directory):
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "nobody there")

    moving.moves.assign = assign
    moving.moves.move(T0, target_of(moving))
    await moving.wait()
    assert (moving.where(), moving.leftovers()) == ([source], [])
