"""The metadata log of a single voter: what is durable, what is published, and what becomes of a failing disk."""

import asyncio
import errno
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from tailrace.broker.quorum import Quorum
from tailrace.controller.image import METADATA_VERSION, MetadataImage
from tailrace.model.config import BrokerConfig, Endpoint
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ids import Uuid
from tailrace.model.ports import Ports
from tailrace.sim.background import SimBackground
from tailrace.sim.clock import SimClock
from tailrace.sim.disk import SimDisk
from tailrace.sim.random import SimRandom
from tailrace.wire.apis.admin import CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest
from tailrace.wire.apis.quorum import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from tailrace.wire.apis.stored import FeatureLevelRecord, LeaderChangeMessage, RegisterBrokerRecord
from tailrace.wire.compile import decode
from tailrace.wire.records import build_batch, iterate_headers, iterate_records
from tailrace.wire.stored import decode_metadata_record

T = TypeVar("T")
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
DIRECTORY_ID = Uuid(b"directory-number")
ENDPOINT = Endpoint("PLAINTEXT", "localhost", 9092)
FOLDER = "/data/__cluster_metadata-0"
LOG_FILE = f"{FOLDER}/00000000000000000000.log"


class HeldBackground(SimBackground):
    """Work waits until it is let go, so that a test can look at what happens meanwhile."""

    def __init__(self) -> None:
        self.held: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self.is_holding = False

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        if not self.is_holding:
            return super().run(work)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.held.append((work, future))
        return future

    def release(self) -> None:
        work, future = self.held.pop(0)
        try:
            future.set_result(work())
        except OSError as error:
            future.set_exception(error)


class World:
    """One node whose processes come and go; its disk stays."""

    def __init__(self, **settings: Any) -> None:
        self.clock = SimClock()
        self.disk = SimDisk(self.clock)
        self.disk.make_folder("/data")
        self.background = HeldBackground()
        self.random = SimRandom(1)
        # The quorum of one voter talks to nobody.
        self.ports = Ports(self.clock, self.random, self.disk, None, self.background)  # type: ignore[arg-type]
        self.config = BrokerConfig(node_id=1, log_dirs=("/data",), **settings)

    async def start(self, *, previous_broker_epoch: int = -1) -> Quorum:
        quorum = Quorum(self.config, self.ports, cluster_id=CLUSTER_ID, directory_id=DIRECTORY_ID)
        await quorum.start()
        await quorum.register_broker(
            [ENDPOINT], directories=[DIRECTORY_ID], previous_broker_epoch=previous_broker_epoch
        )
        return quorum

    async def restart(self) -> Quorum:
        self.disk.crash()
        return await self.start()


@pytest.fixture
def world() -> World:
    return World()


def creation(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic
    return CreateTopicsRequest(
        topics=[topic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    )


async def create(quorum: Quorum, *names: str, partitions: int = 1) -> CreateTopicsResponse:
    response = await quorum.submit(creation(*names, partitions=partitions))
    assert isinstance(response, CreateTopicsResponse)
    return response


async def turns() -> None:
    """Lets every task that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_first_start(world: World) -> None:
    quorum = await world.start()
    assert quorum.leader_epoch == 1
    assert quorum.image.cluster_id == CLUSTER_ID
    assert quorum.image.features == {METADATA_VERSION: 30}
    broker = quorum.image.brokers[1]
    assert (broker.endpoints, broker.fenced) == ((ENDPOINT,), False)


async def test_what_the_first_start_writes(world: World) -> None:
    await world.start()
    data = world.disk.read(LOG_FILE)
    batches = [(header, data[position : position + header.size_bytes]) for position, header in iterate_headers(data)]
    assert {header.leader_epoch for header, _ in batches} == {1}
    assert [header.is_control for header, _ in batches] == [True, False, False, False]
    (leader_change,) = iterate_records(batches[0][1], max_decompressed_bytes=1000)
    assert leader_change.key == b"\x00\x00\x00\x02"
    message = decode(LeaderChangeMessage, 0, leader_change.value or b"")
    voter = LeaderChangeMessage.Voter(voter_id=1)
    assert message == LeaderChangeMessage(version=0, leader_id=1, voters=[voter], granting_voters=[voter])
    (feature,) = iterate_records(batches[1][1], max_decompressed_bytes=1000)
    assert decode_metadata_record(feature.value or b"") == FeatureLevelRecord(name=METADATA_VERSION, feature_level=30)
    (registration,) = iterate_records(batches[2][1], max_decompressed_bytes=1000)
    record = decode_metadata_record(registration.value or b"")
    assert isinstance(record, RegisterBrokerRecord)
    assert record.broker_epoch == registration.offset == 2
    assert json.loads(world.disk.read(f"{FOLDER}/quorum-state")) == {
        "leaderId": 1,
        "leaderEpoch": 1,
        "votedId": 1,
        "votedDirectoryId": "ZGlyZWN0b3J5LW51bWJlcg",
        "data_version": 1,
    }


async def test_everything_survives_a_kill(world: World) -> None:
    quorum = await world.start()
    await create(quorum, "orders", "payments", partitions=3)
    await quorum.submit(DeleteTopicsRequest(topic_names=["payments"]))
    before = quorum.image
    quorum = await world.restart()
    assert quorum.leader_epoch == 2
    assert set(quorum.image.topics) == {"orders"}
    assert quorum.image.topics["orders"].id == before.topics["orders"].id
    assert quorum.image.features == before.features, "the first records are written once"
    assert quorum.image.brokers[1].epoch > before.brokers[1].epoch


async def test_an_answer_survives_a_power_loss(world: World) -> None:
    quorum = await world.start()
    for number in range(10):
        await create(quorum, f"topic-{number}")
        world.disk.power_loss(SimRandom(number))
        quorum = await world.start()
        assert len(quorum.image.topics) == number + 1
        assert quorum.leader_epoch == number + 2


async def test_a_broker_that_died_leads_under_a_new_epoch(world: World) -> None:
    quorum = await world.start()
    await create(quorum, "orders")
    quorum = await world.restart()
    assert quorum.image.topics["orders"].partitions[0].leader_epoch == 1
    await quorum.close()
    quorum = await world.start(previous_broker_epoch=quorum.image.brokers[1].epoch)
    assert quorum.image.topics["orders"].partitions[0].leader_epoch == 1


async def test_a_damaged_vote_does_not_reuse_an_epoch(world: World) -> None:
    await world.start()
    await world.restart()
    world.disk.replace(f"{FOLDER}/quorum-state", b"{")
    assert (await world.restart()).leader_epoch == 3


async def test_subscribers_hear_of_a_topic_before_its_creator(world: World) -> None:
    quorum = await world.start()
    heard: list[tuple[set[str], set[str]]] = []

    def hear(old: MetadataImage, new: MetadataImage) -> None:
        heard.append((set(old.topics), set(new.topics)))

    quorum.subscribe(hear)
    await create(quorum, "a")
    assert heard == [(set(), {"a"})]
    await create(quorum, "b")
    assert heard[1:] == [({"a"}, {"a", "b"})]


async def test_nothing_is_published_or_answered_before_it_is_durable(world: World) -> None:
    quorum = await world.start()
    world.background.is_holding = True
    answer = asyncio.create_task(create(quorum, "orders"))
    await turns()
    assert not answer.done()
    assert "orders" not in quorum.image.topics
    world.background.release()
    assert (await answer).topics[0].error_code == ErrorCode.NONE
    assert "orders" in quorum.image.topics


async def test_changes_made_during_a_sync_share_the_next(world: World) -> None:
    quorum = await world.start()
    world.background.is_holding = True
    first = asyncio.create_task(create(quorum, "first"))
    await turns()
    rest = [asyncio.create_task(create(quorum, f"rest-{number}")) for number in range(20)]
    await turns()
    assert len(world.background.held) == 1
    world.background.release()
    await turns()
    assert first.done()
    assert set(quorum.image.topics) == {"first"}
    assert not any(answer.done() for answer in rest)
    world.background.release()
    await turns()
    assert all(answer.done() for answer in rest)
    assert len(quorum.image.topics) == 21
    assert world.background.held == []


async def test_a_decision_sees_what_is_written_but_waits_for_it(world: World) -> None:
    quorum = await world.start()
    world.background.is_holding = True
    first = asyncio.create_task(create(quorum, "orders"))
    await turns()
    second = asyncio.create_task(create(quorum, "orders"))
    await turns()
    assert not second.done(), "it tells of a topic that a power loss could still undo"
    world.background.release()
    assert (await first).topics[0].error_code == ErrorCode.NONE
    assert (await second).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_a_full_disk_refuses_the_change_and_heals(world: World) -> None:
    quorum = await world.start()
    world.disk.fail("append", "*.log", error=errno.ENOSPC)
    with pytest.raises(KafkaError) as refusal:
        await create(quorum, "orders")
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "orders" not in quorum.image.topics
    world.disk.heal()
    assert (await create(quorum, "orders")).topics[0].error_code == ErrorCode.NONE
    quorum = await world.restart()
    assert set(quorum.image.topics) == {"orders"}


async def test_a_failed_sync_undoes_what_was_decided(world: World) -> None:
    quorum = await world.start()
    await create(quorum, "before")
    published = quorum.image
    world.background.is_holding = True
    answers = [asyncio.create_task(create(quorum, name)) for name in ("a", "b")]
    await turns()
    world.disk.fail("sync", "*.log")
    world.background.release()
    errors = await asyncio.gather(*answers, return_exceptions=True)
    assert [error.code for error in errors if isinstance(error, KafkaError)] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert quorum.image is published
    world.disk.heal()
    with pytest.raises(KafkaError, match="could not be synced"):
        await create(quorum, "later")
    world.background.is_holding = False
    quorum = await world.restart()
    assert "before" in quorum.image.topics
    assert (await create(quorum, "later")).topics[0].error_code == ErrorCode.NONE


async def test_a_client_that_goes_away_does_not_undo_its_change(world: World) -> None:
    quorum = await world.start()
    world.background.is_holding = True
    answer = asyncio.create_task(create(quorum, "orders"))
    await turns()
    answer.cancel()
    await turns()
    world.background.release()
    await turns()
    assert "orders" in quorum.image.topics


async def test_a_subscriber_that_fails_does_not_leave_anyone_waiting(world: World) -> None:
    quorum = await world.start()

    def fail(_old: MetadataImage, _new: MetadataImage) -> None:
        raise RuntimeError("planted")

    quorum.subscribe(fail)
    with pytest.raises(KafkaError, match="planted"):
        await create(quorum, "orders")


async def test_a_request_too_large_for_one_batch() -> None:
    quorum = await World(metadata_max_batch_bytes=2000).start()
    with pytest.raises(KafkaError) as refusal:
        await create(quorum, "orders", partitions=100)
    assert refusal.value.code is ErrorCode.POLICY_VIOLATION
    assert "metadata.max.batch.bytes" in refusal.value.message
    assert (await create(quorum, "orders")).topics[0].error_code == ErrorCode.NONE


async def test_producer_ids_are_not_given_out_again_after_a_restart(world: World) -> None:
    starts = []
    for _ in range(3):
        quorum = await world.restart()
        request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=quorum.image.brokers[1].epoch)
        response = await quorum.submit(request)
        assert isinstance(response, AllocateProducerIdsResponse)
        starts.append(response.producer_id_start)
    assert starts == [0, 1000, 2000]


async def test_a_clean_close_waits_for_the_sync_under_way(world: World) -> None:
    quorum = await world.start()
    world.background.is_holding = True
    answer = asyncio.create_task(create(quorum, "orders"))
    await turns()
    closing = asyncio.create_task(quorum.close())
    await turns()
    assert not closing.done()
    world.background.is_holding = False
    world.background.release()
    await closing
    assert (await answer).topics[0].error_code == ErrorCode.NONE


async def test_a_log_of_the_future_is_not_guessed_at(world: World) -> None:
    quorum = await world.start()
    await quorum.close()
    end = quorum.image.next_offset
    of_the_future = build_batch([(end, 0, None, b"\x01\x7f\x00", ())], base_offset=end, leader_epoch=1)
    world.disk.open(LOG_FILE).append([of_the_future])
    with pytest.raises(StorageError, match="If a newer version wrote it"):
        await world.restart()


async def test_segments_of_the_metadata_log_are_read_in_order() -> None:
    world = World(metadata_log_segment_bytes=4096)
    quorum = await world.start()
    for number in range(60):
        await create(quorum, f"topic-{number}")
    assert len([name for name in world.disk.list(FOLDER) if name.endswith(".log")]) > 1
    quorum = await world.restart()
    assert set(quorum.image.topics) == {f"topic-{number}" for number in range(60)}


async def test_a_folder_of_its_own_is_locked_and_of_this_cluster() -> None:
    world = World(metadata_log_dir="/metadata")
    quorum = await world.start()
    await create(quorum, "orders")
    assert world.disk.exists("/metadata/__cluster_metadata-0/quorum-state")
    with pytest.raises(StorageError, match="in use by another process"):
        await world.start()
    await quorum.close()
    assert set((await world.start()).image.topics) == {"orders"}
    world.disk.crash()
    other = Quorum(world.config, world.ports, cluster_id="BAAAAAAAAAAAAAAAAAAAAA", directory_id=DIRECTORY_ID)
    with pytest.raises(StorageError, match="cluster"):
        await other.start()
