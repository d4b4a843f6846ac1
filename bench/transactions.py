"""Transactions: what they cost beside an idempotent producer, how long a commit takes, how many ids a broker bears."""

import asyncio
import statistics
import time
from operator import truediv
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench import librdkafka
from bench.machine import warm_memory
from bench.measures import KILOBYTE, MEGABYTE, Figure, Plan
from bench.subject import Subject, running
from tailrace.testing import Broker
from tailrace.wire.apis.data import ProduceRequest
from tailrace.wire.apis.groups import FindCoordinatorRequest
from tailrace.wire.apis.transactions import EndTxnRequest, InitProducerIdRequest, ListTransactionsRequest
from tailrace.wire.frame import decode_response, encode_request
from tailrace.wire.records import build_batch
from tailrace.wire.schema import Message

_DEADLINE_S = 120.0
_INTERVALS_MS = (100, 10, 1)
# What may be lost at an interval of 100 ms.
_GOAL = 0.9
_COMMITS = 500
_IDS = 10_000
_CONNECTIONS = 50
_IDS_TOPIC_PARTITIONS = 10
_TRANSACTION_KEY = 1
_NOT_READY = (14, 15, 16)  # A coordinator's errors.


def transactions(plan: Plan) -> list[Figure]:
    with running() as subject:
        return [*_throughput(subject, plan), *_latency(subject), *asyncio.run(_many_ids())]


def _throughput(subject: Subject, plan: Plan) -> list[Figure]:
    """Rounds take turns, so that what disturbs the machine disturbs all of them: what counts is the median of the
    ratios within a round."""
    rates: dict[float, list[float]] = {interval_ms: [] for interval_ms in (0, *_INTERVALS_MS)}
    for round_number in range(plan.rounds):
        for interval_ms, measured in rates.items():
            topic = subject.create_topic(f"every-{interval_ms}-{round_number}", warm=True)
            warm_memory()
            rate = librdkafka.committed_per_second(
                topic,
                KILOBYTE,
                plan.seconds,
                interval_ms=interval_ms,
                bootstrap_servers=subject.bootstrap,
                acks="all",
            )
            measured.append(rate * KILOBYTE / MEGABYTE)
            subject.delete_topic(topic)
    plain = statistics.median(rates[0])
    return [
        Figure(
            f"1 KB messages, a commit every {interval_ms} ms",
            plain * statistics.median(map(truediv, rates[interval_ms], rates[0])),
            "MB/s",
            _GOAL * plain if interval_ms == _INTERVALS_MS[0] else None,
            plain,
            "idempotent",
        )
        for interval_ms in _INTERVALS_MS
    ]


def _latency(subject: Subject) -> list[Figure]:
    """The latency of librdkafka's commit_transaction, once the records are acknowledged."""
    topic = subject.create_topic("commits", warm=True)
    producer = Producer({"bootstrap.servers": subject.bootstrap, "transactional.id": "commits", "log_level": 2})
    producer.init_transactions(_DEADLINE_S)
    took_ms: list[float] = []
    for _ in range(_COMMITS):
        producer.begin_transaction()
        producer.produce(topic, bytes(100))
        producer.flush(_DEADLINE_S)
        start = time.perf_counter()
        producer.commit_transaction(_DEADLINE_S)
        took_ms.append((time.perf_counter() - start) * 1000)
    took_ms.sort()
    return [
        Figure(f"commit, p{rank}", took_ms[_COMMITS * rank // 100], "ms", None, None, "", lower_is_better=True)
        for rank in (50, 99)
    ]


async def _many_ids() -> list[Figure]:
    """Each id has its producer id given, and then a transaction of one record. Then the broker is killed."""
    with Broker(log_level="warning") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        (created,) = admin.create_topics([NewTopic("ids", _IDS_TOPIC_PARTITIONS, 1)]).values()
        created.result(_DEADLINE_S)
        clients = [await _Client.open(broker.port) for _ in range(_CONNECTIONS)]
        await clients[0].repeat(FindCoordinatorRequest(key_type=_TRANSACTION_KEY, coordinator_keys=["id-0"]), 6)
        ids = [f"id-{number}" for number in range(_IDS)]
        init_s = await _in_turn(clients, ids, _Client.init)
        end_s = await _in_turn(clients, ids, _Client.write)
        await asyncio.sleep(0.5)
        for client in clients:
            client.close()
        resident_bytes = Subject(broker.bootstrap, broker.process_id, 0).resident_bytes()
        broker.kill()
        broker.start()
        started = time.perf_counter()
        client = await _Client.open(broker.port)
        listed = await client.repeat(ListTransactionsRequest(state_filters=["CompleteCommit"]), 1)
        client.close()
        back_s = time.perf_counter() - started
        assert len(listed.transaction_states) == _IDS, f"{len(listed.transaction_states)} of {_IDS} ids are back"
    label = f"{_IDS:,} transactional ids"
    return [
        Figure(f"{label}: given their producer ids", _IDS / init_s, "/s", None, None, ""),
        Figure(f"{label}: a transaction each", _IDS / end_s, "/s", None, None, ""),
        Figure(f"{label}: back after a kill", back_s, "s", None, None, "", lower_is_better=True),
        Figure(f"{label}: memory", resident_bytes / MEGABYTE, "MB", None, None, "", lower_is_better=True),
    ]


async def _in_turn(clients: list["_Client"], ids: list[str], work: Any) -> float:
    async def of_one(index: int) -> None:
        for name in ids[index::_CONNECTIONS]:
            await work(clients[index], name)

    started = time.perf_counter()
    async with asyncio.timeout(_DEADLINE_S):
        await asyncio.gather(*(of_one(index) for index in range(_CONNECTIONS)))
    return time.perf_counter() - started


class _Client:
    """One connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._producers: dict[str, tuple[int, int]] = {}

    @classmethod
    async def open(cls, port: int) -> "_Client":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def close(self) -> None:
        self._writer.close()

    async def ask(self, request: Message, version: int) -> Any:
        for part in encode_request(request.api_key, version, 1, "bench", request):
            self._writer.write(part)
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return decode_response(request.api_key, version, await self._reader.readexactly(size))[1]

    async def repeat(self, request: Message, version: int) -> Any:
        """Until the coordinator is ready."""
        deadline = time.monotonic() + _DEADLINE_S
        while True:
            answer = await self.ask(request, version)
            inner = getattr(answer, "coordinators", None) or [answer]
            if inner[0].error_code not in _NOT_READY or time.monotonic() > deadline:
                return answer
            await asyncio.sleep(0.02)

    async def init(self, transactional_id: str) -> None:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        answer = await self.repeat(request, 5)
        assert answer.error_code == 0, answer
        self._producers[transactional_id] = answer.producer_id, answer.producer_epoch

    async def write(self, transactional_id: str) -> None:
        producer_id, epoch = self._producers[transactional_id]
        records = build_batch(
            [(0, int(time.time() * 1000), None, bytes(100), ())],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )
        data = ProduceRequest.PartitionProduceData(index=producer_id % _IDS_TOPIC_PARTITIONS, records=records)
        produce = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[ProduceRequest.TopicProduceData(name="ids", partition_data=[data])],
        )
        answer = await self.ask(produce, 12)
        assert answer.responses[0].partition_responses[0].error_code == 0, answer
        end = EndTxnRequest(
            transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=True
        )
        ended = await self.ask(end, 5)
        assert ended.error_code == 0, ended
