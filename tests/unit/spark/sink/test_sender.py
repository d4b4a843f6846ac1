"""The sender against a broker that checks sequences as Kafka does, and fails in every way it can."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from tailrace.client.lanes import ACKS_NONE, ProducerOptions
from tailrace.client.producer import IdempotentAuthor
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.spark.arrow.encode import EncodedBatch
from tailrace.spark.sink.sender import Sender
from tailrace.wire.apis.data import ProduceRequest
from tailrace.wire.payload import encode_payload
from tailrace.wire.records import HEADER_SIZE, Compression
from tests.unit.client.peer import HANG_UP, SILENCE, Peer
from tests.unit.client.strict_broker import FAULTS, StrictBroker


def make_batch(partition: int, values: Sequence[bytes]) -> EncodedBatch:
    payload = encode_payload(
        [(index, 1000, None, value, ()) for index, value in enumerate(values)], base_offset=0, base_timestamp=1000
    )
    where = TopicPartition("t", PartitionIndex(partition))
    return EncodedBatch(where, bytearray(HEADER_SIZE) + payload, len(values), Compression.NONE, 1000)


def sender_to(broker: Peer, **options: object) -> Sender:
    cluster = broker.cluster()
    chosen = ProducerOptions(**options)
    return Sender(cluster, chosen, IdempotentAuthor(cluster, chosen))


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_fails_and_passes_everything_is_stored_once_and_in_order(seed: int, monkeypatch) -> None:
    chance = random.Random(seed)
    async with StrictBroker(partitions=3) as broker:
        sender = sender_to(broker)
        monkeypatch.setattr(sender._cluster, "backoff_ms", lambda _attempt: 1)
        sent: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        broker.batch_bytes_max = chance.choice([100, 1 << 20])
        for call in range(3):
            broker.faults = chance.choices(FAULTS, k=12)
            broker.identify_faults = [HANG_UP] * (call == 0)
            batches = []
            for number in range(chance.randrange(5, 30)):
                partition = chance.randrange(3)
                values = [b"%d/%d/%d" % (call, number, each) for each in range(chance.randrange(1, 9))]
                sent[partition] += values
                batches.append(make_batch(partition, values))
            await sender.send(batches)
        assert {partition: broker.values.get(partition, []) for partition in sent} == sent
        assert {where.partition for where in sender.partitions} == {part for part, values in sent.items() if values}


async def test_after_the_first_several_batches_are_under_way_at_once_but_not_without_idempotence() -> None:
    for options, expected in (({}, 1 + 5), ({"idempotent": False}, 1 + 1)):
        async with StrictBroker() as broker:
            broker.faults = [SILENCE] * 9 + [None]
            sending = asyncio.create_task(sender_to(broker, **options).send([make_batch(0, [b"v"])] * 9))
            while len(broker.received(ProduceRequest)) < expected:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            assert len(broker.received(ProduceRequest)) == expected
            sending.cancel()


async def test_what_will_not_pass_is_raised_at_once() -> None:
    async with StrictBroker(partitions=2) as broker:
        broker.batch_bytes_max = 100
        with pytest.raises(KafkaError, match=r"max\.message\.bytes"):
            await sender_to(broker).send(
                [make_batch(0, [b"v"]), make_batch(0, [b"v" * 100, b"w"]), make_batch(1, [b"x"])]
            )

    async with StrictBroker() as broker:
        # Nothing was under way before it, so the broker has lost what came before: not to be repaired here.
        broker.faults = [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
        with pytest.raises(KafkaError, match="OUT_OF_ORDER"):
            await sender_to(broker).send([make_batch(0, [b"v"])])


async def test_what_does_not_pass_in_time_is_given_up() -> None:
    async with StrictBroker() as broker:
        broker.scripts[ProduceRequest] = lambda _request: HANG_UP
        with pytest.raises(KafkaError, match="lost the connection"):
            await sender_to(broker, delivery_timeout_ms=300).send([make_batch(0, [b"v"])])


async def test_with_acks_0_it_returns_when_the_broker_has_got_it() -> None:
    async with StrictBroker() as broker:
        values = [b"%d" % number + bytes(900_000) for number in range(16)]  # more than sockets hold
        await sender_to(broker, acks=ACKS_NONE).send([make_batch(0, [value]) for value in values])
        assert broker.values == {0: values}
