"""The relay: reads unsent rows, and writes them as records, each once for readers of committed records.

    one transaction of Kafka    the records of some rows, and the list of their ids, to a topic of lists
    one of the database         these rows are marked as sent

A relay that dies between the two leaves rows that are sent and not marked. The next one reads the last list first, and
marks them; it has fenced the old one before, by the transactional id, so no other list can come. Rows are sent in the
order of their ids, as far as they were visible.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection, Engine, Table

from tailrace.client.transactions.errors import AbortableError
from tailrace.kit.admin import Admin
from tailrace.kit.consumer import Consumer
from tailrace.kit.messages import TopicPartition
from tailrace.kit.options import Options
from tailrace.kit.outbox.table import Row, mark_failed, mark_sent, unsent_rows
from tailrace.kit.producer import Producer
from tailrace.kit.retries.refusals import is_record_refused
from tailrace.kit.serdes import Bytes
from tailrace.model.errors import KafkaError

T = TypeVar("T")

_log = logging.getLogger("tailrace.outbox")

_LISTS_CONFIG = {"cleanup.policy": "compact"}
_RECORD_BYTES_MAX = 900 * 1024 * 1024  # The topic's own limit decides.


class RelayOptions(NamedTuple):
    # Of the relay: its transactional id, and the topic of its lists.
    name: str = "outbox"
    # Rows of one transaction.
    rows_max: int = 500
    # How often it looks for rows when there were none.
    poll_ms: int = 200


class Relay:
    """`run` it in one process; a second one of the same name fences the first."""

    def __init__(self, engine: Engine, table: Table, options: Options, relay: RelayOptions | None = None) -> None:
        self._engine = engine
        self._table = table
        self._options = dict(options)
        self._relay = relay or RelayOptions()
        self._is_stopping = asyncio.Event()
        self._topics: set[str] = set()  # that were there
        self.sent = 0

    @property
    def lists(self) -> str:
        return f"{self._relay.name}.sent"

    def stop(self) -> None:
        self._is_stopping.set()

    async def run(self) -> None:
        """Until it is stopped. Raises FencedError when another relay has taken over, and what the database raises."""
        async with Admin(self._options) as admin:
            await admin.create_topic(self.lists, partitions=1, config=_LISTS_CONFIG, exist_ok=True)
        while not self._is_stopping.is_set():
            producer = Producer(
                {
                    "delivery.timeout.ms": 15_000,
                    "max.block.ms": 15_000,
                    **self._options,
                    "transactional.id": self._relay.name,
                    "max.request.size": _RECORD_BYTES_MAX,
                },
                keys=Bytes(),
                values=Bytes(),
            )
            try:
                await producer.start()  # Fences the one before, and ends its transaction.
                await self._mark_last_list()
                while not self._is_stopping.is_set():
                    if not await self._send_some(producer):
                        await self._wait()
            except KafkaError as error:
                if isinstance(error, AbortableError):
                    await producer.abort()  # Who was fenced hears of it here.
                elif not error.code.retriable:
                    raise
                _log.warning("the relay begins anew: %s", error)
                await self._wait()
            finally:
                await producer.close(0)

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self._relay.poll_ms / 1000):
                await self._is_stopping.wait()
        except TimeoutError:
            pass

    async def _send_some(self, producer: Producer) -> bool:
        """Whether there was something to do."""
        found = await self._in_database(lambda connection: unsent_rows(connection, self._table, self._relay.rows_max))
        rows = await self._with_topics(found)
        if not rows:
            return bool(found)
        try:
            await self._send(producer, rows)
        except KafkaError as error:
            if not is_record_refused(error):
                raise
            await producer.abort()
            await self._send_one_by_one(producer, rows)
        return True

    async def _with_topics(self, rows: Sequence[Row]) -> list[Row]:
        """Without those whose topic is not there: a producer would wait for it."""
        if not self._topics.issuperset(row.topic for row in rows):
            async with Admin(self._options) as admin:
                self._topics = set(await admin.topics())
        for row in rows:
            if row.topic not in self._topics:
                await self._note_failed(row, f"topic {row.topic} does not exist")
        return [row for row in rows if row.topic in self._topics]

    async def _note_failed(self, row: Row, reason: str) -> None:
        _log.warning("row %d cannot be sent: %s", row.id, reason)
        await self._in_database(lambda connection: mark_failed(connection, self._table, row.id, reason))

    async def _send_one_by_one(self, producer: Producer, rows: Sequence[Row]) -> None:
        for row in rows:
            try:
                await self._send(producer, [row])
            except KafkaError as error:
                if not is_record_refused(error):
                    raise
                await producer.abort()
                await self._note_failed(row, str(error))

    async def _send(self, producer: Producer, rows: Sequence[Row]) -> None:
        await producer.begin()
        for row in rows:
            await producer.send(row.topic, row.value, key=row.key, headers=row.headers)
        ids = [row.id for row in rows]
        await producer.send(self.lists, json.dumps(ids).encode(), key=self._relay.name.encode(), partition=0)
        await producer.commit()
        await self._in_database(lambda connection: mark_sent(connection, self._table, ids))
        self.sent += len(ids)

    async def _mark_last_list(self) -> None:
        place = TopicPartition(self.lists, 0)
        ids: list[int] = []
        async with (
            Consumer({**self._options, "isolation.level": "read_committed"}) as reader,
            Admin(self._options) as admin,
        ):
            end = (await admin.end_offsets([place]))[place]
            await reader.assign(await admin.beginning_offsets([place]))
            while reader.position(place) < end:
                for message in await reader.poll(0.5):
                    ids = json.loads(message.raw_value or b"[]")
        await self._in_database(lambda connection: mark_sent(connection, self._table, ids))

    async def _in_database(self, work: Callable[[Connection], T]) -> T:
        def run() -> T:
            with self._engine.begin() as connection:
                return work(connection)

        return await asyncio.to_thread(run)
