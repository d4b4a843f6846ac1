"""What Spark asks of a stream's reader, asked here without Spark: a micro-batch costs it a good part of a second."""

import gc
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from tailrace.client.groups.admin import GroupAdmin
from tailrace.model import ids
from tailrace.spark.blocking import BlockingCluster
from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.kafka import parse_kafka_settings
from tailrace.spark.source import commits
from tailrace.spark.source.commits import GroupCommits
from tailrace.spark.source.loss import DataLossError
from tailrace.spark.source.schema import topic_schema
from tailrace.spark.source.stream import TopicStreamReader
from tailrace.spark.values import DecodeError
from tailrace.testing import Broker

DEADLINE_S = 30.0
ALL = ReadAllAvailable()


@pytest.fixture
def reading(tailrace_broker: Broker) -> Callable[..., Any]:
    @contextmanager
    def open_reader(topic: str, **given: str) -> Iterator[TopicStreamReader]:
        options = {
            "kafka.bootstrap.servers": tailrace_broker.bootstrap,
            "subscribe": topic,
            "startingoffsets": "earliest",
            "fetchoffset.retryintervalms": "1",
        } | {name.lower(): text for name, text in given.items()}
        reader = TopicStreamReader(options, topic_schema(options))
        try:
            yield reader
        finally:
            reader.stop()

    return open_reader


def offsets_of(reader: TopicStreamReader, start: dict, end: dict) -> list[tuple[int, int]]:
    """(partition, offset) of all rows of a micro-batch."""
    found = []
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            found += zip(batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True)
    return found


def rows(count: int, partition: int = 0) -> list[dict[str, Any]]:
    return [{"value": b"%d" % number, "partition": partition} for number in range(count)]


def delete_records_below(admin: AdminClient, topic: str, offset: int) -> None:
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
    deleted.result(DEADLINE_S)


def test_a_new_query_and_what_comes_after_its_start(create_topic, produce, reading):
    topic = create_topic(2)
    produce(topic, rows(3))
    with reading(topic) as reader:
        start = reader.initialOffset()
        assert start == {topic: {"0": 0, "1": 0}}
        end = reader.latestOffset(start, ALL)
        assert end == {topic: {"0": 3, "1": 0}}
        assert offsets_of(reader, start, end) == [(0, 0), (0, 1), (0, 2)]
        assert reader.latestOffset(end, ALL) == end
        assert reader.partitions(end, end) == []
        produce(topic, rows(1, partition=1))
        assert reader.latestOffset(end, ALL) == reader.reportLatestOffset() == {topic: {"0": 3, "1": 1}}


def test_the_latest_offsets_are_pinned_before_anything_is_read(create_topic, produce, reading):
    topic = create_topic()
    produce(topic, rows(2))
    with reading(topic, startingOffsets="latest") as reader:
        start = reader.initialOffset()
        produce(topic, rows(3))
        assert start == reader.initialOffset() == {topic: {"0": 2}}
        assert reader.latestOffset(start, ALL) == start
        assert reader.partitions(start, start) == []
    # The first micro-batch was not finished: Spark knows its end only, and asks for its start anew.
    with reading(topic, startingOffsets="latest") as again:
        late = again.initialOffset()
        assert late == {topic: {"0": 5}}
        for _ in range(2):  # Spark may plan a micro-batch more than once.
            assert again.partitions(late, start) == []
        end = again.latestOffset(start, ALL)
        assert offsets_of(again, start, end) == [(0, 2), (0, 3), (0, 4)]


def test_limits(create_topic, produce, reading):
    topic = create_topic(2)
    produce(topic, [*rows(30), *rows(10, partition=1)])
    start = {topic: {"0": 0, "1": 0}}
    everything = {topic: {"0": 30, "1": 10}}
    with reading(topic, maxOffsetsPerTrigger="8") as reader:
        assert reader.getDefaultReadLimit() == ReadMaxRows(8)
        assert reader.latestOffset(start, ReadMaxRows(8)) == {topic: {"0": 6, "1": 2}}
        assert reader.reportLatestOffset() == everything
        # Spark says so where a trigger wants all at once.
        assert reader.latestOffset(start, ALL) == everything
        # A partition without a start is new, and is read from its beginning.
        assert reader.latestOffset({topic: {"0": 20}}, ReadMaxRows(8)) == {topic: {"0": 24, "1": 4}}
    with reading(topic, minOffsetsPerTrigger="50", maxOffsetsPerTrigger="60", maxTriggerDelay="1h") as reader:
        limit: ReadLimit = reader.getDefaultReadLimit()
        assert reader.latestOffset(start, limit) == everything
        assert reader.latestOffset(start, limit) == start
    with reading(topic, minOffsetsPerTrigger="50") as reader:
        assert reader.getDefaultReadLimit() == ReadMinRows(50)
        reader.prepareForTriggerAvailableNow()
        for _ in range(2):
            assert reader.latestOffset(start, ReadMinRows(50)) == everything


def test_an_available_now_run_ends_where_it_began(create_topic, produce, reading):
    topic = create_topic()
    produce(topic, rows(5))
    with reading(topic, maxOffsetsPerTrigger="3") as reader:
        reader.prepareForTriggerAvailableNow()
        first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(3))
        produce(topic, rows(5))
        second = reader.latestOffset(first, ReadMaxRows(3))
        assert (first, second) == ({topic: {"0": 3}}, {topic: {"0": 5}})
        assert reader.latestOffset(second, ReadMaxRows(3)) == second


def test_splits_of_equal_records(create_topic, produce, reading):
    topic = create_topic(2)
    produce(topic, [*rows(100), *rows(4, partition=1)])
    with reading(topic, minPartitions="4") as reader:
        end = reader.latestOffset(reader.initialOffset(), ALL)
        splits = [split for task in reader.partitions(reader.initialOffset(), end) for split in task.value.splits]
        assert [split.size for split in splits] == [25, 25, 25, 25, 4]
        assert sorted(offsets_of(reader, reader.initialOffset(), end)) == sorted(
            [(0, offset) for offset in range(100)] + [(1, offset) for offset in range(4)]
        )


def test_partitions_that_are_added(create_topic, produce, reading, admin, tailrace_broker):
    topic = create_topic()
    produce(topic, rows(2))
    with reading(topic) as reader:
        start = reader.latestOffset(reader.initialOffset(), ALL)
        (grown,) = admin.create_partitions([NewPartitions(topic, 2)]).values()
        grown.result(DEADLINE_S)
        # A producer that knows the topic learns of its new partition only after a while.
        newcomer = Producer({"bootstrap.servers": tailrace_broker.bootstrap})
        for row in rows(3, partition=1):
            newcomer.produce(topic, **row)
        assert newcomer.flush(DEADLINE_S) == 0
        end = reader.latestOffset(start, ALL)
        assert end == {topic: {"0": 2, "1": 3}}
        assert offsets_of(reader, start, end) == [(1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_broker_that_has_not_heard_of_new_partitions(create_topic, reading, admin, monkeypatch, is_restarted):
    """What it answered before they came, it answers once more: they are not lost, but asked for until it knows them."""
    topic = create_topic()
    with reading(topic) as reader:
        start = reader.initialOffset()
        cluster = reader._planner.blocking.cluster
        old = reader._planner.blocking.run(cluster.refresh([topic]))
    (grown,) = admin.create_partitions([NewPartitions(topic, 2)]).values()
    grown.result(DEADLINE_S)
    given = {"topicIds": json.dumps({topic: ids.uuid_text(old[topic].id)})} if is_restarted else {}
    with reading(topic, **given) as reader:
        end = {topic: {"0": 0, "1": 0}}
        if not is_restarted:
            assert reader.latestOffset(start, ALL) == end
        planner = reader._plan()
        refresh, stale = planner.blocking.cluster.refresh, []

        async def late(names):
            if stale:
                return await refresh(names)
            stale.append(names)
            planner.blocking.cluster._topics.update(old)
            return old

        monkeypatch.setattr(planner.blocking.cluster, "refresh", late)
        assert reader.latestOffset(end, ALL) == end
        assert stale
        assert offsets_of(reader, end, end) == []


def test_partitions_that_are_added_before_the_first_batch_is_finished(create_topic, produce, reading, admin):
    topic = create_topic()
    produce(topic, rows(2))
    with reading(topic) as reader:
        end = reader.latestOffset(reader.initialOffset(), ALL)
    (grown,) = admin.create_partitions([NewPartitions(topic, 2)]).values()
    grown.result(DEADLINE_S)
    with reading(topic) as again:
        start = again.initialOffset()
        assert start == {topic: {"0": 0, "1": 0}}
        for _ in range(2):  # Spark may plan a micro-batch more than once.
            assert offsets_of(again, start, end) == [(0, 0), (0, 1)]
        assert again.latestOffset(end, ALL) == {topic: {"0": 2, "1": 0}}


def test_records_that_retention_took(create_topic, produce, reading, admin, caplog):
    topic = create_topic()
    produce(topic, rows(10))
    start, end = {topic: {"0": 2}}, {topic: {"0": 10}}
    with reading(topic) as reader, reading(topic, failOnDataLoss="false") as lenient:
        planned, planned_leniently = reader.partitions(start, end), lenient.partitions(start, end)
        delete_records_below(admin, topic, 6)
        lost = f"offsets 2 to 5 of {topic}-0 are lost"
        with pytest.raises(DataLossError, match=lost):
            reader.partitions(start, end)
        # A task may find out later than the planner.
        with pytest.raises(DataLossError, match=lost):
            list(reader.read(planned[0]))
        with caplog.at_level(logging.WARNING):
            assert [batch.column("offset").to_pylist() for batch in lenient.read(planned_leniently[0])] == [
                [6, 7, 8, 9]
            ]
        assert lost in caplog.text
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert offsets_of(lenient, start, end) == [(0, 6), (0, 7), (0, 8), (0, 9)]
        assert lost in caplog.text


def test_nothing_stays_open_behind_a_record_that_cannot_be_decoded(create_topic, produce, reading, monkeypatch):
    topic = create_topic()
    produce(topic, rows(1))
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    with reading(topic, **{"value.format": "json", "value.schema": "a INT"}) as reader:
        (split,) = reader.partitions({topic: {"0": 0}}, {topic: {"0": 1}})
        with pytest.raises(DecodeError, match=f"at offset 0 of {topic}-0"):
            list(reader.read(split))
    gc.collect()
    assert unraisable == []


def test_a_topic_that_is_deleted_and_created_anew(create_topic, produce, reading, admin):
    topic, other = create_topic(), create_topic()
    produce(topic, rows(10))
    both = f"{topic},{other}"
    with reading(both) as reader, reading(both, failOnDataLoss="false") as lenient:
        start = reader.latestOffset(reader.initialOffset(), ALL)
        assert lenient.latestOffset(start, ALL) == start
        (deleted,) = admin.delete_topics([topic]).values()
        deleted.result(DEADLINE_S)
        end = reader.latestOffset(start, ALL)
        assert end == {other: {"0": 0}}
        with pytest.raises(DataLossError, match=f"{topic}-0 was read before and is gone"):
            reader.partitions(start, end)
        assert lenient.partitions(start, end) == []
        assert lenient.latestOffset(end, ALL) == end
        # A replay of a micro-batch whose records are gone.
        with pytest.raises(DataLossError, match=f"{topic}-0 is gone, with what it held below offset 10"):
            reader.partitions({topic: {"0": 0}, other: {"0": 0}}, start)
        (created,) = admin.create_topics([NewTopic(topic, 1, 1)]).values()
        created.result(DEADLINE_S)
        produce(topic, rows(3))
        with pytest.raises(DataLossError, match=f"topic {topic} was deleted and created anew: its id was"):
            reader.latestOffset(start, ALL)
        end = lenient.latestOffset(start, ALL)
        assert end == {other: {"0": 0}, topic: {"0": 3}}
        assert lenient.partitions(start, end) == []
    # Who knows nothing of ids sees by the offsets that something is wrong.
    with reading(both) as newcomer, pytest.raises(DataLossError, match=f"{topic}-0 is to be read from .* ends at 3"):
        newcomer.partitions(start, end)


def test_the_checkpoint_of_another_query(create_topic, reading):
    topic = create_topic()
    with reading(topic) as reader:
        for ask in (lambda start: reader.latestOffset(start, ALL), lambda start: reader.partitions(start, {})):
            with pytest.raises(OptionError, match=f"a query that read other, and this one reads {topic}"):
                ask({"other": {"0": 5}})
            with pytest.raises(OptionError, match="another source"):
                ask({"logOffset": 5})


def test_finished_batches_are_committed_to_a_group(create_topic, produce, reading, tailrace_broker):
    topic = create_topic(2)
    group = f"{topic}-lag"
    settings = {"bootstrap.servers": tailrace_broker.bootstrap, "group.id": group}
    watcher = Consumer(settings)

    def committed() -> list[int]:
        asked = [TopicPartition(topic, index) for index in range(2)]
        return [found.offset for found in watcher.committed(asked, timeout=DEADLINE_S)]

    produce(topic, rows(4))
    with reading(topic, groupId=group) as reader:
        end = reader.latestOffset(reader.initialOffset(), ALL)
        assert committed() == [0, 0]  # Planned is not finished.
        reader.commit(end)
        assert committed() == [4, 0]
        produce(topic, rows(2, partition=1))
        later = reader.latestOffset(end, ALL)
        # What a micro-batch starts from is finished, so the last one of a run is committed too.
        assert reader.latestOffset(later, ALL) == later
        assert committed() == [4, 2]
    watcher.close()
    member = Consumer(settings | {"session.timeout.ms": 6000})
    member.subscribe([topic])
    deadline = time.monotonic() + DEADLINE_S
    while not member.assignment():
        assert time.monotonic() < deadline
        member.poll(0.1)
    with (
        reading(topic, groupId=group) as reader,
        pytest.raises(OptionError, match=f"cannot be committed to group {group} .* choose another name"),
    ):
        reader.latestOffset(reader.initialOffset(), ALL)
    member.close()


def test_a_commit_that_fails_is_made_good_by_the_next(fresh_tailrace_broker: Broker, monkeypatch, caplog):
    settings = parse_kafka_settings({"kafka.bootstrap.servers": fresh_tailrace_broker.bootstrap})
    admin = AdminClient({"bootstrap.servers": fresh_tailrace_broker.bootstrap})
    (created,) = admin.create_topics([NewTopic("t", 1, 1)]).values()
    created.result(DEADLINE_S)
    with BlockingCluster(settings) as blocking:
        group = GroupCommits(blocking, "g")
        partition = ids.TopicPartition("t", ids.PartitionIndex(0))

        def committed() -> int:
            found = blocking.run(GroupAdmin(blocking.cluster).offsets_of("g", lambda offsets: offsets.fetch()))
            return found[partition].offset

        monkeypatch.setattr(commits, "_COMMIT_TIMEOUT_MS", 20_000)  # The first has the coordinator's topic made.
        group.commit({partition: 1})
        assert committed() == 1
        fresh_tailrace_broker.kill()
        monkeypatch.setattr(commits, "_COMMIT_TIMEOUT_MS", 200)
        with caplog.at_level(logging.WARNING):
            group.commit({partition: 2})
        assert "offsets were not committed to group g, the next batch will do it" in caplog.text
        fresh_tailrace_broker.restart()
        monkeypatch.setattr(commits, "_COMMIT_TIMEOUT_MS", 20_000)
        group.commit({partition: 2})
        assert committed() == 2
