"""Options of the source: names, defaults, and a clear error for each that cannot be."""

import pickle

import pytest

from tailrace.client.offsets import EARLIEST, LATEST
from tailrace.model.ids import TopicPartition
from tailrace.spark.options.bounds import AtOffsets, AtTime, AtTimes, EndOfLog, NoMatch
from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.read import ReadOptions, Subscription, parse_columns

NEEDED = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t"}


def parse(*, is_stream: bool = False, **given: str) -> ReadOptions:
    options = NEEDED | {name.replace("__", "."): text for name, text in given.items()}
    return ReadOptions.parse({name.lower(): text for name, text in options.items()}, is_stream=is_stream)


def test_the_defaults_are_those_of_sparks_connector():
    batch, stream = parse(), parse(is_stream=True)
    assert (batch.start, batch.end, stream.start) == (EndOfLog(EARLIEST), EndOfLog(LATEST), EndOfLog(LATEST))
    assert batch.fail_on_data_loss
    assert (stream.trigger_delay_ms_max, stream.poll_timeout_ms, stream.offset_attempts) == (900_000, 120_000, 3)
    assert batch.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert (batch.min_partitions, stream.offsets_per_trigger_max, batch.partition_cache_ms) == (None, None, None)
    assert pickle.loads(pickle.dumps(batch)) == batch


def test_every_option_is_read():
    read = parse(
        is_stream=True,
        startingOffsets='{"t": {"0": 5, "1": -1}}',
        failOnDataLoss="FALSE",
        minPartitions="7",
        maxRecordsPerPartition="1000",
        minOffsetsPerTrigger="10",
        maxOffsetsPerTrigger="20",
        maxTriggerDelay="90s",
        includeHeaders="true",
        kafkaConsumer__pollTimeoutMs="5",
        fetchOffset__numRetries="4",
        fetchOffset__retryIntervalMs="0",
        partition__metadata__cache__ttl__ms="60000",
        groupIdPrefix="ignored",
        groupId="seen",
        untilOffsets='{"t": {"0": 9}}',
    )
    assert read.start == AtOffsets({TopicPartition("t", 0): 5, TopicPartition("t", 1): LATEST})
    assert not read.fail_on_data_loss
    assert (read.min_partitions, read.records_per_partition_max) == (7, 1000)
    assert (read.offsets_per_trigger_min, read.offsets_per_trigger_max, read.trigger_delay_ms_max) == (10, 20, 90_000)
    assert read.columns[-1] == "headers"
    assert (read.poll_timeout_ms, read.offset_attempts, read.offset_retry_interval_ms) == (5, 4, 0)
    assert (read.partition_cache_ms, read.group_id) == (60_000, "seen")
    assert read.until == {TopicPartition("t", 0): 9}


@pytest.mark.parametrize(
    ("given", "subscription"),
    [
        ({"subscribe": " a, b,,a "}, Subscription(topics=("a", "b"))),
        ({"subscribepattern": "orders-.*"}, Subscription(pattern="orders-.*")),
        ({"assign": '{"t": [1, 0]}'}, Subscription(partitions=(TopicPartition("t", 0), TopicPartition("t", 1)))),
    ],
)
def test_subscriptions(given: dict[str, str], subscription: Subscription):
    options = {"kafka.bootstrap.servers": "b:9092"} | given
    assert ReadOptions.parse(options, is_stream=False).subscription == subscription


def test_the_more_precise_bound_in_time_wins():
    by_partition = '{"t": {"0": 1000}}'
    read = parse(startingTimestamp="5", startingOffsetsByTimestamp=by_partition, startingOffsets="earliest")
    assert read.start == AtTime(5, NoMatch.ERROR)
    read = parse(
        startingOffsetsByTimestamp=by_partition,
        startingOffsets="earliest",
        startingOffsetsByTimestampStrategy="latest",
        endingTimestamp="7",
        endingOffsets="latest",
    )
    assert read.start == AtTimes({TopicPartition("t", 0): 1000}, NoMatch.LATEST)
    assert read.end == AtTime(7, NoMatch.LATEST)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribee": "t"}, "did you mean subscribe?"),
        ({"startingOfsets": "earliest"}, "did you mean startingOffsets?"),
        ({"topics": "t"}, "did you mean subscribe?"),
        ({"bootstrap.servers": "b:1"}, "did you mean kafka.bootstrap.servers?"),
        ({"zzz": "1"}, "the options are .*failOnDataLoss"),
        ({"assign": '{"t": [0]}'}, "exactly one of .* found subscribe and assign"),
        ({"subscribe": " , "}, "names no topic"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss is 'yes': expected true or false"),
        ({"minPartitions": "0"}, "minPartitions is 0: expected 1 or more"),
        ({"minPartitions": "many"}, "minPartitions is 'many': expected a whole number"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition is -1"),
        ({"partition.metadata.cache.ttl.ms": "0"}, "or -1 for no cache"),
        ({"startingOffsets": "newest"}, "startingOffsets is 'newest': expected earliest, latest or"),
        ({"startingOffsets": '{"t": 5}'}, 'has 5 for topic t: expected {"topicA"'),
        ({"startingOffsets": '{"t": {"0": "5"}}'}, 'has "5" for t-0: expected a whole number'),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "has -3 for t-0"),
        ({"startingOffsets": '{"t": {"x": 3}}'}, "has partition 'x' of topic t"),
        ({"startingOffsets": '{"t": {"0": 5'}, "startingOffsets is not JSON"),
        ({"startingOffsets": "latest"}, "nothing would be read"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "nothing would be read"),
        ({"endingOffsets": "earliest"}, "endingOffsets says earliest"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "endingOffsets says earliest"),
        ({"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"1":7}}'}, "t-0, t-1 is in one only"),
        ({"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":4}}'}, "t-0 would be read from 5 .* to 4"),
        ({"startingTimestamp": "now"}, "startingTimestamp is 'now'"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "expected error or latest"),
        ({"columns": "key,valeu"}, "columns has 'valeu', which is none of key, value"),
        ({"columns": "key,KEY"}, "columns has key twice"),
        ({"columns": ","}, "columns is empty"),
    ],
)
def test_what_cannot_be_is_explained(given: dict[str, str], message: str):
    with pytest.raises(OptionError, match=message):
        ReadOptions.parse({name.lower(): text for name, text in (NEEDED | given).items()}, is_stream=False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is for batch queries"),
        ({"endingTimestamp": "5"}, "endingTimestamp is for batch queries"),
        (
            {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
            r"\(5\) is higher than maxOffsetsPerTrigger \(4\)",
        ),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is 0"),
        ({"groupId": " "}, "groupId is empty"),
        ({"maxTriggerDelay": "5 weeks"}, "maxTriggerDelay is '5 weeks': expected a number with a unit"),
    ],
)
def test_what_cannot_be_in_a_stream(given: dict[str, str], message: str):
    with pytest.raises(OptionError, match=message):
        parse(is_stream=True, **given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.bootstrap.servers": "b:1"}, "found none of them"),
        ({"kafka.bootstrap.servers": "b:1", "subscribepattern": "("}, "no regular expression"),
        ({"kafka.bootstrap.servers": "b:1", "assign": "{}"}, "names no partition"),
        ({"kafka.bootstrap.servers": "b:1", "assign": '{"t": [-1]}'}, "expected {"),
        ({"kafka.bootstrap.servers": "b:1", "assign": '["t"]'}, "expected {"),
        ({"subscribe": "t"}, "kafka.bootstrap.servers is missing"),
    ],
)
def test_what_is_missing(options: dict[str, str], message: str):
    with pytest.raises(OptionError, match=message):
        ReadOptions.parse(options, is_stream=False)


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "groupId"])
def test_what_only_streams_heed_warns_in_a_batch(name: str):
    with pytest.warns(UserWarning, match=f"{name} is for streams"):
        parse(**{name: "5"})


def test_options_of_the_sink_warn_and_those_of_spark_do_not():
    parse(path="x", checkpointLocation="y")
    with pytest.warns(UserWarning, match="topic has no meaning for reading"):
        parse(topic="x")


def test_the_least_that_a_trigger_waits_for_may_be_given_as_its_default():
    assert parse(is_stream=True, minOffsetsPerTrigger="0").offsets_per_trigger_min == 0


def test_columns_in_the_order_given():
    assert parse_columns({"columns": "value, offset ,timestamptype"}) == ("value", "offset", "timestampType")
    assert parse_columns({"columns": "value", "includeheaders": "true"}) == ("value", "headers")


@pytest.mark.parametrize(("text", "expected_ms"), [("250", 250), ("2s", 2000), ("3 min", 180_000), ("1h", 3_600_000)])
def test_durations_are_written_as_in_spark(text: str, expected_ms: int):
    assert parse(is_stream=True, maxTriggerDelay=text).trigger_delay_ms_max == expected_ms
