"""Fetch: what is read, how much of it, and which error is told."""

import asyncio

import pytest

from tailrace.model.errors import ErrorCode
from tailrace.model.ids import NodeId
from tailrace.wire.apis.data import FetchRequest
from tailrace.wire.records import iterate_headers, iterate_records
from tests.unit.broker.world import (
    Peer,
    batch,
    create_topic,
    delete_topic,
    fetch,
    fetched,
    produce,
    produced,
    running,
)
from tests.unit.replica.replicas import led_by

NAMED_VERSIONS = range(4, 13)


def offsets_in(records) -> list[int]:
    data = bytes(records)
    return [
        record.offset
        for position, header in iterate_headers(data)
        for record in iterate_records(data[position : position + header.size_bytes], max_decompressed_bytes=1 << 20)
    ]


async def fill(peer: Peer, topic: str, batches: int, *, partition: int = 0, size: int = 10) -> None:
    for _ in range(batches):
        answer = produced(await peer.request(produce(topic, batch(b"x" * size, b"y"), partition=partition), 9))
        assert answer.error_code == 0


@pytest.mark.parametrize("version", NAMED_VERSIONS)
async def test_every_version_reads_from_any_offset(version):
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        await fill(peer, "t", 3)
        answer = fetched(await peer.request(fetch("t", 0), version))
        assert offsets_in(answer.records) == [0, 1, 2, 3, 4, 5]
        assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 6, 6)
        # In the middle of a batch: the whole batch that holds it.
        assert offsets_in(fetched(await peer.request(fetch("t", 3), version)).records) == [2, 3, 4, 5]


@pytest.mark.parametrize("version", [13, 15, 17, 18])
async def test_topic_ids(version):
    async with running() as world:
        peer = await world.connect()
        topic_id = await create_topic(peer, "t")
        await fill(peer, "t", 1)
        response = await peer.request(fetch("", 0, topic_id=topic_id), version)
        assert response.responses[0].topic_id == topic_id
        assert offsets_in(fetched(response).records) == [0, 1]
        answer = fetched(await peer.request(fetch("", 0, topic_id=b"x" * 16), version))
        assert (answer.error_code, answer.high_watermark) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)


async def test_errors_are_told_per_partition():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        await fill(peer, "t", 1)
        for request, code in [
            (fetch("missing", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (fetch("t", 0, partition=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (fetch("t", 3), ErrorCode.OFFSET_OUT_OF_RANGE),
            (fetch("t", -1), ErrorCode.OFFSET_OUT_OF_RANGE),
            (fetch("t", 0, current_leader_epoch=9), ErrorCode.UNKNOWN_LEADER_EPOCH),
        ]:
            # An error is told at once, however long the client would wait.
            request.max_wait_ms = 60_000
            answer = fetched(await peer.request(request, 11))
            assert answer.error_code == code
            assert not answer.records
        assert fetched(await peer.request(fetch("t", 2), 11)).error_code == 0


async def test_an_old_leader_epoch_is_fenced_and_the_leader_is_named():
    async with running() as world:
        peer = await world.connect()
        topic_id = await create_topic(peer, "t")
        partition = world.broker.replicas.find("t", 0)
        partition.follow_image(led_by(NodeId(1), epoch=5, replicas=(NodeId(1),), isr=(NodeId(1),)))
        response = await peer.request(fetch("", 0, topic_id=topic_id, current_leader_epoch=3), 16)
        answer = fetched(response)
        assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert answer.current_leader.leader_id == 1
        assert [(each.node_id, each.port) for each in response.node_endpoints] == [(1, world.broker.port)]


async def test_a_partition_that_is_led_elsewhere():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        world.broker.replicas.find("t", 0).follow_image(
            led_by(NodeId(2), epoch=5, replicas=(NodeId(1), NodeId(2)), isr=(NodeId(2),))
        )
        assert fetched(await peer.request(fetch("t", 0), 10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer = produced(await peer.request(produce("t", batch(b"a")), 10))
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert answer.current_leader.leader_id == 1  # As the newest metadata has it.


async def test_max_bytes_but_at_least_one_batch():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t", partitions=2)
        await fill(peer, "t", 5, size=1000)
        await fill(peer, "t", 5, size=1000, partition=1)
        batch_size = len(batch(b"x" * 1000, b"y"))
        assert len(fetched(await peer.request(fetch("t", 0, partition_max_bytes=1), 11)).records) == batch_size
        request = fetch("t", 0, max_bytes=1)
        request.topics[0].partitions.append(FetchRequest.FetchPartition(partition=1, partition_max_bytes=1 << 20))
        first, second = (await peer.request(request, 11)).responses[0].partitions
        assert len(first.records) == batch_size
        assert not second.records
        request.max_bytes = 100_000
        first, second = (await peer.request(request, 11)).responses[0].partitions
        assert len(first.records) == len(second.records) == 5 * batch_size


async def test_the_broker_bounds_an_answer_too():
    async with running({"fetch.max.bytes": "3000"}) as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        await fill(peer, "t", 5, size=1000)
        assert len(fetched(await peer.request(fetch("t", 0), 11)).records) <= 3000


async def test_a_parked_fetch_waits_for_min_bytes_and_reads_a_burst_at_once():
    async with running() as world:
        consumer, producer = await world.connect(), await world.connect()
        await create_topic(producer, "t")
        size = len(batch(b"x" * 10, b"y"))
        consumer.send(fetch("t", 0, max_wait_ms=60_000, min_bytes=3 * size), 11)
        await fill(producer, "t", 2)
        await asyncio.sleep(0.02)
        assert not consumer.reader._buffer
        for _ in range(5):
            producer.send(produce("t", batch(b"x" * 10, b"y")), 9)
        for _ in range(5):
            await producer.receive()
        assert len(fetched(await consumer.receive()).records) == 7 * size


async def test_a_parked_fetch_is_answered_when_its_topic_goes():
    async with running() as world:
        consumer, admin = await world.connect(), await world.connect()
        await create_topic(admin, "t")
        consumer.send(fetch("t", 0, max_wait_ms=60_000), 11)
        await asyncio.sleep(0.02)
        await delete_topic(admin, "t")
        assert fetched(await consumer.receive()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_parked_fetch_that_fails_is_answered_all_the_same(monkeypatch):
    async with running() as world:
        peer, other = await world.connect(), await world.connect()
        await create_topic(peer, "t")
        partition = world.broker.replicas.find("t", 0)
        peer.send(fetch("t", 0, max_wait_ms=60_000), 11)
        async with asyncio.timeout(5):
            while not partition.readers:
                await asyncio.sleep(0)
        monkeypatch.setattr(partition.log, "read", lambda *_arguments, **_named: 1 // 0)
        await fill(other, "t", 1)
        assert (await peer.receive()).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        monkeypatch.undo()
        assert offsets_in(fetched(await peer.request(fetch("t", 0), 11)).records) == [0, 1]


async def test_a_missing_topic_does_not_cut_the_wait_for_others_short():
    """Consumers ask for a deleted topic until their metadata is refreshed; they must not spin meanwhile."""
    async with running() as world:
        consumer, producer = await world.connect(), await world.connect()
        await create_topic(producer, "t")
        request = fetch("missing", 0, max_wait_ms=60_000)
        request.topics += fetch("t", 0).topics
        consumer.send(request, 11)
        await asyncio.sleep(0.02)
        assert not consumer.reader._buffer
        await fill(producer, "t", 1)
        missing, there = (topic.partitions[0] for topic in (await consumer.receive()).responses)
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert offsets_in(there.records) == [0, 1]
        # But one that goes while it is waited for is told of at once.
        request = fetch("t", 2, max_wait_ms=60_000)
        await create_topic(producer, "going")
        request.topics += fetch("going", 0).topics
        consumer.send(request, 11)
        await asyncio.sleep(0.02)
        await delete_topic(producer, "going")
        there, gone = (topic.partitions[0] for topic in (await consumer.receive()).responses)
        assert (there.error_code, gone.error_code) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def test_zstd_topics_need_version_10():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t", compression_type="zstd")
        await fill(peer, "t", 1)
        assert fetched(await peer.request(fetch("t", 0), 9)).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert fetched(await peer.request(fetch("t", 0), 10)).error_code == 0


async def test_read_committed_lists_aborted_transactions():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        await fill(peer, "t", 1)
        assert fetched(await peer.request(fetch("t", 0, isolation_level=1), 11)).aborted_transactions == []
        assert fetched(await peer.request(fetch("t", 0), 11)).aborted_transactions is None


async def test_a_reader_that_followed_another_history_is_told_where_it_parted():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        await fill(peer, "t", 1)
        partition = world.broker.replicas.find("t", 0)
        partition.follow_image(led_by(NodeId(1), epoch=4, replicas=(NodeId(1),), isr=(NodeId(1),)))
        await fill(peer, "t", 1)
        answer = fetched(await peer.request(fetch("t", 3, last_fetched_epoch=2, max_wait_ms=60_000), 12))
        assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 2)
        assert not answer.records
        answer = fetched(await peer.request(fetch("t", 2, last_fetched_epoch=0), 12))
        assert answer.diverging_epoch.epoch == -1
        assert offsets_in(answer.records) == [2, 3]


async def test_a_cold_slice_is_read_ahead_in_the_background(monkeypatch):
    """The loop must not wait for the device: what is not resident is read by a helper thread first."""
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        await fill(peer, "t", 3)
        file_type = type(world.broker.replicas.find("t", 0).log.active.file)
        probes: list[int] = []
        monkeypatch.setattr(file_type, "is_resident", lambda self, position, size: probes.append(size))
        assert offsets_in(fetched(await peer.request(fetch("t", 0), 11)).records) == [0, 1, 2, 3, 4, 5]
        assert len(probes) == 1


async def test_one_that_has_no_replica_is_told_so():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        answer = fetched(await peer.request(fetch("t", 0, replica_id=3, current_leader_epoch=0), 11))
        assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_past_its_lease_a_broker_leads_what_it_is_followed_in_on_any_path():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        await fill(peer, "t", 1)
        replicas = world.broker.replicas
        replicas.lease.ends_ms = replicas.monotonic_ms()
        answer = produced(await peer.request(produce("t", batch(b"a")), 9))
        assert answer.error_code == 0, "nobody could take over"
        both = (NodeId(1), NodeId(2))
        replicas.find("t", 0).follow_image(led_by(NodeId(1), epoch=5, replicas=both, isr=both))
        for _ in range(3):  # The short way for repeated requests too.
            answer = produced(await peer.request(produce("t", batch(b"a")), 9))
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert fetched(await peer.request(fetch("t", 0), 11)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        # The follower is served all the same.
        answer = fetched(await peer.request(fetch("t", 0, replica_id=2, current_leader_epoch=5), 11))
        assert answer.error_code == 0
        replicas.lease.ends_ms = replicas.monotonic_ms() + 60_000
        assert fetched(await peer.request(fetch("t", 0), 11)).error_code == 0


async def test_a_follower_serves_consumers_up_to_its_high_watermark():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        await fill(peer, "t", 1)
        partition = world.broker.replicas.find("t", 0)
        end_offset = partition.high_watermark
        both = (NodeId(1), NodeId(2))
        partition.follow_image(led_by(NodeId(2), epoch=5, replicas=both, isr=both))
        answer = fetched(await peer.request(fetch("t", 0), 11))
        assert (answer.error_code, answer.high_watermark) == (0, end_offset)
        assert answer.records
        answer = fetched(await peer.request(fetch("t", 0, current_leader_epoch=4), 11))
        assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH
        answer = fetched(await peer.request(fetch("t", 0, replica_id=3, current_leader_epoch=5), 11))
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
