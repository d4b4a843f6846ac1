"""A sink whose tasks and driver are killed, by SIGKILL, at a point of the test's choice: once in each batch.

    python -m tests.spark.mortal BOOTSTRAP SOURCE SINK CHECKPOINT MARKERS POINT [OPTION=VALUE ...]

runs a query whose whole driver, its JVM and all, dies at that point of its first batch.
"""

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import WriterCommitMessage

from tailrace.spark import session
from tailrace.spark.datasource import TailraceDataSource
from tailrace.spark.sink.exactly_once.decision_log import DecisionLog
from tailrace.spark.sink.exactly_once.driver import Driver
from tailrace.spark.sink.exactly_once.parts import Parts
from tailrace.spark.sink.exactly_once.task import TaskTransaction
from tailrace.spark.sink.exactly_once.writers import ExactlyOnceStreamWriter

NAME = "mortal"
DEADLINE_S = 300
# Which call of which method it is, counted within one task or commit, and whether the end comes before or after it.
TASK_POINTS = {
    "a task before it begins": (TaskTransaction, "begin", 1, "before"),
    "a task that has begun": (TaskTransaction, "begin", 1, "after"),
    "a task that has written": (TaskTransaction, "seal", 1, "before"),
    "a task that is done": (TaskTransaction, "seal", 1, "after"),
}
DRIVER_POINTS = {
    "the driver before it begins": (Driver, "commit", 1, "before"),
    "the driver before it decides": (DecisionLog, "write", 1, "before"),
    "the driver that has decided": (DecisionLog, "write", 1, "after"),
    "the driver that has committed one part": (Parts, "_end", 1, "after"),
    "the driver that has committed all parts": (DecisionLog, "write", 2, "before"),
    "the driver that has finished": (Driver, "commit", 1, "after"),
}
POINTS = {**TASK_POINTS, **DRIVER_POINTS}


def mortal_source(points: Mapping[int, str], markers: Path, *, group_id: int | None = None) -> type[TailraceDataSource]:
    """`points` by batch. Each leaves a file in `markers` as it kills the worker, and with it the process group."""

    class MortalWriter(ExactlyOnceStreamWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            batch = int(TaskContext.get().getLocalProperty("streaming.sql.batchId"))
            with armed(points.get(batch), TASK_POINTS, markers / str(batch), group_id):
                return super().write(iterator)

        def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
            with armed(points.get(batchId), DRIVER_POINTS, markers / str(batchId), group_id):
                super().commit(messages, batchId)

    class MortalDataSource(TailraceDataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def streamWriter(self, schema: Any, overwrite: bool) -> MortalWriter:
            return MortalWriter(super().streamWriter(schema, overwrite)._options)

    return MortalDataSource


@contextmanager
def armed(point: str | None, points: Mapping[str, Any], marker: Path, group_id: int | None) -> Iterator[None]:
    if point not in points:
        yield
        return
    owner, name, call, when = points[point]
    method = getattr(owner, name)
    each = Parts._each
    calls = 0

    async def one_after_the_other(parts: Parts, *args: Any) -> Any:
        parts._settings = parts._settings._replace(parallelism=1)
        return await each(parts, *args)

    async def mortal(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        is_it = calls == call
        if is_it and when == "before":
            die_once(marker, group_id)
        result = await method(*args, **options)
        if is_it and when == "after":
            die_once(marker, group_id)
        return result

    setattr(owner, name, mortal)
    Parts._each = one_after_the_other  # So that one part is committed, and the others are not yet.
    try:
        yield
    finally:
        setattr(owner, name, method)
        Parts._each = each


def die_once(marker: Path, group_id: int | None) -> None:
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    if group_id is not None:
        os.killpg(group_id, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


# The workers of Spark do not find modules of tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Copy(NamedTuple):
    """A query that copies a topic to another, exactly once, to the end of what there is."""

    bootstrap: str
    source: str
    sink: str
    checkpoint: str

    def rows(self, spark: SparkSession, **options: str) -> DataFrame:
        reader = spark.readStream.format("tailrace").option("kafka.bootstrap.servers", self.bootstrap)
        return reader.options(subscribe=self.source, startingOffsets="earliest", **options).load()

    def run(self, rows: DataFrame, *, sink_format: str = "tailrace", **options: str) -> None:
        """Raises StreamingQueryException."""
        writer = rows.writeStream.format(sink_format).option("kafka.bootstrap.servers", self.bootstrap)
        chosen = {"topic": self.sink, "exactlyOnce": "true", "checkpointLocation": self.checkpoint} | options
        writer = writer.options(**chosen)
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(DEADLINE_S):
            query.stop()
            raise TimeoutError("the query does not end")


def main(arguments: Sequence[str]) -> None:
    bootstrap, source, sink, checkpoint, markers, point, *rest = arguments
    spark = session("mortal", master="local[2,4]", settings={"spark.ui.enabled": "false"})
    spark.dataSource.register(mortal_source({0: point}, Path(markers), group_id=os.getpgid(0)))
    copy = Copy(bootstrap, source, sink, checkpoint)
    copy.run(copy.rows(spark), sink_format=NAME, **dict(option.split("=", 1) for option in rest))


if __name__ == "__main__":
    main(sys.argv[1:])
