"""Snapshot files: Kafka's format, whole or not there, and what `format` leaves for the first start."""

import asyncio

import pytest

from tailrace.broker.quorum.control_records import read_control_batch
from tailrace.broker.quorum.snapshots import (
    SnapshotFiles,
    SnapshotId,
    encode_snapshot,
    file_name,
    parse_file_name,
    read_batches,
    read_metadata,
    slice_of,
    store_bootstrap_snapshot,
    write_snapshot,
)
from tailrace.model.errors import StorageError
from tailrace.model.ports import Ports
from tailrace.sim.background import SimBackground
from tailrace.sim.clock import SimClock
from tailrace.sim.cluster import voter_of
from tailrace.sim.disk import SimDisk
from tailrace.sim.random import SimRandom
from tailrace.wire.apis.stored_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    TopicRecord,
    VotersRecord,
)
from tailrace.wire.records import iterate_headers

FOLDER = "/data/__cluster_metadata-0"
SNAPSHOT = SnapshotId(1234, 5)
VERSION = KRaftVersionRecord(kraft_version=1)
VOTER = voter_of(1, b"directory-number", host="localhost", port=9093)
VOTERS = VotersRecord(voters=[VOTER])


class World:
    def __init__(self) -> None:
        clock = SimClock()
        self.disk = SimDisk(clock)
        self.disk.make_folder(FOLDER)
        # As the first sync of the log does.
        self.disk.sync_folder("/data")
        # A file needs no network.
        self.ports = Ports(clock, SimRandom(1), self.disk, None, SimBackground())  # type: ignore[arg-type]

    def open(self) -> SnapshotFiles:
        return SnapshotFiles.open(self.disk, FOLDER)

    async def write(self, snapshot: SnapshotId = SNAPSHOT, topics: int = 3) -> SnapshotFiles:
        files = self.open()
        groups = [[topic(number)] for number in range(topics)]
        await write_snapshot(files, self.ports, snapshot, groups, control=[VERSION, VOTERS])
        return files


@pytest.fixture
def world() -> World:
    return World()


def topic(number: int) -> TopicRecord:
    return TopicRecord(name=f"topic-{number}", topic_id=b"0123456789abcdef")


def test_names() -> None:
    assert file_name(SNAPSHOT) == "00000000000000001234-0000000005.checkpoint"
    assert parse_file_name(file_name(SNAPSHOT)) == SNAPSHOT
    for name in (
        "00000000000000001234.log",
        "00000000000000001234-0000000005.checkpoint.part",
        "0000000000000000123x-0000000005.checkpoint",
        "1234-5.checkpoint",
        "leader-epoch-checkpoint",
    ):
        assert parse_file_name(name) is None


async def test_the_file_is_as_kafka_writes_it(world: World) -> None:
    await world.write(topics=250)
    data = world.disk.read(f"{FOLDER}/{file_name(SNAPSHOT)}")
    batches = [(header, data[position : position + header.size_bytes]) for position, header in iterate_headers(data)]
    assert {header.leader_epoch for header, _ in batches} == {SNAPSHOT.epoch}
    assert [header.is_control for header, _ in batches] == [True, False, False, False, True]
    assert [header.base_offset for header, _ in batches] == [0, 3, 103, 203, 253], "offsets count within the file"
    first = [message for _, message in read_control_batch(batches[0][1])]
    assert isinstance(first[0], SnapshotHeaderRecord)
    assert first[0].last_contained_log_timestamp == world.ports.clock.wall_ms()
    assert first[1:] == [VERSION, VOTERS]
    assert [message for _, message in read_control_batch(batches[-1][1])] == [SnapshotFooterRecord()]
    records = [record for header, batch in batches if not header.is_control for record in read_metadata(batch)]
    assert records == [topic(number) for number in range(250)]


async def test_it_is_found_again_after_a_power_loss(world: World) -> None:
    files = await world.write()
    assert files.latest == SNAPSHOT
    world.disk.power_loss(SimRandom(1))
    files = world.open()
    assert files.ids == (SNAPSHOT,)
    assert files.read_control(SNAPSHOT) == [VERSION, VOTERS]


async def test_a_part_is_not_there_and_goes_with_the_next_start(world: World) -> None:
    part = world.open().begin(SNAPSHOT)
    part.append(b"half of it")
    world.disk.crash()
    assert world.open().ids == ()
    assert world.disk.list(FOLDER) == []


async def test_a_downloaded_part_is_stored_only_if_it_is_whole(world: World) -> None:
    pieces = list(encode_snapshot(SNAPSHOT, [[topic(1)]], control=[], timestamp_ms=1))
    damaged = bytearray(b"".join(pieces))
    damaged[len(pieces[0]) + 70] ^= 1
    for content, problem in (
        (pieces[0], "no footer"),
        (b"", "no footer"),
        (damaged, "checksum"),
        (b"x" * 99, "damaged"),
    ):
        part = world.open().begin(SNAPSHOT)
        part.append(content)
        with pytest.raises(StorageError, match=problem):
            part.store()
        assert world.open().ids == ()
    part = world.open().begin(SNAPSHOT)
    for piece in pieces:
        part.append(piece)
    part.store()
    assert world.open().ids == (SNAPSHOT,)


async def test_a_full_disk_leaves_no_snapshot(world: World) -> None:
    world.disk.fail("sync", "*.part")
    with pytest.raises(StorageError):
        await world.write()
    assert world.disk.list(FOLDER) == []


async def test_a_cancelled_snapshot_leaves_nothing(world: World) -> None:
    writing = asyncio.create_task(world.write(topics=1000))
    for _ in range(4):
        await asyncio.sleep(0)
    assert world.disk.list(FOLDER) == ["00000000000000001234-0000000005.checkpoint.part"]
    writing.cancel()
    await asyncio.wait((writing,))
    assert world.disk.list(FOLDER) == []


async def test_it_is_served_in_pieces_though_it_was_removed(world: World) -> None:
    files = await world.write()
    file = files.open_file(SNAPSHOT)
    assert file is not None
    await world.write(SnapshotId(2000, 6))
    files.add(SnapshotId(2000, 6))
    files.forget_before(SnapshotId(2000, 6))()
    assert files.open_file(SNAPSHOT) is None
    assert world.disk.list(FOLDER) == [file_name(SnapshotId(2000, 6))]
    data, position = b"", 0
    while piece := slice_of(file, position, 100).read():
        data += piece
        position += len(piece)
    part = World().open().begin(SNAPSHOT)
    part.append(data)
    part.store()


async def test_what_format_leaves(world: World) -> None:
    store_bootstrap_snapshot(world.disk, FOLDER, [VOTER], timestamp_ms=1)
    world.disk.power_loss(SimRandom(1))
    assert world.disk.list(FOLDER) == ["00000000000000000000-0000000000.checkpoint"]
    files = world.open()
    assert files.latest == (0, 0)
    assert files.read_control(SnapshotId(0, 0)) == [VERSION, VOTERS]


async def test_a_snapshot_larger_than_one_read(world: World) -> None:
    files = world.open()
    names = [TopicRecord(name="x" * 20_000 + str(number), topic_id=b"0123456789abcdef") for number in range(150)]
    await write_snapshot(files, world.ports, SNAPSHOT, [names], control=[])
    file = files.open_file(SNAPSHOT)
    assert file is not None
    assert [
        record for header, batch in read_batches(file) if not header.is_control for record in read_metadata(batch)
    ] == names
