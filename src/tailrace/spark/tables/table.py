"""What a system table is: a schema, and one question to the cluster that gives all its rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from pyspark.sql.types import StructType

from tailrace.client.metadata import Cluster

Row = tuple[Any, ...]


class SystemTable(NamedTuple):
    """`read` may be asked again if it fails with an error that passes, such as a topic deleted while it was asked."""

    schema: StructType
    read: Callable[[Cluster], Awaitable[Sequence[Row]]]
