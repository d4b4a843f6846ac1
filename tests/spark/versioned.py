"""What another version of PySpark makes of us: for test_versions.

    python -m tests.spark.versioned BOOTSTRAP SOURCE SINK FOLDER

reads a topic, writes it to another, streams it into a table by a pipeline, and prints a line of JSON about that.
"""

import json
import sys
import time

import pyspark

from tailrace.spark import session

NUMBERS = range(10)


def main(bootstrap: str, source: str, sink: str, folder: str) -> None:
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"}
    spark = session("versioned", master="local[2]", settings=settings)
    spark.sparkContext.setLogLevel("OFF")
    brokers = {"kafka.bootstrap.servers": bootstrap}
    decoded = {"subscribe": source, "value.format": "json", "value.schema": "n INT"}
    rows = spark.read.format("tailrace").options(**brokers, **decoded).load()
    told: dict[str, object] = {"version": pyspark.__version__}
    told["numbers"] = sorted(row.n for row in rows.select("value.n").collect())
    told["filtered"] = rows.where("offset < 3").count()
    rows.selectExpr("CAST(value.n AS STRING) AS value").write.format("tailrace").mode("append").options(
        **brokers, topic=sink, exactlyOnce="true", exactlyOnceId=f"versioned-{sink}"
    ).save()
    committed = {"subscribe": sink, "kafka.isolation.level": "read_committed"}
    deadline = time.monotonic() + 30
    # Brokers write the markers of a commit when it is answered already.
    while (written := spark.read.format("tailrace").options(**brokers, **committed).load().count()) < len(NUMBERS):
        assert time.monotonic() < deadline, written
    told["written"] = written
    try:
        told["streamed"] = stream(spark, bootstrap, source, folder)
    except Exception as error:
        told["refused"] = str(error)
    spark.stop()
    print(json.dumps(told), flush=True)


def stream(spark: object, bootstrap: str, source: str, folder: str) -> int:
    if pyspark.__version__ < "4.2":
        query = (
            spark.readStream.format("tailrace")
            .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": source})
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", f"{folder}/refused")
            .start()
        )
        query.awaitTermination(60)
        raise AssertionError("a stream was not refused")
    from tailrace.spark.pipelines import Pipeline, TableSink, TopicSource, run

    rows = TopicSource(source, format="json", schema="n INT", batch_records_max=4)
    pipeline = Pipeline("p", bootstrap, {"rows": rows}, TableSink(f"{folder}/t", "delta"), f"{folder}/cp")
    return run(pipeline, spark, once=True).rows


if __name__ == "__main__":
    main(*sys.argv[1:])
