"""What a task tells the driver. Light to import, since each process that Spark plans and commits in has to."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from tailrace.model.ids import TopicPartition


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task has written, all of it acknowledged."""

    records: int = 0
    bytes: int = 0
    partitions: frozenset[TopicPartition] = frozenset()
