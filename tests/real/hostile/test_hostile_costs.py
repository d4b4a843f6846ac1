"""Small requests that ask for much: memory stays bounded and the others are served."""

import os
import resource
import socket
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tailrace.model.config import SETTINGS
from tailrace.model.errors import ErrorCode
from tailrace.testing import Broker
from tailrace.wire.apis.admin import CreateTopicsRequest
from tailrace.wire.apis.data import MetadataRequest, MetadataResponse
from tailrace.wire.compression import compress
from tailrace.wire.frame import decode_response, encode_request
from tailrace.wire.records import Compression
from tailrace.wire.schema import Message
from tests.real.raw import API_VERSIONS, RawClient, batch, frame, string

MIB = 1 << 20
MESSAGE_TOO_LARGE = 10
OPEN_FILES = 250
CROWD = 300

pytestmark = pytest.mark.usefixtures("healthy")


def test_a_hundred_thousand_names(broker: Broker, memory_bytes: Callable[[], int]):
    """The most that one request may list (max.request.items); one more is not even decoded."""
    names = [MetadataRequest.MetadataRequestTopic(name=f"name-{number}") for number in range(100_000)]
    before = memory_bytes()
    with RawClient(broker.bootstrap) as client:
        response = _ask(client, MetadataRequest(topics=names, allow_auto_topic_creation=False), 9)
        assert isinstance(response, MetadataResponse)
        assert len(response.topics) == len(names)
        names.append(MetadataRequest.MetadataRequestTopic(name="one-more"))
        client.send(_frame(MetadataRequest(topics=names), 9))
        assert client.is_closed_by_broker()
    assert memory_bytes() - before < 128 * MIB


def test_millions_of_partitions_that_take_six_bytes_each(broker: Broker, memory_bytes: Callable[[], int]):
    count = 4_000_000
    head = struct.pack(">hhi", 0, 9, 1) + string("raw") + b"\0" + b"\0" + struct.pack(">hi", 1, 1000)
    body = b"\x02\x02t" + _varint(count + 1) + (struct.pack(">i", 5) + b"\0\0") * count + b"\0\0"
    before = memory_bytes()
    with RawClient(broker.bootstrap) as client:
        client.send(frame(head + body))
        assert client.is_closed_by_broker()
    assert memory_bytes() - before < 96 * MIB


def test_millions_of_tagged_fields(broker: Broker):
    """In the header and in the body: each takes two bytes."""
    tags = _varint(5_000_000) + b"\x63\0" * 5_000_000
    head = struct.pack(">hhi", API_VERSIONS, 3, 1) + string("raw")
    for bad in (head + tags + b"\x02a\x02b\0", head + b"\0\x02a\x02b" + tags):
        with RawClient(broker.bootstrap) as client:
            client.send(frame(bad))
            assert client.is_closed_by_broker()


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD, Compression.LZ4], ids=lambda codec: codec.name)
@pytest.mark.parametrize(
    "setting", [{"cleanup.policy": "compact"}, {"record.validation.deep": "true"}, {"compression.type": "snappy"}]
)
def test_decompression_bombs(
    broker: Broker, memory_bytes: Callable[[], int], codec: Compression, setting: dict[str, str]
):
    ((name, value),) = setting.items()
    topic = f"{codec.name}-{name}"
    config = CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
    wanted = CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=1, replication_factor=1, configs=[config])
    bomb = batch(payload=compress(codec, bytes(200 * MIB)), count=1, attributes=int(codec))
    before = memory_bytes()
    with RawClient(broker.bootstrap) as client:
        _ask(client, CreateTopicsRequest(topics=[wanted], timeout_ms=1000), 7)
        assert client.produce(topic, bomb).error == MESSAGE_TOO_LARGE
        assert client.fetch(topic) == (0, b"")
    # The helper thread that has unpacked it may not have let go of it yet.
    deadline = time.monotonic() + 20
    while memory_bytes() - before >= 64 * MIB:
        assert time.monotonic() < deadline, "what was unpacked is gone, but for what the allocator keeps"
        time.sleep(0.1)


def test_readers_of_large_answers_that_do_not_read(broker: Broker, memory_bytes: Callable[[], int]):
    """Each asks for hundreds of megabytes of metadata with a few bytes a request."""
    names = [MetadataRequest.MetadataRequestTopic(name="x" * 200 + f"-{number}") for number in range(150)]
    ask = _frame(MetadataRequest(topics=None), 9)
    with ExitStack() as crowd:
        client = crowd.enter_context(RawClient(broker.bootstrap))
        _ask(client, MetadataRequest(topics=names, allow_auto_topic_creation=True), 9)
        before = memory_bytes()
        for _ in range(10):
            crowd.enter_context(RawClient(broker.bootstrap)).send(ask * 1000)
        for _ in range(50):
            assert client.is_served()
        assert memory_bytes() - before < 10 * 3 * MIB


def test_a_storm_of_new_topics(broker: Broker):
    """So many are made at a time and no more; the others are made when they are asked for again."""
    names = [MetadataRequest.MetadataRequestTopic(name=f"new-{number}") for number in range(500)]
    with RawClient(broker.bootstrap) as client:
        for _ in range(100):
            response = _ask(client, MetadataRequest(topics=names, allow_auto_topic_creation=True), 9)
            if not any(topic.error_code for topic in response.topics):
                break
        assert [topic.error_code for topic in response.topics] == [0] * len(names)
        assert client.produce("new-499", batch(b"value")).error == 0
        names = [MetadataRequest.MetadataRequestTopic(name=f"many-{number}") for number in range(10_001)]
        response = _ask(client, MetadataRequest(topics=names, allow_auto_topic_creation=True), 9)
        errors = [topic.error_code for topic in response.topics]
        assert set(errors) <= {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert errors.count(0) <= SETTINGS["auto.create.topics.max.pending"].default
        assert client.is_served()


def test_a_crowd_leaves_files_for_the_logs():
    """A quarter of the file handles are not for connections: who is connected can still make topics and write."""
    with Broker() as broker, ExitStack() as crowd:
        host, _, port = broker.bootstrap.rpartition(":")
        client = crowd.enter_context(RawClient(broker.bootstrap))
        assert client.is_served()
        resource.prlimit(broker.process_id, resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
        for _ in range(CROWD):
            crowd.enter_context(socket.create_connection((host, int(port)), timeout=10))
        for number in range(10):
            assert client.create_topic(f"topic-{number}") == 0
            assert client.produce(f"topic-{number}", batch(b"value")).error == 0
        assert len(os.listdir(f"/proc/{broker.process_id}/fd")) < OPEN_FILES
        assert "cannot accept connections" in broker.log()


def _frame(message: Message, version: int) -> bytes:
    return b"".join(map(bytes, encode_request(message.api_key, version, 1, "hostile", message)))


def _ask(client: RawClient, message: Message, version: int) -> Message:
    client.send(_frame(message, version))
    return decode_response(message.api_key, version, client.receive())[1]


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])
