"""Record batches that lie or are not allowed: the right error, a message with the remedy, and an untouched log."""

import struct
from collections.abc import Callable

import cramjam
import pytest

from tailrace.model.errors import ErrorCode
from tailrace.testing import Broker

from .raw import PRODUCE, RawClient, batch, produce_body, record, request

pytestmark = pytest.mark.usefixtures("bystander")

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CONTROL, TRANSACTIONAL = 0x20, 0x10

TWO = (b"one", b"two")

REFUSED = {
    "CRC mismatch": (batch(*TWO, crc=1), ErrorCode.CORRUPT_MESSAGE),
    "CRC of an empty batch": (batch(crc=0, payload=b"", count=1), ErrorCode.CORRUPT_MESSAGE),
    "magic 1": (batch(*TWO, magic=1), ErrorCode.INVALID_RECORD),
    "magic 0": (batch(*TWO, magic=0), ErrorCode.INVALID_RECORD),
    "magic 3": (batch(*TWO, magic=3), ErrorCode.CORRUPT_MESSAGE),
    "length too small": (batch(*TWO, length=10), ErrorCode.CORRUPT_MESSAGE),
    "length negative": (batch(*TWO, length=-1), ErrorCode.CORRUPT_MESSAGE),
    "length too large": (batch(*TWO, length=5000), ErrorCode.CORRUPT_MESSAGE),
    "length of 2 GB": (batch(*TWO, length=(1 << 31) - 1), ErrorCode.CORRUPT_MESSAGE),
    "a header cut short": (batch(*TWO)[:40], ErrorCode.CORRUPT_MESSAGE),
    "no records": (batch(count=0, payload=b"", last_offset_delta=-1), ErrorCode.INVALID_RECORD),
    "minus one records": (batch(*TWO, count=-1, last_offset_delta=1), ErrorCode.INVALID_RECORD),
    "more records than offsets": (batch(*TWO, last_offset_delta=0), ErrorCode.INVALID_RECORD),
    "fewer records than offsets": (batch(*TWO, last_offset_delta=9), ErrorCode.INVALID_RECORD),
    "no batch": (b"", ErrorCode.INVALID_RECORD),
    "null": (None, ErrorCode.INVALID_RECORD),
    "two batches": (batch(b"one") + batch(b"two"), ErrorCode.INVALID_RECORD),
    "a control batch": (batch(b"one", attributes=CONTROL), ErrorCode.INVALID_RECORD),
    "a producer id without a sequence": (batch(b"one", producer=(7, 0, -1)), ErrorCode.INVALID_RECORD),
    "a producer id without an epoch": (batch(b"one", producer=(7, -1, 0)), ErrorCode.INVALID_RECORD),
    "an unknown codec": (batch(*TWO, attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "a codec that never was": (batch(*TWO, attributes=7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "too large": (batch(bytes(1 << 20), b"more"), ErrorCode.MESSAGE_TOO_LARGE),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_refused_batch(client: RawClient, topic: str, kind: str):
    records, error = REFUSED[kind]
    assert client.produce(topic, batch(b"before")) == (0, 0, None)
    stored = client.fetch(topic)

    answer = client.produce(topic, records)

    assert (ErrorCode(answer.error), answer.base_offset) == (error, -1)
    assert answer.message, "the client is told why"
    assert client.fetch(topic) == stored
    assert client.produce(topic, batch(b"after")) == (0, 1, None)


@pytest.mark.parametrize("acks", [-2, 2, 100])
def test_acks_that_cannot_be(client: RawClient, topic: str, acks: int):
    answer = client.produce(topic, batch(b"value"), acks=acks)
    assert (ErrorCode(answer.error), answer.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    assert client.fetch(topic) == (0, b"")


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__cluster_metadata"])
def test_internal_topics_are_not_the_clients_to_write(client: RawClient, name: str):
    answer = client.produce(name, batch(b"value"))
    assert ErrorCode(answer.error) in (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize("partition", [-1, 1, (1 << 31) - 1])
def test_partition_that_does_not_exist(client: RawClient, topic: str, partition: int):
    answer = client.produce(topic, batch(b"value"), partition=partition)
    assert ErrorCode(answer.error) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_error_of_an_unacknowledged_produce_closes_the_connection(client: RawClient, topic: str):
    """With acks=0 there is no answer that could carry the error: the client notices by the closed connection."""
    client.send(request(PRODUCE, 8, produce_body(topic, batch(b"value", crc=1), acks=0)))
    assert client.is_closed_by_broker()


def test_lies_inside_the_payload_are_found_where_the_topic_asks(client: RawClient, create_topic: Callable[..., str]):
    trusting, careful = create_topic(), create_topic(**{"record.validation.deep": "true"})
    lie = batch(b"one", count=2)
    assert client.produce(trusting, lie).error == 0
    assert ErrorCode(client.produce(careful, lie).error) == ErrorCode.INVALID_RECORD
    assert client.produce(careful, batch(*TWO)).error == 0


def test_compacted_topic_needs_keys(client: RawClient, create_topic: Callable[..., str]):
    topic = create_topic(**{"cleanup.policy": "compact"})
    assert ErrorCode(client.produce(topic, batch(b"no key")).error) == ErrorCode.INVALID_RECORD
    keyed = batch(payload=record(b"value", key=b"key"), count=1)
    assert client.produce(topic, keyed).error == 0


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_decompression_bomb(tailrace_broker: Broker, client: RawClient, create_topic: Callable[..., str], codec: int):
    """A few hundred kilobytes that unpack to 512 MB. The topic asks for a look inside, so it must be noticed."""
    topic = create_topic(**{"record.validation.deep": "true"})
    bomb = _compressed(codec, bytes(_BOMB_BYTES[codec]))
    answer = client.produce(topic, batch(payload=bomb, count=1, attributes=codec))
    assert ErrorCode(answer.error) in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
    assert _peak_memory_bytes(tailrace_broker) < 300 << 20
    assert client.fetch(topic) == (0, b"")


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_payload_that_does_not_unpack(client: RawClient, create_topic: Callable[..., str], codec: int):
    topic = create_topic(**{"record.validation.deep": "true"})
    answer = client.produce(topic, batch(payload=b"not compressed at all", count=1, attributes=codec))
    assert ErrorCode(answer.error) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
    assert client.fetch(topic) == (0, b"")


def test_timestamps_out_of_bounds(client: RawClient, create_topic: Callable[..., str]):
    topic = create_topic(**{"message.timestamp.after.max.ms": "1000"})
    answer = client.produce(topic, batch(b"value", timestamp_ms=4_000_000_000_000))
    assert ErrorCode(answer.error) == ErrorCode.INVALID_TIMESTAMP
    assert client.produce(topic, batch(b"value")).error == 0


# Snappy packs zeros 21 to 1 only, and the packed batch must itself pass max.message.bytes.
_BOMB_BYTES = {GZIP: 512 << 20, SNAPPY: 20 << 20, LZ4: 200 << 20, ZSTD: 512 << 20}


def _compressed(codec: int, data: bytes) -> bytes:
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec == LZ4:
        return bytes(cramjam.lz4.compress(data))
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data))
    # Raw snappy, whose claimed size can be any: the lie is in the first bytes.
    claimed = b"\xff\xff\xff\xff\x07"
    return claimed + bytes(cramjam.snappy.compress_raw(data))[5:]


def _peak_memory_bytes(broker: Broker) -> int:
    with open(f"/proc/{broker.process_id}/status") as status:
        peak = next(line for line in status if line.startswith("VmHWM"))
    return int(peak.split()[1]) * 1024


def test_batch_of_an_old_producer_with_zstd_is_refused(client: RawClient, topic: str):
    """zstd came with Produce 7 (KIP-110): consumers of that time could not read it."""
    body = produce_body(topic, batch(payload=_compressed(ZSTD, record(b"value")), count=1, attributes=ZSTD))
    answer = client.ask(PRODUCE, 6, body)
    assert (answer.number("i"), answer.string(), answer.number("i")) == (1, topic, 1)
    assert struct.unpack(">ih", answer.take(6)) == (0, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
