"""Changes of a database as Debezium writes them, merged into tables that equal the database's.

debezium/*.jsonl are keys and values that Debezium 3.0.8 wrote of a table of PostgreSQL 16.6, with the JSON converter's
`schemas.enable` off and on; of two long texts, which PostgreSQL does not tell again when they are not changed, only the
beginning was kept. The rows of the table before it was emptied, which the last record tells, are in `TABLE`.
"""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from tailrace.cli.pipeline.checking import sink_columns
from tailrace.spark.pipelines import TopicSource, load, run
from tailrace.spark.pipelines.changes.debezium import envelope_schema, opened_changes
from tailrace.spark.pipelines.declaration import DeclarationError
from tailrace.spark.pipelines.landing.batches import Landing
from tailrace.testing import Broker
from tests.parts import ROOT
from tests.spark.test_landing import checkpoint, sink
from tests.spark.test_merging import rows_of, stored, table_of

__all__ = ["checkpoint", "sink"]  # Fixtures.

FOLDER = Path(__file__).parent / "debezium"
TABLE = [
    (1, "customer 1", "1.50", "note", "2026-01-01", "DE"),
    (2, "customer 2", "22.00", "long " * 20, "2026-01-02", None),
    (3, "customer 3 again", "3.75", "back", "2026-01-08", None),
    (5, "customer 5", "5.50", "note", "2026-01-05", None),
    (6, "customer 6", "66.00", "more " * 20, "2026-01-06", None),
    (7, "customer 7", "7.50", None, "2026-01-07", "NL"),
    (40, "customer 4", "4.50", "note", "2026-01-04", None),
]
UNAVAILABLE = "__debezium_unavailable_value"


def records(name):
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text().splitlines()]


def pipeline_of(fed, sink, folder, **source):
    """The example, for another topic, table and checkpoint."""
    example = load(ROOT / "examples/pipelines/customers.toml")
    merging = {name: getattr(example.sink, name) for name in ("merge_on", "delete_where", "omit")}
    return replace(
        example,
        bootstrap=fed.bootstrap,
        sources={"customers": replace(example.sources["customers"], topic=fed.topic, **source)},
        sink=replace(sink, partition_by=(), **merging),
        checkpoint=str(folder / "stream"),
    )


def rows_in(sink):
    return sorted(
        (row["id"], row["customer"], row["amount"], row["note"], str(row["at"].date()), row["country"])
        for row in stored(sink)
    )


class Fed(NamedTuple):
    """A topic, and what is written into it next."""

    bootstrap: str
    topic: str
    add: Callable[[list], None]


@pytest.fixture
def fed(tailrace_broker, create_topic, produce):
    topic = create_topic()
    return Fed(tailrace_broker.bootstrap, topic, lambda rows: produce(topic, rows))


@pytest.mark.parametrize(
    ("form", "sink"),
    [("plain", "delta"), pytest.param("with-schema", "iceberg", marks=pytest.mark.long)],
    indirect=["sink"],
)
def test_a_table_equals_that_of_the_database(spark, sink, form, fed, tmp_path):
    *changes, truncation = records(form)
    fed.add(changes)
    # Six records a batch: some values that are not told again stand in the table, others in the same batch.
    pipeline = pipeline_of(fed, sink, tmp_path, batch_records_max=6)
    assert run(pipeline, spark, once=True).batches == 3
    assert rows_in(pipeline.sink) == TABLE

    fed.add([truncation])
    with pytest.raises(PySparkException, match=f"record 16 of partition 0 of topic {fed.topic} says that the whole"):
        run(pipeline, spark, once=True)
    source = replace(pipeline.sources["customers"], on_truncate="skip")
    run(replace(pipeline, sources={"customers": source}), spark, once=True)
    assert rows_in(pipeline.sink) == TABLE


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"id": 1, "customer": "flat"}, "is no change as Debezium writes them"),
        ({"op": "x", "after": {"id": 1}}, "is no change as Debezium writes them"),
        ({"op": "d", "before": None, "after": None}, "does not say which row it is about"),
        ({"op": "u", "before": {"id": 1}}, "does not say which row it is about"),
        ({"op": "m", "message": {}}, None),
        ({"schema": {}, "payload": {"op": "r", "after": {"id": 5}}}, (5, None)),
        ({"schema": {}, "payload": {"op": "d", "before": {"id": 5, "note": "x"}}}, (5, "x")),
    ],
)
def test_each_kind_of_record(spark, value, reason):
    """Without a stream: what a source does with the rows that it has read."""
    source = TopicSource("orders", format="json", schema="id INT, note STRING", envelope="debezium")
    kind = StructType.fromJson(json.loads(envelope_schema(source)))
    rows = spark.createDataFrame([(json.dumps(value), 7, 1), (None, 8, 1)], "value STRING, offset LONG, partition INT")
    rows = rows.withColumn("topic", sf.lit("orders")).withColumn("value", sf.from_json("value", kind))
    opened = opened_changes(rows, source)
    if isinstance(reason, str):
        with pytest.raises(PySparkException, match=f"record 7 of partition 1 of topic orders {reason}"):
            opened.collect()
    else:
        assert [tuple(row.value) for row in opened.collect()] == ([] if reason is None else [reason])


def test_what_has_no_envelope_is_refused_before_anything_is_read(spark, fed, tmp_path, sink):
    flat = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
    with pytest.raises(DeclarationError, match="which have before, after and op: their schema has id"):
        sink_columns(spark, pipeline_of(fed, sink, tmp_path, format="avro", schema=json.dumps(flat)))


@pytest.mark.parametrize("order", ["offset", pytest.param("version", marks=pytest.mark.long)])
def test_values_that_are_not_told_stay_what_they_were(spark, sink, checkpoint, order):
    """Random changes, in batches of chance, against a dict."""
    sink = replace(sink, partition_by=(), merge_on=("key",), delete_where="text IS NULL", omit=("partition", "offset"))
    if order == "version":
        sink = replace(sink, version="version")
    land = Landing("orders", checkpoint("first"), sink, unavailable={UNAVAILABLE})
    chance = random.Random(5)
    table, version = {}, 0
    for number in range(4):
        batch = []
        for _ in range(chance.randrange(2, 12)):
            version += 1
            key = f"k{chance.randrange(4)}"
            if key in table and chance.random() < 0.6:
                # Deleted, or changed in another column than the text.
                text = None if chance.random() < 0.3 else UNAVAILABLE
            else:
                text = "x" * chance.randrange(5)
            batch.append((key, text, version))
            if text is None:
                del table[key]
            else:
                table[key] = (table[key][0] if text == UNAVAILABLE else text, version)
        for _ in range(1 + number % 2):
            land(rows_of(spark, batch), number)
        assert {key: row[:2] for key, row in table_of(sink).items()} == table
    # Nothing is known of it.
    land(rows_of(spark, [("new", UNAVAILABLE, version + 1)]), 4)
    assert table_of(sink)["new"][0] is None


def envelope_of(fields):
    """As Debezium's Avro has it, but for what it says of where the row was."""
    row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "int"}, *fields]}
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.public.orders",
        "connect.version": 2,
        "connect.name": "shop.public.orders.Envelope",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {
                "name": "source",
                "type": {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"]}]},
            },
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    }


@pytest.mark.long
@pytest.mark.parametrize("sink", ["delta"], indirect=True)
def test_avro_whose_schema_gets_a_column(spark, sink, tmp_path):
    """Records of both schemas, in one topic; the table grows when the pipeline is started with the newer one."""

    def optional(name, kind):
        return {"name": name, "type": ["null", kind], "default": None}

    at = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}, "default": 0}
    first = [optional("customer", "string"), optional("amount", "string"), optional("note", "string"), at]
    second = [*first, optional("country", "string")]
    changes = [json.loads(record["value"]) for record in records("plain")[:-1] if record["value"] is not None]
    with Broker(registry=True) as broker, SchemaRegistryClient({"url": broker.registry_url}) as registry:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
        pipeline = pipeline_of(
            Fed(broker.bootstrap, "orders", print),
            replace(sink, evolve="add"),
            tmp_path,
            format="avro",
            schema=None,
            options={"schemaRegistryUrl": broker.registry_url},
        )
        context = SerializationContext("orders", MessageField.VALUE)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        is_new = ["country" in (change["after"] or {}) for change in changes].index(True)
        for fields, part in ((first, changes[:is_new]), (second, changes[is_new:])):
            serialize = AvroSerializer(registry, json.dumps(envelope_of(fields)))
            for change in part:
                for row in filter(None, (change["before"], change["after"])):
                    row["at"] = 86_400_000_000 * 20_000
                producer.produce("orders", serialize(change, context))
            assert producer.flush(30) == 0
            run(pipeline, spark, once=True)
    expected = [(number, *rest, "2024-10-04", country) for number, *rest, _, country in TABLE]
    assert rows_in(pipeline.sink) == expected
