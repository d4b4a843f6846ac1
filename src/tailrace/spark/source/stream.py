"""A topic as a stream: `spark.readStream.format("tailrace")`.

One of these lives in a process of its own beside the driver as long as the query runs; Spark calls, in this order:

    initialOffset        of a query without checkpoint
    latestOffset(start)  up to where the next micro-batch reads; all before `start` is finished
    partitions(start, end)
    commit(end)          when the next micro-batch is planned: for the last one, never

After a restart, `partitions` comes first if a micro-batch was planned and not finished. Spark keeps only the ends of
micro-batches, so it asks for the initial offset anew if that was the very first: see `_is_unpinned_start`. `read` runs
in tasks, with a copy that knows nothing but the options.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from tailrace.client.offsets import LATEST
from tailrace.model.ids import TopicPartition
from tailrace.spark.blocking import BlockingCluster
from tailrace.spark.options.bounds import AtOffsets, Bound, EndOfLog, NoMatch
from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.read import ReadOptions
from tailrace.spark.source.limits import TriggerDelay, limit_end, limit_to
from tailrace.spark.source.offsets import Offsets, from_json, to_json
from tailrace.spark.source.planning import Planning, plan_micro_batch
from tailrace.spark.source.reading import SplitReading, task_inputs
from tailrace.spark.source.schema import check_schema, parse_record_format

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from tailrace.spark.source.commits import GroupCommits


Json = dict[str, Any]


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = ReadOptions.parse(options, is_stream=True)
        self._record_format = parse_record_format(options)
        check_schema(schema, self._options.columns, self._record_format)
        self._planner: _Planner | None = None

    # --- beside the driver

    def initialOffset(self) -> Json:  # noqa: N802 (Spark's names, here and below)
        return to_json(self._plan().initial())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._plan().is_available_now = True

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark has no limit in both directions. It hands back what it got here, and the options have the rest."""
        if self._options.offsets_per_trigger_max is not None:
            return ReadMaxRows(self._options.offsets_per_trigger_max)
        if self._options.offsets_per_trigger_min is not None:
            return ReadMinRows(self._options.offsets_per_trigger_min)
        return ReadAllAvailable()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        end = self._plan().latest(from_json(start), is_limited=not isinstance(limit, ReadAllAvailable))
        return to_json(end)

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        available = self._plan().available
        return to_json(available) if available else None

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        return self._plan().task_inputs(from_json(start), from_json(end))

    def commit(self, end: Json) -> None:
        self._plan().commit(from_json(end))

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()

    def _plan(self) -> _Planner:
        if self._planner is None:
            self._planner = _Planner(self._options)
            if self._record_format is not None:
                self._record_format.check_dead_letter_topic(self._planner.blocking, self._options.kafka)
        return self._planner

    # --- in tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return SplitReading(self._options, self._record_format).read(partition)


class RefusedStream(DataSourceStreamReader):
    """In the place of a reader whose options cannot be. Spark stops the reader of a stream in any case: if there were
    none, its failure to do so would be the last error that people see."""

    def __init__(self, error: OptionError) -> None:
        self._error = error

    def initialOffset(self) -> Json:  # noqa: N802
        raise self._error

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: ARG002, N802
        raise self._error

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:  # noqa: ARG002
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        raise self._error


class _Planner:
    """What a running query knows."""

    def __init__(self, options: ReadOptions) -> None:
        self.blocking = BlockingCluster(options.kafka)
        self.is_available_now = False
        # The ends of all partitions as last heard of.
        self.available: Offsets = {}
        self._options = options
        self._planning = Planning(self.blocking, options)
        self._lookup = self._planning.lookup
        self._commits = _group_commits(self.blocking, options.group_id)
        self._delay = (
            TriggerDelay(offsets_min=options.offsets_per_trigger_min, delay_ms_max=options.trigger_delay_ms_max)
            if options.offsets_per_trigger_min is not None
            else None
        )
        # What an availableNow run reads up to, once it is known.
        self._target: dict[TopicPartition, int] | None = None
        self._initial: Offsets | None = None
        # See `_is_unpinned_start`.
        self._is_unpinned = False
        # Whether Spark has asked here how far a micro-batch goes; else what it plans was begun by another process.
        self._has_ended = False

    def close(self) -> None:
        self._planning.close()
        self.blocking.close()

    def initial(self) -> Offsets:
        """The same however often Spark asks."""
        if self._initial is None:
            self._initial = self.blocking.run(self._lookup.resolve(self._options.start, is_start=True))
            self._is_unpinned = _moves_with_time(self._options.start)
        return self._initial

    def latest(self, start: Offsets, *, is_limited: bool) -> Offsets:
        self._check_checkpoint(start)
        self._has_ended = True
        self.available = latest = self._find_latest(start)
        self.commit(start)
        is_first, self._is_unpinned = self._is_unpinned_start(start), False
        if is_first:
            return start
        if not is_limited:
            return latest
        added = self.blocking.run(self._lookup.earliest(latest.keys() - start.keys()))
        begin = added | dict(start)
        # An availableNow run must come to its end, however little is left for the last batch.
        delay = None if self.is_available_now else self._delay
        if delay is not None and delay.must_wait(begin, latest, now_ms=time.monotonic() * 1000):
            return start
        if self._options.offsets_per_trigger_max is None:
            return latest
        return limit_end(begin, latest, self._options.offsets_per_trigger_max)

    def task_inputs(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """Spark may ask several times for one micro-batch."""
        if self._is_unpinned_start(start) or start == end:
            return []
        self._check_checkpoint(start)
        if not self._has_ended and start == self._initial:
            # The very first micro-batch, planned again: partitions that came after it are in the start that was asked
            # for anew, and those that follow read them from their beginning.
            start = {partition: offset for partition, offset in start.items() if partition in end}
        splits = self.blocking.run(plan_micro_batch(self._lookup, self._options, start, end, self._planning.tier))
        return task_inputs(splits, self._options, self._lookup.known_topics.ids)

    def commit(self, end: Offsets) -> None:
        """All before is finished. What is gone from the cluster cannot be committed."""
        if self._commits is not None:
            self._commits.commit({each: offset for each, offset in end.items() if each in self.available})

    def _find_latest(self, start: Offsets) -> dict[TopicPartition, int]:
        if self._target is not None:
            return self._target
        latest = self.blocking.run(self._lookup.latest(start))
        if self._options.until is not None:
            latest = limit_to(self._options.until, start, latest)
        if self.is_available_now:
            self._target = latest
        return latest

    def _is_unpinned_start(self, start: Offsets) -> bool:
        """A query that starts at the latest offsets has an empty first micro-batch, which does nothing but put them
        into the checkpoint as its end. If it is interrupted and planned again, the latest offsets are others, and what
        came in between would be lost if that first one were to read anything."""
        return self._is_unpinned and start == self._initial

    def _check_checkpoint(self, start: Offsets) -> None:
        topics = {partition.topic for partition in start}
        if topics and not any(self._options.subscription.includes(topic) for topic in topics):
            raise OptionError(
                f"the checkpoint is of a query that read {', '.join(sorted(topics))}, and this one reads "
                f"{self._options.subscription}: give it a checkpointLocation of its own"
            )


def _group_commits(blocking: BlockingCluster, group_id: str | None) -> GroupCommits | None:
    if group_id is None:
        return None
    # Only who commits pays for the import of what speaks to groups: a fifth of all that a stream loads of ours.
    from tailrace.spark.source.commits import GroupCommits

    return GroupCommits(blocking, group_id)


def _moves_with_time(start: Bound) -> bool:
    """Whether the initial offset would be another one if it were asked for later, while nothing was lost."""
    match start:
        case EndOfLog(end):
            return end == LATEST
        case AtOffsets(offsets):
            return LATEST in offsets.values()
        case _:
            return start.no_match is NoMatch.LATEST
