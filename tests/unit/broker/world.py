"""A whole broker on a simulated disk, behind real sockets on loopback, and a peer that can say anything to it.

The sockets are real on purpose: these tests see what a client sees of frames, windows that fill and ends of streams
through the kernel and `real.network`. Clusters, and whatever takes time, are in the simulator (`cluster_world`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from struct import Struct
from typing import Any

from tailrace.broker.broker import Broker
from tailrace.model.config import parse_broker_config
from tailrace.model.ports import Clock, Ports
from tailrace.real.clock import RealClock
from tailrace.real.network import RealNetwork
from tailrace.sim.background import SimBackground
from tailrace.sim.disk import SimDisk
from tailrace.sim.random import SimRandom
from tailrace.wire.apis.admin import CreateTopicsRequest, DeleteTopicsRequest
from tailrace.wire.apis.data import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from tailrace.wire.frame import decode_response, encode_request
from tailrace.wire.records import build_batch
from tailrace.wire.schema import Message

_SIZE = Struct(">i")
# After which something hangs. No test is about it, and a machine may have little to spare for one.
PATIENCE_SECONDS = 60.0


class World:
    """Everything that outlives a broker: disk and clock. `start` it as often as you like."""

    def __init__(self, *, background: Any = None, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or RealClock()
        self.disk = SimDisk(self.clock)
        self.random = SimRandom(7)
        self.ports = Ports(
            clock=self.clock,
            random=self.random,
            disk=self.disk,
            network=RealNetwork(),
            background=background or SimBackground(),
        )
        self.broker: Broker
        self.peers: list[Peer] = []

    async def start(self, settings: dict[str, str] | None = None) -> Broker:
        values = {"node.id": "1", "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": "data"}
        # On a busy machine a creation takes longer than a moment, and these tests ask once.
        values |= {"request.controller.wait.ms": "60000"} | (settings or {})
        self.broker = Broker(parse_broker_config(values), self.ports)
        await self.broker.start()
        return self.broker

    async def connect(self) -> Peer:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.broker.port)
        self.peers.append(Peer(reader, writer))
        return self.peers[-1]


@asynccontextmanager
async def running(settings: dict[str, str] | None = None, **world: Any) -> AsyncIterator[World]:
    everything = World(**world)
    await everything.start(settings)
    try:
        yield everything
    finally:
        for peer in everything.peers:
            await peer.close()
        await everything.broker.stop()


class Peer:
    """One connection. Requests are numbered; answers are checked to come in that order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.client_id = "peer"
        self._next_id = 0
        self._sent: list[tuple[int, int, int]] = []

    def send(self, request: Message, version: int, *, expects_answer: bool = True) -> None:
        self.writer.write(self.frame(request, version, expects_answer=expects_answer))

    def frame(self, request: Message, version: int, *, expects_answer: bool = True) -> bytes:
        self._next_id += 1
        if expects_answer:
            self._sent.append((request.api_key, version, self._next_id))
        parts = encode_request(request.api_key, version, self._next_id, self.client_id, request)
        return b"".join(bytes(part) for part in parts)

    async def receive(self, *, patience_seconds: float = PATIENCE_SECONDS) -> Any:
        api_key, version, number = self._sent.pop(0)
        body = await self.receive_frame(patience_seconds)
        correlation_id, response = decode_response(api_key, version, body)
        assert correlation_id == number, "answers come in the order of their requests"
        return response

    async def receive_frame(self, patience_seconds: float = PATIENCE_SECONDS) -> bytes:
        async with asyncio.timeout(patience_seconds):
            (size,) = _SIZE.unpack(await self.reader.readexactly(4))
            return await self.reader.readexactly(size)

    async def request(self, request: Message, version: int, *, patience_seconds: float = PATIENCE_SECONDS) -> Any:
        self.send(request, version)
        return await self.receive(patience_seconds=patience_seconds)

    async def is_closed(self) -> bool:
        """Waits for the other side to close; False if it does not."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await self.reader.read() == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass


async def create_topic(peer: Peer, name: str, partitions: int = 1, **configs: str) -> bytes:
    """Settings with '_' for '.'. Gives the topic id."""
    response = await peer.request(
        CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    configs=[
                        CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                        for key, value in configs.items()
                    ],
                )
            ],
            timeout_ms=60_000,
        ),
        7,
    )
    assert response.topics[0].error_code == 0, response.topics[0].error_message
    return response.topics[0].topic_id


async def delete_topic(peer: Peer, name: str) -> None:
    response = await peer.request(DeleteTopicsRequest(topic_names=[name], timeout_ms=60_000), 5)
    assert response.responses[0].error_code == 0


def batch(*values: bytes, now_ms: int = 1_767_225_600_000, **options: Any) -> bytes:
    return build_batch([(index, now_ms, None, value, ()) for index, value in enumerate(values)], **options)


def produce(topic: str, records: bytes | None, *, partition: int = 0, acks: int = 1, **fields: Any) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=partition, records=records)
    topic_data = ProduceRequest.TopicProduceData(
        name=topic, topic_id=fields.pop("topic_id", bytes(16)), partition_data=[data]
    )
    return ProduceRequest(acks=acks, timeout_ms=fields.pop("timeout_ms", 5000), topic_data=[topic_data], **fields)


def produced(response: ProduceResponse) -> ProduceResponse.PartitionProduceResponse:
    return response.responses[0].partition_responses[0]


def fetch(topic: str, offset: int, *, partition: int = 0, **fields: Any) -> FetchRequest:
    asked = FetchRequest.FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=fields.pop("partition_max_bytes", 1 << 20),
        current_leader_epoch=fields.pop("current_leader_epoch", -1),
        last_fetched_epoch=fields.pop("last_fetched_epoch", -1),
    )
    topics = [FetchRequest.FetchTopic(topic=topic, topic_id=fields.pop("topic_id", bytes(16)), partitions=[asked])]
    fields.setdefault("max_wait_ms", 0)
    fields.setdefault("min_bytes", 1)
    return FetchRequest(topics=topics, **fields)


def fetched(response: FetchResponse) -> FetchResponse.PartitionData:
    return response.responses[0].partitions[0]
