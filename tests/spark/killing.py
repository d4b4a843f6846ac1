"""A driver whose executors are killed, by SIGKILL, while their tasks write: for test_local_cluster.

    python -m tests.spark.killing BOOTSTRAP SOURCE SINK CHECKPOINT EXACTLY_ONCE

copies a topic in some micro-batches on a cluster of two executors. In two of the batches it kills the executor that a
task runs in, once that task has begun to write. Spark brings up another, and runs the task again.
"""

import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame

from tailrace.spark import session
from tests.spark.mortal import Copy

MASTER = "local-cluster[2,1,1024]"
TASK_ROWS = 400
# Small pieces, so that a task has written some of its rows when it is killed.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
}
SINK = {"kafka.buffer.memory": "40000"}
FATAL_BATCHES = (1, 3)
DEADLINE_S = 300.0


def wait_for_death(rows: DataFrame, folder: str) -> DataFrame:
    """The same rows. The first task of a fatal batch that has given half of its rows leaves the process id of its
    executor in the folder, and waits for the end."""

    def hold(pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        batch = TaskContext.get().getLocalProperty("streaming.sql.batchId")
        given = 0
        for piece in pieces:
            yield piece
            given += len(piece)
            if int(batch) in FATAL_BATCHES and given >= TASK_ROWS // 2:
                with contextlib.suppress(FileExistsError):
                    (Path(folder) / batch).touch(exist_ok=False)
                    (Path(folder) / f"{batch}.pid").write_text(str(executor_of(os.getpid())))
                    time.sleep(DEADLINE_S)

    return rows.mapInArrow(hold, rows.schema)


def executor_of(process_id: int) -> int:
    """The JVM above a Python worker."""
    while "CoarseGrainedExecutorBackend" not in Path(f"/proc/{process_id}/cmdline").read_text():
        fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
        process_id = int(fields[1])
        assert process_id > 1, "this is no worker of an executor"
    return process_id


def kill_when_told(folder: Path) -> None:
    for batch in FATAL_BATCHES:
        told = folder / f"{batch}.pid"
        while not (told.exists() and told.read_text()):
            time.sleep(0.05)
        time.sleep(1)  # What was given so far is under way to the broker.
        os.kill(int(told.read_text()), signal.SIGKILL)
        print(f"killed executor {told.read_text()} in batch {batch}", flush=True)


# The workers of Spark do not find modules of tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def main(arguments: Sequence[str]) -> None:
    *names, exactly_once = arguments
    copy = Copy(*names)
    spark = session("killing", master=MASTER, settings=SETTINGS)
    with tempfile.TemporaryDirectory() as folder:
        threading.Thread(target=kill_when_told, args=(Path(folder),), daemon=True).start()
        rows = copy.rows(spark, maxOffsetsPerTrigger=str(2 * TASK_ROWS))
        copy.run(wait_for_death(rows.select("value", "partition"), folder), exactlyOnce=exactly_once, **SINK)
        assert {path.name for path in Path(folder).glob("*.pid")} == {f"{batch}.pid" for batch in FATAL_BATCHES}
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
