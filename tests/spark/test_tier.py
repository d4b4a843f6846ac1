"""Topics read straight from their tier: the same rows as through brokers, each once, whatever part of them is copied.

The buckets are folders, filled by the tier's own writer from the logs of a real broker.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.datasource import GreaterThanOrEqual
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tailrace.model.ids import PartitionIndex, TopicPartition, parse_uuid
from tailrace.model.ports import StoreRefusalError
from tailrace.spark.options.errors import OptionError
from tailrace.spark.source.batch import TopicReader
from tailrace.spark.source.loss import DataLossError
from tailrace.spark.source.offsets import OffsetRange
from tailrace.spark.source.schema import topic_schema
from tailrace.spark.source.stream import TopicStreamReader
from tailrace.spark.tier.planning import TierSplit
from tailrace.testing import Broker
from tests.tier_bucket import TierWriter

DEADLINE_S = 30.0
NOON_MS = 1_700_000_000_000
SMALL_SEGMENTS = {"internal.segment.bytes": "6000", "retention.ms": "-1", "index.interval.bytes": "500"}
COMMITTED = {"kafka.isolation.level": "read_committed"}

Row = tuple[int, int, bytes | None, bytes | None, object]


class Tiered:
    """A topic of the broker, and its tier."""

    def __init__(self, broker: Broker, admin: AdminClient, topic: str, folder: Path) -> None:
        self.broker, self.topic, self.folder = broker, topic, folder
        described = admin.describe_topics(TopicCollection([topic]))[topic].result(DEADLINE_S)
        self.topic_id = parse_uuid(str(described.topic_id))
        self.partition_count = len(described.partitions)
        self.writer = TierWriter(f"file://{folder}/tier", "a-cluster")
        self.writer.leader_epoch = 0

    def copy(self, *, segments: int = 1000) -> list[int]:
        """Gives the offset up to which each partition was copied."""
        return [
            self.writer.copy_folder(
                Path(self.broker.data),
                TopicPartition(self.topic, PartitionIndex(index)),
                self.topic_id,
                partition_count=self.partition_count,
                segments=segments,
                scratch=self.folder,
            )
            for index in range(self.partition_count)
        ]

    def options(self, **given: str) -> dict[str, str]:
        options = {"kafka.bootstrap.servers": self.broker.bootstrap, "subscribe": self.topic, "includeHeaders": "true"}
        return {name.lower(): text for name, text in (options | given).items() if text}

    def reader(self, **given: str) -> TopicReader:
        options = self.options(**given)
        return TopicReader(options, topic_schema(options))

    def brokers(self, **given: str) -> list[Row]:
        return rows_of(self.reader(**given))

    def both(self, **given: str) -> TopicReader:
        return self.reader(tier=self.writer.url, **given)

    def alone(self, **given: str) -> TopicReader:
        return self.reader(tier=self.writer.url, brokers="never", **given | {"kafka.bootstrap.servers": ""})

    def objects(self) -> list[Path]:
        return sorted((self.folder / "tier").rglob("*.segment"))


def rows_of(reader: TopicReader | TopicStreamReader, splits: Any = None) -> list[Row]:
    found: list[Row] = []
    for split in reader.partitions() if splits is None else splits:
        for batch in reader.read(split):
            columns = ("partition", "offset", "key", "value", "timestamp", "headers")
            found += [tuple(map(str, row.values())) for row in batch.select(columns).to_pylist()]  # type: ignore[misc]
    return found


def in_tier(reader: TopicReader) -> list[TierSplit]:
    return [each for task in reader.partitions() for each in task.value.splits if isinstance(each, TierSplit)]


@pytest.fixture
def tiered(
    tailrace_broker: Broker, admin: AdminClient, create_topic: Callable[..., str], tmp_path: Path
) -> Callable[..., Tiered]:
    def make(partitions: int = 1, **settings: str) -> Tiered:
        return Tiered(tailrace_broker, admin, create_topic(partitions, **SMALL_SEGMENTS | settings), tmp_path)

    return make


@pytest.fixture(scope="module")
def plain_topic(create_topic: Callable[..., str], produce: Callable[..., None]) -> str:
    """Two partitions, with compressed batches of several records, keys, headers and times."""
    topic = create_topic(2, **SMALL_SEGMENTS | {"compression.type": "zstd"})
    for start in range(0, 900, 30):
        produce(
            topic,
            [
                {
                    "key": None if number % 7 == 0 else b"k%d" % number,
                    "value": Random(number).randbytes(200) + bytes(50),
                    "partition": number % 2,
                    "timestamp": NOON_MS + number,
                    "headers": [("h", b"%d" % number)] if number % 5 == 0 else [],
                }
                for number in range(start, start + 30)
            ],
        )
    return topic


@pytest.fixture
def plain(tailrace_broker: Broker, admin: AdminClient, plain_topic: str, tmp_path: Path) -> Tiered:
    """With a bucket of each test's own."""
    return Tiered(tailrace_broker, admin, plain_topic, tmp_path)


def test_the_same_rows_however_much_is_copied(plain: Tiered) -> None:
    rows = plain.brokers()
    assert len(rows) == 900
    for segments in (0, 1, 2, 1000):
        ends = plain.copy(segments=segments)
        reader = plain.both()
        assert rows_of(reader) == rows
        assert rows_of(plain.alone()) == [row for row in rows if int(row[1]) < ends[int(row[0])]]
        copied = sum(split.wanted.size for split in in_tier(reader))
        assert copied == sum(ends), "what is there is read from there"
    assert sum(ends) > 600


@pytest.mark.parametrize("shares", [{"minPartitions": "7"}, {"maxRecordsPerPartition": "31"}])
def test_shares_of_equal_records_cover_everything_once(plain: Tiered, shares: dict[str, str]) -> None:
    plain.copy()
    reader = plain.both(**shares)
    sizes = [getattr(each, "wanted", each).size for task in reader.partitions() for each in task.value.splits]
    assert max(sizes) <= (31 if "maxRecordsPerPartition" in shares else -(-900 // 7))
    assert rows_of(reader) == plain.brokers()


def test_bounds_by_offset_and_by_time(plain: Tiered) -> None:
    ends = plain.copy()
    bounds = [
        {
            "startingOffsets": json.dumps({plain.topic: {"0": 17, "1": 101}}),
            "endingOffsets": json.dumps({plain.topic: {"0": 18, "1": ends[1] - 5}}),
        },
        {"startingTimestamp": str(NOON_MS + 301), "endingTimestamp": str(NOON_MS + 401)},
    ]
    for bound in bounds:
        assert rows_of(plain.both(**bound)) == rows_of(plain.alone(**bound)) == plain.brokers(**bound)
    with pytest.raises(DataLossError, match=r"are not in the tier"):
        plain.alone(endingOffsets=json.dumps({plain.topic: {"0": ends[0] + 1, "1": 1}})).partitions()
    late = str(NOON_MS + 10**6)
    with pytest.raises(OptionError, match="has no record at or after"):
        plain.alone(startingTimestamp=late).partitions()
    assert plain.alone(startingTimestamp=late, startingOffsetsByTimestampStrategy="latest").partitions() == []


def test_a_filter_on_the_time_leaves_old_segments_out(plain: Tiered) -> None:
    ends = plain.copy()
    moment = datetime.fromtimestamp((NOON_MS + 700) / 1000, UTC)
    young = [row for row in plain.brokers() if datetime.fromisoformat(str(row[4])) >= moment]
    assert 0 < len(young) < 300
    copied = [row for row in young if int(row[1]) < ends[int(row[0])]]
    for reader, expected in ((plain.both(pushFilters="true"), young), (plain.alone(pushFilters="true"), copied)):
        assert list(reader.pushFilters([GreaterThanOrEqual(("timestamp",), moment)])) == []
        used = {piece.segment.segment_id for split in in_tier(reader) for piece in split.pieces}
        assert len(used) < len(plain.objects()) / 2
        assert rows_of(reader) == expected


@pytest.fixture
def transactions(tiered: Callable[..., Tiered]) -> tuple[Tiered, Producer]:
    """Committed and aborted ones of two producers that overlap; one aborts after what is copied, one stays open."""
    made = tiered()
    bootstrap = made.broker.bootstrap
    producers = [
        Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{made.topic}-{number}", "linger.ms": 0})
        for number in range(2)
    ]
    for each in producers:
        each.init_transactions(DEADLINE_S)

    def send(producer: Producer, text: bytes, count: int = 6) -> None:
        for _ in range(count):
            producer.produce(made.topic, text * 100)
        assert producer.flush(DEADLINE_S) == 0

    for turn in range(8):
        first, second = producers
        first.begin_transaction()
        send(first, b"kept" if turn % 3 else b"gone")
        second.begin_transaction()
        send(second, b"gone" if turn % 2 else b"kept")
        send(first, b"kept" if turn % 3 else b"gone")
        first.commit_transaction(DEADLINE_S) if turn % 3 else first.abort_transaction(DEADLINE_S)
        send(second, b"gone" if turn % 2 else b"kept")
        second.abort_transaction(DEADLINE_S) if turn % 2 else second.commit_transaction(DEADLINE_S)
    return made, producers[0]


def wait_settled(topic: Tiered) -> None:
    """A producer is told of its abort before the marker is written."""
    deadline = time.monotonic() + DEADLINE_S

    def end(**given: str) -> list[int]:
        return [each.end for task in topic.reader(**given).partitions() for each in task.value.splits]

    while end() != end(**COMMITTED):
        assert time.monotonic() < deadline, "a marker is missing"
        time.sleep(0.05)


def test_aborted_transactions_are_left_out(transactions: tuple[Tiered, Producer]) -> None:
    topic, producer = transactions
    producer.begin_transaction()
    for _ in range(30):
        producer.produce(topic.topic, b"late" * 100)
    assert producer.flush(DEADLINE_S) == 0
    producer.abort_transaction(DEADLINE_S)
    wait_settled(topic)
    committed, everything = topic.brokers(**COMMITTED), topic.brokers()
    assert "gone" in str(everything)
    assert "gone" not in str(committed)
    assert len(committed) < len(everything)
    for segments in (1, 3, 1000):
        (end,) = topic.copy(segments=segments)
        assert rows_of(topic.both(**COMMITTED)) == committed
        assert rows_of(topic.both(**COMMITTED, maxRecordsPerPartition="5")) == committed
        assert rows_of(topic.both()) == everything
        alone = rows_of(topic.alone(**COMMITTED))
        assert alone == committed[: len(alone)], "nothing of an aborted one, whose marker is not copied yet"
        assert rows_of(topic.alone()) == [row for row in everything if int(row[1]) < end]


def test_where_a_transaction_is_open_at_the_end_of_the_tier_brokers_go_on(
    transactions: tuple[Tiered, Producer],
) -> None:
    topic, producer = transactions
    first_offset = max(int(row[1]) for row in topic.brokers())
    producer.begin_transaction()
    for _ in range(6):
        for _ in range(12):
            producer.produce(topic.topic, b"open" * 100)
        assert producer.flush(DEADLINE_S) == 0
    # A segment is copied below the last stable offset alone: so it is ended, by a marker in a segment that is not.
    producer.abort_transaction(DEADLINE_S)
    wait_settled(topic)
    (end,) = topic.copy()
    assert end > first_offset, "records of it are in the tier"
    reader = topic.both(**COMMITTED)
    splits = [each for task in reader.partitions() for each in task.value.splits]
    assert max(split.wanted.end for split in splits if isinstance(split, TierSplit)) < end
    assert any(isinstance(split, OffsetRange) for split in splits)
    assert rows_of(reader) == topic.brokers(**COMMITTED)
    alone = rows_of(topic.alone(**COMMITTED))
    assert alone == topic.brokers(**COMMITTED)[: len(alone)]
    assert max(int(row[1]) for row in alone) <= first_offset


def test_what_is_removed_meanwhile_is_read_from_brokers_or_told(plain: Tiered) -> None:
    ends = plain.copy()
    rows = plain.brokers()
    both, alone = plain.both(), plain.alone()
    splits, alone_splits = both.partitions(), alone.partitions()
    lost = plain.objects()[len(plain.objects()) // 4]
    lost.unlink()
    assert rows_of(both, splits) == rows
    with pytest.raises(StoreRefusalError, match=r"newest manifest names it.*tailrace tier verify"):
        rows_of(alone, alone_splits)
    # Now as retention does it: the log starts later, and the manifest says so.
    base = int(lost.name.partition("-")[0])
    gone = [path for path in plain.objects() if path.parent == lost.parent and int(path.name[:20]) <= base]
    owner = next(each for each in plain.writer.machine.partitions if str(each.partition) == lost.parent.name)
    tier = plain.writer.machine.partitions[owner]
    tier.visible = {key: each for key, each in tier.visible.items() if each.base_offset > base}
    tier.log_start_offset = min(each.base_offset for each in tier.visible.values())
    for path in gone:
        path.unlink(missing_ok=True)
    plain.copy(segments=0)
    with pytest.raises(DataLossError, match=r"are lost: retention took them"):
        rows_of(alone, alone_splits)
    forgiving = plain.alone(failOnDataLoss="false")
    kept = [
        row
        for row in rows
        if int(row[1]) < ends[int(row[0])] and (int(row[0]) != owner.partition or int(row[1]) >= tier.log_start_offset)
    ]
    assert rows_of(forgiving, alone_splits) == kept
    assert rows_of(plain.alone()) == kept, "a query that begins now finds the log to start there"


def test_a_damaged_object_fails_the_query_and_names_itself(plain: Tiered) -> None:
    plain.copy()
    path = plain.objects()[3]
    data = bytearray(path.read_bytes())
    data[700] ^= 1
    path.write_bytes(data)
    with pytest.raises(Exception, match=rf"{path.name} is damaged: the sum of the bytes from 0 on is wrong"):
        rows_of(plain.both())


def test_a_manifest_of_another_leader_or_topic_is_not_believed_beside_brokers(plain: Tiered) -> None:
    plain.writer.leader_epoch = 7
    plain.copy()
    assert in_tier(plain.both()) == []
    assert rows_of(plain.both()) == plain.brokers()
    assert in_tier(plain.alone()) != []
    plain.writer.leader_epoch = 0
    plain.topic_id = type(plain.topic_id)(bytes(16))
    plain.writer.machine.partitions.clear()
    plain.copy()
    assert in_tier(plain.both()) == []


def test_a_stream_goes_through_the_tier_and_on(plain: Tiered, produce: Callable[..., None]) -> None:
    plain.copy()
    rows = plain.brokers()
    options = plain.options(tier=plain.writer.url, startingoffsets="earliest", maxoffsetspertrigger="400")
    reader = TopicStreamReader(options, topic_schema(options))
    found: list[Row] = []
    start = reader.initialOffset()
    try:
        for _ in range(10):
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            if end == start:
                break
            splits = reader.partitions(start, end)
            assert found or all(isinstance(each, TierSplit) for task in splits for each in task.value.splits)
            found += rows_of(reader, splits)
            start = end
    finally:
        reader.stop()
    assert sorted(found) == sorted(rows)
    alone = plain.options(tier=plain.writer.url, brokers="never", startingoffsets="earliest")
    reader = TopicStreamReader(alone, topic_schema(alone))
    try:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        assert sorted(rows_of(reader, reader.partitions(start, end))) == sorted(rows_of(plain.alone()))
    finally:
        reader.stop()


def test_a_data_frame_is_the_same_in_spark(spark: SparkSession, plain: Tiered) -> None:
    plain.copy()
    columns = [sf.count("*"), sf.sum(sf.hash("key", "value", "partition", "offset", "timestamp"))]

    def totals(**given: str) -> Any:
        frame = spark.read.format("tailrace").options(**plain.options(**given)).load()
        return frame.agg(*columns).collect()[0]

    through_brokers = totals()
    assert through_brokers[0] == 900
    assert totals(tier=plain.writer.url) == through_brokers
    only_copied = totals(tier=plain.writer.url, brokers="never")
    assert 0 < only_copied[0] < 900


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tier": "ftp://x"}, "is no address of a store"),
        ({"tier": "file:///not/there"}, "there is no such folder"),
        ({"tier": "{url}", "subscribe": "unknown", "brokers": "never"}, "the tier has nothing of a topic unknown"),
        ({"tier": "{url}", "rsm.config.colour": "blue"}, "a folder has no options"),
        ({"brokers": "never"}, "option tier is missing"),
        ({"tier": "{url}", "brokers": "sometimes"}, "expected auto"),
        ({"rsm.config.endpoint": "x"}, "option tier names none"),
    ],
)
def test_options_that_cannot_be(plain: Tiered, options: dict[str, str], problem: str) -> None:
    plain.copy(segments=0)
    given = {name: text.replace("{url}", plain.writer.url) for name, text in options.items()}
    with pytest.raises(OptionError, match=problem):
        plain.reader(**given).partitions()
