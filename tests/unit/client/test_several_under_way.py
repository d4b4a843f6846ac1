"""Several batches of a partition under way, against a broker that checks sequences as Kafka does."""

import asyncio
import random

import pytest

from tailrace.client.lanes import ProducerIdentity
from tailrace.client.producer import IdempotentAuthor, Producer, ProducerOptions, UnknownOutcomeError
from tailrace.client.writing.flights import Flight, Flights
from tailrace.client.writing.request import ProduceResult
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.wire.apis.data import ProduceRequest
from tailrace.wire.records import read_header

from .peer import HANG_UP, SILENCE
from .strict_broker import FAULTS, LOST, StrictBroker

SMALL = ProducerOptions(batch_bytes=200, linger_ms=0, under_way_max=5)


async def sent_one_by_one(producer: Producer, values: list[bytes]) -> list[asyncio.Future]:
    """Each is a batch of its own."""
    return [await producer.send("t", value + bytes(150)) for value in values]


def told(values: list[bytes]) -> list[bytes]:
    return [value.rstrip(b"\0") for value in values]


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_fails_and_passes_everything_is_stored_once_and_in_order(seed: int, monkeypatch):
    chance = random.Random(seed)
    async with StrictBroker() as broker:
        broker.faults = chance.choices(FAULTS, k=25)
        broker.identify_faults = [HANG_UP]
        cluster = broker.cluster()
        monkeypatch.setattr(cluster, "backoff_ms", lambda _attempt: 1)
        values = [b"%d" % number for number in range(60)]
        async with Producer(cluster, SMALL) as producer:
            for value in values:
                await producer.send("t", value + bytes(chance.randrange(150)))
                await asyncio.sleep(0)
        assert told(broker.values[0]) == values
        cluster.close()


@pytest.mark.parametrize("seed", range(12))
async def test_what_is_given_up_says_whether_it_may_be_there(seed: int, monkeypatch):
    chance = random.Random(seed)
    async with StrictBroker() as broker:
        refusals = [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, LOST]
        broker.faults = chance.choices([*FAULTS, *refusals], k=60)
        cluster = broker.cluster()
        monkeypatch.setattr(cluster, "backoff_ms", lambda _attempt: 1)
        values = [b"%d" % number for number in range(60)]
        async with Producer(cluster, SMALL) as producer:
            futures = await sent_one_by_one(producer, values)
        failures = [future.exception() for future in futures]
        stored = told(broker.values[0])
        assert len(stored) == len(set(stored))
        assert stored == sorted(stored, key=int)
        for value, failure in zip(values, failures, strict=True):
            assert failure is None or isinstance(failure, KafkaError)
            if not isinstance(failure, UnknownOutcomeError):
                assert (value in stored) is (failure is None), (value, failure)
        assert any(failures)
        cluster.close()


async def test_after_the_first_five_batches_are_under_way_at_once_but_not_without_idempotence():
    for options, expected in ((SMALL, 1 + 5), (SMALL._replace(idempotent=False), 1 + 1)):
        async with StrictBroker() as broker:
            broker.faults = [SILENCE] * 9 + [None]
            cluster = broker.cluster()
            producer = Producer(cluster, options)
            await sent_one_by_one(producer, [b"%d" % number for number in range(9)])
            while len(broker.received(ProduceRequest)) < expected:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            assert len(broker.received(ProduceRequest)) == expected
            assert producer.unacknowledged == 8
            producer.close()
            assert producer.unacknowledged == 0
            cluster.close()


async def test_those_behind_one_that_is_refused_go_on_under_another_identity():
    async with StrictBroker() as broker:
        broker.faults = [ErrorCode.MESSAGE_TOO_LARGE, None]  # the second, with others behind it
        cluster = broker.cluster()
        async with Producer(cluster, SMALL) as producer:
            futures = await sent_one_by_one(producer, [b"%d" % number for number in range(8)])
        refused = futures.pop(1)
        assert refused.exception().code is ErrorCode.MESSAGE_TOO_LARGE
        assert all(future.exception() is None for future in futures)
        assert told(broker.values[0]) == [b"%d" % number for number in range(8) if number != 1]
        assert len(broker.identities) == 2
        cluster.close()


async def test_without_an_answer_in_time_nobody_knows_and_the_next_are_written():
    async with StrictBroker() as broker:
        broker.faults = [HANG_UP] * 200 + [None]
        cluster = broker.cluster()
        producer = Producer(cluster, SMALL._replace(delivery_timeout_ms=300))
        futures = await sent_one_by_one(producer, [b"%d" % number for number in range(4)])
        await producer.flush()
        assert [type(future.exception()) for future in futures] == [type(None), *([UnknownOutcomeError] * 3)]
        broker.faults = []
        (later,) = await sent_one_by_one(producer, [b"4"])
        await producer.flush()
        assert later.exception() is None
        assert told(broker.values[0]) == [b"0", b"4"]
        producer.close()
        cluster.close()


class Sealed:
    """A batch of one record."""

    record_count = 1

    def seal(self, _identity: ProducerIdentity, base_sequence: int, *, transactional: bool) -> bytes:
        assert not transactional
        return b"%d" % base_sequence


async def test_one_that_came_before_its_turn_is_sent_again_and_a_gap_of_nobody_is_not():
    """Two connections to a leader that has moved: the second batch was refused before the first had arrived."""
    answers: dict[bytes, asyncio.Future[ProduceResult]] = {}

    async def produce(sealed: bytes) -> ProduceResult:
        answers[bytes(sealed)] = asyncio.get_running_loop().create_future()
        return await answers[bytes(sealed)]

    async def answer(sealed: bytes, code: ErrorCode = ErrorCode.NONE) -> None:
        while sealed not in answers:
            await asyncio.sleep(0)
        if code is ErrorCode.NONE:
            answers.pop(sealed).set_result(ProduceResult())
        else:
            answers.pop(sealed).set_exception(KafkaError(code))
        await asyncio.sleep(0.01)

    async with StrictBroker() as broker:
        cluster = broker.cluster()
        author = IdempotentAuthor(cluster, SMALL)
        place = TopicPartition("t", PartitionIndex(0))
        flights: Flights[Sealed] = Flights(cluster, SMALL, author, place, produce=produce)
        batches = [Flight(Sealed()) for _ in range(4)]
        await flights.begin(batches[0])
        assert not flights.has_room
        await answer(b"0")
        assert flights.take_acknowledged() == batches[:1]
        await flights.begin(batches[1])
        await flights.begin(batches[2])
        await answer(b"2", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        assert not flights.is_stuck
        await answer(b"1")
        assert flights.take_acknowledged() == batches[1:2]
        assert flights.is_stuck
        assert await flights.take_others() == []
        await flights.try_again()
        await answer(b"2")
        assert flights.take_acknowledged() == batches[2:3]
        await flights.begin(batches[3])
        await answer(b"3", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        with pytest.raises(KafkaError, match="OUT_OF_ORDER"):
            await flights.try_again()
        assert flights.cancel() == batches[3:]
        cluster.close()


async def test_a_full_batch_does_not_take_along_the_one_that_has_just_begun():
    async with StrictBroker() as broker:
        cluster = broker.cluster()
        producer = Producer(cluster, ProducerOptions(batch_bytes=1000, linger_ms=60_000, under_way_max=5))
        for _ in range(5):
            await producer.send("t", bytes(300))
        while not broker.received(ProduceRequest):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        (request,) = broker.received(ProduceRequest)
        assert read_header(bytes(request.topic_data[0].partition_data[0].records)).record_count == 3
        assert producer.unacknowledged == 2
        await producer.flush()
        producer.close()
        cluster.close()
