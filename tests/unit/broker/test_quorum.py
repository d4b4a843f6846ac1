"""The metadata log of a single voter: what is durable, what is published, and what becomes of a failing disk."""

import asyncio
import errno
import json

import pytest

from tailrace.broker.quorum.control_records import LEADER_CHANGE, read_control_batch
from tailrace.broker.quorum.metadata_log import MetadataLog
from tailrace.broker.quorum.quorum import Quorum
from tailrace.controller.image import METADATA_VERSION, MetadataImage
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.raft.types import ReplicaKey, Voter, VoterSet
from tailrace.sim.random import SimRandom
from tailrace.wire.apis.admin import DeleteTopicsRequest
from tailrace.wire.apis.quorum import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from tailrace.wire.apis.stored_records import (
    ConfigRecord,
    FeatureLevelRecord,
    KRaftVersionRecord,
    LeaderChangeMessage,
    RegisterBrokerRecord,
    TopicRecord,
    VotersRecord,
)
from tailrace.wire.record_envelopes import decode_metadata_record
from tailrace.wire.records import build_batch, iterate_headers, iterate_records
from tests.unit.broker.quorum_world import (
    CLUSTER_ID,
    DIRECTORY_ID,
    ENDPOINT,
    FEATURES,
    FOLDER,
    LOG_FILE,
    World,
    create,
    turns,
)


@pytest.fixture
def world() -> World:
    return World()


async def test_the_first_start(world: World) -> None:
    quorum = await world.start()
    assert quorum.leadership.epoch == 1
    assert quorum.image.cluster_id == CLUSTER_ID
    assert quorum.image.features == FEATURES
    assert quorum.image.features[METADATA_VERSION] == 30
    broker = quorum.image.brokers[1]
    assert (broker.endpoints, broker.fenced) == ((ENDPOINT,), False)


async def test_what_the_first_start_writes(world: World) -> None:
    await world.start()
    data = world.disk.read(LOG_FILE)
    batches = [(header, data[position : position + header.size_bytes]) for position, header in iterate_headers(data)]
    assert {header.leader_epoch for header, _ in batches} == {1}
    assert [header.is_control for header, _ in batches] == [True, False, False, False]
    control = [message for _, message in read_control_batch(batches[0][1])]
    voter = LeaderChangeMessage.Voter(voter_id=1)
    assert control == [
        LeaderChangeMessage(version=0, leader_id=1, voters=[voter], granting_voters=[voter]),
        KRaftVersionRecord(kraft_version=1),
        VoterSet((Voter(ReplicaKey(1, DIRECTORY_ID)),)).to_record(),
    ]
    features = [
        decode_metadata_record(record.value or b"")
        for record in iterate_records(batches[1][1], max_decompressed_bytes=1000)
    ]
    assert features[0] == FeatureLevelRecord(name=METADATA_VERSION, feature_level=30)
    assert features[len(FEATURES) :] == [ConfigRecord(resource_type=4, name="min.insync.replicas", value="1")]
    (registration,) = iterate_records(batches[2][1], max_decompressed_bytes=1000)
    record = decode_metadata_record(registration.value or b"")
    assert isinstance(record, RegisterBrokerRecord)
    assert record.broker_epoch == registration.offset == len(control) + len(features)
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
    await quorum.submit_local(DeleteTopicsRequest(topic_names=["payments"]))
    before = quorum.image
    quorum = await world.restart()
    assert quorum.leadership.epoch == 2
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
        assert quorum.leadership.epoch == number + 2


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
    assert (await world.restart()).leadership.epoch == 3


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
        response = await quorum.submit_local(request)
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


async def test_who_waits_for_an_offset(world: World) -> None:
    quorum = await world.start()
    end = quorum.image.next_offset
    await quorum.wait_offset(end)
    waiting = asyncio.create_task(quorum.wait_offset(end + 1))
    await turns()
    assert not waiting.done()
    await create(quorum, "orders")
    await asyncio.wait_for(waiting, 1)
    given_up = asyncio.create_task(quorum.wait_offset(end + 1000))
    await turns()
    given_up.cancel()
    await asyncio.wait((given_up,))
    await create(quorum, "payments")


async def test_nobody_waits_for_what_will_never_be(world: World) -> None:
    quorum = await world.start()
    waiting = asyncio.create_task(quorum.wait_offset(quorum.image.next_offset + 1000))
    await turns()
    world.disk.fail("sync", "*.log")
    with pytest.raises(KafkaError):
        await create(quorum, "orders")
    for late in (waiting, quorum.wait_offset(quorum.image.next_offset + 1000)):
        with pytest.raises(KafkaError, match="could not be synced"):
            await late


async def test_a_folder_of_the_version_before_dynamic_quorums(world: World) -> None:
    """Its log has no voters record, and only one feature was known."""
    log = MetadataLog.open(world.config, world.ports, cluster_id=CLUSTER_ID)
    log.append_control([(LEADER_CHANGE, LeaderChangeMessage(leader_id=1))], epoch=1)
    log.append([FeatureLevelRecord(name=METADATA_VERSION, feature_level=30)], epoch=1)
    log.append([TopicRecord(name="orders", topic_id=b"0123456789abcdef")], epoch=1)
    await log.sync()
    await log.close()
    for epoch in (2, 3):
        quorum = await world.start()
        assert set(quorum.image.topics) == {"orders"}
        assert quorum.leadership.epoch == epoch
        assert [type(message) for _, message in quorum.log.control_records()] == [KRaftVersionRecord, VotersRecord]
        await quorum.close()
