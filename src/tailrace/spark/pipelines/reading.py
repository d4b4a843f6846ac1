"""What is read once, from a start to an end: a range of a topic, or a table. Backfill and audit read these.

The end of a range is fixed before the first record is read. Spark asks for the ends of a topic whenever it plans a
query, and a topic that grows meanwhile would be another one in each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tailrace.model.ids import TopicPartition
from tailrace.spark.blocking import BlockingCluster
from tailrace.spark.options.read import ReadOptions
from tailrace.spark.pipelines.declaration import DeclarationError
from tailrace.spark.source.lookup import OffsetLookup
from tailrace.spark.source.offsets import OffsetRange, to_json

if TYPE_CHECKING:
    from deltalake import DeltaTable


@dataclass(frozen=True)
class TopicRange:
    """The records of a topic from `start` to `end`, exclusive."""

    topic: str  # or several, with commas between them
    bootstrap: str
    # earliest, latest, an ISO 8601 time (the first record at or after it), or offsets as {"topic": {"0": 23}}.
    start: str = "earliest"
    end: str = "latest"
    where: str | None = None  # an SQL condition over the columns of format("tailrace")
    kafka: Mapping[str, str] = field(default_factory=dict)  # Kafka's own settings, such as security.protocol
    options: Mapping[str, str] = field(default_factory=dict)  # further options of format("tailrace"), by their names

    def __post_init__(self) -> None:
        if not self.topic:
            raise DeclarationError("the topic needs a name", "topic")
        for name in ("start", "end"):
            bound_options(name, getattr(self, name))

    def __str__(self) -> str:
        return f"topic {self.topic}"

    @property
    def source_options(self) -> dict[str, str]:
        """As options of format("tailrace"). What was aborted is no part of a topic unless asked for."""
        return {
            "kafka.isolation.level": "read_committed",
            **{f"kafka.{name}": value for name, value in self.kafka.items()},
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.topic,
            # A partition with nothing so late gives nothing.
            "startingOffsetsByTimestampStrategy": "latest",
            **bound_options("start", self.start),
            **bound_options("end", self.end),
            **self.options,
        }

    @property
    def is_read_committed(self) -> bool:
        return self.source_options["kafka.isolation.level"].lower() == "read_committed"


@dataclass(frozen=True)
class TableScan:
    """All rows of a table."""

    # The path or URL of its folder; for iceberg and spark its name, such as shop.orders.
    table: str
    # spark: a table or view that the session knows.
    format: Literal["parquet", "delta", "iceberg", "spark"] = "parquet"
    where: str | None = None  # an SQL condition over its columns
    catalog: Mapping[str, str] = field(default_factory=dict)  # settings of pyiceberg's catalog
    options: Mapping[str, str] = field(
        default_factory=dict
    )  # options of Spark's reader; for delta, storage options of deltalake

    def __post_init__(self) -> None:
        if not self.table:
            raise DeclarationError("the table needs a path or a name", "table")
        if self.catalog and self.format != "iceberg":
            raise DeclarationError(f"a table of format {self.format} is in no catalog: leave it out", "catalog")

    def __str__(self) -> str:
        return f"table {self.table}"


class Pinned(NamedTuple):
    """A range whose offsets are known: read as often as one likes, it stays the same."""

    options: dict[str, str]
    ranges: tuple[OffsetRange, ...]
    where: str | None

    @property
    def stream_options(self) -> dict[str, str]:
        """The same range as a stream, which ends where the range does."""
        options = dict(self.options)
        options["untilOffsets"] = options.pop("endingOffsets")
        return options

    def read(self, spark: SparkSession) -> DataFrame:
        frame = spark.read.format("tailrace").options(**self.options).load()
        return frame if self.where is None else frame.where(self.where)


def pin(wanted: TopicRange) -> Pinned:
    """Asks the cluster for the offsets, from this process. Raises OptionError and KafkaError."""
    options = wanted.source_options
    parsed = ReadOptions.parse({name.lower(): value for name, value in options.items()}, is_stream=False)
    with BlockingCluster(parsed.kafka) as blocking:
        lookup = OffsetLookup(blocking.cluster, parsed)
        starts = blocking.run(lookup.resolve(parsed.start, is_start=True))
        ends = blocking.run(lookup.resolve(parsed.end, is_start=False))
    ranges = tuple(OffsetRange(each, starts[each], max(starts[each], ends[each])) for each in sorted(starts))
    fixed = {name: value for name, value in options.items() if name.lower() not in _BOUND_NAMES}
    fixed["startingOffsets"] = _offsets_text({each.partition: each.start for each in ranges})
    fixed["endingOffsets"] = _offsets_text({each.partition: each.end for each in ranges})
    return Pinned(fixed, ranges, wanted.where)


def read_table(spark: SparkSession, scan: TableScan) -> DataFrame:
    """Delta and Iceberg have no reader on Spark without their jars: their libraries tell which files are the table, and
    Spark reads those."""
    match scan.format:
        case "parquet":
            frame = spark.read.options(**scan.options).parquet(scan.table)
        case "spark":
            frame = spark.read.options(**scan.options).table(scan.table)
        case "delta":
            frame = _read_delta(spark, scan)
        case "iceberg":
            frame = _read_iceberg(spark, scan)
    return frame if scan.where is None else frame.where(scan.where)


def _read_delta(spark: SparkSession, scan: TableScan) -> DataFrame:
    try:
        from deltalake import DeltaTable
    except ImportError:
        raise DeclarationError(_MISSING.format("delta", "deltalake"), "format") from None

    table = DeltaTable(scan.table, storage_options=dict(scan.options) or None)
    if "deletionVectors" in (table.protocol().reader_features or ()):
        raise DeclarationError(f"{scan.table} may have deletion vectors, which cannot be read here", "table")
    # Delta writes its schema as Spark does.
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    files = [_local(uri) for uri in table.file_uris()]
    if not files:
        return spark.createDataFrame([], schema)
    partition_columns = table.metadata().partition_columns
    stored = StructType([each for each in schema.fields if each.name not in partition_columns])
    # Paths that look like partitions are a custom of some writers, and promise nothing.
    rows = spark.read.schema(stored).option("recursiveFileLookup", "true").parquet(*files)
    if not partition_columns:
        return rows
    values = _partition_values(spark, table, scan.table)
    joined = rows.withColumn(_FILE, sf.col("_metadata.file_name")).join(sf.broadcast(values), _FILE, "left")
    return joined.select(*schema.names)


def _partition_values(spark: SparkSession, table: DeltaTable, name: str) -> DataFrame:
    """The partition values of each file, by its name: only Delta's log knows them."""
    import pyarrow as pa

    actions = pa.table(table.get_add_actions())
    names = [path.rpartition("/")[2] for path in actions["path"].to_pylist()]
    if len(set(names)) < len(names):
        raise DeclarationError(f"{name} has files of one name in several folders, which cannot be told apart", "table")
    values = actions["partition"].combine_chunks().flatten()
    columns = [field.name for field in actions.schema.field("partition").type]
    return spark.createDataFrame(pa.table([pa.array(names), *values], [_FILE, *columns]))


def _read_iceberg(spark: SparkSession, scan: TableScan) -> DataFrame:
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise DeclarationError(_MISSING.format("iceberg", "pyiceberg"), "format") from None

    table = load_catalog("default", **scan.catalog).load_table(scan.table)
    tasks = list(table.scan().plan_files())
    if any(task.delete_files for task in tasks):
        raise DeclarationError(f"{scan.table} has delete files, which cannot be read here: rewrite it first", "table")
    names = {(each.field_id, each.name) for schema in table.schemas().values() for each in schema.fields}
    if len({number for number, _ in names}) < len(names):
        # Iceberg knows columns by their numbers, Spark's reader by their names in the files.
        raise DeclarationError(f"a column of {scan.table} was renamed, and older files have its old name", "table")
    schema = from_arrow_schema(table.schema().as_arrow())
    files = [_local(task.file.file_path) for task in tasks]
    return spark.read.schema(schema).parquet(*files) if files else spark.createDataFrame([], schema)


_FILE = "_file"
_MISSING = "tables of format {0} need the package {1}: pip install 'tailrace[{0}]'"


def _local(uri: str) -> str:
    return uri.removeprefix("file://")


def bound_options(name: str, text: str) -> dict[str, str]:
    prefix = "starting" if name == "start" else "ending"
    if text in ("earliest", "latest") or text.lstrip().startswith("{"):
        return {f"{prefix}Offsets": text}
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise DeclarationError(
            f"{text!r} is neither earliest, latest, a time such as 2026-01-31T12:00:00Z, nor offsets such as "
            '{"orders": {"0": 23}}',
            name,
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return {f"{prefix}Timestamp": str(int(time.timestamp() * 1000))}


_BOUND_NAMES = frozenset(
    f"{side}{form}"
    for side in ("starting", "ending")
    for form in ("offsets", "timestamp", "offsetsbytimestamp", "offsetsbytimestampstrategy")
)


def _offsets_text(offsets: Mapping[TopicPartition, int]) -> str:
    return json.dumps(to_json(offsets))
