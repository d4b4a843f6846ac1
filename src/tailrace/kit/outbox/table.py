"""The table of records that are to be written, and how an application puts one into it: in its own transaction.

Rows are marked when they are sent, and never taken for sent because of their number: ids are given before rows are
committed, and a row with a lower id may appear after one with a higher.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    func,
    insert,
    select,
    update,
)


class Row(NamedTuple):
    id: int
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


def outbox_table(metadata: MetaData, name: str = "outbox") -> Table:
    """`failed` says why a row cannot be sent; it is tried again once that is null."""
    return Table(
        name,
        metadata,
        Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
        Column("topic", String(249), nullable=False),
        Column("record_key", LargeBinary),
        Column("value", LargeBinary),
        Column("headers", Text, nullable=False, default="{}"),
        Column("created_at", DateTime, nullable=False, server_default=func.current_timestamp()),
        Column("sent_at", DateTime, index=True),
        Column("failed", Text),
    )


def enqueue(
    connection: Connection,
    table: Table,
    topic: str,
    value: bytes | None,
    *,
    key: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> None:
    """It is sent if the transaction of this connection commits."""
    row = {"topic": topic, "record_key": key, "value": value, "headers": json.dumps(dict(headers or {}))}
    connection.execute(insert(table).values(row))


def unsent_rows(connection: Connection, table: Table, count_max: int) -> list[Row]:
    columns = table.c
    found = connection.execute(
        select(columns.id, columns.topic, columns.record_key, columns.value, columns.headers)
        .where(columns.sent_at.is_(None), columns.failed.is_(None))
        .order_by(columns.id)
        .limit(count_max)
    )
    return [Row(each[0], each[1], each[2], each[3], _headers(each[4])) for each in found]


def mark_sent(connection: Connection, table: Table, ids: Sequence[int]) -> None:
    """Those that are marked already keep their time."""
    _update(connection, table, ids, {"sent_at": func.current_timestamp()})


def mark_failed(connection: Connection, table: Table, row_id: int, reason: str) -> None:
    _update(connection, table, [row_id], {"failed": reason})


def _update(connection: Connection, table: Table, ids: Sequence[int], values: Mapping[str, Any]) -> None:
    if ids:
        statement = update(table).where(table.c.id.in_(ids), table.c.sent_at.is_(None))
        connection.execute(statement.values(dict(values)))


def _headers(text: str) -> Sequence[tuple[str, bytes | None]]:
    return tuple((str(name), str(content).encode()) for name, content in json.loads(text).items())
