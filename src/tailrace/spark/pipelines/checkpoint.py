"""The folder in which Spark remembers how far a query came, and the id that it gave the query.

Read by Spark itself, since the folder may be where only Spark's machines can reach it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_query_id(spark: SparkSession, checkpoint: str) -> str | None:
    """The id that Spark gave the query of this checkpoint; None if it is new."""
    from pyspark.errors import AnalysisException

    try:
        lines = spark.read.text(f"{checkpoint}/metadata").collect()
    except AnalysisException:  # There is no such file.
        return None
    found = json.loads("".join(line.value for line in lines))["id"]
    return str(found)


def running_query_id(spark: SparkSession, checkpoint: str) -> str:
    """The same within a batch, when Spark has written it."""
    query_id = read_query_id(spark, checkpoint)
    if query_id is None:
        raise RuntimeError(f"the checkpoint {checkpoint} has lost its file `metadata`: it cannot be used any more")
    return query_id
