"""A recorded history (docs/verify.md) as the expected side of a comparison: what clients were told of their sends.

Each sent record becomes a row that says how often it must and may stand in the topic:

| the send | its transaction | at least | at most |
|---|---|---|---|
| acknowledged, by all replicas | none, or committed | 1 | 1 |
| acknowledged | unknown | 0 | 1 |
| unknown (also: acknowledged by the leader alone) | none, committed or unknown | 0 | 1 |
| refused | any | 0 | 0 |
| any | aborted, or never committed | 0 | 0 for readers at read_committed, else 1 |

Polls are not looked at: the topic itself is read. `tailrace verify` judges what consumers saw.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from tailrace.spark.audit.errors import AuditError
from tailrace.spark.audit.rows import digest, label

_EVENT = (
    "process string, type string, op string, id string, idempotent boolean, acks string, records array<array<string>>"
)
# The retries of a producer that is not idempotent may store a record any number of times.
_ANY_NUMBER = 1_000_000_000
# What an acknowledgement tells: the record must stand there.
_PLACE = "concat(partition, '@', offset)"


def read_events(spark: SparkSession, path: str) -> DataFrame:
    """The lines as events with an `at` by which those of one process can be sorted. A file is split among tasks, and
    neither their order nor a line number can be had; the place of the split in the file can."""
    lines = spark.read.text(path).where(sf.trim("value") != "")
    at = sf.struct("_metadata.file_path", "_metadata.file_block_start", sf.monotonically_increasing_id().alias("line"))
    return lines.select(at.alias("at"), "value", sf.from_json("value", _EVENT).alias("event"))


def check_events(events: DataFrame, path: str) -> None:
    """Raises AuditError if a line is none of a history. The last one may be cut off: its writer died."""
    is_bad = sf.col("event.process").isNull() | sf.col("event.type").isNull() | sf.col("event.op").isNull()
    summary = events.agg(
        sf.count_if(is_bad).alias("bad"),
        sf.max("at").alias("last"),
        sf.min(sf.when(is_bad, sf.struct("at", "value"))).alias("first_bad"),
    ).first()
    assert summary is not None
    if summary.last is None:
        raise AuditError(f"{path} is empty: a history has one JSON object a line (docs/verify.md)")
    if summary.bad > 1 or (summary.bad == 1 and summary.first_bad.at != summary.last):
        raise AuditError(
            f"{path} is not a history: {summary.bad:,} lines are no JSON objects with process, type and op, such as "
            f"{summary.first_bad.value[:80]!r} (docs/verify.md)"
        )


def sends(events: DataFrame) -> DataFrame:
    """One row for each record that was sent: process, number (its order there), value, partition, offset,
    send ('ok', 'fail' or 'info'), transaction ('ok', 'fail', 'info', or null without one), is_idempotent."""
    event = sf.col("event")
    by_process = Window.partitionBy("process").orderBy("at")
    is_border = ((sf.col("op") == "begin") & (sf.col("type") == "ok")) | (
        sf.col("op").isin("commit", "abort") & (sf.col("type") == "invoke")
    )
    numbered = (
        events.where(event.isNotNull() & event["op"].isin("begin", "send", "commit", "abort"))
        .select("at", "event.*")
        .withColumns(
            {
                "number": sf.row_number().over(by_process).cast("bigint"),
                # From `begin` until the end is asked for, what a process sends belongs to its transaction.
                "transaction": sf.count_if((sf.col("op") == "begin") & (sf.col("type") == "ok")).over(by_process),
                "is_inside": sf.last(sf.when(is_border, sf.col("op")), ignorenulls=True)
                .over(by_process)
                .eqNullSafe("begin"),
            }
        )
    )
    return (
        _answered(numbered)
        .join(_endings(numbered), ["process", "transaction"], "left")
        .select(
            "process",
            "number",
            "value",
            "partition",
            "offset",
            "send",
            sf.when(sf.col("is_inside"), sf.col("outcome")).alias("transaction"),
            "is_idempotent",
        )
    )


def sent_rows(frame: DataFrame, topic: str, *, at_read_committed: bool) -> DataFrame:
    """The `sends` to one topic, as rows for `compare.differences`. A send whose partition nobody was told may have gone
    there. The order to be kept is that in which one idempotent producer sent what was acknowledged."""
    is_acknowledged = sf.col("send") == "ok"
    is_of_topic = sf.regexp_extract("partition", r"^(.*)-\d+$", 1) == topic
    return frame.where(is_of_topic | sf.col("partition").isNull()).select(
        digest(frame, ("value",)).alias("identity"),
        label(frame, ("value",)).alias("label"),
        sf.when(is_acknowledged & sf.col("offset").isNotNull(), digest(frame, (_PLACE,))).alias("content"),
        sf.when(is_acknowledged & sf.col("is_idempotent"), sf.col("process").cast("binary")).alias("sequence"),
        sf.concat(sf.lit("process "), "process").alias("partition"),
        sf.col("number").alias("offset"),
        _least().cast("bigint").alias("least"),
        _most(at_read_committed=at_read_committed).cast("bigint").alias("most"),
    )


def _answered(numbered: DataFrame) -> DataFrame:
    """Each invoked send with its answer: the next line of the same process and id, unless that is another send."""
    by_operation = Window.partitionBy("process", "id").orderBy("at")
    answer = sf.lead(sf.struct("type", "records")).over(by_operation)
    sent = (
        numbered.where("op = 'send'")
        .withColumn("answer", answer)
        .where("type = 'invoke'")
        .select("*", sf.posexplode("records").alias("index", "record"))
    )
    told = sf.when(sf.col("answer.type") == "ok", sf.get("answer.records", sf.col("index")))
    is_proof = sf.coalesce(sf.col("acks"), sf.lit("all")).isin("all", "-1")
    outcome = sf.coalesce(sf.col("answer.type"), sf.lit("info"))
    return sent.select(
        "process",
        "number",
        "transaction",
        "is_inside",
        sf.get("record", sf.lit(1)).alias("value"),
        sf.coalesce(sf.get(told, sf.lit(0)), sf.get("record", sf.lit(0))).alias("partition"),
        sf.get(told, sf.lit(1)).cast("bigint").alias("offset"),
        sf.when(outcome == "fail", "fail").when((outcome == "ok") & is_proof, "ok").otherwise("info").alias("send"),
        sf.coalesce(sf.col("idempotent") | sf.col("is_inside"), sf.lit(True)).alias("is_idempotent"),
    )


def _endings(numbered: DataFrame) -> DataFrame:
    """How each transaction ended: 'ok' if a commit was confirmed, 'info' if one may have been done, else 'fail'."""
    commits = numbered.where((sf.col("transaction") > 0) & (sf.col("op") != "send"))
    is_commit = sf.col("op") == "commit"
    return commits.groupBy("process", "transaction").agg(
        sf.when(sf.count_if(is_commit & (sf.col("type") == "ok")) > 0, "ok")
        .when(
            sf.count_if(is_commit & (sf.col("type") == "invoke")) > sf.count_if(is_commit & (sf.col("type") == "fail")),
            "info",
        )
        .otherwise("fail")
        .alias("outcome")
    )


def _least() -> Column:
    is_certain = sf.col("transaction").isNull() | (sf.col("transaction") == "ok")
    return sf.when((sf.col("send") == "ok") & is_certain, 1).otherwise(0)


def _most(*, at_read_committed: bool) -> Column:
    is_withdrawn = sf.col("send") == "fail"
    if at_read_committed:
        is_withdrawn = is_withdrawn | (sf.col("transaction").isNotNull() & (sf.col("transaction") == "fail"))
    return sf.when(is_withdrawn, 0).when(sf.col("is_idempotent"), 1).otherwise(_ANY_NUMBER)
