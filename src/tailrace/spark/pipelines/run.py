"""Runs a pipeline as one streaming query, from where its checkpoint says to where it is stopped.

A stop finishes the batch that is under way: `stop` is looked at between batches, and Spark is told to end when one is
done. Whatever else ends a run (a crash, a kill), the next one goes on from the checkpoint, and the sinks see to it that
a batch that runs again changes nothing.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tailrace.spark.pipelines.beside.history import live_half
from tailrace.spark.pipelines.declaration import Pipeline
from tailrace.spark.pipelines.progress import BatchProgress, RunSummary, Sign
from tailrace.spark.pipelines.writers import pipeline_writer
from tailrace.spark.session import session, use_in_this_thread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# How soon a stop is seen; each look is a call into the JVM.
_POLL_S = 0.2
_LAST_EVENT_TIMEOUT_S = 5.0
_starting = threading.Lock()


def run(
    pipeline: Pipeline,
    spark: SparkSession | None = None,
    *,
    once: bool = False,
    on_progress: Callable[[BatchProgress], None] | None = None,
    on_sign: Callable[[Sign], None] | None = None,
    stop: threading.Event | None = None,
) -> RunSummary:
    """Runs until `stop` is set; `once`, or with the trigger available-now, until everything that is there now is
    done. Of a pipeline with a history it is the live half. Several may run in threads of one process, in one session.
    Raises DeclarationError, LandingError, or pyspark's StreamingQueryException if a batch fails."""
    spark = spark or session(pipeline.name, settings=pipeline.spark)
    if pipeline.history is not None:
        use_in_this_thread(spark)
        pipeline = live_half(spark, pipeline)

    def start(query_name: str) -> StreamingQuery:
        with _settings(spark, pipeline.spark):
            return pipeline_writer(spark, pipeline, once=once).queryName(query_name).start()

    return run_query(spark, pipeline.name, start, on_progress=on_progress, on_sign=on_sign, stop=stop)


def run_query(
    spark: SparkSession,
    name: str,
    start: Callable[[str], StreamingQuery],
    *,
    on_progress: Callable[[BatchProgress], None] | None,
    stop: threading.Event | None,
    on_sign: Callable[[Sign], None] | None = None,
) -> RunSummary:
    """One streaming query, from its start under the name that it is given to its end or to `stop`."""
    from tailrace.spark.pipelines.listener import ProgressListener

    # Names of running queries must differ, and two runs of one pipeline are told apart by Spark's checkpoint anyway.
    query_name = f"{name}-{uuid.uuid4().hex[:8]}"
    use_in_this_thread(spark)
    listener = ProgressListener(query_name, name, on_progress, on_sign)
    spark.streams.addListener(listener)
    try:
        _wait_query(start(query_name), stop or threading.Event())
        listener.wait_end(_LAST_EVENT_TIMEOUT_S)
    finally:
        spark.streams.removeListener(listener)
    return listener.summary


@contextmanager
def _settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """A session may be the caller's, who gets it back as it was. What only a new session can have is left out. A query
    that has started keeps the settings of then, so pipelines that share a session start one after the other."""
    with _starting:
        before = {name: spark.conf.get(name, None) for name in wanted if spark.conf.isModifiable(name)}
        try:
            for name in before:
                spark.conf.set(name, wanted[name])
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, value)


def _wait_query(query: StreamingQuery, stop: threading.Event) -> None:
    try:
        while not query.awaitTermination(_POLL_S):  # type: ignore[arg-type]
            if stop.is_set():
                _wait_batch(query)
                return
    finally:
        query.stop()


def _wait_batch(query: StreamingQuery) -> None:
    """Until the batch that is under way is done, if there is one. With batches on each other's heels the query is
    never seen at rest, but the progress that each of them leaves is."""
    before = _progress_mark(query)
    while query.isActive and query.status["isTriggerActive"] and _progress_mark(query) == before:
        time.sleep(_POLL_S / 4)


def _progress_mark(query: StreamingQuery) -> tuple[int, str] | None:
    progress = query.lastProgress
    return (progress["batchId"], progress["timestamp"]) if progress else None
