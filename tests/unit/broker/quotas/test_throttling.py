"""Clients with quotas, in virtual time: what they are told, how long they are not read, what becomes of the rest."""

import asyncio
from typing import Any

import pytest

from tailrace.model.ids import NodeId
from tailrace.wire.apis.admin import AlterClientQuotasRequest, IncrementalAlterConfigsRequest
from tailrace.wire.apis.data import FetchRequest, MetadataRequest
from tailrace.wire.apis.groups import FindCoordinatorRequest
from tailrace.wire.apis.shares import ShareFetchRequest, ShareGroupHeartbeatRequest
from tests.unit.broker.cluster_world import ClusterWorld, simulated
from tests.unit.broker.test_stalled import alone
from tests.unit.broker.world import Peer, batch, create_topic, fetch, fetched, produce, produced
from tests.unit.replica.replicas import led_by

USER = {"user": "ANONYMOUS"}
# A burst of 20 seconds is free, less one window.
SETTINGS = {"quota.window.num": "21", "quota.window.size.seconds": "1", "socket.read.bytes.per.turn": "1048576"}
SHARES = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
RATE = 1000
FREE_BYTES = 20 * RATE
VALUE = b"x" * 1000


async def set_quota(peer: Peer, entity: dict[str, str | None], **values: float | None) -> None:
    request = AlterClientQuotasRequest
    entry = request.EntryData(
        entity=[request.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[request.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )
    answer = await peer.request(request(entries=[entry]), 1)
    assert answer.entries[0].error_code == 0, answer.entries[0].error_message


async def timed(peer: Peer, request: Any, version: int) -> tuple[float, Any]:
    """How long it took to be answered, and the answer."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    answer = await peer.request(request, version, patience_seconds=200)
    return loop.time() - began, answer


def lent_bytes(world: ClusterWorld) -> int:
    (broker,) = world.running
    return broker.protocols[0].buffers.lent_bytes


async def use_up(peer: Peer, topic: str, *, version: int = 9) -> int:
    """Produces until it is throttled; the throttle."""
    for _ in range(40):
        answer = await peer.request(produce(topic, batch(VALUE)), version)
        assert produced(answer).error_code == 0
        if answer.throttle_time_ms:
            return answer.throttle_time_ms
    pytest.fail("never throttled")


@simulated
@pytest.mark.parametrize("version", [3, 7, 8, 9, 13])
async def test_a_producer_is_answered_and_then_not_read(version: int) -> None:
    """Version 3 takes the general way, and the others the express lane."""
    async with alone(SETTINGS) as world:
        peer = await world.connect(1)
        topic_id = await create_topic(peer, "t")
        request = produce("t" if version < 13 else "", batch(VALUE), topic_id=topic_id)
        size = len(peer.frame(request, version)) - 4
        peer._sent.clear()
        await set_quota(peer, USER, producer_byte_rate=RATE)
        sent = 0
        while not (answer := await peer.request(request, version)).throttle_time_ms:
            sent += 1
        assert produced(answer).base_offset == sent, "what is too much is appended nevertheless"
        assert sent == FREE_BYTES // size
        assert answer.throttle_time_ms == pytest.approx(((sent + 1) * size - FREE_BYTES) / RATE * 1000, abs=30)
        waited, _ = await timed(peer, MetadataRequest(topics=[]), 9)
        assert waited == pytest.approx(answer.throttle_time_ms / 1000, abs=0.05)


@simulated
@pytest.mark.parametrize("version", [3, 9])
async def test_a_throttle_is_no_longer_than_can_be_told(version: int) -> None:
    """It would be 58 days. The answer did not fit, so the connection was closed and the client wrote it again."""
    async with alone(SETTINGS | {"message.max.bytes": "10000000"}) as world:
        peer = await world.connect(1)
        await create_topic(peer, "t")
        await set_quota(peer, USER, producer_byte_rate=1.0)
        answer = await peer.request(produce("t", batch(b"x" * 5_000_000)), version)
        assert (produced(answer).error_code, produced(answer).base_offset) == (0, 0)
        assert answer.throttle_time_ms == 2**31 - 1


@simulated
async def test_a_user_shares_its_quota_and_others_are_not_held_back() -> None:
    async with alone(SETTINGS) as world:
        first, second, other = [await world.connect(1) for _ in range(3)]
        await create_topic(first, "t")
        await set_quota(first, {**USER, "client-id": "peer"}, producer_byte_rate=RATE)
        throttle_ms = await use_up(first, "t")
        assert (await second.request(produce("t", batch(VALUE)), 9)).throttle_time_ms >= throttle_ms
        other.client_id = "other"
        waited, answer = await timed(other, produce("t", batch(VALUE)), 9)
        assert (waited, answer.throttle_time_ms) == (pytest.approx(0, abs=0.05), 0)


@simulated
@pytest.mark.parametrize("version", [11, 12])
async def test_a_throttled_fetch_is_empty_and_its_session_goes_on(version: int) -> None:
    async with alone(SETTINGS) as world:
        peer = await world.connect(1)
        await create_topic(peer, "t")
        for _ in range(50):
            await peer.request(produce("t", batch(VALUE)), 9)
        await set_quota(peer, USER, consumer_byte_rate=RATE)
        session, offset, epoch, read = 0, 0, 0, []
        began = asyncio.get_running_loop().time()
        while offset < 50:
            # As clients do: the position is told when it has changed, or there is no session yet.
            changed = fetch("t", offset, partition_max_bytes=4000).topics if read[-1:] != [0] or not epoch else []
            request = FetchRequest(session_id=session, session_epoch=epoch, topics=changed, max_bytes=1 << 20)
            answer = await peer.request(request, version, patience_seconds=200)
            assert answer.error_code == 0
            if answer.throttle_time_ms:
                assert answer.responses == []
                assert answer.session_id == session
                read.append(0)
            else:
                records = bytes(fetched(answer).records)
                offset += len(records) // len(batch(VALUE))
                read.append(len(records))
            session = answer.session_id
            epoch = epoch + 1 if session else 0
        assert 0 in read
        seconds = asyncio.get_running_loop().time() - began
        assert seconds >= (sum(read) - FREE_BYTES) / RATE - 1


@simulated
async def test_a_first_fetch_that_is_throttled_leaves_no_session() -> None:
    async with alone(SETTINGS) as world:
        peer = await world.connect(1)
        await create_topic(peer, "t")
        for _ in range(30):
            await peer.request(produce("t", batch(VALUE)), 9)
        await set_quota(peer, USER, consumer_byte_rate=RATE)
        (broker,) = world.running
        for _ in range(10):
            before = len(broker.services.sessions)
            answer = await peer.request(fetch("t", 0, partition_max_bytes=8000, session_epoch=0), 12)
            if answer.throttle_time_ms:
                break
            assert answer.session_id
        assert (answer.session_id, len(broker.services.sessions)) == (0, before)
        assert answer.throttle_time_ms


@simulated
async def test_a_batch_that_is_larger_than_all_windows_is_read() -> None:
    async with alone(SETTINGS) as world:
        peer = await world.connect(1)
        await create_topic(peer, "t")
        await peer.request(produce("t", batch(b"y" * 100_000)), 9)
        await set_quota(peer, USER, consumer_byte_rate=RATE)
        answer = await peer.request(fetch("t", 0), 12)
        assert len(fetched(answer).records) > 100_000
        assert answer.throttle_time_ms == pytest.approx(80_000, rel=0.01)


@simulated
async def test_a_parked_fetch_counts_when_it_is_answered() -> None:
    async with alone(SETTINGS) as world:
        reader, writer = await world.connect(1), await world.connect(1)
        await create_topic(writer, "t")
        await set_quota(writer, {"client-id": "peer"}, consumer_byte_rate=RATE)
        reader.send(fetch("t", 0, max_wait_ms=60_000), 12)
        await asyncio.sleep(5)
        await writer.request(produce("t", batch(b"y" * 30_000)), 9)
        answer = await reader.receive()
        assert answer.throttle_time_ms == pytest.approx(10_000, rel=0.05), "5 s of a window do not count for it"


@simulated
async def test_acks_0_is_not_read_either() -> None:
    async with alone(SETTINGS) as world:
        peer = await world.connect(1)
        await create_topic(peer, "t")
        await set_quota(peer, USER, producer_byte_rate=RATE)
        for _ in range(30):
            peer.send(produce("t", batch(VALUE), acks=0), 9, expects_answer=False)
        waited, _ = await timed(peer, MetadataRequest(topics=[]), 9)
        assert waited >= 10


@simulated
@pytest.mark.parametrize("version", [3, 9])
async def test_a_muted_connection_holds_no_lent_memory_and_loses_nothing(version: int) -> None:
    async with alone({**SETTINGS, "connections.max.idle.ms": "3000"}) as world:
        peer = await world.connect(1)
        await create_topic(peer, "t")
        await set_quota(peer, USER, producer_byte_rate=RATE)
        count = 50
        for _ in range(count):
            peer.send(produce("t", batch(VALUE)), version)
        await asyncio.sleep(4)  # Longer than idle connections live.
        assert lent_bytes(world) == 0
        began = asyncio.get_running_loop().time()
        offsets = [produced(await peer.receive(patience_seconds=100)).base_offset for _ in range(count)]
        assert offsets == list(range(count))
        assert asyncio.get_running_loop().time() - began >= 20


@simulated
@pytest.mark.parametrize("version", [3, 9])
async def test_what_is_pipelined_behind_too_much_is_not_taken(version: int) -> None:
    """One request at a time, as in Kafka: the throttle of each holds the next one back."""
    async with alone(SETTINGS) as world:
        peer, other = await world.connect(1), await world.connect(1)
        await create_topic(peer, "t")
        await set_quota(peer, USER, producer_byte_rate=RATE)
        request = produce("t", batch(VALUE))
        size = len(peer.frame(request, version)) - 4
        peer._sent.clear()
        for _ in range(60):
            peer.send(request, version)
        await asyncio.sleep(0.01)
        answer = fetched(await other.request(fetch("t", 0), 11))
        assert answer.high_watermark == FREE_BYTES // size + 1
        await asyncio.sleep(10)
        answer = fetched(await other.request(fetch("t", 0), 11))
        assert answer.high_watermark <= (FREE_BYTES + 10 * RATE) // size + 1


@simulated
@pytest.mark.parametrize("version", [3, 9])
async def test_produces_that_wait_for_followers_are_counted_as_they_come(version: int) -> None:
    async with alone(SETTINGS) as world:
        peer = await world.connect(1)
        await create_topic(peer, "t")
        await set_quota(peer, USER, producer_byte_rate=RATE)
        (broker,) = world.running
        partition = broker.replicas.find("t", 0)
        both = (NodeId(1), NodeId(2))
        partition.follow_image(led_by(NodeId(1), epoch=1, replicas=both, isr=both))
        request = produce("t", batch(VALUE))
        size = len(peer.frame(request, version)) - 4
        peer._sent.clear()
        for _ in range(60):
            peer.send(request, version)
        await asyncio.sleep(0.01)
        assert (partition.high_watermark, partition.log.log_end_offset) == (0, FREE_BYTES // size + 1)


@simulated
async def test_who_hangs_up_is_seen_when_the_mute_ends() -> None:
    async with alone(SETTINGS) as world:
        peer, other = await world.connect(1), await world.connect(1)
        await create_topic(peer, "t")
        await set_quota(peer, USER, producer_byte_rate=RATE)
        throttle_ms = 0
        while throttle_ms < 5000:
            peer.send(produce("t", batch(b"y" * 10_000)), 9)
            throttle_ms = (await peer.receive()).throttle_time_ms
        (broker,) = world.running
        acceptor = broker.acceptors[0]
        before = len(acceptor.connections)
        await peer.close()
        await asyncio.sleep(throttle_ms / 1000 + 1)
        assert len(acceptor.connections) == before - 1
        await other.close()


@simulated
async def test_time_of_the_loop_is_counted() -> None:
    """The simulated loop takes no time, so that of the requests is planted."""
    async with alone(SETTINGS) as world:
        peer = await world.connect(1)
        await set_quota(peer, USER, request_percentage=10.0)
        (broker,) = world.running
        meters = broker.services.meters
        used = meters.of("ANONYMOUS", "peer").time
        assert used is not None
        assert (await peer.request(MetadataRequest(topics=[]), 9)).throttle_time_ms == 0
        used.rate.note(21 * 10.0, meters.clock.monotonic_ms())
        waited, answer = await timed(peer, MetadataRequest(topics=[]), 9)
        assert answer.throttle_time_ms == pytest.approx(1000, abs=1), "at most one window at a time"
        assert waited < 0.1
        waited, answer = await timed(peer, MetadataRequest(topics=[]), 9)
        assert waited == pytest.approx(1, abs=0.05)


@simulated
async def test_followers_have_no_quota() -> None:
    async with alone(SETTINGS) as world:
        peer = await world.connect(1)
        await create_topic(peer, "t")
        await peer.request(produce("t", batch(b"y" * 100_000)), 9)
        await set_quota(peer, USER, consumer_byte_rate=RATE)
        for _ in range(3):
            answer = await peer.request(fetch("t", 0, replica_id=2), 12)
            assert answer.throttle_time_ms == 0


@simulated
async def test_a_quota_that_changes_holds_from_the_next_request_on() -> None:
    async with alone(SETTINGS) as world:
        peer, admin = await world.connect(1), await world.connect(1)
        await create_topic(peer, "t")
        for _ in range(3):
            assert (await peer.request(produce("t", batch(b"y" * 50_000)), 9)).throttle_time_ms == 0
        await set_quota(admin, {"user": None}, producer_byte_rate=1_000_000)
        assert (await peer.request(produce("t", batch(b"y" * 50_000)), 9)).throttle_time_ms == 0
        await set_quota(admin, {"user": None}, producer_byte_rate=RATE)
        assert (await peer.request(produce("t", batch(VALUE)), 9)).throttle_time_ms > 30_000, "what was used counts"
        await set_quota(admin, {"user": None}, producer_byte_rate=None)
        (broker,) = world.running
        assert broker.services.meters.number == 0
        second = await world.connect(1)
        assert (await second.request(produce("t", batch(b"y" * 50_000)), 9)).throttle_time_ms == 0


@simulated
async def test_a_share_group_takes_nothing_while_it_would_be_too_much() -> None:
    async with alone(SETTINGS | SHARES) as world:
        peer = await world.connect(1)
        topic_id = await create_topic(peer, "t")
        for _ in range(30):
            await peer.request(produce("t", batch(VALUE)), 9)
        await peer.request(FindCoordinatorRequest(coordinator_keys=["g"]), 6)
        alter = IncrementalAlterConfigsRequest
        config = alter.AlterableConfig(name="share.auto.offset.reset", value="earliest", config_operation=0)
        resource = alter.AlterConfigsResource(resource_type=32, resource_name="g", configs=[config])
        assert (await peer.request(alter(resources=[resource]), 1)).responses[0].error_code == 0
        join = ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"])
        assert (await peer.request(join, 1)).error_code == 0
        await set_quota(peer, USER, consumer_byte_rate=RATE)
        taken, waits = [], []
        for epoch in range(30):
            partition = ShareFetchRequest.FetchPartition(partition_index=0)
            topics = [ShareFetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])]
            request = ShareFetchRequest(
                group_id="g", member_id="m", share_session_epoch=epoch, max_records=1, max_bytes=5000, topics=topics
            )
            waited, answer = await timed(peer, request, 2)
            waits.append(waited)
            assert answer.error_code == 0
            acquired = [
                each for topic in answer.responses for part in topic.partitions for each in part.acquired_records
            ]
            taken += [(each.first_offset, each.delivery_count) for each in acquired]
        # What is refused by the quota was not acquired: it comes later, and for the first time.
        assert taken == [(offset, 1) for offset in range(len(taken))]
        assert 20 <= len(taken) < 30
        assert sum(waits) >= 30 - 20
