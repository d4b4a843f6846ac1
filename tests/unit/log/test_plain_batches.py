"""`read_plain` is validation's fast way to say yes: it never says it where validation would not."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailrace.log.plain_batches import PlainRules, read_plain
from tailrace.log.validation import Origin, validate_batches
from tailrace.model.config import TopicConfig
from tailrace.wire.checksum import crc32c
from tailrace.wire.records import Compression, build_batch, read_header

NOW_MS = 1_767_225_600_000
CONFIG = TopicConfig()
RULES = PlainRules(CONFIG)


def plain_batch(count: int = 2, **options) -> bytearray:
    return bytearray(build_batch([(index, NOW_MS, b"k", b"v" * 30, ()) for index in range(count)], **options))


def test_a_plain_batch():
    batch = plain_batch(3)
    view = memoryview(batch)
    assert read_plain(view, RULES, NOW_MS) == (view, len(batch), 2, NOW_MS, None)
    assert read_plain(memoryview(plain_batch(compression=Compression.GZIP)), RULES, NOW_MS) is not None


def test_an_idempotent_producers_batch_comes_with_its_header():
    batch = plain_batch(3, producer_id=7, producer_epoch=1, base_sequence=5)
    view = memoryview(batch)
    assert read_plain(view, RULES, NOW_MS) == (view, len(batch), 2, NOW_MS, read_header(view))


@pytest.mark.parametrize(
    "batch",
    [
        b"",
        plain_batch()[:60],
        plain_batch()[:-1],
        plain_batch() + b"x",
        plain_batch() + plain_batch(),
        (1).to_bytes(8, "big") + plain_batch()[8:],
        plain_batch(producer_id=1, producer_epoch=-1, base_sequence=0),
        plain_batch(producer_id=1, producer_epoch=0, base_sequence=-1),
        plain_batch(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
        plain_batch(control=True),
        plain_batch(last_offset_delta=7),
    ],
    ids=["empty", "header", "cut", "longer", "two", "offset", "epoch", "sequence", "transaction", "control", "count"],
)
def test_what_is_not_plain(batch):
    assert read_plain(memoryview(bytearray(batch)), RULES, NOW_MS) is None


@pytest.mark.parametrize(
    "settings_of_topic",
    [
        {"message_timestamp_type": "LogAppendTime"},
        {"compression_type": "gzip"},
        {"cleanup_policy": frozenset({"compact"})},
        {"record_validation_deep": True},
        {"segment_bytes": 1 << 20},
    ],
)
def test_topics_that_want_more(settings_of_topic):
    assert not PlainRules(TopicConfig(**settings_of_topic)).applies
    assert RULES.applies


def test_bounds_of_the_topic():
    strict = PlainRules(TopicConfig(max_message_bytes=100))
    assert read_plain(memoryview(plain_batch(5)), strict, NOW_MS) is None
    past = PlainRules(TopicConfig(message_timestamp_before_max_ms=1000))
    assert read_plain(memoryview(plain_batch()), past, NOW_MS + 1000) is not None
    assert read_plain(memoryview(plain_batch()), past, NOW_MS + 1001) is None
    future = PlainRules(TopicConfig(message_timestamp_after_max_ms=1000))
    assert read_plain(memoryview(plain_batch()), future, NOW_MS - 1000) is not None
    assert read_plain(memoryview(plain_batch()), future, NOW_MS - 1001) is None


@settings(max_examples=400, deadline=None)
@given(
    changes=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=4),
    is_resummed=st.booleans(),
    count=st.integers(1, 3),
    producer=st.sampled_from([(-1, -1, -1), (7, 0, 0), (7, 3, 2**31 - 1), (7, -1, 0), (7, 0, -1)]),
)
# The largest timestamp is before the first.
@example(changes=[(22, 1), (37, 0)], is_resummed=True, count=1, producer=(-1, -1, -1))
def test_it_lets_in_only_what_validation_lets_in(changes, is_resummed, count, producer):
    producer_id, producer_epoch, base_sequence = producer
    batch = plain_batch(count, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence)
    for position, byte in changes:
        batch[position] = byte
    if is_resummed:
        batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    found = read_plain(memoryview(batch), RULES, NOW_MS)
    if found is not None:
        validated = validate_batches(memoryview(batch), CONFIG, now_ms=NOW_MS, origin=Origin.CLIENT)
        (header,) = validated.headers
        assert found[1:4] == (header.size_bytes, header.last_offset_delta, header.max_timestamp)
        assert found[4] == (header if header.producer_id >= 0 else None)
        assert not header.is_transactional
        assert validated.log_append_time_ms == -1
