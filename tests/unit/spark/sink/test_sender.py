"""The sender against a broker that checks sequences as Kafka does, and fails in every way it can."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from tailrace.client.lanes import ACKS_NONE, ProducerIdentity, ProducerOptions
from tailrace.client.producer import IdempotentAuthor
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NO_SEQUENCE, PartitionIndex, TopicPartition
from tailrace.spark.arrow.encode import EncodedBatch
from tailrace.spark.sink.sender import Sender
from tailrace.wire.apis.data import ProduceRequest, ProduceResponse
from tailrace.wire.apis.transactions import InitProducerIdRequest, InitProducerIdResponse
from tailrace.wire.payload import encode_payload
from tailrace.wire.records import HEADER_SIZE, Compression, iterate_records, read_header
from tests.unit.client.peer import HANG_UP, SILENCE, Peer

REMEMBERED = 5
LOST = "lost"


class StrictBroker(Peer):
    """Appends a batch only if it is the next one of its producer, or the first that it ever sees of it, as Kafka does;
    knows the last five again. `faults` tell what to do with the next Produce requests instead: LOST is to append and
    hang up."""

    def __init__(self, *, partitions: int = 1) -> None:
        super().__init__(partitions=partitions)
        self.scripts |= {ProduceRequest: self._produce, InitProducerIdRequest: self._identify}
        self.faults: list[ErrorCode | str | None] = []
        self.identify_faults: list[str] = []
        self.values: dict[int, list[bytes | None]] = {}
        self.batch_bytes_max = 1 << 20
        self.identities: list[ProducerIdentity] = []
        self._sequences: dict[tuple[int, ProducerIdentity], list[tuple[int, int]]] = {}

    def _identify(self, _request: InitProducerIdRequest) -> InitProducerIdResponse | str:
        if self.identify_faults:
            return self.identify_faults.pop()
        self.identities.append(ProducerIdentity(7 + len(self.identities), 0))
        return InitProducerIdResponse(producer_id=self.identities[-1].producer_id, producer_epoch=0)

    def _produce(self, request: ProduceRequest) -> ProduceResponse | str:
        ((data,),) = (topic.partition_data for topic in request.topic_data)
        fault = self.faults.pop() if self.faults else None
        if fault in {HANG_UP, SILENCE}:
            return fault
        code = fault if isinstance(fault, ErrorCode) else self._append(data.index, bytes(data.records))
        if fault == LOST:
            return HANG_UP
        if request.acks == ACKS_NONE:
            return SILENCE
        result = ProduceResponse.PartitionProduceResponse(index=data.index, error_code=code)
        return ProduceResponse(responses=[ProduceResponse.TopicProduceResponse(name="t", partition_responses=[result])])

    def _append(self, partition: int, batch: bytes) -> ErrorCode:
        header = read_header(batch)
        if len(batch) > self.batch_bytes_max:
            return ErrorCode.MESSAGE_TOO_LARGE
        if header.base_sequence != NO_SEQUENCE:
            identity = ProducerIdentity(header.producer_id, header.producer_epoch)
            known = self._sequences.setdefault((partition, identity), [])
            this = header.base_sequence, header.last_sequence
            if this in known[-REMEMBERED:]:
                return ErrorCode.NONE
            if known and header.base_sequence != known[-1][1] + 1:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            known.append(this)
        records = iterate_records(batch, max_decompressed_bytes=1 << 20)
        self.values.setdefault(partition, []).extend(record.value for record in records)
        return ErrorCode.NONE


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


FAULTS = [
    None,
    HANG_UP,
    LOST,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
]


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
