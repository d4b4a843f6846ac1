"""Every library writes every shape of record in every way it has, and every library reads it back in order."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from .clients import Client, Sent
from .clients.confluent import Confluent
from .clients.corpus import START_MS, STEP_MS, records, small
from .conftest import CLIENTS


class Way(NamedTuple):
    """One way to write: who, compressed how, acknowledged by whom."""

    client: Client
    codec: str
    acks: str
    idempotent: bool

    def __str__(self) -> str:
        return f"{self.client.name}-{self.codec}-{self.acks}{'-idempotent' * self.idempotent}"


WAYS = [
    Way(client, codec, acks, idempotent)
    for client in CLIENTS
    for codec, acks, idempotent in [
        *((codec, "all", False) for codec in client.codecs),
        ("none", "0", False),
        ("none", "1", False),
        ("none", "all", True),
        ("lz4", "all", True),
    ]
]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_what_was_written_is_read_back(bootstrap: str, topic: str, way: Way):
    sent = records()
    acked = way.client.produce(bootstrap, topic, sent, acks=way.acks, codec=way.codec, idempotent=way.idempotent)
    received = way.client.read(bootstrap, topic, len(sent))
    assert [record.as_sent for record in received] == sent
    assert [record.offset for record in received] == list(range(len(sent)))
    assert acked == ([] if way.acks == "0" else list(range(len(sent))))


@pytest.fixture(scope="module")
def mixed_topic(bootstrap: str, create_topic: Callable[..., str]) -> str:
    """All of the corpus by each library in turn, each with another codec."""
    name = create_topic()
    for writer, codec in zip(CLIENTS, ("zstd", "snappy", "lz4"), strict=True):
        writer.produce(bootstrap, name, records(), codec=codec)
    return name


def test_a_library_reads_what_the_others_wrote(bootstrap: str, mixed_topic: str, client: Client):
    expected = records() * len(CLIENTS)
    received = client.read(bootstrap, mixed_topic, len(expected))
    assert [record.as_sent for record in received] == expected
    assert [record.offset for record in received] == list(range(len(expected)))


def test_a_record_may_be_empty_altogether(bootstrap: str, topic: str, client: Client):
    # Only librdkafka writes a record without key and value, or a header without a value.
    sent = [Sent(None, None, (("nothing", None),), START_MS), Sent(None, None, (), START_MS)]
    Confluent().produce(bootstrap, topic, sent)
    assert [record.as_sent for record in client.read(bootstrap, topic, 2)] == sent


@pytest.fixture(scope="module", params=["none", "lz4"])
def batched_topic(request: pytest.FixtureRequest, bootstrap: str, create_topic: Callable[..., str]) -> str:
    """A few batches of many records, in small segments, so that a read starts inside a batch and ends in another."""
    name = create_topic(**{"segment.bytes": str(1 << 20), "index.interval.bytes": "4096"})
    Confluent().produce(bootstrap, name, small(5_000, size_bytes=500), codec=request.param)
    return name


@pytest.mark.parametrize("offset", [0, 1, 1_234, 4_998, 4_999])
def test_reading_starts_at_any_offset(bootstrap: str, batched_topic: str, client: Client, offset: int):
    count = min(1_000, 5_000 - offset)
    received = client.read(bootstrap, batched_topic, count, offset=offset)
    assert [record.offset for record in received] == list(range(offset, offset + count))
    assert [record.as_sent for record in received] == small(5_000, size_bytes=500)[offset : offset + count]


@pytest.mark.parametrize(
    ("after_start_ms", "first"),
    [(-STEP_MS, 0), (0, 0), (1, 1), (777 * STEP_MS, 777), (777 * STEP_MS + 1, 778), (4_999 * STEP_MS, 4_999)],
)
def test_reading_starts_at_any_time(
    bootstrap: str, batched_topic: str, client: Client, after_start_ms: int, first: int
):
    (received,) = client.read_since(bootstrap, batched_topic, 1, START_MS + after_start_ms)
    assert (received.offset, received.timestamp_ms) == (first, START_MS + first * STEP_MS)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_a_topic_may_choose_the_codec(bootstrap: str, create_topic: Callable[..., str], client: Client, codec: str):
    name = create_topic(**{"compression.type": codec})
    sent = records()
    client.produce(bootstrap, name, sent, codec="gzip", idempotent=True)
    assert [record.as_sent for record in client.read(bootstrap, name, len(sent))] == sent


def test_a_topic_may_stamp_the_time_of_append(bootstrap: str, create_topic: Callable[..., str], client: Client):
    name = create_topic(**{"message.timestamp.type": "LogAppendTime"})
    sent = small(10)
    client.produce(bootstrap, name, sent, codec="gzip")
    received = client.read(bootstrap, name, 10)
    assert [record.value for record in received] == [record.value for record in sent]
    assert all(record.timestamp_ms > START_MS + 3_500_000 for record in received)
    (found,) = client.read_since(bootstrap, name, 1, START_MS + 3_500_000)
    assert found.offset == 0
