"""Idempotent producers on the express lane: what follows in sequence is taken in runs, the rest is left to the log."""

import errno

import pytest

from tailrace.broker.serving.express import Express
from tailrace.log.producers import MAX_SEQUENCE
from tailrace.model.errors import ErrorCode
from tailrace.replica.partition import Partition
from tailrace.wire.apis.data import ProduceRequest, ProduceResponse
from tests.unit.broker.world import Peer, batch, create_topic, produce, produced, running

VERSION = 9
STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture
def runs(monkeypatch) -> list[int]:
    """How many batches each express write had."""
    sizes: list[int] = []
    append = Partition.append_plain

    def counted(self, batches):
        sizes.append(len(batches))
        return append(self, batches)

    monkeypatch.setattr(Partition, "append_plain", counted)
    return sizes


def sequenced(sequence: int, *, count: int = 1, producer_id: int = 7, epoch: int = 0, partition: int = 0, **fields):
    values = [b"x"] * count
    records = batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return produce("t", records, partition=partition, **fields)


async def answers(peer: Peer, requests: list[ProduceRequest]) -> list[ProduceResponse.PartitionProduceResponse]:
    peer.writer.write(b"".join(peer.frame(request, VERSION) for request in requests))
    return [produced(await peer.receive()) for _ in requests]


def codes_and_offsets(given: list[ProduceResponse.PartitionProduceResponse]) -> list[tuple[int, int]]:
    return [(answer.error_code, answer.base_offset) for answer in given]


async def test_a_burst_is_one_write_from_the_first_batch_on(runs):
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t", partitions=2)
        burst = [sequenced(number // 2, partition=number % 2) for number in range(40)]
        assert codes_and_offsets(await answers(peer, burst)) == [(0, number // 2) for number in range(40)]
        assert runs == [20, 20]
        state = world.broker.replicas.find("t", 1).log.producers.states[7]
        assert [each.base_sequence for each in state.batches] == [15, 16, 17, 18, 19]


async def test_sequences_go_on_at_zero_after_the_largest(runs):
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        within = [sequenced(MAX_SEQUENCE - 1), sequenced(MAX_SEQUENCE, count=3), sequenced(2)]
        between = [sequenced(each, producer_id=8) for each in (MAX_SEQUENCE - 1, MAX_SEQUENCE, 0, 1)]
        assert codes_and_offsets(await answers(peer, within)) == [(0, 0), (0, 1), (0, 4)]
        assert codes_and_offsets(await answers(peer, between)) == [(0, 5), (0, 6), (0, 7), (0, 8)]
        assert runs == [3, 4]
        states = world.broker.replicas.find("t", 0).log.producers.states
        assert [states[each].next_sequence for each in (7, 8)] == [3, 2]


async def test_another_producer_or_epoch_or_none_begins_another_run(runs):
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        burst = [
            sequenced(0),
            sequenced(1, producer_id=8),
            sequenced(2, producer_id=8),
            sequenced(1),
            sequenced(0, epoch=1),
            produce("t", batch(b"none")),
            sequenced(1, epoch=1),
        ]
        assert codes_and_offsets(await answers(peer, burst)) == [(0, number) for number in range(7)]
        assert runs == [1, 2, 1, 2, 1]


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (sequenced(1), (0, 1)),
        (sequenced(3), (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)),
        (sequenced(2, epoch=1), (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)),
        (sequenced(2, epoch=-1), (ErrorCode.INVALID_RECORD, -1)),
    ],
    ids=["duplicate", "gap", "epoch", "no epoch"],
)
async def test_what_does_not_follow_is_judged_by_the_log(wrong, expected, runs):
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        given = await answers(peer, [sequenced(0), sequenced(1), wrong, sequenced(2)])
        assert codes_and_offsets(given) == [(0, 0), (0, 1), expected, (0, 2)]
        assert runs == [2]


async def test_a_plain_batch_within_a_transaction_is_refused(runs):
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        begun = batch(b"t", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        world.broker.replicas.find("t", 0).append(memoryview(bytearray(begun)), required_acks=1)
        (answer,) = await answers(peer, [sequenced(1)])
        assert answer.error_code == ErrorCode.INVALID_TXN_STATE
        assert not runs


async def test_a_failed_write_is_remembered_for_those_behind_it(runs):
    """Told that they are out of order, librdkafka would begin a new epoch and send twice what is stored."""
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        assert codes_and_offsets(await answers(peer, [sequenced(0)])) == [(0, 0)]
        producers = world.broker.replicas.find("t", 0).log.producers
        before = producers.snapshot()
        world.disk.fail("append", "*t-0*", error=errno.ENOSPC)
        given = await answers(peer, [sequenced(1), sequenced(2)])
        assert codes_and_offsets(given) == [(STORAGE_ERROR, -1)] * 2
        assert runs == [1, 2]
        assert producers.snapshot() == before
        world.disk.heal()
        # It was on its way when the others failed.
        assert codes_and_offsets(await answers(peer, [sequenced(3)])) == [(STORAGE_ERROR, -1)]
        again = await answers(peer, [sequenced(1), sequenced(2), sequenced(3)])
        assert codes_and_offsets(again) == [(0, 1), (0, 2), (0, 3)]


async def test_so_it_is_for_a_producer_that_the_log_does_not_know(runs):
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        world.disk.fail("append", "*t-0*", error=errno.ENOSPC)
        assert codes_and_offsets(await answers(peer, [sequenced(0)])) == [(STORAGE_ERROR, -1)]
        world.disk.heal()
        assert codes_and_offsets(await answers(peer, [sequenced(1)])) == [(STORAGE_ERROR, -1)]
        assert codes_and_offsets(await answers(peer, [sequenced(0), sequenced(1)])) == [(0, 0), (0, 1)]


async def test_what_was_refused_elsewhere_keeps_nobody_off_the_lane(runs):
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t", partitions=2)
        world.disk.fail("append", "*t-0*", error=errno.ENOSPC)
        assert codes_and_offsets(await answers(peer, [sequenced(0)])) == [(STORAGE_ERROR, -1)]
        assert world.broker.services.refused_batches
        given = await answers(peer, [sequenced(0, partition=1), sequenced(1, partition=1)])
        assert codes_and_offsets(given) == [(0, 0), (0, 1)]
        assert runs == [1, 2]


async def test_the_general_way_takes_turns_with_it(monkeypatch, runs):
    """Each goes on where the other has stopped."""
    take = Express.take
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        for number in range(6):
            is_express = number % 2 == 0
            monkeypatch.setattr(Express, "take", take if is_express else lambda *arguments: arguments[3])
            given = await answers(peer, [sequenced(2 * number), sequenced(2 * number + 1)])
            assert codes_and_offsets(given) == [(0, 2 * number), (0, 2 * number + 1)]
        assert runs == [2, 2, 2]
