"""A range of a partition against a scripted broker: every batch of it once, losses by name, waits with an end."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager

import pytest

from tailrace.client.fetching import ConsumerOptions, Isolation, iterate_batches
from tailrace.client.ranges import FetchedBatches, OffsetsLostError, RangeReader
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition, Uuid
from tailrace.wire.apis.data import FetchRequest, FetchResponse, MetadataRequest, MetadataResponse
from tailrace.wire.schema import Message

from .log_peer import Broker, batch
from .peer import HANG_UP, TOPIC_ID

T0 = TopicPartition("t", 0)
PATIENT = ConsumerOptions(fetch_max_wait_ms=0, retry_timeout_ms=20_000)
HASTY = ConsumerOptions(fetch_max_wait_ms=0, retry_timeout_ms=200)

Batches = list[tuple[int, int, bytes]]


class Log(Broker):
    """Gives a batch at a time, and refuses offsets that it does not hold."""

    def __init__(self, batches: Batches, *, high_watermark: int | None = None) -> None:
        super().__init__({0: batches})
        self.high_watermark = high_watermark
        self.last_stable_offset: int | None = None
        self.cut_bytes: int | None = None

    def _fetch(self, request: FetchRequest) -> FetchResponse | str:
        answer = super()._fetch(request)
        if isinstance(answer, str):
            return answer
        data = answer.responses[0].partitions[0]
        position = request.topics[0].partitions[0].fetch_offset
        held = self.batches[0]
        data.high_watermark = held[-1][1] if self.high_watermark is None else self.high_watermark
        data.last_stable_offset = data.high_watermark if self.last_stable_offset is None else self.last_stable_offset
        if not held[0][0] <= position <= data.high_watermark:
            data.error_code, data.records = ErrorCode.OFFSET_OUT_OF_RANGE, b""
        elif not data.error_code:
            seen = [content for _, end, content in held if position < end <= data.last_stable_offset]
            data.records = b"".join(seen[:1])[: self.cut_bytes]
        return answer


@asynccontextmanager
async def reading(
    broker: Broker, start: int, end: int, options: ConsumerOptions = PATIENT
) -> AsyncIterator[RangeReader]:
    cluster = broker.cluster()
    reader = RangeReader(cluster, T0, start, end, options)
    try:
        yield reader
    finally:
        await reader.close()
        cluster.close()


@asynccontextmanager
async def reading_topic(broker: Broker, topic_id: bytes) -> AsyncIterator[RangeReader]:
    cluster = broker.cluster()
    reader = RangeReader(cluster, T0, 0, 10, HASTY, topic_id=Uuid(topic_id))
    try:
        yield reader
    finally:
        await reader.close()
        cluster.close()


async def read_all(reader: RangeReader) -> list[FetchedBatches]:
    found = []
    while (fetched := await reader.next()) is not None:
        found.append(fetched)
    return found


def base_offsets(found: list[FetchedBatches]) -> list[int]:
    return [
        header.base_offset
        for fetched in found
        for _, header, _ in iterate_batches(fetched.records, T0, fetched.position, fetched.aborted)
    ]


async def test_a_range_is_read_in_order_and_no_further():
    async with Log([batch(0, 5), batch(5, 5), batch(10, 5), batch(15, 5)]) as broker, reading(broker, 7, 12) as reader:
        found = await read_all(reader)
        assert [(fetched.position, fetched.next_offset) for fetched in found] == [(7, 10), (10, 15)]
        assert base_offsets(found) == [5, 10]
        assert await reader.next() is None
        assert len(broker.received(FetchRequest)) == 2


async def test_batches_behind_the_range_are_cut_off():
    async with Broker({0: [batch(0, 3), batch(3, 3), batch(6, 3)]}) as broker, reading(broker, 0, 5) as reader:
        (fetched,) = await read_all(reader)
        assert base_offsets([fetched]) == [0, 3]
        assert len(fetched.records) < len(b"".join(content for _, _, content in broker.batches[0]))


async def test_the_time_that_the_caller_takes_is_not_the_brokers():
    options = PATIENT._replace(retry_timeout_ms=1000)
    async with Log([batch(0, 5), batch(5, 5)]) as broker, reading(broker, 0, 10, options) as reader:
        await reader.next()
        broker.plan = [HANG_UP]
        # What is under way is lost meanwhile.
        time.sleep(1)  # noqa: ASYNC251 (the loop rests as well, as it does between two calls of a task)
        assert base_offsets(await read_all(reader)) == [5]


def test_the_next_fetch_is_sent_before_the_callers_loop_rests():
    broker = Log([batch(0, 5), batch(5, 5)])
    with serving_in_a_thread(broker), asyncio.Runner() as runner:
        cluster = broker.cluster()
        reader = RangeReader(cluster, T0, 0, 10, PATIENT)

        async def close() -> None:
            await reader.close()
            cluster.close()

        runner.run(reader.next())
        deadline = time.monotonic() + 10
        while len(broker.received(FetchRequest)) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert [request.topics[0].partitions[0].fetch_offset for request in broker.received(FetchRequest)] == [0, 5]
        runner.run(close())


@contextmanager
def serving_in_a_thread(broker: Broker) -> Iterator[None]:
    with asyncio.Runner() as runner, ThreadPoolExecutor(1) as thread:
        stop = asyncio.Event()
        is_ready = threading.Event()

        async def serve() -> None:
            async with broker:
                is_ready.set()
                await stop.wait()

        served = thread.submit(runner.run, serve())
        assert is_ready.wait(10)
        yield
        runner.get_loop().call_soon_threadsafe(stop.set)
        served.result(10)


async def test_an_empty_range_asks_nobody():
    async with Log([batch(0, 5)]) as broker, reading(broker, 3, 3) as reader:
        assert await reader.next() is None
        assert not broker.requests


@pytest.mark.parametrize("trouble", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_OUT_OF_RANGE, HANG_UP])
async def test_what_may_pass_is_tried_again(trouble: ErrorCode | str):
    async with Log([batch(0, 5), batch(5, 5)]) as broker, reading(broker, 0, 10) as reader:
        broker.plan = [ErrorCode.NONE, trouble, trouble]
        assert base_offsets(await read_all(reader)) == [0, 5]
        assert len(broker.received(MetadataRequest)) == 3


async def test_it_gives_up_in_the_end():
    async with Log([batch(0, 5)]) as broker, reading(broker, 0, 5, HASTY) as reader:
        broker.plan = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000
        with pytest.raises(KafkaError, match="given up after 200 ms") as raised:
            await reader.next()
        assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_what_does_not_pass_is_told_at_once():
    async with Log([batch(0, 5)]) as broker, reading(broker, 0, 5) as reader:
        broker.plan = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        with pytest.raises(KafkaError, match="t-0 cannot be read at offset 0"):
            await reader.next()


async def test_an_answer_without_the_partition_is_not_the_end():
    async with Log([batch(0, 5)]) as broker, reading(broker, 0, 5) as reader:
        serve = broker.scripts[FetchRequest]
        answers = iter([FetchResponse(throttle_time_ms=5)])
        broker.scripts[FetchRequest] = lambda request: next(answers, None) or serve(request)
        assert base_offsets(await read_all(reader)) == [0]


async def test_offsets_that_retention_took_before_the_start_are_named():
    async with Log([batch(10, 5), batch(15, 5)]) as broker, reading(broker, 3, 20) as reader:
        with pytest.raises(OffsetsLostError, match="offsets 3 to 9 of t-0 are lost: its log has 10 to 19") as raised:
            await reader.next()
        lost = raised.value
        assert (lost.partition, lost.start, lost.end, lost.log_start_offset, lost.log_end_offset) == (T0, 3, 10, 10, 20)
        async with reading(broker, lost.end, 20) as rest:
            assert base_offsets(await read_all(rest)) == [10, 15]


async def test_a_range_that_is_lost_as_a_whole_ends_at_its_end():
    async with Log([batch(10, 5)]) as broker, reading(broker, 3, 8) as reader:
        with pytest.raises(OffsetsLostError) as raised:
            await reader.next()
        assert (raised.value.start, raised.value.end) == (3, 8)


async def test_retention_in_the_middle_of_a_range():
    async with Log([batch(0, 5), batch(5, 5), batch(10, 5)]) as broker, reading(broker, 0, 15) as reader:
        broker.plan = [ErrorCode.NONE, HANG_UP]
        assert base_offsets([fetched for fetched in [await reader.next()] if fetched]) == [0]
        del broker.batches[0][:2]
        with pytest.raises(OffsetsLostError, match="offsets 5 to 9 of t-0 are lost"):
            await reader.next()


async def test_a_log_that_ends_before_the_position_was_truncated():
    async with Log([batch(0, 5)]) as broker, reading(broker, 7, 9) as reader:
        with pytest.raises(OffsetsLostError, match=r"offsets 7 to 8 of t-0 are lost.*truncated"):
            await reader.next()


async def test_the_end_of_the_range_is_waited_for():
    async with Log([batch(0, 5)]) as broker, reading(broker, 0, 8) as reader:
        await reader.next()
        waiting = asyncio.create_task(reader.next())
        await asyncio.sleep(0.1)
        broker.batches[0].append(batch(5, 5))
        fetched = await asyncio.wait_for(waiting, 10)
        assert fetched is not None
        assert base_offsets([fetched]) == [5]


async def test_an_end_that_never_comes_is_an_error():
    async with Log([batch(0, 5)]) as broker, reading(broker, 0, 8, HASTY) as reader:
        await reader.next()
        with pytest.raises(KafkaError, match="offset 5 of t-0 cannot be read yet: the high watermark is 5") as raised:
            await reader.next()
        assert raised.value.code is ErrorCode.OFFSET_NOT_AVAILABLE


async def test_an_open_transaction_is_waited_for():
    async with Log([batch(0, 5), batch(5, 5)]) as broker:
        broker.last_stable_offset = 5
        async with reading(broker, 0, 10, PATIENT._replace(isolation=Isolation.READ_COMMITTED)) as reader:
            await reader.next()
            waiting = asyncio.create_task(reader.next())
            await asyncio.sleep(0.1)
            assert not waiting.done()
            broker.last_stable_offset = 10
            fetched = await asyncio.wait_for(waiting, 10)
            assert fetched is not None
            assert base_offsets([fetched]) == [5]


async def test_a_transaction_that_stays_open_is_an_error():
    async with Log([batch(0, 5), batch(5, 5)]) as broker:
        broker.last_stable_offset = 5
        async with reading(broker, 5, 10, HASTY._replace(isolation=Isolation.READ_COMMITTED)) as reader:
            with pytest.raises(KafkaError, match=r"a transaction is open since offset 5; .*find-hanging"):
                await reader.next()


async def test_a_tail_that_compaction_took_ends_the_range():
    async with Log([batch(0, 5)], high_watermark=12) as broker, reading(broker, 0, 10) as reader:
        found = await read_all(reader)
        assert [(fetched.position, fetched.next_offset) for fetched in found] == [(0, 5), (5, 10)]
        assert base_offsets(found) == [0]
        # It was asked twice before it was believed.
        positions = [request.topics[0].partitions[0].fetch_offset for request in broker.received(FetchRequest)]
        assert positions == [0, 5, 5]


async def test_a_batch_that_does_not_fit_is_an_error_and_no_endless_loop():
    async with Log([batch(0, 5)]) as broker, reading(broker, 0, 5) as reader:
        broker.cut_bytes = 70
        with pytest.raises(KafkaError, match=r"raise max\.partition\.fetch\.bytes") as raised:
            await reader.next()
        assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


class ById(Log):
    """Knows topic `t` by its id, which may be another one from a certain request on."""

    def __init__(self, *ids: bytes) -> None:
        super().__init__([batch(0, 5), batch(5, 5)])
        self.ids = list(ids)

    def _metadata(self, request: Message) -> Message:
        answer = super()._metadata(request)
        assert isinstance(answer, MetadataResponse)
        for topic in answer.topics:
            topic.topic_id = self.ids[0]
        return answer

    def _fetch(self, request: FetchRequest) -> FetchResponse | str:
        if len(self.ids) > 1 and request.topics[0].partitions[0].fetch_offset:
            self.ids.pop(0)
        assert not request.topics[0].topic
        answer = super()._fetch(request)
        assert isinstance(answer, FetchResponse)
        answer.responses[0].topic_id = request.topics[0].topic_id
        if request.topics[0].topic_id != self.ids[0]:
            answer.responses[0].partitions[0].error_code = ErrorCode.UNKNOWN_TOPIC_ID
            answer.responses[0].partitions[0].records = b""
        return answer


OTHER_ID = bytes(15) + b"o"


async def test_a_topic_is_asked_for_by_its_id():
    async with ById(TOPIC_ID) as broker, reading_topic(broker, TOPIC_ID) as reader:
        assert base_offsets(await read_all(reader)) == [0, 5]
        assert (FetchRequest, 13) in broker.versions


async def test_another_topic_of_the_same_name_is_not_read():
    async with ById(OTHER_ID) as broker, reading_topic(broker, TOPIC_ID) as reader:
        with pytest.raises(OffsetsLostError, match=r"offsets 0 to 9 of t-0 are lost: the topic was .* created anew"):
            await read_all(reader)
        assert not broker.received(FetchRequest)


async def test_a_topic_that_is_replaced_amid_the_range():
    async with ById(TOPIC_ID, OTHER_ID) as broker, reading_topic(broker, TOPIC_ID) as reader:
        assert await reader.next() is not None
        with pytest.raises(OffsetsLostError, match="offsets 5 to 9 of t-0 are lost: the topic was deleted and created"):
            await reader.next()
