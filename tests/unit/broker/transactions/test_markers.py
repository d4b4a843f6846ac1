"""Markers on their way: what is sent again, what is given up, and what ends a transaction."""

import asyncio

import pytest

from tailrace.broker.coordinators import markers, transactions
from tailrace.broker.coordinators.markers import MarkerWriter
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId
from tailrace.wire.apis.transactions import WriteTxnMarkersRequest
from tests.unit.broker.test_slow_produce import count_turns
from tests.unit.broker.transactions.scene import NEW, OLD, SETTINGS, Producer, prepare
from tests.unit.broker.world import World, delete_topic, fetch, fetched, running
from tests.unit.replica.replicas import led_by

ME, OTHER = NodeId(1), NodeId(2)


async def until_state(producer: Producer, wanted: str) -> None:
    async with asyncio.timeout(5):
        while await producer.state() != wanted:
            await asyncio.sleep(0.01)


def give_away(world: World, topic: str, *, epoch: int) -> None:
    partition = world.broker.replicas.find(topic, 0)
    partition.follow_image(led_by(OTHER, epoch=epoch, replicas=(ME, OTHER), isr=(ME, OTHER)))


def take_back(world: World, topic: str, *, epoch: int) -> None:
    partition = world.broker.replicas.find(topic, 0)
    partition.follow_image(led_by(ME, epoch=epoch, replicas=(ME, OTHER), isr=(ME,)))


@pytest.mark.parametrize("versions", [OLD, NEW], ids=["old", "new"])
@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_partition_without_a_leader_is_marked_later(versions: dict[str, int], is_commit: bool):
    async with running(SETTINGS) as world:
        producer = Producer(await prepare(world, "t", "u"), versions)
        await producer.init()
        for topic in ("t", "u"):
            if versions is OLD:
                await producer.add(topic)
            assert await producer.write(topic, producer.records(topic, b"a")) is ErrorCode.NONE
        give_away(world, "t", epoch=1)
        assert await producer.end(is_commit=is_commit) is ErrorCode.NONE
        await asyncio.sleep(0.1)
        assert await producer.state() == ("PrepareCommit" if is_commit else "PrepareAbort")
        assert world.broker.replicas.find("u", 0).log.log_end_offset == 2, "the other one has its marker"
        take_back(world, "t", epoch=2)
        await until_state(producer, "CompleteCommit" if is_commit else "CompleteAbort")
        answer = fetched(await producer.peer.request(fetch("t", 0, isolation_level=1), 12))
        assert answer.last_stable_offset == 2


async def test_a_deleted_topic_needs_no_marker():
    async with running(SETTINGS) as world:
        producer = Producer(await prepare(world, "t", "u"), NEW)
        await producer.init()
        for topic in ("t", "u"):
            assert await producer.write(topic, producer.records(topic, b"a")) is ErrorCode.NONE
        await delete_topic(producer.peer, "t")
        assert await producer.end(is_commit=True) is ErrorCode.NONE
        await until_state(producer, "CompleteCommit")


async def test_what_is_not_wanted_any_more_is_not_sent_again():
    """Its decision was found again by another one, and carried out: a late marker could end the next transaction."""
    async with running(SETTINGS) as world:
        producer = Producer(await prepare(world, "t"), OLD)
        await producer.init()
        await producer.add("t")
        assert await producer.write("t", producer.records("t", b"a")) is ErrorCode.NONE
        give_away(world, "t", epoch=1)
        writer = MarkerWriter(world.broker.node, world.broker.services.coordination.write_markers)
        told: list[tuple[int, int]] = []
        wanted = [True]
        (marker,) = producer.marker("t").markers
        writer.write(marker, lambda *key: told.append(key), is_wanted=lambda: wanted[0])
        await asyncio.sleep(0.05)
        wanted[0] = False
        take_back(world, "t", epoch=2)
        await asyncio.sleep(0.2)
        assert told == []
        assert world.broker.replicas.find("t", 0).log.log_end_offset == 1
        await writer.close()


async def test_a_decision_that_is_found_on_the_log_is_not_carried_out_twice(monkeypatch: pytest.MonkeyPatch):
    """With two sets of markers under way, one of the second could come after the last of the first."""
    monkeypatch.setattr(transactions, "_RETRY_SECONDS", 0.05)
    async with running(SETTINGS) as world:
        producer = Producer(await prepare(world, "t"), OLD)
        await producer.init()
        await producer.add("t")
        assert await producer.write("t", producer.records("t", b"a")) is ErrorCode.NONE
        give_away(world, "t", epoch=1)
        assert await producer.end(is_commit=True) is ErrorCode.NONE
        coordinators = world.broker.services.coordination.transactions
        written: list[object] = []
        monkeypatch.setattr(coordinators.markers, "write", lambda marker, *_, **__: written.append(marker))
        coordinators._owe_markers("x").fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
        coordinators.shards[0]._load_anew()
        await asyncio.sleep(0.2)
        assert len(written) == 1
        coordinators._owe_markers("x").fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
        await asyncio.sleep(0.2)
        assert len(written) == 2, "nobody else would do it"


async def test_a_leader_tells_in_time_what_is_not_committed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(markers, "_CONFIRM_SECONDS", 0.05)
    async with running(SETTINGS) as world:
        producer = Producer(await prepare(world, "t", "u"), OLD)
        await producer.init()
        partition = world.broker.replicas.find("t", 0)
        partition.follow_image(led_by(ME, epoch=1, replicas=(ME, OTHER), isr=(ME, OTHER)))
        answer = await world.broker.services.coordination.write_markers(producer.marker("t", "u"))
        codes = {topic.name: topic.partitions[0].error_code for topic in answer.markers[0].topics}
        assert codes == {"t": ErrorCode.REQUEST_TIMED_OUT, "u": ErrorCode.NONE}
        await asyncio.sleep(0)
        assert not partition.produces, "nobody waits any more"


async def test_an_open_transaction_outlives_the_broker_and_times_out():
    world = World()
    await world.start(SETTINGS)
    producer = Producer(await prepare(world, "t"), NEW)
    await producer.init(timeout_ms=1000)
    assert await producer.write("t", producer.records("t", b"a")) is ErrorCode.NONE
    await producer.peer.close()
    await world.broker.stop()
    await world.start(SETTINGS)
    producer.peer = await world.connect()
    answer = fetched(await producer.peer.request(fetch("t", 0, isolation_level=1), 12))
    assert (answer.high_watermark, answer.last_stable_offset) == (1, 0)
    await until_state(producer, "CompleteAbort")
    answer = fetched(await producer.peer.request(fetch("t", 0, isolation_level=1), 12))
    assert answer.last_stable_offset == 2
    assert [each.first_offset for each in answer.aborted_transactions or []] == [0]
    assert await producer.end(is_commit=True) is ErrorCode.INVALID_TXN_STATE, "too late"
    await producer.peer.close()
    await world.broker.stop()


async def test_others_are_served_between_many_markers():
    async with running(SETTINGS) as world:
        producer = Producer(await prepare(world, "t"), OLD)
        await producer.init()
        (marker,) = producer.marker("t").markers
        task = asyncio.ensure_future(
            world.broker.services.coordination.write_markers(WriteTxnMarkersRequest(markers=[marker] * 200))
        )
        assert await count_turns(task) >= 10
        assert len((await task).markers) == world.broker.replicas.find("t", 0).log.log_end_offset == 200
