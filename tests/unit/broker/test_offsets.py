"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

import pytest

from tailrace.model.errors import ErrorCode
from tailrace.model.ids import NodeId
from tailrace.wire.apis.data import DeleteRecordsRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from tests.unit.broker.world import Peer, batch, create_topic, fetch, fetched, produce, produced, running
from tests.unit.replica.replicas import led_by

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
BASE_MS = 1_767_225_600_000


async def fill(peer: Peer, topic: str = "t") -> None:
    """Offsets 0 to 5, one a second but for the last, which is older."""
    for seconds in (0, 1, 2, 3, 4, 2):
        await peer.request(produce(topic, batch(b"x", now_ms=BASE_MS + 1000 * seconds)), 9)


async def list_offset(peer: Peer, timestamp: int, version: int = 11, topic: str = "t", **fields):
    request = ListOffsetsRequest(
        replica_id=fields.pop("replica_id", -1),
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(
                        partition_index=fields.pop("partition", 0),
                        timestamp=timestamp,
                        current_leader_epoch=fields.pop("current_leader_epoch", -1),
                    )
                ],
            )
        ],
        **fields,
    )
    return (await peer.request(request, version)).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 12))
async def test_ends_of_the_log_in_every_version(version):
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        await fill(peer)
        latest = await list_offset(peer, LATEST, version)
        assert (latest.error_code, latest.timestamp, latest.offset) == (0, -1, 6)
        assert latest.leader_epoch == (0 if version >= 4 else -1)
        assert (await list_offset(peer, EARLIEST, version)).offset == 0


async def test_by_time():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        await fill(peer)
        for timestamp, expected in [
            (0, (BASE_MS, 0)),
            (BASE_MS + 1, (BASE_MS + 1000, 1)),
            (BASE_MS + 3000, (BASE_MS + 3000, 3)),
            (BASE_MS + 3001, (BASE_MS + 4000, 4)),
            (BASE_MS + 4001, (-1, -1)),
        ]:
            found = await list_offset(peer, timestamp)
            assert (found.error_code, found.timestamp, found.offset) == (0, *expected)


async def test_special_times_and_the_versions_that_know_them():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        await fill(peer)
        found = await list_offset(peer, MAX_TIMESTAMP)
        assert (found.timestamp, found.offset) == (BASE_MS + 4000, 4)
        assert (await list_offset(peer, EARLIEST_LOCAL)).offset == 0
        assert (await list_offset(peer, LATEST_TIERED)).offset == -1
        for timestamp, version in [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (-9, 11)]:
            assert (await list_offset(peer, timestamp, version)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_an_empty_partition():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        assert (await list_offset(peer, LATEST)).offset == 0
        assert (await list_offset(peer, MAX_TIMESTAMP)).offset == -1
        assert (await list_offset(peer, BASE_MS)).offset == -1


async def test_errors():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        assert (await list_offset(peer, LATEST, topic="no")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await list_offset(peer, LATEST, partition=1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer = await list_offset(peer, LATEST, current_leader_epoch=3)
        assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=LATEST)
        twice = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[asked, asked])]
        )
        partitions = (await peer.request(twice, 6)).topics[0].partitions
        assert [each.error_code for each in partitions] == [ErrorCode.INVALID_REQUEST] * 2


@pytest.mark.parametrize(("version", "code"), [(5, "OFFSET_NOT_AVAILABLE"), (4, "LEADER_NOT_AVAILABLE")])
async def test_a_new_leader_does_not_know_the_high_watermark_yet(version, code):
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        await fill(peer)
        world.broker.replicas.find("t", 0).high_watermark = 2
        world.broker.replicas.find("t", 0).leader_epoch_start_offset = 5
        assert (await list_offset(peer, LATEST, version)).error_code == ErrorCode[code]
        assert (await list_offset(peer, EARLIEST, version)).error_code == 0


async def test_a_transaction_that_was_open_before_the_leader_hides_no_offsets():
    """What is committed is known; that its end is not stable is no reason to say nothing, as in Kafka."""
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        partition = world.broker.replicas.find("t", 0)
        begun = batch(b"open", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        partition.append(memoryview(bytearray(begun)), required_acks=1)
        partition.follow_image(led_by(NodeId(1), epoch=3, replicas=(NodeId(1),), isr=(NodeId(1),)))
        asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=LATEST)
        topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[asked])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=[topic])
        answer = (await peer.request(request, 6)).topics[0].partitions[0]
        assert (answer.error_code, answer.offset) == (0, 0)


async def test_offsets_for_leader_epochs():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        await fill(peer)
        world.broker.replicas.find("t", 0).follow_image(
            led_by(NodeId(1), epoch=3, replicas=(NodeId(1),), isr=(NodeId(1),))
        )
        await fill(peer)
        for version in (2, 3, 4):
            for epoch, expected in [(0, (0, 6)), (1, (0, 6)), (3, (3, 12)), (4, (-1, -1))]:
                asked = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
                topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=[asked])
                response = await peer.request(OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic]), version)
                answer = response.topics[0].partitions[0]
                assert (answer.leader_epoch, answer.end_offset) == expected


async def delete_records(peer: Peer, offset: int, topic: str = "t", version: int = 2):
    asked = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    topics = [DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[asked])]
    response = await peer.request(DeleteRecordsRequest(topics=topics, timeout_ms=1000), version)
    return response.topics[0].partitions[0]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_records_are_deleted_up_to_an_offset(version):
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        await fill(peer)
        answer = await delete_records(peer, 4, version=version)
        assert (answer.error_code, answer.low_watermark) == (0, 4)
        assert (await list_offset(peer, EARLIEST)).offset == 4
        assert fetched(await peer.request(fetch("t", 3), 11)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        # Backwards changes nothing; -1 means everything there is.
        assert (await delete_records(peer, 2)).low_watermark == 4
        assert (await delete_records(peer, -1)).low_watermark == 6
        assert produced(await peer.request(produce("t", batch(b"a")), 9)).base_offset == 6


async def test_what_may_not_be_deleted():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        await create_topic(peer, "compacted", cleanup_policy="compact")
        await fill(peer)
        assert (await delete_records(peer, 7)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await delete_records(peer, -2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await delete_records(peer, 0, "compacted")).error_code == ErrorCode.POLICY_VIOLATION
        assert (await delete_records(peer, 0, "missing")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await delete_records(peer, 0, "__consumer_offsets")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_deleted_records_stay_deleted_when_the_process_is_killed():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        await fill(peer)
        await delete_records(peer, 4)
        killed = world.broker
        world.disk.crash()
        await world.start()
        peer = await world.connect()
        assert (await list_offset(peer, EARLIEST)).offset == 4
        assert (await list_offset(peer, LATEST)).offset == 6
        await killed.acceptors[0].close(answers_timeout_ms=0)
        await killed._maintenance.stop()
        killed.lag.stop()
