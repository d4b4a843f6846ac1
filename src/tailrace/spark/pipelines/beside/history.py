"""A pipeline with a history: its stream begins now, and what was there before is brought in beside it.

Both halves meet at a cut: offsets that are asked for once, and written down beside the checkpoint before either half
begins. The live half begins at the cut; the history reads up to it, with a checkpoint and a name of its own, and ends.
So every record is taken by one of the two, whatever is killed when.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tailrace.client.offsets import EARLIEST
from tailrace.spark.pipelines.checkpoint import read_query_id, remember, remembered
from tailrace.spark.pipelines.declaration import AVAILABLE_NOW, DeclarationError, Pipeline, TopicSource
from tailrace.spark.pipelines.progress import BatchProgress, RunSummary, Sign

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark.pipelines.reading import TopicRange

# In the folder of the checkpoint, as a text of one line.
CUT = "tailrace-cut"
# A paced history begins a batch so often, of so many records that the pace is kept.
_PACE_S = 5
_cutting = threading.Lock()

Offsets = Mapping[str, Mapping[str, int]]


def history_name(pipeline: Pipeline) -> str:
    return f"{pipeline.name}.history"


def history_checkpoint(pipeline: Pipeline) -> str:
    return f"{pipeline.checkpoint}-history"


def live_half(spark: SparkSession, pipeline: Pipeline) -> Pipeline:
    """Raises DeclarationError, KafkaError."""
    name, source = _only_source(pipeline)
    starting = json.dumps(_grown(ensure_cut(spark, pipeline), pipeline, source))
    return replace(pipeline, history=None, sources={name: replace(source, starting=starting)})


def run_history(
    pipeline: Pipeline,
    spark: SparkSession,
    *,
    on_progress: Callable[[BatchProgress], None] | None = None,
    on_sign: Callable[[Sign], None] | None = None,
    stop: threading.Event | None = None,
) -> RunSummary:
    """Until the cut is reached, or `stop` is set and the batch is done. Raises as `run`."""
    from tailrace.spark.pipelines.run import run

    cut = ensure_cut(spark, pipeline)
    half = history_half(pipeline, cut)
    reached, wished = threading.Event(), stop or threading.Event()

    def progressed(progress: BatchProgress) -> None:
        if on_progress is not None:
            on_progress(progress)
        if _is_reached(cut, progress.offsets):
            reached.set()

    def signed(sign: Sign) -> None:
        if on_sign is not None:
            on_sign(sign)
        if sign is Sign.IDLE:  # Up to the cut there is nothing more.
            reached.set()

    return run(half, spark, on_progress=progressed, on_sign=signed, stop=_Either(wished, reached))


def ensure_cut(spark: SparkSession, pipeline: Pipeline) -> Offsets:
    """The offsets at which the two halves meet, the same for ever. Raises DeclarationError if it is too late for one,
    or if the rows of the past cannot be landed beside the stream."""
    from tailrace.spark.pipelines.beside.stateless import why_not_beside
    from tailrace.spark.pipelines.reading import pin

    _, source = _only_source(pipeline)
    with _cutting:  # Both halves may come here at a time.
        found = read_cut(spark, pipeline)
        if found is not None:
            return found
        if (reason := why_not_beside(spark, replace(pipeline, history=None))) is not None:
            raise DeclarationError(f"{reason}, so its past cannot be brought in beside the stream", "history")
        if read_query_id(spark, pipeline.checkpoint) is not None:
            raise DeclarationError(
                f"the checkpoint {pipeline.checkpoint} is of a stream that began without a history, and nobody knows "
                "where: begin with another checkpoint and table",
                "history",
            )
        pinned = pin(_everything(pipeline, source))
        ends: dict[str, dict[str, int]] = {}
        for each in pinned.ranges:
            ends.setdefault(each.partition.topic, {})[str(each.partition.partition)] = each.end
        remember(spark, f"{pipeline.checkpoint}/{CUT}", json.dumps(ends))
        return ends


def read_cut(spark: SparkSession, pipeline: Pipeline) -> Offsets | None:
    """None if there is none yet."""
    lines = remembered(spark, f"{pipeline.checkpoint}/{CUT}")
    cut: Offsets | None = json.loads(lines[0]) if lines else None
    return cut


def history_half(pipeline: Pipeline, cut: Offsets) -> Pipeline:
    """As a pipeline of its own, with an end."""
    from tailrace.spark.pipelines.reading import bound_options

    name, source = _only_source(pipeline)
    history = pipeline.history
    assert history is not None, "asked of a pipeline with one"
    pace = history.records_per_second
    most = history.batch_records_max
    options = {
        **source.options,
        **history.options,
        # A partition with nothing so late gives nothing.
        "startingOffsetsByTimestampStrategy": "latest",
        **bound_options("start", history.start),
        "untilOffsets": json.dumps(cut),
    }
    past = replace(
        source, group=None, batch_records_max=most if pace is None else min(most, pace * _PACE_S), options=options
    )
    return replace(
        pipeline,
        name=history_name(pipeline),
        checkpoint=history_checkpoint(pipeline),
        sources={name: past},
        trigger=AVAILABLE_NOW if pace is None else f"{_PACE_S} seconds",
        history=None,
    )


def _grown(cut: Offsets, pipeline: Pipeline, source: TopicSource) -> Offsets:
    """With the partitions that came after the cut, all of which the live half reads: before its first batch is done, it
    has no checkpoint that knows them, and offsets to start at must name every partition."""
    from tailrace.spark.pipelines.reading import pin

    starting = {topic: dict(offsets) for topic, offsets in cut.items()}
    for each in pin(_everything(pipeline, source)).ranges:
        topic, index = each.partition
        starting.setdefault(topic, {}).setdefault(str(index), EARLIEST)
    return starting


def _everything(pipeline: Pipeline, source: TopicSource) -> TopicRange:
    from tailrace.spark.pipelines.reading import TopicRange

    return TopicRange(source.topic, pipeline.bootstrap, kafka=pipeline.kafka)


def _only_source(pipeline: Pipeline) -> tuple[str, TopicSource]:
    """The declaration has seen to it that there is one."""
    ((name, source),) = pipeline.sources.items()
    return name, source


def _is_reached(cut: Offsets, offsets: Offsets) -> bool:
    return all(
        offsets.get(topic, {}).get(index, 0) >= end for topic, ends in cut.items() for index, end in ends.items()
    )


class _Either(threading.Event):
    """Set as soon as one of two is."""

    def __init__(self, one: threading.Event, other: threading.Event) -> None:
        super().__init__()
        self._both = (one, other)

    def is_set(self) -> bool:
        return any(each.is_set() for each in self._both)
