"""What Spark calls for `exactlyOnce`: tasks write their parts (`task`), and the driver ends them (`driver`).

Spark makes the writer anew in each process: what the driver has to know of the query comes with the tasks' messages. A
stream is its own scope, by the id in its checkpoint. A batch job has none that would be the same when it is run again,
so the caller names it; and numbers it, if several writes with one name follow each other.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from tailrace.client.lanes import ACKS_ALL, Author
from tailrace.spark.blocking import BlockingCluster, kept_cluster
from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.write import WriteOptions
from tailrace.spark.pyspark_api import DataSourceStreamArrowWriter
from tailrace.spark.sink.exactly_once.decision import Report
from tailrace.spark.sink.exactly_once.driver import Driver
from tailrace.spark.sink.exactly_once.settings import ExactlyOnceSettings
from tailrace.spark.sink.exactly_once.task import Task, write_part

if TYPE_CHECKING:
    import pyarrow as pa

# Local properties of every job that a streaming query runs; its group is the run.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"


def stream_writer(options: WriteOptions) -> DataSourceStreamArrowWriter:
    """Raises OptionError."""
    _check(options)
    if options.exactly_once_id is not None:
        raise OptionError(
            "option exactlyOnceId is for batch writes: a stream is known by the id in its checkpoint. Leave it out"
        )
    return ExactlyOnceStreamWriter(options)


def batch_writer(options: WriteOptions) -> DataSourceArrowWriter:
    """Raises OptionError."""
    _check(options)
    if options.exactly_once_id is None:
        raise OptionError(
            "option exactlyOnce needs option exactlyOnceId in a batch write: a name of your own for this write, by "
            "which a second run after a failure finds what the first one has done. The same name again writes nothing "
            "again; a new name writes anew"
        )
    return ExactlyOnceBatchWriter(options, options.exactly_once_id)


def _check(options: WriteOptions) -> None:
    if options.kafka.producer.acks != ACKS_ALL or not options.kafka.producer.idempotent:
        raise OptionError(
            "option exactlyOnce goes with kafka.acks=all and kafka.enable.idempotence=true only, which are the "
            "defaults: leave these two out"
        )


@dataclass(frozen=True)
class PartMessage(WriterCommitMessage):
    scope: str
    run: str
    report: Report


class ExactlyOnceStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PartMessage:
        context = _context()
        scope, batch, run = (context.getLocalProperty(name) or "" for name in (_QUERY_ID, _BATCH_ID, _RUN_ID))
        task = Task(scope, int(batch), context.partitionId())
        return PartMessage(scope, run, _write(iterator, self._options, task))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        _commit(messages, self._options, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        _abort(messages, self._options, batchId)


class ExactlyOnceBatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, scope: str) -> None:
        self._options = options
        self._scope = scope
        self._batch = options.exactly_once_batch
        self._run = str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PartMessage:
        task = Task(self._scope, self._batch, _context().partitionId())
        return PartMessage(self._scope, self._run, _write(iterator, self._options, task))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _commit(messages, self._options, self._batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _abort(messages, self._options, self._batch)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark calls `write` in a task"
    return context


def _write(rows: Iterator[pa.RecordBatch], options: WriteOptions, task: Task) -> Report:
    # It brings numpy and pyarrow, which the processes that plan and commit do without.
    from tailrace.spark.sink.task import write_rows

    def write(rows: Iterator[pa.RecordBatch], blocking: BlockingCluster, author: Author) -> object:
        return write_rows(rows, blocking, options, author)

    with kept_cluster(options.kafka) as blocking:
        return write_part(rows, blocking, _settings(options), task, write)


def _commit(messages: Sequence[WriterCommitMessage | None], options: WriteOptions, batch: int) -> None:
    parts = _parts(messages)
    if parts:
        with kept_cluster(options.kafka) as blocking:
            blocking.run(_driver(blocking, options, parts).commit(batch, [part.report for part in parts]))


def _abort(messages: Sequence[WriterCommitMessage | None], options: WriteOptions, batch: int) -> None:
    parts = _parts(messages)
    if parts:
        with kept_cluster(options.kafka) as blocking:
            blocking.run(_driver(blocking, options, parts).abort(batch, [part.report for part in parts]))


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[PartMessage]:
    """Tasks that have failed have none."""
    return [message for message in messages if isinstance(message, PartMessage)]


def _driver(blocking: BlockingCluster, options: WriteOptions, parts: Sequence[PartMessage]) -> Driver:
    return Driver(blocking.cluster, _settings(options), scope=parts[0].scope, run=parts[0].run)


def _settings(options: WriteOptions) -> ExactlyOnceSettings:
    defaults = ExactlyOnceSettings()
    return defaults._replace(
        prefix=options.transactional_id_prefix,
        decision_topic=options.decision_topic,
        timeout_ms=options.kafka.transaction_timeout_ms or defaults.timeout_ms,
    )
