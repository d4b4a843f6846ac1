"""The folder in which Spark remembers how far a query came, and the id that it gave the query; and beside Spark's files
the ids of the topics that the offsets are of.

Spark's own files stay as Spark's connector reads and writes them. Everything is read and written by Spark itself, since
the folder may be where only Spark's machines can reach it. What is remembered for ever is written by `remember`, each
line once: whoever is killed in the midst leaves nothing that can be read.
"""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tailrace.spark.pipelines.declaration import Pipeline, TopicSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TOPICS = "tailrace-topics"
_MAINTENANCE = "tailrace-maintenance"


def read_query_id(spark: SparkSession, checkpoint: str) -> str | None:
    """The id that Spark gave the query of this checkpoint; None if it is new."""
    lines = remembered(spark, f"{checkpoint}/metadata")
    return str(json.loads("".join(lines))["id"]) if lines else None


def running_query_id(spark: SparkSession, checkpoint: str) -> str:
    """The same within a batch, when Spark has written it."""
    query_id = read_query_id(spark, checkpoint)
    if query_id is None:
        raise RuntimeError(f"the checkpoint {checkpoint} has lost its file `metadata`: it cannot be used any more")
    return query_id


def remember(spark: SparkSession, folder: str, line: str) -> None:
    """In a folder of its own within `folder`. Spark writes a file aside and moves it when it is whole; a second write
    to the same folder would move along what a first one, that was killed, has left aside."""
    spark.createDataFrame([(line,)], "value STRING").coalesce(1).write.text(f"{folder}/{uuid.uuid4().hex}")


def remembered(spark: SparkSession, path: str) -> list[str]:
    """The lines of a file, or of all files in a folder; none if it is not there."""
    from pyspark.errors import AnalysisException

    try:
        rows = spark.read.option("recursiveFileLookup", "true").text(path).collect()
    except AnalysisException:  # There is nothing.
        return []
    return [row.value for row in rows]


def remembered_topic_ids(spark: SparkSession, pipeline: Pipeline) -> dict[str, str]:
    """For the option `topicIds` of the pipeline's sources. Each line of the folder is all that was known at a time, and
    the one with the highest number counts; a file appears when Spark has written all of it. What is new is remembered
    before the first record is read. A topic that has another id now is left as it was, for the sources to tell; if
    they are to go on without what is lost, it is told once."""
    folder = f"{pipeline.checkpoint}/{_TOPICS}"
    number, recorded = _read_topic_ids(spark, folder)
    found = _ask(spark, pipeline)
    forgiven = {
        topic for source in pipeline.sources.values() if not _fails_on_loss(source) for topic in _topics(source)
    }
    now = recorded | {name: found[name] for name in found if name in forgiven or name not in recorded}
    if now != recorded:
        line = json.dumps({"number": number + 1, "topics": now})
        remember(spark, folder, line)
    return found | recorded


def read_maintained_at(spark: SparkSession, checkpoint: str) -> datetime:
    """When the pipeline has last done what its table needs from time to time; long ago if it never did."""
    from pyspark.errors import PySparkException

    try:
        lines = [row.value for row in spark.read.text(f"{checkpoint}/{_MAINTENANCE}").collect()]
    except PySparkException:  # There is no such folder.
        lines = []
    return max(map(datetime.fromisoformat, lines), default=datetime.min.replace(tzinfo=UTC))


def note_maintained_at(spark: SparkSession, checkpoint: str, now: datetime) -> None:
    line = spark.createDataFrame([(now.isoformat(),)], "value STRING")
    line.coalesce(1).write.mode("overwrite").text(f"{checkpoint}/{_MAINTENANCE}")


def _ask(spark: SparkSession, pipeline: Pipeline) -> dict[str, str]:
    wanted = {topic for source in pipeline.sources.values() for topic in _topics(source)}
    options = pipeline.kafka_options | {"table": "topic_ids"}
    rows = spark.read.format("tailrace").options(**options).load().collect()
    return {row.topic: row.topic_id for row in rows if row.topic in wanted}


def _read_topic_ids(spark: SparkSession, folder: str) -> tuple[int, dict[str, str]]:
    lines = [json.loads(line) for line in remembered(spark, folder)]
    last = max(lines, key=lambda line: int(line["number"]), default=None)
    return (int(last["number"]), last["topics"]) if last is not None else (0, {})


def _topics(source: TopicSource) -> list[str]:
    return [topic.strip() for topic in source.topic.split(",")]


def _fails_on_loss(source: TopicSource) -> bool:
    return not any(
        name.lower() == "failondataloss" and value.strip().lower() == "false" for name, value in source.options.items()
    )
