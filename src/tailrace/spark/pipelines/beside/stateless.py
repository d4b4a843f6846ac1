"""Whether rows of a pipeline may be landed beside its stream: those of dead letters, or of the past.

They may if each row stands for itself, and the sink can tell two writers apart.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from tailrace.spark.pipelines.declaration import DeclarationError, Pipeline, TableSink
from tailrace.spark.pipelines.rows import pipeline_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STATEFUL = re.compile(
    r"^[\s:|+~-]*(Aggregate|Deduplicate\w*|Distinct|FlatMapGroups\w*|TransformWithState\w*|GlobalLimit|Window|Join)\b",
    re.MULTILINE,
)


def why_not_beside(spark: SparkSession, pipeline: Pipeline) -> DeclarationError | None:
    """The reason, which is to be completed by what to do instead; None if they may."""
    sink = pipeline.sink
    if isinstance(sink, TableSink) and sink.format == "parquet":
        return DeclarationError("Spark's own sink for Parquet tables knows the files of one query alone", "sink")
    if isinstance(sink, TableSink) and sink.merge_on and sink.version is None:
        return DeclarationError(
            "the table holds the last row of each key by offset, and an old record would replace a newer one (a column "
            "that says which is the last, named as version, would allow it)",
            "sink",
        )
    if len(pipeline.sources) > 1:
        return DeclarationError("its transform joins several sources", "sources")
    (source,) = pipeline.sources.values()
    if source.deduplicate:
        return DeclarationError("it remembers what it has seen (deduplicate)", "sources")
    plan = io.StringIO()
    with redirect_stdout(plan):
        pipeline_rows(spark, pipeline, {}).explain(extended=True)
    found = _STATEFUL.search(plan.getvalue())
    if found is None:
        return None
    return DeclarationError(f"its transform looks at several rows at a time ({found[1]})", "transform")
