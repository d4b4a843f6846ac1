"""CreateTopics, DeleteTopics and CreatePartitions over the wire: versions, durability, and failures of the whole."""

import errno

import pytest

from tailrace.broker.quorum.damage.rebuilding import read_damage, rebuild
from tailrace.log.checkpoints import write_topic_id
from tailrace.model.errors import ErrorCode, StorageError
from tailrace.model.ids import ZERO_UUID, Uuid
from tailrace.sim.random import SimRandom
from tailrace.wire.apis.admin import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from tests.unit.broker.world import World, batch, create_topic, fetch, fetched, produce, produced, running

Topic = CreateTopicsRequest.CreatableTopic
Growth = CreatePartitionsRequest.CreatePartitionsTopic
METADATA_LOG = "*__cluster_metadata*"


def creation(*names: str, **fields: bool) -> CreateTopicsRequest:
    topics = [Topic(name=name, num_partitions=2, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, **fields)


@pytest.mark.parametrize("version", range(2, 8))
async def test_create_in_every_version(version: int) -> None:
    async with running() as world:
        peer = await world.connect()
        response = await peer.request(creation("orders", "a b"), version)
        good, bad = response.topics
        assert (good.name, good.error_code, good.error_message) == ("orders", ErrorCode.NONE, None)
        assert (bad.error_code, bad.num_partitions) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
        assert "contains one or more characters" in bad.error_message
        created = world.broker.image.topics["orders"]
        assert good.topic_id == (created.id if version >= 7 else ZERO_UUID)
        assert (good.num_partitions, good.replication_factor) == ((2, 1) if version >= 5 else (-1, -1))
        assert bool(good.configs) == (version >= 5)


async def test_a_created_topic_can_be_used_at_once_and_survives_a_kill() -> None:
    async with running() as world:
        peer = await world.connect()
        peer.send(creation("orders"), 7)
        peer.send(produce("orders", batch(b"x")), 9)
        topic_id = (await peer.receive()).topics[0].topic_id
        assert produced(await peer.receive()).error_code == ErrorCode.NONE
        await world.broker.stop()
        await world.start()
        assert world.broker.image.topics["orders"].id == topic_id
        peer = await world.connect()
        assert fetched(await peer.request(fetch("orders", 0), 11)).high_watermark == 1


async def test_validate_only_creates_nothing() -> None:
    async with running() as world:
        peer = await world.connect()
        response = await peer.request(creation("orders", validate_only=True), 7)
        assert response.topics[0].error_code == ErrorCode.NONE
        assert world.broker.image.topics == {}
        assert not world.disk.exists("data/orders-0")


@pytest.mark.parametrize("version", range(1, 7))
async def test_delete_in_every_version(version: int) -> None:
    async with running() as world:
        peer = await world.connect()
        topic_id = await create_topic(peer, "orders", 2)
        if version < 6:
            request = DeleteTopicsRequest(topic_names=["orders", "none"])
        else:
            state = DeleteTopicsRequest.DeleteTopicState
            request = DeleteTopicsRequest(topics=[state(topic_id=topic_id), state(name="none")])
        good, bad = (await peer.request(request, version)).responses
        assert (good.name, good.error_code) == ("orders", ErrorCode.NONE)
        assert (bad.name, bad.error_code) == ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert good.topic_id == (topic_id if version >= 6 else ZERO_UUID)
        assert world.broker.image.topics == {}
        assert not world.disk.exists("data/orders-0")
        answer = produced(await peer.request(produce("orders", batch(b"x")), 9))
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
async def test_deletion_can_be_disabled(version: int, code: ErrorCode) -> None:
    async with running({"delete.topic.enable": "false"}) as world:
        peer = await world.connect()
        await create_topic(peer, "orders")
        (answer,) = (await peer.request(DeleteTopicsRequest(topic_names=["orders"]), version)).responses
        assert (answer.name, answer.error_code) == ("orders", code)
        assert "orders" in world.broker.image.topics


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_added_in_every_version(version: int) -> None:
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "orders")
        request = CreatePartitionsRequest(
            topics=[Growth(name="orders", count=3, assignments=None), Growth(name="none", count=3, assignments=None)]
        )
        good, bad = (await peer.request(request, version)).results
        assert (good.error_code, good.error_message) == (ErrorCode.NONE, None)
        assert bad.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert produced(await peer.request(produce("orders", batch(b"x"), partition=2), 9)).error_code == 0


async def test_a_disk_that_fails_is_told_for_every_item() -> None:
    async with running() as world:
        peer = await world.connect()
        topic_id = await create_topic(peer, "orders")
        world.disk.fail("append", METADATA_LOG, error=errno.ENOSPC)
        created = (await peer.request(creation("a", "b"), 7)).topics
        state = DeleteTopicsRequest.DeleteTopicState
        deletion = DeleteTopicsRequest(topics=[state(name="orders"), state(topic_id=b"?" * 16)])
        deleted = (await peer.request(deletion, 6)).responses
        growth = CreatePartitionsRequest(topics=[Growth(name="orders", count=3, assignments=None)])
        grown = (await peer.request(growth, 3)).results
        items = [*created, *deleted, *grown]
        assert {item.error_code for item in items} == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert [item.name for item in items] == ["a", "b", "orders", None, "orders"]
        assert set(world.broker.image.topics) == {"orders"}
        assert produced(await peer.request(produce("orders", batch(b"x")), 9)).error_code == ErrorCode.NONE
        world.disk.heal()
        assert (await peer.request(creation("a"), 7)).topics[0].error_code == ErrorCode.NONE
        assert world.broker.image.topics["orders"].id == topic_id


async def test_a_topic_made_anew_has_another_id_and_no_records() -> None:
    async with running() as world:
        peer = await world.connect()
        first = await create_topic(peer, "orders")
        await peer.request(produce("orders", batch(b"x")), 9)
        await peer.request(DeleteTopicsRequest(topic_names=["orders"]), 5)
        second = await create_topic(peer, "orders")
        assert first != second
        assert fetched(await peer.request(fetch("orders", 0), 11)).high_watermark == 0


async def test_the_cluster_id_stays() -> None:
    world = World()
    ids = set()
    for _ in range(3):
        broker = await world.start()
        ids.add(broker.image.cluster_id)
        await broker.stop()
    assert len(ids) == 1
    assert len(ids.pop()) == 22


async def test_a_lost_metadata_log_does_not_take_the_records_with_it() -> None:
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "orders")
        await peer.request(produce("orders", batch(b"precious")), 9)
        await world.broker.stop()
        world.disk.remove_folder("data/__cluster_metadata-0")
        with pytest.raises(StorageError, match="The metadata log is damaged"):
            await world.start()
        found = read_damage(world.disk, "data")
        rebuild(world.disk, SimRandom(1), "data", found, must_catch_up=False, keeps_one=False)
        await world.start()
        assert world.broker.image.topics == {}
        (kept,) = [name for name in world.disk.list("data") if name.startswith("orders-0.")]
        assert kept.endswith("-stray")
        assert b"precious" in world.disk.read(f"data/{kept}/00000000000000000000.log")


async def test_a_folder_of_an_earlier_topic_of_the_name_does_not_block_the_new_one() -> None:
    """As after a kill between the deletion of a topic, its creation anew and the renaming of its folder."""
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "orders")
        await peer.request(produce("orders", batch(b"of the earlier topic")), 9)
        await world.broker.stop()
        write_topic_id(world.disk, "data/orders-0", Uuid(bytes(range(16))))
        await world.start()
        peer = await world.connect()
        assert produced(await peer.request(produce("orders", batch(b"new")), 9)).base_offset == 0
        assert [name for name in world.disk.list("data") if name.endswith("-stray")]
