"""The topic read into the state: at the start to its end, then on and on.

A record that cannot be read is passed over, counted and told, with its offset: one bad record must not keep everybody
from their schemas. While brokers are away the state stays as it is, and reading goes on when they are back. A topic
that has lost its end, or was made anew, is another one: then this process must not go on with what it remembers.
"""

from __future__ import annotations

import asyncio
import heapq
from contextlib import suppress

from tailrace.apps.registry.state.records import DamagedRecordError
from tailrace.apps.registry.state.store import State
from tailrace.client.consumer import EARLIEST, LATEST, Consumer, ConsumerOptions
from tailrace.client.metadata import Cluster
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.wire.payload import Record

_log = events.logger("registry")

_POLL_MS = 1000.0
_OPTIONS = ConsumerOptions(fetch_max_wait_ms=500, partition_max_bytes=8 * 1024 * 1024)
# Between two fetches that have failed for half a minute each.
_PAUSE_S = 1.0
# Records replayed in one turn of the loop: 10,000 take a quarter of a second.
_RECORDS_PER_TURN = 200


class Reader:
    """`start` it, and `close` it at the end."""

    def __init__(self, cluster: Cluster, topic: str, state: State) -> None:
        self.partition = TopicPartition(topic, PartitionIndex(0))
        self.damaged = 0
        # The offset of the next record that is replayed.
        self.position = 0
        # Ends only if reading cannot go on, with the reason.
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._state = state
        self._consumer = Consumer(cluster, _OPTIONS)
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []  # A heap, by offset.
        self._waited = 0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when everything that is there now was read."""
        partition = self.partition
        begin = (await self._consumer.offsets_at([partition], EARLIEST))[partition]
        end = (await self._consumer.offsets_at([partition], LATEST))[partition]
        await self._consumer.assign({partition: begin})
        self.position = begin
        while self.position < end:
            await self._read_some()
        self._task = asyncio.create_task(self._run())

    async def wait_read(self, offset: int) -> None:
        """Until the record at this offset was replayed."""
        if self.position > offset:
            return
        self._waited += 1
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (offset, self._waited, waiter))
        await waiter

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._consumer.close()

    async def _run(self) -> None:
        while True:
            try:
                await self._read_some()
            except KafkaError as error:
                if error.code is ErrorCode.OFFSET_OUT_OF_RANGE or not error.code.retriable:
                    _log.error("the topic cannot be read on", topic=self.partition.topic, cause=error.message)
                    self._fail(error)
                    return
                _log.warning("the topic cannot be read now", topic=self.partition.topic, cause=error.message)
                await asyncio.sleep(_PAUSE_S)
            except Exception as error:  # A bug: whoever waits must hear of it.
                _log.error("reading has failed", trace=error)
                self._fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"reading has a bug: {error!r}"))
                return

    def _fail(self, error: KafkaError) -> None:
        with suppress(asyncio.InvalidStateError):
            self.failed.set_exception(error)

    async def _read_some(self) -> None:
        found = await self._consumer.poll(_POLL_MS)
        records = found.get(self.partition, [])
        for start in range(0, len(records), _RECORDS_PER_TURN):
            for record in records[start : start + _RECORDS_PER_TURN]:
                self._replay(record)
            self._tell(records[min(start + _RECORDS_PER_TURN, len(records)) - 1].offset + 1)
            if len(records) > _RECORDS_PER_TURN:
                await asyncio.sleep(0)
        # Control records and what compaction took are passed over.
        self._tell(self._consumer.position(self.partition).offset)

    def _replay(self, record: Record) -> None:
        try:
            self._state.replay_record(record.key, record.value, record.timestamp)
        except DamagedRecordError as error:
            self.damaged += 1
            _log.error(
                "passed over a record that is damaged",
                offset=record.offset,
                cause=str(error),
                key=repr(record.key)[:200],
            )

    def _tell(self, position: int) -> None:
        self.position = max(self.position, position)
        while self._waiting and self._waiting[0][0] < self.position:
            _, _, waiter = heapq.heappop(self._waiting)
            if not waiter.done():
                waiter.set_result(None)
