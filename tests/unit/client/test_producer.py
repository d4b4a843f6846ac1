"""The producer against a scripted broker: batching, order, what is sent again and what is given up."""

import asyncio

import pytest

from tailrace.client.producer import Delivered, Producer, ProducerOptions, UnknownOutcomeError
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.data import MetadataRequest, ProduceRequest, ProduceResponse
from tailrace.wire.apis.transactions import InitProducerIdRequest, InitProducerIdResponse
from tailrace.wire.records import BatchHeader, Compression, Record, iterate_records, read_header

from .peer import HANG_UP, SILENCE, Peer


class Broker(Peer):
    """Keeps the batches of each partition. `plan` holds what to do with the next Produce requests instead: an error
    code, HANG_UP or SILENCE; with `has_appended` it appends before it misbehaves."""

    def __init__(self, *, partitions: int = 1) -> None:
        super().__init__(partitions=partitions)
        self.scripts |= {ProduceRequest: self._produce, InitProducerIdRequest: self._identify}
        self.plan: list[ErrorCode | str] = []
        self.batches: dict[int, list[bytes]] = {}
        self.identities = 0

    def _identify(self, _request: InitProducerIdRequest) -> InitProducerIdResponse:
        self.identities += 1
        return InitProducerIdResponse(producer_id=1000 + self.identities, producer_epoch=0)

    def _produce(self, request: ProduceRequest) -> ProduceResponse | str:
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        batch = bytes(data.records)
        step = self.plan.pop(0) if self.plan else ErrorCode.NONE
        if isinstance(step, str):
            return step
        result = ProduceResponse.PartitionProduceResponse(index=data.index, error_code=step)
        if step is ErrorCode.NONE:
            result.base_offset = sum(read_header(old).record_count for old in self.batches.get(data.index, ()))
            self.batches.setdefault(data.index, []).append(batch)
        if request.acks == 0:
            return SILENCE
        return ProduceResponse(
            responses=[ProduceResponse.TopicProduceResponse(name=topic.name, partition_responses=[result])]
        )

    def records(self, partition: int = 0) -> list[Record]:
        return [record for batch in self.batches.get(partition, ()) for record in opened(batch)]

    def sent(self) -> list[bytes]:
        return [
            bytes(request.topic_data[0].partition_data[0].records)
            for request in self.received(ProduceRequest)
            if isinstance(request, ProduceRequest)
        ]


def opened(batch: bytes) -> list[Record]:
    return list(iterate_records(batch, max_decompressed_bytes=1 << 20))


def headers_of(batches: list[bytes]) -> list[BatchHeader]:
    return [read_header(batch) for batch in batches]


async def test_records_gather_into_one_batch_in_order():
    async with Broker() as broker:
        cluster = broker.cluster()
        async with Producer(cluster, ProducerOptions(linger_ms=20)) as producer:
            futures = [
                await producer.send("t", b"v%d" % n, key=b"k", headers=[("h", None)], timestamp=n) for n in range(50)
            ]
        assert len(broker.sent()) == 1
        assert broker.records() == list(opened(broker.batches[0][0]))
        assert [record.value for record in broker.records()] == [b"v%d" % n for n in range(50)]
        assert broker.records()[3][1:] == (3, b"k", b"v3", (("h", None),))
        assert [future.result().offset for future in futures] == list(range(50))
        assert futures[7].result() == Delivered(("t", 0), 7, 7)
        cluster.close()


async def test_linger_sends_without_a_flush():
    async with Broker() as broker:
        cluster = broker.cluster()
        producer = Producer(cluster, ProducerOptions(linger_ms=1))
        delivered = await producer.send("t", b"x")
        assert (await asyncio.wait_for(delivered, 5)).offset == 0
        producer.close()
        cluster.close()


async def test_full_batches_do_not_wait_for_the_linger():
    async with Broker() as broker:
        cluster = broker.cluster()
        producer = Producer(cluster, ProducerOptions(linger_ms=60_000, batch_bytes=10_000))
        futures = [await producer.send("t", bytes(1000)) for _ in range(30)]
        await asyncio.wait_for(asyncio.gather(*futures[:27]), 5)
        sizes = [header.record_count for header in headers_of(broker.sent())]
        assert max(sizes) == 9  # 9 * 1032 bytes fit into 10,000
        producer.close()
        cluster.close()


async def test_a_record_larger_than_a_batch_goes_alone():
    async with Broker() as broker:
        cluster = broker.cluster()
        async with Producer(cluster, ProducerOptions(batch_bytes=1000)) as producer:
            for size in (10, 5000, 10):
                await producer.send("t", bytes(size))
        assert [len(record.value) for record in broker.records()] == [10, 5000, 10]
        cluster.close()


async def test_sequences_follow_each_other():
    async with Broker(partitions=2) as broker:
        cluster = broker.cluster()
        async with Producer(cluster, ProducerOptions(batch_bytes=500)) as producer:
            for number in range(40):
                await producer.send("t", bytes(100), partition=number % 2)
        assert broker.identities == 1
        for partition in (0, 1):
            headers = headers_of(broker.batches[partition])
            assert {header.producer_id for header in headers} == {1001}
            counts = [header.record_count for header in headers]
            assert [header.base_sequence for header in headers] == [sum(counts[:n]) for n in range(len(counts))]
        cluster.close()


@pytest.mark.parametrize("trouble", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, HANG_UP])
async def test_what_may_pass_is_sent_again_to_the_last_byte(trouble: ErrorCode | str):
    async with Broker() as broker:
        broker.plan = [trouble, trouble]
        cluster = broker.cluster()
        async with Producer(cluster) as producer:
            delivered = await producer.send("t", b"x")
        assert delivered.result().offset == 0
        assert len(broker.sent()) == 3
        assert len(set(broker.sent())) == 1
        # After each failure the leader was asked for anew.
        assert len(broker.received(MetadataRequest)) >= 3
        cluster.close()


async def test_nothing_overtakes_a_batch_that_is_sent_again():
    async with Broker() as broker:
        broker.plan = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3
        cluster = broker.cluster()
        async with Producer(cluster, ProducerOptions(batch_bytes=200, linger_ms=0)) as producer:
            for number in range(20):
                await producer.send("t", b"%03d" % number + bytes(100))
        assert [record.value[:3] for record in broker.records()] == [b"%03d" % n for n in range(20)]
        cluster.close()


async def test_a_refusal_that_does_not_pass_fails_the_record_and_not_the_next():
    async with Broker() as broker:
        broker.plan = [ErrorCode.MESSAGE_TOO_LARGE]
        cluster = broker.cluster()
        async with Producer(cluster) as producer:
            first = await producer.send("t", b"x")
            await producer.flush()
            second = await producer.send("t", b"y")
        with pytest.raises(KafkaError, match=r"tailrace topic alter t --set max\.message\.bytes") as raised:
            first.result()
        assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert second.result().offset == 0
        # Whether the broker counted the first is not known: the next batch starts over under a new id.
        assert [(header.producer_id, header.base_sequence) for header in headers_of(broker.sent())] == [
            (1001, 0),
            (1002, 0),
        ]
        cluster.close()


async def test_a_duplicate_was_delivered():
    async with Broker() as broker:
        broker.plan = [ErrorCode.DUPLICATE_SEQUENCE_NUMBER]
        cluster = broker.cluster()
        async with Producer(cluster) as producer:
            delivered = await producer.send("t", b"x")
        assert delivered.result().offset == -1
        cluster.close()


async def test_it_gives_up_in_the_end():
    async with Broker() as broker:
        broker.plan = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000
        cluster = broker.cluster()
        async with Producer(cluster, ProducerOptions(delivery_timeout_ms=200)) as producer:
            delivered = await producer.send("t", b"x")
        with pytest.raises(KafkaError) as raised:
            delivered.result()
        assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        cluster.close()


@pytest.mark.parametrize(
    ("plan", "is_known"),
    [
        ([ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000, True),
        ([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.TOPIC_AUTHORIZATION_FAILED], True),
        ([HANG_UP] * 1000, False),
        # Whatever the last attempt met, the first may have arrived.
        ([HANG_UP, ErrorCode.TOPIC_AUTHORIZATION_FAILED], False),
        ([ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.MESSAGE_TOO_LARGE], False),
        ([ErrorCode.REQUEST_TIMED_OUT] * 1000, False),
    ],
)
async def test_a_failure_says_whether_the_record_may_have_been_written(plan: list[ErrorCode | str], is_known: bool):
    async with Broker() as broker:
        broker.plan = plan
        cluster = broker.cluster()
        async with Producer(cluster, ProducerOptions(delivery_timeout_ms=300)) as producer:
            delivered = await producer.send("t", b"x")
        with pytest.raises(KafkaError) as raised:
            delivered.result()
        assert isinstance(raised.value, UnknownOutcomeError) is not is_known
        cluster.close()


async def test_the_buffer_is_bounded():
    async with Broker() as broker:
        broker.plan = [SILENCE]
        cluster = broker.cluster()
        producer = Producer(cluster, ProducerOptions(buffer_bytes=10_000, linger_ms=0))
        for _ in range(6):  # 1000 bytes each, and what the objects take
            await producer.send("t", bytes(1000))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.send("t", bytes(1000)), 0.1)
        producer.close()
        cluster.close()


async def test_without_acks_nothing_is_waited_for():
    async with Broker() as broker:
        cluster = broker.cluster()
        async with Producer(cluster, ProducerOptions(acks=0)) as producer:
            delivered = await producer.send("t", b"x")
        assert delivered.result().offset == -1
        for _ in range(100):
            if broker.records():
                break
            await asyncio.sleep(0.01)
        assert [record.value for record in broker.records()] == [b"x"]
        assert headers_of(broker.sent())[0].producer_id == -1
        cluster.close()


@pytest.mark.parametrize("codec", list(Compression))
async def test_batches_are_compressed(codec: Compression):
    async with Broker() as broker:
        cluster = broker.cluster()
        async with Producer(cluster, ProducerOptions(compression=codec)) as producer:
            await producer.send("t", b"x" * 1000)
        assert headers_of(broker.sent())[0].compression is codec
        assert broker.records()[0].value == b"x" * 1000
        cluster.close()


async def test_keys_decide_the_partition():
    async with Broker(partitions=12) as broker:
        cluster = broker.cluster()
        async with Producer(cluster) as producer:
            for key in (b"hello", b"kafka", b""):
                await producer.send("t", b"", key=key)
            await producer.send("t", b"chosen", partition=5)
        assert {partition: [r.key for r in broker.records(partition)] for partition in broker.batches} == {
            9: [b"hello", b""],
            4: [b"kafka"],
            5: [None],
        }
        cluster.close()


async def test_a_partition_that_does_not_exist():
    async with Broker(partitions=2) as broker:
        cluster = broker.cluster()
        async with Producer(cluster) as producer:
            with pytest.raises(KafkaError, match="topic t has no partition 2: it has 0 to 1"):
                await producer.send("t", b"x", partition=2)
        cluster.close()


async def test_senders_at_the_same_time_share_a_lane():
    async with Broker() as broker:
        cluster = broker.cluster()
        # Long enough to linger for a busy machine; the end of the block does not wait for it.
        async with Producer(cluster, ProducerOptions(linger_ms=5000)) as producer:
            await asyncio.gather(*(producer.send("t", b"%d" % n) for n in range(20)))
        assert len(broker.records()) == 20
        assert len(broker.sent()) == 1
        cluster.close()


async def test_closing_fails_what_was_not_acknowledged():
    async with Broker() as broker:
        broker.plan = [SILENCE]
        cluster = broker.cluster()
        producer = Producer(cluster, ProducerOptions(linger_ms=0, batch_bytes=200))
        futures = [await producer.send("t", bytes(100)) for _ in range(5)]
        await asyncio.sleep(0.05)
        producer.close()
        for future in futures:
            with pytest.raises(KafkaError, match="closed before"):
                future.result()
        cluster.close()
