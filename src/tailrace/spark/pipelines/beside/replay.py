"""Dead letters once more, after what was wrong with them was mended: each record once, however often this is run.

    plan    which records are next, written down under a number
    land    their rows, into the pipeline's sink (or the records themselves, into the topic that they came from), as a
            batch of that number: sinks take a batch once
    done    noted; records of a plan are never taken again

Killed in between, the next replay begins with the plan that is not done. What the present declaration cannot read
either stays a dead letter, and is tried again by the next replay. All of it lies in a folder beside the checkpoint.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as sf

from tailrace.spark.pipelines.beside import letters
from tailrace.spark.pipelines.beside.attempts import decide_attempts, read_batches, read_notes
from tailrace.spark.pipelines.beside.letters import ORIGIN, PROBLEM
from tailrace.spark.pipelines.beside.stateless import why_not_beside
from tailrace.spark.pipelines.changes.debezium import opened_changes, unavailable_texts
from tailrace.spark.pipelines.checkpoint import read_query_id, remember
from tailrace.spark.pipelines.declaration import (
    EVENT_TIME,
    DeclarationError,
    Pipeline,
    TopicSink,
)
from tailrace.spark.pipelines.landing.batches import Landing
from tailrace.spark.pipelines.rows import topic_rows, transformed
from tailrace.spark.session import use_in_this_thread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Of one plan, which is collected in the driver; more make more plans.
RECORDS_MAX = 50_000
_ORIGINS = "ARRAY<STRUCT<topic: STRING, partition: INT, offset: BIGINT>>"


class Replayed(NamedTuple):
    """What one replay did. Of letters in doubt nobody knows whether their records are in the sink."""

    records: int = 0
    still_bad: int = 0
    waiting: int = 0  # Of a batch that is not committed yet.
    in_doubt: int = 0


class Planned(NamedTuple):
    number: int
    origins: DataFrame


class Replay:
    """Raises DeclarationError if the records of this pipeline cannot be taken by themselves."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, *, into_source: bool, takes_doubtful: bool) -> None:
        use_in_this_thread(spark)
        self._spark = spark
        self._pipeline = pipeline
        self._into_source = into_source
        self._takes_doubtful = takes_doubtful
        self._name = f"{pipeline.name}.{'source' if into_source else 'dead-letters'}"
        self._folder = replay_folder(pipeline, into_source=into_source)
        self._sources = {name: each for name, each in pipeline.sources.items() if each.dead_letters}
        if not self._sources:
            raise DeclarationError("no source has dead_letters: there is nothing to replay", "sources")
        if not into_source and any(source.envelope is not None for source in self._sources.values()):
            raise DeclarationError(
                "its records are changes of a database, each of which counts on the one before: --into-source writes "
                "them to their topic once more, for the pipeline to take",
                "sources",
            )
        if not into_source and (reason := why_not_beside(spark, pipeline)) is not None:
            raise DeclarationError(
                f"{reason}, so rows cannot be added beside the stream: --into-source writes the records to their topic "
                "once more, for the pipeline to take",
                reason.key,
            )

    def run(self, on_plan: Callable[[int], None]) -> Replayed:
        """`on_plan` is told how many records were done."""
        batches = read_batches(self._spark, self._pipeline.checkpoint)
        verdicts = decide_attempts(read_notes(self._spark, self._pipeline.checkpoint))
        pinned = {name: letters.pin_letters(self._pipeline, source) for name, source in self._sources.items()}
        all_letters = self._union(
            letters.records(self._spark, pinned[name], self._pipeline, source) for name, source in self._sources.items()
        )
        doubt = letters.is_in_doubt(verdicts)
        waiting = letters.is_waiting(batches.committed)
        counted = letters.counts(verdicts) & ~waiting
        wanted = all_letters.where(counted if self._takes_doubtful else counted & ~doubt)
        records = letters.once_each(wanted).persist()
        try:
            done = self._finish_old(records, on_plan)
            while landed := self._land_next(records):
                done += landed
                on_plan(landed)
            left = self._not_planned(records)
            return Replayed(
                done,
                left.count(),
                self._new(all_letters.where(waiting)),
                0 if self._takes_doubtful else self._new(all_letters.where(doubt & ~waiting)),
            )
        finally:
            records.unpersist()

    def _finish_old(self, records: DataFrame, on_plan: Callable[[int], None]) -> int:
        """A plan that was cut off. The same records, or none: its batch may be in the sink already."""
        plans = self._plans()
        if plans is None:
            return 0
        last = _last_number(plans)
        if last <= self._done():
            return 0
        origins = plans.where(sf.col("number") == last).select(sf.explode("origins").alias("o")).select("o.*")
        rows = self._decoded(records.join(sf.broadcast(origins), list(ORIGIN), "left_semi"))
        problem = rows.where(f"{PROBLEM} IS NOT NULL").select(*ORIGIN, PROBLEM).first()
        if problem is not None:
            raise DeclarationError(
                f"replay {last} was cut off, and cannot be finished: offset {problem.offset} of {problem.topic}-"
                f"{problem.partition} could be read by the declaration of then, and cannot by that of now: "
                f"{problem[PROBLEM]}"
            )
        self._land(rows, last)
        count = origins.count()
        on_plan(count)
        return count

    def _land_next(self, records: DataFrame) -> int:
        """How many records were landed."""
        good = self._decoded(self._not_planned(records)).where(f"{PROBLEM} IS NULL")
        chosen = good.select(*ORIGIN).orderBy(*ORIGIN).limit(RECORDS_MAX).collect()
        if not chosen:
            return 0
        number = self._done() + 1
        self._append("plans", {"number": number, "origins": [row.asDict() for row in chosen]})
        origins = self._spark.createDataFrame(chosen, "topic STRING, partition INT, offset BIGINT")
        self._land(self._decoded(records.join(sf.broadcast(origins), list(ORIGIN), "left_semi")), number)
        return len(chosen)

    def _land(self, rows: DataFrame, number: int) -> None:
        rows = rows.orderBy(*ORIGIN)
        if self._into_source:
            raw = rows.select("topic", "partition", "_tailrace_key", "_tailrace_value", "headers")
            raw = raw.withColumnsRenamed({"_tailrace_key": "key", "_tailrace_value": "value"})
            self._write(raw, {"exactlyOnce": "true", "includeHeaders": "true"}, number)
        else:
            self._land_in_sink(rows.drop(PROBLEM, "_tailrace_key", "_tailrace_value"), number)
        self._append("done", {"number": number})

    def _land_in_sink(self, rows: DataFrame, number: int) -> None:
        pipeline = self._pipeline
        ((name, source),) = self._sources.items()
        if source.envelope is not None:
            rows = opened_changes(rows, source)
        if source.watermark is not None:
            rows = rows.withColumn(EVENT_TIME, sf.expr(source.time).cast("timestamp"))
        if "includeHeaders" not in source.options:
            rows = rows.drop("headers")
        if pipeline.transform is not None:
            rows = transformed(self._spark, pipeline.transform, {name: rows}, pipeline.folder)
        sink = pipeline.sink
        if isinstance(sink, TopicSink):
            once = {"exactlyOnce": str(sink.exactly_once).lower(), "topic": sink.topic, **sink.options}
            self._write(topic_rows(rows, sink), once, number)
            return
        Landing(self._name, self._identity(), sink, unavailable=unavailable_texts([source]))(rows, number)

    def _write(self, rows: DataFrame, options: dict[str, str], number: int) -> None:
        options = {**self._pipeline.kafka_options, **options}
        if options["exactlyOnce"] == "true":
            scope = f"{self._name}-{self._query_id()}"
            options |= {"exactlyOnceId": scope, "exactlyOnceBatch": str(number)}
        rows.write.format("tailrace").mode("append").options(**options).save()

    def _decoded(self, rows: DataFrame) -> DataFrame:
        """With the bytes kept, where they are what is written."""
        rows = rows.withColumns({"_tailrace_key": sf.col("key"), "_tailrace_value": sf.col("value")})
        found = []
        for source in self._sources.values():
            topics = [topic.strip() for topic in source.topic.split(",")]
            own = letters.decoded(rows.where(sf.col("topic").isin(topics)), self._pipeline, source)
            # Each source has a schema of its own: what is written back has none.
            found.append(own.drop("key", "value") if self._into_source else own)
        return self._union(found)

    def _union(self, frames: object) -> DataFrame:
        return reduce(lambda left, right: left.unionByName(right), frames)  # type: ignore[call-overload, no-any-return]

    # ---- what is remembered

    def _not_planned(self, records: DataFrame) -> DataFrame:
        plans = self._plans()
        if plans is None:
            return records
        taken = plans.select(sf.explode("origins").alias("o")).select("o.*")
        return records.join(taken, list(ORIGIN), "left_anti")

    def _new(self, rows: DataFrame) -> int:
        return self._not_planned(letters.once_each(rows)).count()

    def _plans(self) -> DataFrame | None:
        return self._read("plans", f"number INT, origins {_ORIGINS}")

    def _done(self) -> int:
        found = self._read("done", "number INT")
        return 0 if found is None else _last_number(found)

    def _read(self, name: str, schema: str) -> DataFrame | None:
        from pyspark.errors import AnalysisException

        try:
            reader = self._spark.read.schema(schema).option("recursiveFileLookup", "true")
            found = reader.json(f"{self._folder}/{name}")
            return None if found.isEmpty() else found
        except AnalysisException:  # There is no such folder.
            return None

    def _append(self, name: str, line: object) -> None:
        remember(self._spark, f"{self._folder}/{name}", json.dumps(line))

    def _identity(self) -> str:
        """A folder with an id such as a checkpoint has, by which a table knows who filled it."""
        self._query_id()
        return self._folder

    def _query_id(self) -> str:
        found = read_query_id(self._spark, self._folder)
        if found is None:
            self._append("metadata", {"id": str(uuid.uuid4())})
            found = read_query_id(self._spark, self._folder)
            assert found is not None, "it was just written"
        return found


def _last_number(lines: DataFrame) -> int:
    (row,) = lines.agg(sf.max("number").alias("last")).collect()
    return int(row["last"])


def replay_folder(pipeline: Pipeline, *, into_source: bool) -> str:
    return f"{pipeline.checkpoint}-{'source' if into_source else 'dead-letters'}"
