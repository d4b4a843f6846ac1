"""No record begins a transaction in a partition unless its coordinator knows of it, at the very moment of the write."""

import asyncio
from typing import Any

import pytest

from tailrace.broker.coordinators import verification
from tailrace.broker.coordinators.verification import TransactionalProducer, wait_verified
from tailrace.log.validation import RECORDS_PER_STEP
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import NodeId
from tailrace.wire.apis.groups import FindCoordinatorRequest
from tailrace.wire.apis.transactions import AddOffsetsToTxnRequest, TxnOffsetCommitRequest
from tailrace.wire.records import Compression, build_batch
from tests.unit.broker.test_slow_produce import HookedBackground
from tests.unit.broker.transactions.scene import OLD, SETTINGS, Producer, prepare
from tests.unit.broker.world import World, create_topic, delete_topic, fetch, fetched, produce, produced, running
from tests.unit.replica.replicas import led_by

ME, OTHER = NodeId(1), NodeId(2)
# Its check takes several turns of the loop.
LARGE = 20 * RECORDS_PER_STEP


def keyed_records(producer: Producer, count: int, sequence: int = 0) -> bytes:
    return build_batch(
        [(index, 1_767_225_600_000, b"k", b"v", ()) for index in range(count)],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
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
            tasks.append(asyncio.ensure_future(world.broker.services.coordination.write_markers(producer.marker("t"))))

        background.hook = end_it
        assert await producer.write("t", keyed_records(producer, LARGE)) is ErrorCode.NOT_ENOUGH_REPLICAS
        (marked,) = await asyncio.gather(*tasks)
        assert marked.markers[0].topics[0].partitions[0].error_code == 0  # type: ignore[attr-defined]
        producers = world.broker.replicas.find("t", 0).log.producers
        assert not producers.is_in_transaction(producer.producer_id, producer.epoch)
        # It is still part of the transaction as far as the coordinator knows, so that it may try again.
        assert await producer.write("t", keyed_records(producer, 1)) is ErrorCode.NONE
        assert await producer.end(is_commit=True) is ErrorCode.NONE


async def test_a_marker_during_the_check_of_a_later_batch_keeps_it_out():
    """Its transaction was open when it came, so that nobody was asked. A new one must be known to its coordinator."""
    background = HookedBackground()
    async with running(SETTINGS, background=background) as world:
        producer = await begun(world, cleanup_policy="compact")
        assert await producer.write("t", keyed_records(producer, 1)) is ErrorCode.NONE
        tasks: list[asyncio.Task[object]] = []

        def end_it() -> None:
            tasks.append(asyncio.ensure_future(producer.end(is_commit=False)))

        background.hook = end_it
        other = await world.connect()
        records = keyed_records(producer, LARGE, sequence=1)
        answer = await other.request(produce("t", records, acks=-1, transactional_id="x"), 11)
        assert produced(answer).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await asyncio.gather(*tasks) == [ErrorCode.NONE]
        partition = world.broker.replicas.find("t", 0)
        assert partition.last_stable_offset == partition.log.log_end_offset == 2
        assert await producer.state() == "CompleteAbort"


@pytest.mark.parametrize("code", [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.NETWORK_EXCEPTION])
async def test_what_was_not_asked_because_of_another_partition_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode
):
    """A coordinator that has not heard of a new topic yet refuses it, and leaves the others in the request alone."""
    async with running(SETTINGS) as world:
        producer = await begun(world)

        async def refuse(_broker: Any, _producer: Any, partitions: Any, **_: Any) -> Any:
            return dict.fromkeys(partitions, code)

        monkeypatch.setattr(verification, "_ask_coordinator", refuse)
        assert await producer.write("t", producer.records("t", b"a")) is ErrorCode.NOT_ENOUGH_REPLICAS


async def test_offsets_are_not_committed_if_each_answer_is_overtaken_by_a_marker(monkeypatch: pytest.MonkeyPatch):
    async with running(SETTINGS) as world:
        peer = await prepare(world, "t")
        found = await peer.request(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 6)
        assert found.coordinators[0].error_code == 0
        producer = Producer(peer, OLD)
        await producer.init()
        of_producer = {"transactional_id": "x", "producer_id": producer.producer_id, "producer_epoch": producer.epoch}
        assert (await peer.request(AddOffsetsToTxnRequest(group_id="g", **of_producer), 3)).error_code == 0
        ask = verification._ask_coordinator

        async def ask_and_end(*args: Any, **options: Any) -> Any:
            answer = await ask(*args, **options)
            await world.broker.services.coordination.write_markers(producer.marker("__consumer_offsets"))
            return answer

        monkeypatch.setattr(verification, "_ask_coordinator", ask_and_end)
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
            name="t",
            partitions=[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)],
        )
        answer = await peer.request(TxnOffsetCommitRequest(group_id="g", topics=[topic], **of_producer), 3)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        producers = world.broker.replicas.find("__consumer_offsets", 0).log.producers
        assert not producers.is_in_transaction(producer.producer_id, producer.epoch)


async def test_a_marker_during_the_question_has_it_asked_again():
    """The coordinator answers when the transaction before is ended: by a marker that came after the question."""
    async with running(SETTINGS) as world:
        producer = await begun(world)
        assert await producer.write("t", producer.records("t", b"a")) is ErrorCode.NONE
        partition = world.broker.replicas.find("t", 0)
        partition.follow_image(led_by(OTHER, epoch=1, replicas=(ME, OTHER), isr=(ME, OTHER)))
        assert await producer.end(is_commit=True) is ErrorCode.NONE
        asked = TransactionalProducer("x", producer.producer_id, producer.epoch)
        task = asyncio.ensure_future(wait_verified(world.broker.services, asked, [partition], adds=True))
        await asyncio.sleep(0)
        assert not task.done()
        partition.follow_image(led_by(ME, epoch=2, replicas=(ME, OTHER), isr=(ME,)))
        said = await task
        assert partition.log.log_end_offset == 2, "a record and its marker"
        assert said.errors == {}
        assert said.holds(partition)
        await world.broker.services.coordination.write_markers(producer.marker("t"))
        assert not said.holds(partition)
        said.end()


async def test_a_topic_that_was_made_anew_is_another():
    async with running(SETTINGS) as world:
        producer = await begun(world)
        asked = TransactionalProducer("x", producer.producer_id, producer.epoch)
        old = world.broker.replicas.find("t", 0)
        said = await wait_verified(world.broker.services, asked, [old], adds=False)
        await delete_topic(producer.peer, "t")
        await create_topic(producer.peer, "t")
        assert not said.holds(world.broker.replicas.find("t", 0))
        said.end()


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
