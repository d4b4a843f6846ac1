"""A node that is alone, and one flipped bit in any of its small files: it starts and has everything, or says what is
wrong. Flipped bits of logs are tested where logs are."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from tailrace.model.errors import KafkaError, StorageError
from tailrace.sim.clock import SimClock
from tailrace.sim.disk import SimDisk
from tailrace.sim.loop import SimLoop
from tailrace.sim.random import SimRandom
from tailrace.wire.apis.groups import FindCoordinatorRequest, OffsetCommitRequest, OffsetFetchRequest
from tests.unit.broker.cluster_world import ClusterWorld
from tests.unit.broker.transactions.scene import NEW, SETTINGS, Producer
from tests.unit.broker.world import Peer, batch, create_topic, fetch, fetched, produce, produced

T = TypeVar("T")
Files = dict[str, bytes]
META_PROPERTIES = "data/meta.properties"
# Each kind of file, by the end of its path.
KINDS = (
    ".kafka_cleanshutdown",
    ".tailrace_running",
    ".tailrace_metadata_synced",
    "/recovery-point-offset-checkpoint",
    "/replication-offset-checkpoint",
    "/log-start-offset-checkpoint",
    "__cluster_metadata-0/quorum-state",
    "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint",
    "__cluster_metadata-0/partition.metadata",
    "t-0/partition.metadata",
    "t-0/leader-epoch-checkpoint",
    "t-0/aborted-index-checkpoint",
    "t-0/00000000000000000000.timeindex",
    "t-0/00000000000000000000.txnindex",
    "t-0/00000000000000000006.snapshot",
)
# At how many places of a file a bit is flipped.
PLACES = 12
FEW_PLACES = 4


def run(work: Coroutine[Any, Any, T]) -> T:
    loop = SimLoop(SimRandom(1))
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def new_world() -> ClusterWorld:
    return ClusterWorld(["broker,controller"], SETTINGS | {"min.insync.replicas": "1"})


def paths(disk: SimDisk, folder: str = "data") -> Iterator[str]:
    for name in disk.list(folder):
        path = f"{folder}/{name}"
        if disk.is_folder(path):
            yield from paths(disk, path)
        else:
            yield path


def restored(files: Files) -> SimDisk:
    disk = SimDisk(SimClock())
    for path, data in files.items():
        folder = path.rpartition("/")[0]
        if not disk.is_folder(folder):
            disk.make_folder(folder)
        file = disk.open(path, create=True)
        file.append([data])
        file.sync()
        disk.sync_folder(folder)
    return disk


async def ask_for_coordinators(peer: Peer) -> None:
    for kind in (0, 1):
        found = await peer.request(FindCoordinatorRequest(key_type=kind, coordinator_keys=["x"]), 6)
        assert found.coordinators[0].error_code == 0


async def fill(world: ClusterWorld) -> None:
    """Records, two transactions of which one is aborted, and a committed offset."""
    peer = await world.connect(1)
    await create_topic(peer, "t")
    await create_topic(peer, "plain")
    for number in range(3):
        assert produced(await peer.request(produce("plain", batch(b"%d" % number)), 9)).error_code == 0
    await ask_for_coordinators(peer)
    producer = Producer(peer, NEW)
    await producer.init()
    for number in range(3):
        assert await producer.write("t", producer.records("t", b"%d" % number)) == 0
        assert await producer.end(is_commit=number != 1) == 0
    commit = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=4)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[commit])
    answer = await peer.request(OffsetCommitRequest(group_id="x", topics=[topic]), 8)
    assert answer.topics[0].partitions[0].error_code == 0
    await asyncio.sleep(15)  # Checkpoints are written.


async def look(world: ClusterWorld) -> list[object]:
    """All that clients can see of it."""
    peer = await world.connect(1)
    await ask_for_coordinators(peer)
    seen: list[object] = []
    for topic, isolation_level in (("plain", 0), ("t", 0), ("t", 1)):
        request = fetch(topic, 0, isolation_level=isolation_level, max_wait_ms=0)
        answer = fetched(await peer.request(request, 11))
        aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or []]
        seen += [answer.error_code, answer.high_watermark, answer.last_stable_offset, bytes(answer.records or b"")]
        seen += aborted
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="x", topics=None)
    offsets = (await peer.request(OffsetFetchRequest(groups=[group]), 8)).groups[0]
    seen += [offsets.error_code, [(each.name, each.partitions[0].committed_offset) for each in offsets.topics]]
    producer = Producer(peer, NEW)
    await producer.init()
    seen += [producer.producer_id, await producer.write("t", producer.records("t", b"new"))]
    return seen


async def make(*, is_clean: bool) -> Files:
    world = new_world()
    await world.start_all()
    await fill(world)
    await (world.stop(1) if is_clean else world.kill(1))
    disk = world.nodes[1].disk
    return {path: disk.read(path) for path in paths(disk)}


async def live(disk: SimDisk) -> list[object]:
    """What is seen of a node with this disk. Raises why it does not start."""
    world = new_world()
    world.nodes[1].disk = disk
    await world.start(1)
    async with asyncio.timeout(60):
        seen = await look(world)
    await world.stop(1)
    world.check()
    return seen


def flips(size: int, places: int) -> Iterator[tuple[int, int]]:
    for number, position in enumerate(range(0, size, max(1, size // places))):
        yield position, number % 8


@pytest.mark.parametrize(
    ("is_clean", "places"), [(True, FEW_PLACES), (False, PLACES), pytest.param(True, PLACES, marks=pytest.mark.long)]
)
def test_no_flipped_bit_of_a_small_file_is_seen(is_clean: bool, places: int) -> None:
    files = run(make(is_clean=is_clean))
    sound = run(live(restored(files)))
    kinds = [path for path in files if path.endswith(KINDS) and files[path]]
    # A broker that is killed leaves most of them in memory.
    assert len(kinds) == len(KINDS) if is_clean else len(kinds) >= 8
    for path in kinds:
        for position, bit in flips(len(files[path]), places):
            disk = restored(files)
            disk.flip(path, position, bit)
            assert run(live(disk)) == sound, (path, position, bit)


def test_a_flipped_bit_of_the_identity_is_told() -> None:
    files = run(make(is_clean=True))
    sound = run(live(restored(files)))
    text = files[META_PROPERTIES]
    refusals: list[str] = []
    for position in range(0, len(text) - 1, 3):
        disk = restored(files)
        disk.flip(META_PROPERTIES, position, position % 7)
        try:
            assert run(live(disk)) == sound, position  # Some bits mean nothing: another kind of line break.
        except (StorageError, KafkaError) as refused:
            refusals.append(str(refused))
    assert len(refusals) > 10
    assert all(any(word in told for word in ("meta.properties", "node.id=", "cluster.id")) for told in refusals)
