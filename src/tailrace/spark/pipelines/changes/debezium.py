"""Changes of a database's rows as Debezium writes them, opened: the row, and what became of it.

A record has the row `before` and `after`, and `op`: c created, u updated, r read in a snapshot, d deleted, t that the
whole table was emptied, m a message of somebody. As JSON it may stand beside its schema, as `payload`. `value` becomes
the row as it is then, or as it was if it is deleted, of which often only the key is known. Tombstones, which follow
deletions for the sake of compaction, say nothing new and are left out, and so are messages. What is no such record
stops the query: a row that is taken for something else would be lost without a word.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tailrace.spark.options.errors import OptionError
from tailrace.spark.pipelines.declaration import DeclarationError, TopicSource

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

# Of `source` in JSON: where the row is, and what orders the changes of the databases that Debezium knows.
_SOURCE = (
    "ts_ms BIGINT, snapshot STRING, db STRING, schema STRING, table STRING, lsn BIGINT, file STRING, pos BIGINT, "
    "row INT, scn STRING, commit_lsn STRING, change_lsn STRING, event_serial_no BIGINT"
)
_NEEDED = ("before", "after", "op")


def envelope_schema(source: TopicSource) -> str | None:
    """What the records are, if `source.schema` is what the rows are; in Avro the schema says all of it."""
    if source.schema is None or source.format != "json":
        return source.schema
    from pyspark.sql.types import LongType, StringType, StructType

    from tailrace.spark.values.ddl import SchemaError, parse_schema

    try:
        row = parse_schema(source.schema)
    except SchemaError as error:
        raise OptionError(f"option value.schema cannot be read: {error}") from None
    change = StructType().add("before", row).add("after", row).add("op", StringType()).add("ts_ms", LongType())
    change = change.add("source", parse_schema(_SOURCE))
    return StructType([*change.fields]).add("payload", change).json()


def opened_changes(rows: DataFrame, source: TopicSource) -> DataFrame:
    """`value` as the row, and the columns `op`, `ts_ms` and `source` as far as records have them."""
    from pyspark.sql import functions as sf

    change, names = _change(rows.schema["value"].dataType, source)
    op = sf.col("_change.op")
    lost = op.isin("c", "u", "r") & sf.col("_change.after").isNull() | (op == "d") & sf.col("_change.before").isNull()
    row = (
        sf.when(op.isNull() | ~op.isin("c", "u", "r", "d", "t"), _refused("is no change as Debezium writes them"))
        .when(op == "t", _refused("says that the whole table was emptied: empty yours, and skip it (on_truncate)"))
        .when(lost, _refused("does not say which row it is about (has the table REPLICA IDENTITY NOTHING?)"))
        .when(op == "d", sf.col("_change.before"))
        .otherwise(sf.col("_change.after"))
    )
    skipped = ["m", "t"] if source.on_truncate == "skip" else ["m"]
    rows = rows.where("value IS NOT NULL").withColumn("_change", change)
    rows = rows.where(op.isNull() | ~op.isin(*skipped)).withColumn("value", row)
    for name in ("op", "ts_ms", "source"):
        if name in names:
            rows = rows.withColumn(name, sf.col(f"_change.{name}"))
    return rows.drop("_change")


def unavailable_texts(sources: Iterable[TopicSource]) -> frozenset[str]:
    """What stands for a value that is what it was, in rows of these sources."""
    return frozenset(source.unavailable for source in sources if source.envelope is not None)


def _change(value: object, source: TopicSource) -> tuple[Column, list[str]]:
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StructType

    found: StructType = value if isinstance(value, StructType) else StructType()
    names = found.names
    if set(_NEEDED) <= set(names):
        plain = sf.struct(*(sf.col(f"value.{name}") for name in names if name != "payload"))
        if "payload" not in names:
            return plain, names
        return sf.coalesce(sf.col("value.payload"), plain), names
    raise DeclarationError(
        f"values of {source} are no changes as Debezium writes them, which have before, after and op: their schema has "
        f"{', '.join(names) or 'no fields'}",
        "envelope",
    )


def _refused(what: str) -> Column:
    from pyspark.sql import functions as sf

    place = sf.concat_ws(
        " ", sf.lit("record"), "offset", sf.lit("of partition"), "partition", sf.lit("of topic"), "topic"
    )
    return sf.raise_error(sf.concat(place, sf.lit(f" {what}")))
