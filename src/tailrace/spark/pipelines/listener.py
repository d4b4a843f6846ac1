"""Spark's query listener, for one query: hands every batch's progress on, and knows when the last has come."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from tailrace.spark.pipelines.progress import BatchProgress, RunSummary, Sign, batch_progress

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )


class ProgressListener(StreamingQueryListener):
    """Called on a thread of its own; a query is told apart by the name that it was started with."""

    def __init__(
        self,
        query_name: str,
        pipeline: str,
        on_progress: Callable[[BatchProgress], None] | None,
        on_sign: Callable[[Sign], None] | None = None,
    ) -> None:
        self._query_name = query_name
        self._pipeline = pipeline
        self._on_progress = on_progress
        self._on_sign = on_sign
        self._run_id: str | None = None
        self._ended = threading.Event()
        self.summary = RunSummary()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        if event.name == self._query_name:
            self._run_id = str(event.runId)
            self._tell(Sign.STARTED)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        if event.progress.name != self._query_name:
            return
        progress = batch_progress(self._pipeline, event.progress.json)
        self.summary = self.summary.with_batch(progress)
        if self._on_progress is not None:
            self._on_progress(progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        if str(event.runId) == self._run_id:
            self._tell(Sign.IDLE)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        if str(event.runId) == self._run_id:
            self._ended.set()

    def _tell(self, sign: Sign) -> None:
        if self._on_sign is not None:
            self._on_sign(sign)

    def wait_end(self, timeout_s: float) -> None:
        """Events come after the fact: the last batch's may still be on its way when the query has ended."""
        self._ended.wait(timeout_s)
