"""What a user of Spark Connect does, in a process of its own: for test_connect.

    python -m tests.spark.connected REMOTE BOOTSTRAP SOURCE SINK FOLDER

Reads and writes topics as batch and stream through a session that has no JVM, and says what it found as JSON.
"""

import json
import sys
from collections.abc import Sequence

from pyspark.sql import functions as F

from tailrace.spark import session

DEADLINE_S = 120


def main(arguments: Sequence[str]) -> None:
    remote, bootstrap, source, sink, folder = arguments
    spark = session("connected", remote=remote)
    kafka = {"kafka.bootstrap.servers": bootstrap}

    def count(topic: str, **options: str) -> int:
        return spark.read.format("tailrace").options(**kafka, subscribe=topic, **options).load().count()

    rows = spark.range(100, numPartitions=2).select(F.col("id").cast("string").alias("value"))
    rows.write.format("tailrace").mode("append").options(**kafka, topic=source).save()
    found = {"client": type(spark).__module__, "batch": count(source)}

    stream = spark.readStream.format("tailrace").options(**kafka, subscribe=source, startingOffsets="earliest")
    writer = stream.option("maxOffsetsPerTrigger", "40").load().select("value").writeStream.format("tailrace")
    writer = writer.options(**kafka, topic=sink, exactlyOnce="true", checkpointLocation=f"{folder}/checkpoint")
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(DEADLINE_S)
    found["committed"] = count(sink, **{"kafka.isolation.level": "read_committed"})
    values = spark.read.format("tailrace").options(**kafka, subscribe=sink, **{"value.format": "string"}).load()
    found["sum"] = values.agg(F.sum(F.col("value").cast("int"))).collect()[0][0]
    topics = spark.read.format("tailrace").options(**kafka, table="topics").load()
    found["topics"] = topics.where(F.col("topic").isin(source, sink)).count()
    try:
        count("not-there", **{"fetchOffset.retryIntervalMs": "1"})
    except Exception as error:
        found["error"] = str(error)
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
