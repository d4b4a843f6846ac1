"""No record begins a transaction in a partition unless its coordinator knows of it, at the very moment of the write."""

import asyncio

from tailrace.broker.coordinators.markers import write_markers
from tailrace.broker.coordinators.verification import TransactionalProducer, wait_verified
from tailrace.log.validation import RECORDS_PER_STEP
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import NodeId
from tailrace.wire.records import Compression, build_batch
from tests.unit.broker.test_slow_produce import HookedBackground
from tests.unit.broker.transactions.scene import OLD, SETTINGS, Producer, prepare
from tests.unit.broker.world import World, create_topic, delete_topic, fetch, fetched, produce, produced, running
from tests.unit.replica.replicas import led_by

ME, OTHER = NodeId(1), NodeId(2)
# Its check takes several turns of the loop.
LARGE = 20 * RECORDS_PER_STEP


def keyed_records(producer: Producer, count: int) -> bytes:
    return build_batch(
        [(index, 1_767_225_600_000, b"k", b"v", ()) for index in range(count)],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=0,
        transactional=True,
        compression=Compression.GZIP,
    )


async def begun(world: World, topic: str = "t", **configs: str) -> Producer:
    """An old client's producer that has added the partition."""
    peer = await prepare(world)
    await create_topic(peer, topic, **configs)
    producer = Producer(peer, OLD)
    await producer.init()
    await producer.add(topic)
    return producer


async def test_a_marker_between_the_answer_and_the_write_takes_the_yes_back():
    background = HookedBackground()
    async with running(SETTINGS, background=background) as world:
        producer = await begun(world, cleanup_policy="compact")
        tasks: list[asyncio.Task[object]] = []

        def end_it() -> None:
            tasks.append(asyncio.ensure_future(write_markers(world.broker, producer.marker("t"))))

        background.hook = end_it
        assert await producer.write("t", keyed_records(producer, LARGE)) is ErrorCode.NOT_ENOUGH_REPLICAS
        (marked,) = await asyncio.gather(*tasks)
        assert marked.markers[0].topics[0].partitions[0].error_code == 0  # type: ignore[attr-defined]
        producers = world.broker.replicas.find("t", 0).log.producers
        assert not producers.is_in_transaction(producer.producer_id, producer.epoch)
        # It is still part of the transaction as far as the coordinator knows, so that it may try again.
        assert await producer.write("t", keyed_records(producer, 1)) is ErrorCode.NONE
        assert await producer.end(is_commit=True) is ErrorCode.NONE


async def test_a_marker_during_the_question_has_it_asked_again():
    """The coordinator answers when the transaction before is ended: by a marker that came after the question."""
    async with running(SETTINGS) as world:
        producer = await begun(world)
        assert await producer.write("t", producer.records("t", b"a")) is ErrorCode.NONE
        partition = world.broker.replicas.find("t", 0)
        partition.follow_image(led_by(OTHER, epoch=1, replicas=(ME, OTHER), isr=(ME, OTHER)))
        assert await producer.end(is_commit=True) is ErrorCode.NONE
        asked = TransactionalProducer("x", producer.producer_id, producer.epoch)
        task = asyncio.ensure_future(wait_verified(world.broker, asked, [partition], adds=True))
        await asyncio.sleep(0)
        assert not task.done()
        partition.follow_image(led_by(ME, epoch=2, replicas=(ME, OTHER), isr=(ME,)))
        verification = await task
        assert partition.log.log_end_offset == 2, "a record and its marker"
        assert verification.errors == {}
        assert verification.holds(partition)
        await write_markers(world.broker, producer.marker("t"))
        assert not verification.holds(partition)
        verification.end()


async def test_a_topic_that_was_made_anew_is_another():
    async with running(SETTINGS) as world:
        producer = await begun(world)
        asked = TransactionalProducer("x", producer.producer_id, producer.epoch)
        old = world.broker.replicas.find("t", 0)
        verification = await wait_verified(world.broker, asked, [old], adds=False)
        await delete_topic(producer.peer, "t")
        await create_topic(producer.peer, "t")
        assert not verification.holds(world.broker.replicas.find("t", 0))
        verification.end()


async def test_refused_partitions_leave_nothing_behind():
    async with running(SETTINGS) as world:
        peer = await prepare(world, "t")
        producer = Producer(peer, OLD)
        await producer.init()
        assert await producer.write("t", producer.records("t", b"a")) is ErrorCode.TRANSACTION_ABORTABLE
        assert world.broker.replicas.find("t", 0).log.producers._verifying == {}


async def test_the_second_batch_waits_for_the_verification_of_the_first():
    async with running(SETTINGS) as world:
        producer = await begun(world)
        records = [producer.records("t", value) for value in (b"a", b"b", b"c")]
        for each in records:
            producer.peer.send(produce("t", each, acks=-1, transactional_id="x"), 11)
        offsets = [produced(await producer.peer.receive()).base_offset for _ in records]
        assert offsets == [0, 1, 2]
        answer = fetched(await producer.peer.request(fetch("t", 0, isolation_level=1), 12))
        assert (answer.high_watermark, answer.last_stable_offset) == (3, 0)
