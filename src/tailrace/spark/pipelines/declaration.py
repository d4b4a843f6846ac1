"""What a pipeline is: sources, a transform, a sink, and where the run remembers how far it came.

These dataclasses are the Python API, and what a file (`document`, `parse`) is turned into. They know nothing of Spark;
what cannot be is refused when they are made, by a DeclarationError that names the field, so that a file's line can be
told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

# The column that a watermark adds to a source: when the event happened.
EVENT_TIME = "event_time"

_DURATION = re.compile(r"\s*\d+\s+(milliseconds?|seconds?|minutes?|hours?|days?)\s*", re.IGNORECASE)
_PARTITION = re.compile(r"(?:(year|month|day|hour)\((\w+)\)|(\w+))")
_NAME = re.compile(r"[A-Za-z_]\w*")
_FUNCTION = re.compile(r"[\w.]+:\w+")
# Names become parts of paths and of transactional ids.
_PIPELINE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class DeclarationError(ValueError):
    """Something that a pipeline cannot be. `key` is what says it, "" if the whole does."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


@dataclass(frozen=True)
class TopicSource:
    """A topic as a stream of rows: the columns of format("tailrace"), and `event_time` if there is a watermark."""

    topic: str  # or several, with commas between them
    # Where a run begins that finds no checkpoint: earliest, latest, or offsets as JSON.
    starting: str = "earliest"
    # Turns the column `value` from bytes into a string, or into a struct of `schema`.
    format: Literal["json", "avro", "string"] | None = None
    # DDL for json, Avro's own JSON for avro; a registry (`schemaRegistryUrl` among the options) has it otherwise.
    schema: str | None = None
    # Values are changes of a database's rows, as Debezium writes them: `schema` is that of the rows (for json).
    envelope: Literal["debezium"] | None = None
    # What Debezium puts in the place of a value that it was not told, as it is what it was.
    unavailable: str = "__debezium_unavailable_value"
    # What becomes of a record that says that the database's table was emptied.
    on_truncate: Literal["fail", "skip"] = "fail"
    # What becomes of a record that `format` cannot read; with `dead_letters` it goes to that topic instead.
    on_bad_record: Literal["fail", "null"] = "fail"
    dead_letters: str | None = None
    # Finished batches are committed as offsets of this consumer group, so that others see the lag.
    group: str | None = None
    batch_records_max: int | None = None
    # When the event of a row happened, as an SQL expression; and how late another one may be.
    time: str = "timestamp"
    watermark: str | None = None
    # SQL expressions: of rows that are equal in all of them only the first within the watermark stays.
    deduplicate: tuple[str, ...] = ()
    # Further options of format("tailrace"), by their names.
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_topic(self.topic, "topic")
        if self.format in ("json", "avro") and not self.schema and not self._has_registry:
            raise DeclarationError(f"format {self.format} needs a schema: add the key schema", "format")
        if self.schema and self.format not in ("json", "avro"):
            raise DeclarationError("a schema needs a format that has one: json or avro", "schema")
        if self.envelope is not None:
            self._check_envelope()
        if self.dead_letters is not None:
            _check_topic(self.dead_letters, "dead_letters")
            if self.format is None:
                raise DeclarationError(
                    "dead letters need a format: without one every record can be read", "dead_letters"
                )
            if self.dead_letters in self.topic.split(","):
                raise DeclarationError("dead letters would be read again: name another topic", "dead_letters")
        if self.batch_records_max is not None and self.batch_records_max < 1:
            raise DeclarationError(
                f"{self.batch_records_max} records are no batch: give 1 or more", "batch_records_max"
            )
        if self.watermark is not None:
            _check_duration(self.watermark, "watermark")
        elif self.deduplicate:
            raise DeclarationError(
                "without a watermark every key would have to be remembered for ever: "
                'add one that says how far apart duplicates can be, such as watermark = "10 minutes"',
                "deduplicate",
            )

    def _check_envelope(self) -> None:
        if self.format not in ("json", "avro"):
            raise DeclarationError("an envelope is read from json or avro: add the key format", "envelope")
        if self.on_bad_record == "null" and self.dead_letters is None:
            raise DeclarationError(
                "a record that cannot be read would pass for a tombstone, which is left out: let it fail, or name "
                "dead_letters",
                "on_bad_record",
            )

    @property
    def _has_registry(self) -> bool:
        return any(name.lower() == "schemaregistryurl" for name in self.options)

    def __str__(self) -> str:
        return f"topic {self.topic}"


@dataclass(frozen=True)
class Maintenance:
    """What a pipeline does for its table between two batches, so that it stays small and quick to read."""

    every: str = "6 hours"
    # Small files become files of this size.
    file_mb: int = 128
    # What the table was before that is forgotten, and files are deleted that only this or nobody needs.
    keep_history: str = "7 days"
    # How long the version of a deleted key is remembered.
    keep_deleted: str = "30 days"

    def __post_init__(self) -> None:
        for name in ("every", "keep_history", "keep_deleted"):
            _check_duration(getattr(self, name), name)
        if self.file_mb < 1:
            raise DeclarationError(f"files of {self.file_mb} MB are none: give 1 or more", "file_mb")
        if self.history < HISTORY_MIN:
            raise DeclarationError(
                f"{self.keep_history} may be less than a batch takes, and its files would be deleted before they are "
                f"in the table: give {HISTORY_MIN.days} days or more",
                "keep_history",
            )

    @property
    def interval(self) -> timedelta:
        return _duration(self.every)

    @property
    def history(self) -> timedelta:
        return _duration(self.keep_history)

    @property
    def deleted(self) -> timedelta:
        return _duration(self.keep_deleted)


@dataclass(frozen=True)
class TableSink:
    """A table that rows are appended to, each exactly once; with `merge_on` the last row of each key is there."""

    table: str  # the path or URL of its folder; for iceberg its name, such as shop.orders
    format: Literal["parquet", "delta", "iceberg"] = "parquet"
    # Columns, or year(c), month(c), day(c), hour(c) of a column of time.
    partition_by: tuple[str, ...] = ()
    # Settings of pyiceberg's catalog: type, uri, warehouse, ...; without any, what its own configuration says.
    catalog: Mapping[str, str] = field(default_factory=dict)
    # For delta: storage options of deltalake. For parquet: options of Spark's writer, such as compression.
    options: Mapping[str, str] = field(default_factory=dict)
    # What becomes of columns that the table does not have: `add` makes it grow.
    evolve: Literal["fail", "add"] = "fail"
    # Columns that are the key: a row replaces the one that has the same.
    merge_on: tuple[str, ...] = ()
    # An SQL condition: such a row deletes its key.
    delete_where: str | None = None
    # The column that says which row of a key is the last; without it their offsets do.
    version: str | None = None
    # Columns that are there for `delete_where` or the order alone, and not in the table.
    omit: tuple[str, ...] = ()
    # Without it files are merged, and old ones deleted, by whoever does it.
    maintenance: Maintenance | None = None

    def __post_init__(self) -> None:
        if not self.table:
            raise DeclarationError("the table needs a path or a name", "table")
        for partition in self.partition_by:
            if not _PARTITION.fullmatch(partition):
                raise DeclarationError(
                    f"{partition!r} is no partitioning: name a column, or year(c), month(c), day(c) or hour(c) of one",
                    "partition_by",
                )
        if self.catalog and self.format != "iceberg":
            raise DeclarationError(f"a table of format {self.format} is in no catalog: leave it out", "catalog")
        if self.format == "iceberg" and "." not in self.table:
            raise DeclarationError(f"{self.table!r} names no namespace: write namespace.table", "table")
        if self.maintenance is not None and self.format == "parquet":
            raise DeclarationError(
                "files of a Parquet table stay as they are: Spark lists them one by one in _spark_metadata. Use delta "
                "or iceberg",
                "maintenance",
            )
        self._check_merging()

    def _check_merging(self) -> None:
        if self.merge_on and self.format == "parquet":
            raise DeclarationError("rows of Parquet tables cannot be replaced: use delta or iceberg", "merge_on")
        for key in ("delete_where", "version", "omit"):
            if getattr(self, key) and not self.merge_on:
                raise DeclarationError("only rows with a key replace others: add merge_on", key)
        for name in self.omit:
            if name in (*self.merge_on, self.version):
                raise DeclarationError(f"{name} has to be in the table, to be compared with", "omit")

    def __str__(self) -> str:
        return f"{self.format} table {self.table}"

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return tuple(map(Partition.parse, self.partition_by))


@dataclass(frozen=True)
class Partition:
    """How rows are laid out in a table: by the value of a column, or by the part of a time that `unit` says."""

    column: str
    unit: str | None = None

    @classmethod
    def parse(cls, text: str) -> Partition:
        found = _PARTITION.fullmatch(text)
        assert found is not None, "the sink has checked it"
        unit, timed, column = found.groups()
        return cls(timed or column, unit)

    @property
    def name(self) -> str:
        """The column's name as readers of the table see it."""
        return f"{self.column}_{self.unit}" if self.unit else self.column


@dataclass(frozen=True)
class TopicSink:
    """A topic that rows are written to, each exactly once. Rows have the columns of format("tailrace"), `value` at
    least; with format json every column goes into the value, as one object."""

    topic: str
    format: Literal["json"] | None = None
    key: str | None = None  # an SQL expression
    exactly_once: bool = True
    # Which rows of an aggregation are written: those that are final, those that changed, or all.
    mode: Literal["append", "update", "complete"] = "append"
    # Further options of format("tailrace"), by their names.
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_topic(self.topic, "topic")
        if "," in self.topic:
            raise DeclarationError("a sink has one topic; rows for several say theirs in a column topic", "topic")

    def __str__(self) -> str:
        return f"topic {self.topic}"


@dataclass(frozen=True)
class Transform:
    """From the rows of the sources to those of the sink: a query over views that are named like the sources, or a
    function of their DataFrames, in the order of the sources."""

    sql: str | None = None
    python: str | None = None  # module:function
    function: Callable[..., Any] | None = None  # the same from Python: DataFrame, ... -> DataFrame

    def __post_init__(self) -> None:
        if sum(way is not None for way in (self.sql, self.python, self.function)) != 1:
            raise DeclarationError("a transform is either sql or python: give one of the two")
        if self.python is not None and not _FUNCTION.fullmatch(self.python):
            raise DeclarationError(f"{self.python!r} is not module:function", "python")


@dataclass(frozen=True)
class History:
    """What was in the topic before the stream began: brought in beside it, up to the cut at which the stream begins."""

    # earliest, an ISO 8601 time (the first record at or after it), or offsets as {"topic": {"0": 23}}.
    start: str = "earliest"
    # At most so many are taken.
    records_per_second: int | None = None
    batch_records_max: int = 200_000
    # Further options of format("tailrace") for the history alone, such as tier.
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.records_per_second is not None and self.records_per_second < 1:
            raise DeclarationError("a limit below 1 record a second would stop it: leave it out", "records_per_second")
        if self.batch_records_max < 1:
            raise DeclarationError(
                f"{self.batch_records_max} records are no batch: give 1 or more", "batch_records_max"
            )


@dataclass(frozen=True)
class Pipeline:
    """One streaming query. Its name and checkpoint are its identity: a table that was
    filled under this name with another checkpoint is refused, since its records would be written again."""

    name: str
    bootstrap: str
    sources: Mapping[str, TopicSource]
    sink: TableSink | TopicSink
    checkpoint: str
    transform: Transform | None = None
    # available-now: what is there, and the end; else how often a batch begins, such as "10 seconds" (default: at once).
    trigger: str | None = None
    kafka: Mapping[str, str] = field(
        default_factory=dict
    )  # Kafka's own settings for all sources and the sink, such as security.protocol
    spark: Mapping[str, str] = field(default_factory=dict)
    # The stream begins at the end of its topic, and this brings in what was there before.
    history: History | None = None
    # Where the modules of a python transform are looked for first.
    folder: str = "."

    def __post_init__(self) -> None:
        check_name(self.name)
        if not self.sources:
            raise DeclarationError("a pipeline needs a source", "sources")
        for name in self.sources:
            if not _NAME.fullmatch(name):
                raise DeclarationError(
                    f"the source {name!r} cannot be named so in SQL: use letters, digits and _", "sources"
                )
        if len(self.sources) > 1 and self.transform is None:
            raise DeclarationError("several sources need a transform that joins them", "sources")
        if not self.checkpoint:
            raise DeclarationError(
                "without a checkpoint a restart would not know what is done: give a path", "checkpoint"
            )
        if self.trigger is not None and self.trigger != AVAILABLE_NOW:
            _check_duration(self.trigger, "trigger", f"{AVAILABLE_NOW}, or ")
        if self.history is not None:
            self._check_history()
        self._check_order_of_keys()

    def _check_order_of_keys(self) -> None:
        sink = self.sink
        if not isinstance(sink, TableSink) or not sink.merge_on or sink.version is not None or "topic" in sink.merge_on:
            return
        topics = {topic.strip() for source in self.sources.values() for topic in source.topic.split(",")}
        if len(topics) > 1:
            raise DeclarationError(
                f"the offsets of {', '.join(sorted(topics))} do not say which record of a key is the last: name a "
                "column that does, as version; or merge on the column topic, too",
                "sink",
            )

    def _check_history(self) -> None:
        if len(self.sources) > 1:
            raise DeclarationError("rows of several sources that are joined have no past of their own", "history")
        (source,) = self.sources.values()
        if source.starting != "earliest" or source.deduplicate:
            reason = "deduplicate remembers rows" if source.deduplicate else "the stream begins at the end of its topic"
            raise DeclarationError(f"with a history {reason}: leave one of the two out", "history")
        if isinstance(self.sink, TableSink) and self.sink.format == "parquet":
            raise DeclarationError(
                "a Parquet table takes the files of one query alone: use delta or iceberg, or a topic", "history"
            )

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.sources.values()))} -> {self.sink}"

    @property
    def kafka_options(self) -> dict[str, str]:
        """As options of format("tailrace")."""
        return {"kafka.bootstrap.servers": self.bootstrap} | {f"kafka.{name}": v for name, v in self.kafka.items()}


AVAILABLE_NOW = "available-now"
# The longest batch that anybody has seen, and a day.
HISTORY_MIN = timedelta(days=2)


def check_name(name: str) -> None:
    if not _PIPELINE_NAME.fullmatch(name):
        raise DeclarationError(f"{name!r} is no name: use letters, digits, dot, - and _, at most 100", "name")


def _check_topic(topics: str, key: str) -> None:
    if not all(re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic.strip()) for topic in topics.split(",")):
        raise DeclarationError(f"{topics!r} is no name of a topic", key)


def _duration(text: str) -> timedelta:
    number, unit = text.split()
    return timedelta(**{unit.lower().removesuffix("s") + "s": int(number)})


def _check_duration(text: str, key: str, alternative: str = "") -> None:
    if not _DURATION.fullmatch(text):
        raise DeclarationError(
            f"{text!r} is no duration: write {alternative}a number and a unit, such as 10 minutes", key
        )
