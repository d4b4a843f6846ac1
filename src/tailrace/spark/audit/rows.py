"""Both sides of a comparison in one shape: a row for each record, with digests in place of its bytes.

What identifies a record, and what of it is compared, are SQL expressions over the columns of its side, so that a
topic's `key` can be held against a table's `order_id`: everything is compared as the bytes of its text. Only digests
and places are shuffled, never the values.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StructType

# Evidence is for the eye: enough to recognise a record by, not to store it again.
LABEL_CHARACTERS = 80


def record_rows(
    frame: DataFrame,
    *,
    by: Sequence[str],
    compare: Sequence[str] = (),
    order_by: Sequence[str] = (),
    partition: str | None = None,
    offset: str | None = None,
) -> DataFrame:
    """One row for each record of a topic or table; each is expected once.

    `order_by` names what keeps its order, such as the key: records where one of these is null have none to keep.
    """
    return frame.select(
        digest(frame, by).alias("identity"),
        label(frame, by).alias("label"),
        (digest(frame, compare) if compare else sf.lit(None).cast("binary")).alias("content"),
        (_digest_unless_null(frame, order_by) if order_by else sf.lit(None).cast("binary")).alias("sequence"),
        sf.expr(partition or "NULL").cast("string").alias("partition"),
        sf.expr(offset or "NULL").cast("bigint").alias("offset"),
        sf.lit(1).cast("bigint").alias("least"),
        sf.lit(1).cast("bigint").alias("most"),
    )


def digest(frame: DataFrame, expressions: Sequence[str]) -> Column:
    """SHA-256 over the digests of all: two records share it only if every expression gives the same bytes, or null, in
    both. Eight bytes would do for a table of thousands; among a billion they meet by chance."""
    parts = [sf.coalesce(sf.sha2(_bytes(frame, each), 256), sf.lit("-")) for each in expressions]
    return sf.unhex(sf.sha2(sf.concat(*parts), 256))


def label(frame: DataFrame, expressions: Sequence[str]) -> Column:
    texts = [
        sf.coalesce(
            sf.make_valid_utf8(sf.substring(_bytes(frame, each).cast("string"), 1, LABEL_CHARACTERS)), sf.lit("null")
        )
        for each in expressions
    ]
    return sf.substring(sf.concat_ws(" ", *texts), 1, LABEL_CHARACTERS)


def _digest_unless_null(frame: DataFrame, expressions: Sequence[str]) -> Column:
    is_complete = sf.lit(True)
    for each in expressions:
        is_complete = is_complete & sf.expr(each).isNotNull()
    return sf.when(is_complete, digest(frame, expressions))


def _bytes(frame: DataFrame, expression: str) -> Column:
    kind: DataType = frame.select(sf.expr(expression)).schema[0].dataType
    column = sf.expr(expression)
    if isinstance(kind, BinaryType):
        return column
    if isinstance(kind, StructType | ArrayType | MapType):
        return sf.to_json(column).cast("binary")
    return column.cast("string").cast("binary")
