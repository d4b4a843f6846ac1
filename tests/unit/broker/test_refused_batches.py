"""Batches behind one that was refused: they share its fate, so that all come again in order."""

import pytest

from tailrace.broker.refused_batches import RefusedBatches
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId
from tailrace.sim.clock import SimClock
from tests.unit.broker.world import batch, create_topic, produce, produced, running
from tests.unit.replica.replicas import led_by

ME, OTHER = NodeId(1), NodeId(2)
PLACE = ("t", 0)
NOT_LEADER = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
OUT_OF_ORDER = KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "")


def sequenced(sequence: int, count: int = 2, *, producer_id: int = 5, epoch: int = 0) -> memoryview:
    values = [b"v"] * count
    return memoryview(batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


class Producer:
    """Sends to `t-0` with acks=all and gives the error codes."""

    def __init__(self, peer) -> None:
        self._peer = peer

    async def send(self, *sequences: int, epoch: int = 0) -> list[ErrorCode]:
        for sequence in sequences:
            self._peer.send(produce("t", bytes(sequenced(sequence, epoch=epoch)), acks=-1, timeout_ms=100), 9)
        return [ErrorCode(produced(await self._peer.receive()).error_code) for _ in sequences]


@pytest.mark.parametrize("first", [0, 6])
async def test_who_becomes_leader_between_two_batches_takes_neither(first):
    """With a producer that the log knows, and with one that it does not."""
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        producer, partition = Producer(peer), world.broker.replicas.find("t", 0)
        if first:
            assert await producer.send(0, 2, 4) == [ErrorCode.NONE] * 3
        partition.follow_image(led_by(OTHER, epoch=1, replicas=(ME,), isr=(ME,)))
        assert await producer.send(first) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        partition.follow_image(led_by(ME, epoch=2, replicas=(ME,), isr=(ME,)))
        behind = await producer.send(first + 2, first + 4)
        assert behind == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2, "they were on their way, and must come again"
        assert partition.log.log_end_offset == first
        again = await producer.send(first, first + 2, first + 4, first + 6)
        assert again == [ErrorCode.NONE] * 4
        assert partition.log.log_end_offset == first + 8


async def test_a_new_epoch_of_the_producer_whose_first_batch_was_refused():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t", min_insync_replicas="2")
        producer, partition = Producer(peer), world.broker.replicas.find("t", 0)
        both = (ME, OTHER)
        partition.follow_image(led_by(ME, epoch=1, replicas=(ME,), isr=(ME,)))
        assert await producer.send(0) == [ErrorCode.NONE]
        partition.follow_image(led_by(ME, epoch=1, replicas=both, isr=(ME,)))
        assert await producer.send(0, epoch=1) == [ErrorCode.NOT_ENOUGH_REPLICAS]
        partition.follow_image(led_by(ME, epoch=1, replicas=(ME,), isr=(ME,)))
        assert await producer.send(2, epoch=1) == [ErrorCode.NOT_ENOUGH_REPLICAS]
        assert await producer.send(0, 2, epoch=1) == [ErrorCode.NONE] * 2


async def test_who_was_served_elsewhere_meanwhile_goes_on():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        producer, partition = Producer(peer), world.broker.replicas.find("t", 0)
        partition.follow_image(led_by(OTHER, epoch=1, replicas=(ME,), isr=(ME,)))
        assert await producer.send(0) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        # The other leader took it, and it was replicated.
        partition.log.append_as_follower(memoryview(bytearray(sequenced(0))))
        partition.follow_image(led_by(ME, epoch=2, replicas=(ME,), isr=(ME,)))
        assert await producer.send(2) == [ErrorCode.NONE]


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
def refused_batches(clock: SimClock) -> RefusedBatches:
    return RefusedBatches(clock)


def judged(
    refused_batches: RefusedBatches, records: memoryview, error: KafkaError = OUT_OF_ORDER, place=PLACE
) -> ErrorCode:
    return refused_batches.judge(place, records, error).code


def test_only_what_follows_upon_a_refused_batch_is_excused(refused_batches: RefusedBatches):
    assert judged(refused_batches, sequenced(10)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    judged(refused_batches, sequenced(10), NOT_LEADER)
    for other in (sequenced(11), sequenced(14), sequenced(12, epoch=1), sequenced(12, producer_id=6)):
        assert judged(refused_batches, other) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert judged(refused_batches, sequenced(12), place=("t", 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert judged(refused_batches, sequenced(12)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert judged(refused_batches, sequenced(14)) is ErrorCode.NOT_LEADER_OR_FOLLOWER, (
        "it follows upon a refused one now"
    )


def test_sequences_begin_again_at_0(refused_batches: RefusedBatches):
    judged(refused_batches, sequenced(2**31 - 2), NOT_LEADER)
    assert judged(refused_batches, sequenced(0)) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_what_does_not_pass_excuses_nobody(refused_batches: RefusedBatches):
    too_large = KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "")
    assert judged(refused_batches, sequenced(0), too_large) is ErrorCode.MESSAGE_TOO_LARGE
    assert judged(refused_batches, sequenced(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert judged(refused_batches, memoryview(b"no batch"), NOT_LEADER) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not refused_batches


def test_what_was_refused_long_ago_explains_nothing(refused_batches: RefusedBatches, clock: SimClock):
    judged(refused_batches, sequenced(0), NOT_LEADER)
    clock.advance_ms(30_001)
    assert judged(refused_batches, sequenced(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_memory_is_bounded(refused_batches: RefusedBatches):
    for producer_id in range(1001):
        judged(refused_batches, sequenced(0, producer_id=producer_id), NOT_LEADER)
    assert judged(refused_batches, sequenced(2, producer_id=0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert judged(refused_batches, sequenced(2, producer_id=1)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
