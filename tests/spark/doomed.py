"""A driver of four pipelines, one for each kind of sink, which a test kills: for test_doomed_driver.

    python -m tests.spark.doomed BOOTSTRAP SOURCE TARGET FOLDER BATCH_RECORDS_MAX [once]

copies the topic SOURCE into the topic TARGET and into tables in FOLDER, in threads of one session.
"""

import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tailrace.spark import session
from tailrace.spark.pipelines import Pipeline, TableSink, TopicSink, TopicSource, Transform, run
from tailrace.spark.pipelines.failures import Retrying, RetryPolicy

SINKS = ("parquet", "delta", "iceberg", "topic")
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def iceberg_catalog(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}


def pipeline(name: str, bootstrap: str, topics: Sequence[str], folder: Path, batch_records_max: int) -> Pipeline:
    source, target = topics
    sinks = {
        "parquet": TableSink(str(folder / "parquet"), "parquet"),
        "delta": TableSink(str(folder / "delta"), "delta"),
        "iceberg": TableSink("shop.orders", "iceberg", catalog=iceberg_catalog(folder)),
        "topic": TopicSink(target),
    }
    columns = "value" if name == "topic" else "CAST(CAST(value AS STRING) AS BIGINT) AS id"
    return Pipeline(
        name=name,
        bootstrap=bootstrap,
        sources={"orders": TopicSource(source, batch_records_max=batch_records_max)},
        transform=Transform(sql=f"SELECT {columns} FROM orders"),
        sink=sinks[name],
        checkpoint=str(folder / "checkpoints" / name),
    )


def main(arguments: Sequence[str]) -> None:
    bootstrap, source, target, folder, batch_records_max, *rest = arguments
    spark = session("doomed", master="local[2]", settings=SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    (Path(folder) / "warehouse").mkdir(exist_ok=True)
    stop = threading.Event()

    def run_one(name: str) -> None:
        try:
            wanted = pipeline(name, bootstrap, (source, target), Path(folder), int(batch_records_max))
            # As `tailrace pipeline run` does it: a busy machine may not bring up a Python worker in time.
            retrying = Retrying(RetryPolicy(), stop, lambda error, *_: print(f"{name} again: {error}", flush=True))
            retrying.run(lambda: run(wanted, spark, once=rest == ["once"], stop=stop, on_progress=retrying.progressed))
        finally:
            if rest != ["once"]:
                stop.set()  # One that fails ends the others, and the test sees it.

    with ThreadPoolExecutor() as threads:
        list(threads.map(run_one, SINKS))


if __name__ == "__main__":
    main(sys.argv[1:])
