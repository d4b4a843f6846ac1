"""Options of formats, and what becomes of a batch of records."""

import asyncio
import pickle

import pyarrow as pa
import pytest

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.spark.arrow.decode import Columns, arrow_schema
from tailrace.spark.blocking import BlockingCluster
from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.kafka import KafkaSettings
from tailrace.spark.options.read import Subscription
from tailrace.spark.values import DecodeError, RecordFormat
from tailrace.wire.apis.data import MetadataRequest, MetadataResponse, ProduceRequest, ProduceResponse
from tailrace.wire.apis.transactions import InitProducerIdRequest, InitProducerIdResponse
from tests.unit.client.peer import Peer

JSON = {"value.format": "json", "value.schema": "id BIGINT"}
DEAD = {"ondecodeerror": "deadletter", "deadlettertopic": "t"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value.format": "jsn", "value.schema": "id INT"}, "value.format is 'jsn': did you mean json?"),
        ({"key.format": "protobuf"}, "needs schemaRegistryUrl"),
        ({"value.format": "json"}, "needs value.schema: a list of fields"),
        ({"key.format": "avro", "key.schema": " "}, "needs key.schema: an Avro schema"),
        ({"value.format": "json", "value.schema": "id INTT"}, "value.schema cannot be read"),
        ({"value.format": "string", "value.schema": "id INT"}, "value.schema is for json and avro"),
        ({"value.schema": "id INT"}, "value.schema needs value.format"),
        ({"value.avro.prefix": "confluent"}, "value.avro.prefix needs value.format"),
        (JSON | {"value.avro.prefix": "confluent"}, "value.avro.prefix is for value.format avro"),
        ({"value.format": "avro", "value.schema": '"int"', "value.avro.prefix": "conflunt"}, "did you mean confluent?"),
        ({"ondecodeerror": "null"}, "onDecodeError needs value.format or key.format"),
        (JSON | {"ondecodeerror": "deadleter"}, "did you mean deadletter?"),
        (JSON | {"ondecodeerror": "deadletter"}, "name the topic for dead letters"),
        (JSON | {"deadlettertopic": "t"}, "onDecodeError is fail: nothing would be written there"),
    ],
)  # fmt: skip
def test_options_that_cannot_be(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        RecordFormat.parse(options)
    assert message in str(caught.value)


def test_columns_that_must_be_read() -> None:
    assert RecordFormat.parse({"kafka.bootstrap.servers": "x"}) is None
    fails = RecordFormat.parse(JSON)
    assert fails.raw_columns(["value", "headers"]) == ("value", "headers", "topic", "partition", "offset")
    assert fails.raw_columns(["offset", "key"]) == ("offset", "key")
    assert RecordFormat.parse(JSON | {"ondecodeerror": "NULL"}).raw_columns(["value"]) == ("value",)
    dead = RecordFormat.parse(JSON | DEAD).raw_columns(["offset", "value"])
    assert dead == ("offset", "value", "key", "topic", "partition", "timestamp", "headers")


def test_a_topic_of_dead_letters_is_not_read() -> None:
    dead = RecordFormat.parse(JSON | DEAD)
    dead.check_subscription(Subscription(topics=("a", "b")))
    for subscription in (
        Subscription(topics=("a", "t")),
        # Also one that a broker will create when the first dead letter is written.
        Subscription(pattern=".*"),
        Subscription(partitions=(TopicPartition("t", PartitionIndex(0)),)),
    ):
        with pytest.raises(OptionError, match="for ever"):
            dead.check_subscription(subscription)


# Offsets 10 to 13: good, a bad value, a bad key, and both bad.
KEYS = [b'{"k": 1}', b'{"k": 2}', b"!", b"?"]
VALUES = [b'{"id": 1}', b"!", None, b"!"]
KEYED = JSON | {"key.format": "json", "key.schema": "k INT"}
# Far beyond what Python has dates for.
LATE_US = 300_000_000_000_000_000


def raw_batch(record_format: RecordFormat, wanted: list[str]) -> pa.RecordBatch:
    columns = {
        "key": KEYS,
        "value": VALUES,
        "topic": ["orders"] * 4,
        "partition": [3] * 4,
        "offset": range(10, 14),
        "timestamp": [5_000, 6_000, 7_999, LATE_US],
        "timestampType": [0] * 4,
        "headers": [None, [{"key": "h", "value": b"1"}], None, []],
    }
    schema = arrow_schema(Columns(record_format.raw_columns(wanted)))
    arrays = [pa.array(columns[field.name]).cast(field.type) if field.name != "headers"
              else pa.array(columns["headers"], field.type) for field in schema]  # fmt: skip
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def decode(options: dict[str, str], wanted: list[str]) -> list[dict]:
    record_format = pickle.loads(pickle.dumps(RecordFormat.parse(options)))
    batches = record_format.decode([raw_batch(record_format, wanted)], wanted, None, None)
    (batch,) = batches
    assert batch.schema.names == wanted
    return batch.to_pylist()


def test_null_leaves_the_rest_of_the_row() -> None:
    assert decode(KEYED | {"ondecodeerror": "null"}, ["offset", "value", "key"]) == [
        {"offset": 10, "value": {"id": 1}, "key": {"k": 1}},
        {"offset": 11, "value": None, "key": {"k": 2}},
        {"offset": 12, "value": None, "key": None},
        {"offset": 13, "value": None, "key": None},
    ]


def test_fail_names_the_first_bad_record() -> None:
    with pytest.raises(DecodeError, match=r"the value of the record at offset 11 of orders-3 .and of 2 more"):
        decode(KEYED, ["key", "value"])
    with pytest.raises(DecodeError, match=r"the key of the record at offset 12 of orders-3 .and of 1 more"):
        decode(KEYED, ["key"])
    assert decode(JSON, ["key"]) == [{"key": key} for key in KEYS]


class DeadLetterBroker(Peer):
    def __init__(self, refusal: ErrorCode = ErrorCode.NONE) -> None:
        super().__init__()
        self.scripts |= {InitProducerIdRequest: self._identify, ProduceRequest: self._produce}
        self._refusal = refusal

    def _identify(self, _: InitProducerIdRequest) -> InitProducerIdResponse:
        return InitProducerIdResponse(producer_id=7, producer_epoch=0)

    def _produce(self, request: ProduceRequest) -> ProduceResponse:
        (topic,) = request.topic_data
        (partition,) = topic.partition_data
        result = ProduceResponse.PartitionProduceResponse(
            index=partition.index, error_code=self._refusal, base_offset=0
        )
        return ProduceResponse(
            responses=[ProduceResponse.TopicProduceResponse(name=topic.name, partition_responses=[result])]
        )


async def read_with_dead_letters(peer: Peer) -> list[dict]:
    record_format = RecordFormat.parse(KEYED | DEAD)
    settings = KafkaSettings((peer.address,))
    wanted = ["offset", "value"]

    def read() -> list[dict]:
        with BlockingCluster(settings) as blocking:
            record_format.check_dead_letter_topic(blocking, settings)
            batches = record_format.decode([raw_batch(record_format, wanted)] * 2, wanted, blocking, settings)
            return [row for batch in batches for row in batch.to_pylist()]

    return await asyncio.to_thread(read)


async def test_bad_records_give_dead_letters_and_no_rows() -> None:
    async with DeadLetterBroker() as peer:
        rows = await read_with_dead_letters(peer)
    # The bad key at offset 12 does not matter, as nobody asks for keys.
    assert rows == [{"offset": 10, "value": {"id": 1}}, {"offset": 12, "value": None}] * 2
    # One request for each batch of rows, before it is handed out.
    assert sum(isinstance(request, ProduceRequest) for request in peer.requests) == 2


async def test_dead_letters_that_are_refused_fail_the_read() -> None:
    async with DeadLetterBroker(ErrorCode.TOPIC_AUTHORIZATION_FAILED) as peer:
        with pytest.raises(KafkaError, match="orders-3 from offset 11 on were not taken by topic t") as caught:
            await read_with_dead_letters(peer)
    assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_a_missing_topic_for_dead_letters_is_noticed_at_once() -> None:
    def unknown(_: MetadataRequest) -> MetadataResponse:
        topic = MetadataResponse.MetadataResponseTopic(name="t", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return MetadataResponse(topics=[topic])

    async with Peer({MetadataRequest: unknown}) as peer:
        with pytest.raises(OptionError, match="deadLetterTopic: topic t does not exist"):
            await asyncio.wait_for(read_with_dead_letters(peer), 10)
