"""Which attempt at a batch counts, for the dead letters that each attempt has written.

A batch that was cut off runs again, perhaps by a file that was mended in between: then the first attempt wrote a dead
letter of a record, and the second has it as a row. Only one of the two is in the sink. So each run that finds a batch
begun and not committed notes, before it begins, which batch that is, who it is, and whether the sink has the batch
already. Dead letters say which run wrote them in which batch.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.spark.pipelines.checkpoint import read_query_id, remember, remembered
from tailrace.spark.pipelines.declaration import Pipeline, TableSink, TopicSink
from tailrace.spark.pipelines.landing.batches import Batch, lake_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NOTES = "tailrace-attempts"


class Note(NamedTuple):
    """A run found a batch that was begun. `had_landed`: None if nobody could tell whether the sink had it."""

    number: int
    batch: int
    run: str
    had_landed: bool | None


class Verdict(NamedTuple):
    """Of the attempts at one batch the letters of `counts` count, or those of all runs but `others` if it is None; in
    doubt nobody can say."""

    counts: str | None
    others: tuple[str, ...]
    is_in_doubt: bool


class Batches(NamedTuple):
    """The last batch that is committed, and the last that was begun; -1 if there is none."""

    committed: int
    begun: int


def new_run(pipeline: Pipeline) -> str:
    """As dead letters name it."""
    return f"{pipeline.name}/{uuid.uuid4().hex}"


def note_attempt(spark: SparkSession, pipeline: Pipeline, rows: DataFrame, run: str) -> None:
    """Before the query starts. `rows` are those of the pipeline."""
    batches = read_batches(spark, pipeline.checkpoint)
    if batches.begun == batches.committed:
        return
    notes = read_notes(spark, pipeline.checkpoint)
    number = max((note.number for note in notes), default=0) + 1
    note = Note(number, batches.begun, run, _has_landed(spark, pipeline, rows, batches.begun))
    remember(spark, f"{pipeline.checkpoint}/{_NOTES}", json.dumps(note._asdict()))


def read_batches(spark: SparkSession, checkpoint: str) -> Batches:
    committed, begun = (max(_names(spark, f"{checkpoint}/{each}"), default=-1) for each in ("commits", "offsets"))
    return Batches(committed, max(begun, committed))


def read_notes(spark: SparkSession, checkpoint: str) -> list[Note]:
    return sorted(Note(**json.loads(line)) for line in remembered(spark, f"{checkpoint}/{_NOTES}"))


def decide_attempts(notes: Iterable[Note]) -> dict[int, Verdict]:
    """By batch; of a batch that no note names there was one attempt, or several of one run."""
    by_batch: dict[int, list[Note]] = {}
    for note in sorted(notes):
        by_batch.setdefault(note.batch, []).append(note)
    return {batch: _decide(found) for batch, found in by_batch.items()}


def _decide(notes: Sequence[Note]) -> Verdict:
    counts: str | None = None
    is_in_doubt = False
    for note in notes:
        if note.had_landed:
            break
        # An attempt before it may have landed, or not: nobody looked.
        is_in_doubt = is_in_doubt or note.had_landed is None
        counts = note.run
    return Verdict(counts, tuple(note.run for note in notes), is_in_doubt)


def _has_landed(spark: SparkSession, pipeline: Pipeline, rows: DataFrame, number: int) -> bool | None:
    query_id = read_query_id(spark, pipeline.checkpoint)
    if query_id is None or not hasattr(spark, "_jvm"):  # The sinks' libraries are with the Connect server.
        return None
    sink = pipeline.sink
    if isinstance(sink, TopicSink):
        return _is_decided(pipeline, sink, query_id, number) if sink.exactly_once else None
    if sink.format == "parquet":
        return _is_listed(spark, sink, number)
    from tailrace.spark.pipelines.landing.merging import reduced

    table = lake_table(sink)
    table.open(reduced(rows, sink) if sink.merge_on else rows)
    return table.landed(Batch(pipeline.name, query_id, number))


def _is_decided(pipeline: Pipeline, sink: TopicSink, query_id: str, number: int) -> bool:
    from tailrace.spark.blocking import BlockingCluster
    from tailrace.spark.options.write import WriteOptions
    from tailrace.spark.sink.exactly_once.decision_log import DecisionLog
    from tailrace.spark.sink.exactly_once.names import Names
    from tailrace.spark.sink.exactly_once.settings import ExactlyOnceSettings

    given = {**pipeline.kafka_options, "topic": sink.topic, "exactlyOnce": "true", **sink.options}
    options = WriteOptions.parse({name.lower(): text for name, text in given.items()})
    settings = ExactlyOnceSettings(options.transactional_id_prefix, options.decision_topic)
    with BlockingCluster(options.kafka) as blocking:
        log = DecisionLog(blocking.cluster, settings, Names(settings.prefix, query_id))
        decision = blocking.run(log.read())
    return decision is not None and decision.batch >= number


def _is_listed(spark: SparkSession, sink: TableSink, number: int) -> bool:
    """Spark's own sink lists the files of each batch, and now and then all up to one in a file of another name."""
    from pyspark.errors import AnalysisException

    try:
        paths = spark.read.format("binaryFile").load(f"{sink.table}/_spark_metadata").select("path").collect()
    except AnalysisException:
        return False
    names = [row.path.rpartition("/")[2].removesuffix(".compact") for row in paths]
    return any(name.isdecimal() and int(name) >= number for name in names)


def _names(spark: SparkSession, folder: str) -> list[int]:
    from pyspark.errors import AnalysisException

    try:
        paths = spark.read.format("binaryFile").load(folder).select("path").collect()
    except AnalysisException:  # There is no such folder.
        return []
    names = [row.path.rpartition("/")[2] for row in paths]
    return [int(name) for name in names if name.isdecimal()]
