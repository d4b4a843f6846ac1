"""Streams of requests cut, joined and broken off anywhere: answers keep their order, records their bytes, and a client
that leaves takes nothing with it."""

import os
import random
import socket
import struct
import threading
import time

import pytest

from tailrace.testing import Broker
from tailrace.wire.apis.admin import CreateTopicsRequest
from tailrace.wire.apis.data import FetchRequest, ListOffsetsRequest, MetadataRequest, ProduceRequest
from tailrace.wire.frame import decode_response, encode_request
from tailrace.wire.schema import Message
from tests.real.raw import API_VERSIONS, PRODUCE, RawClient, Reader, batch, produce_body, request

START_BYTES = 64 * 1024
MIB = 1 << 20


@pytest.fixture(scope="module")
def topics(broker: Broker) -> None:
    """`synced` acknowledges after a sync, so that its answers are pending for a while."""
    with RawClient(broker.bootstrap) as client:
        for name, settings in (("plain", {}), ("synced", {"flush.messages": "1"})):
            config = [CreateTopicsRequest.CreatableTopicConfig(name=key, value=settings[key]) for key in settings]
            topic = CreateTopicsRequest.CreatableTopic(
                name=name, num_partitions=1, replication_factor=1, configs=config
            )
            client.send(_frame(CreateTopicsRequest(topics=[topic]), 7, 1))
            client.receive()


pytestmark = pytest.mark.usefixtures("healthy", "topics")


# ---- order


@pytest.mark.parametrize("seed", range(3))
def test_answers_keep_the_order_of_mixed_requests(broker: Broker, seed: int):
    pick = random.Random(seed)
    requests = [_some_request(pick, number) for number in range(300)]
    stream = b"".join(_frame(message, version, number) for number, (message, version) in enumerate(requests))
    expected = [
        (number, message, version)
        for number, (message, version) in enumerate(requests)
        if not (isinstance(message, ProduceRequest) and message.acks == 0)
    ]
    offsets: dict[str, int] = {}
    with RawClient(broker.bootstrap) as client:
        sender = threading.Thread(target=_send_in_pieces, args=(client, stream, pick))
        sender.start()
        for number, message, version in expected:
            correlation_id, response = decode_response(message.api_key, version, client.receive())
            assert correlation_id == number
            if isinstance(message, ProduceRequest):
                name = message.topic_data[0].name
                answer = response.responses[0].partition_responses[0]
                assert answer.error_code == 0
                assert answer.base_offset > offsets.get(name, -1)
                offsets[name] = answer.base_offset
        sender.join()


def test_an_error_without_an_answer_waits_for_the_answers_before_it(broker: Broker):
    with RawClient(broker.bootstrap) as client:
        good = request(PRODUCE, 8, produce_body("synced", batch(b"value")), 5)
        bad = request(PRODUCE, 8, produce_body("nowhere", batch(b"value"), acks=0), 6)
        client.send(good * 20 + bad + request(API_VERSIONS, 0, b"", 7))
        for _ in range(20):
            assert Reader(client.receive()).number("i") == 5
        assert client.is_closed_by_broker()


# ---- sizes


@pytest.mark.parametrize("size", [START_BYTES, 2 * START_BYTES, 8 * START_BYTES, 900_000])
@pytest.mark.parametrize("extra", [-1, 0, 1, 4])
def test_requests_at_the_edges_of_buffers(broker: Broker, size: int, extra: int):
    """Alone, after a small one, and several at once, so that a frame ends at, before and behind the end of a buffer."""
    frame = _frame_of_size(size + extra)
    small = request(API_VERSIONS, 0, b"")
    with RawClient(broker.bootstrap) as client:
        for stream, answers in ((frame, 1), (small + frame, 2), (frame + small + frame, 3)):
            client.send(stream)
            for _ in range(answers):
                client.receive()
        _, stored = client.fetch("plain", client.produce("plain", batch(b"last")).base_offset - 1)
    records = frame[-len(stored) + len(batch(b"last")) :]
    assert stored[16 : len(records)] == records[16:], "behind offset, length and epoch all is as it was sent"


def test_a_frame_may_be_cut_anywhere(broker: Broker):
    frame = request(API_VERSIONS, 0, b"", 1)
    stream = frame * 3
    with RawClient(broker.bootstrap) as client:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for cut in range(1, len(stream)):
            client.send(stream[:cut])
            time.sleep(0.0005)
            client.send(stream[cut:])
            for _ in range(3):
                assert Reader(client.receive()).number("i") == 1


def test_the_largest_request_and_one_byte_more(broker: Broker):
    """100 MiB, socket.request.max.bytes: refused by the topic, not by the connection."""
    largest = 100 * MIB
    with RawClient(broker.bootstrap) as client:
        client.send(_frame_of_size(largest + 4))
        answer = Reader(client.receive())
        assert answer.number("i") == 1
        assert client.is_served()
        client.send(struct.pack(">i", largest + 1))
        assert client.is_closed_by_broker()


# ---- ends


def test_clients_that_leave_in_the_middle_of_everything(broker: Broker):
    pick = random.Random(7)
    stream = b"".join(_frame(*_some_request(pick, number), number) for number in range(40))
    for _ in range(150):
        with RawClient(broker.bootstrap) as client:
            client.send(stream[: pick.randrange(1, len(stream))])
            if pick.random() < 0.5:  # The connection is reset, not ended.
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if pick.random() < 0.3:
                time.sleep(0.002)
    with RawClient(broker.bootstrap) as client:
        for topic in ("plain", "synced"):
            offset = client.produce(topic, batch(b"after")).base_offset
            assert client.fetch(topic, offset)[0] == 0


def test_a_clean_stop_loses_nothing_that_was_acknowledged():
    with Broker() as broker:
        with RawClient(broker.bootstrap) as client:
            client.create_topic("t")
            frame = request(PRODUCE, 8, produce_body("t", batch(b"value")))
            acked = 0
            stopping = threading.Thread(target=broker.stop)
            for number in range(200_000):
                try:
                    client.send(frame)
                    client.receive()
                except (AssertionError, ConnectionError):
                    break
                acked += 1
                if number == 200:
                    stopping.start()
            stopping.join()
        broker.start()
        assert acked > 200
        with RawClient(broker.bootstrap) as client:
            assert client.produce("t", batch(b"value")).base_offset >= acked


def _some_request(pick: random.Random, number: int) -> tuple[Message, int]:
    match pick.randrange(8):
        case 0 | 1 | 2:
            data = ProduceRequest.PartitionProduceData(index=0, records=batch(b"x" * pick.randrange(2000)))
            topic = ProduceRequest.TopicProduceData(name=pick.choice(["plain", "synced"]), partition_data=[data])
            acks = pick.choice([-1, -1, 1, 0])
            return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[topic]), pick.choice([7, 8, 9, 11])
        case 3 | 4:
            at_the_end = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
            topics = [FetchRequest.FetchTopic(topic=pick.choice(["plain", "synced"]), partitions=[at_the_end])]
            is_parked = pick.random() < 0.3
            return FetchRequest(max_wait_ms=5, min_bytes=1 << 20 if is_parked else 1, topics=topics), 11
        case 5:
            asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=pick.choice([-1, -2, 5]))
            topics = [ListOffsetsRequest.ListOffsetsTopic(name="plain", partitions=[asked])]
            return ListOffsetsRequest(replica_id=-1, topics=topics), 6
        case 6:
            return MetadataRequest(topics=None), pick.choice([1, 9, 12])
    topic = CreateTopicsRequest.CreatableTopic(name=f"new-{number % 3}", num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7


def _frame(message: Message, version: int, number: int) -> bytes:
    return b"".join(map(bytes, encode_request(message.api_key, version, number, "hostile", message)))


def _frame_of_size(size: int) -> bytes:
    """A Produce of one record to `plain`, its frame with the four bytes of its size so long."""
    value = os.urandom(size)
    excess = 0
    while True:
        frame = request(PRODUCE, 8, produce_body("plain", batch(value[: size - excess])))
        if len(frame) == size:
            return frame
        excess += len(frame) - size


def _send_in_pieces(client: RawClient, stream: bytes, pick: random.Random) -> None:
    position = 0
    while position < len(stream):
        size = pick.choice([1, 3, 50, 1000, 65_536, 100_000])
        client.send(stream[position : position + size])
        position += size
