"""A thread with a loop of its own beside the queries of this process: it looks how far behind each pipeline is, keeps
their files from falling silent, sees wishes to stop, and answers at the door.

It asks the brokers by itself, so that a query that hangs is seen to be behind. Nothing that it meets ends a pipeline.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.model.errors import KafkaError
from tailrace.real.cluster import open_cluster
from tailrace.spark.operating.done import CheckpointError, read_done
from tailrace.spark.operating.door import Door
from tailrace.spark.operating.lag import LagReader
from tailrace.spark.operating.telling import Telling
from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.kafka import parse_kafka_settings
from tailrace.spark.pipelines.declaration import Pipeline

if TYPE_CHECKING:
    from typing import Self

_STOP_EVERY_S = 0.5
_BEAT_EVERY_S = 5.0
_LAG_EVERY_S = 5.0
_LAG_TIMEOUT_S = 20.0


class Place(NamedTuple):
    host: str
    port: int  # 0 for a free one.


class Monitor:
    """`pipelines` are those whose lag is looked at; `reads_checkpoints` is not so where they lie elsewhere."""

    def __init__(
        self,
        told: Sequence[Telling],
        pipelines: Mapping[str, Pipeline],
        *,
        place: Place | None,
        on_stop: Callable[[Telling], None],
        reads_checkpoints: bool = True,
    ) -> None:
        self.url = ""
        self._told = told
        self._pipelines = pipelines
        self._place = place
        self._on_stop = on_stop
        self._reads_checkpoints = reads_checkpoints
        self._loop: asyncio.AbstractEventLoop | None = None  # While the thread runs.
        self._opened = threading.Event()
        self._error: OSError | None = None
        self._main: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="pipelines monitor", daemon=True)

    def __enter__(self) -> Self:
        """Raises OSError if it cannot listen."""
        self._thread.start()
        self._opened.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None, "it was entered"
        with suppress(RuntimeError):  # It has ended already.
            self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join(_LAG_TIMEOUT_S)

    def _cancel(self) -> None:
        if self._main is not None:
            self._main.cancel()

    def _run(self) -> None:
        with asyncio.Runner() as runner, suppress(asyncio.CancelledError):
            self._loop = runner.get_loop()
            runner.run(self._watch())

    async def _watch(self) -> None:
        self._main = asyncio.current_task()
        door = Door(lambda: [each.status for each in self._told])
        try:
            if self._place is not None:
                self.url = await door.open(*self._place)
        except OSError as error:
            self._error = error
            return
        finally:
            self._opened.set()
        try:
            async with asyncio.TaskGroup() as tasks:
                for told in self._told:
                    tasks.create_task(_every(_STOP_EVERY_S, lambda told=told: self._look_for_stop(told)))  # type: ignore[misc]
                    tasks.create_task(_every(_BEAT_EVERY_S, lambda told=told: _beat(told)))  # type: ignore[misc]
                    pipeline = self._pipelines.get(told.status.name)
                    if pipeline is not None:
                        tasks.create_task(self._watch_lag(told, pipeline))
        finally:
            door.close()

    async def _look_for_stop(self, told: Telling) -> None:
        if not told.stop.is_set() and told.is_to_stop():
            told.wish_to_stop()
            self._on_stop(told)

    async def _watch_lag(self, told: Telling, pipeline: Pipeline) -> None:
        try:
            settings = parse_kafka_settings({name.lower(): text for name, text in pipeline.kafka_options.items()})
            cluster = open_cluster(
                settings.bootstrap, security=settings.security, client_id=settings.client_id, limits=settings.limits
            )
            reader = LagReader(cluster, pipeline)
        except (KafkaError, OptionError):
            return  # The query tells what is wrong.
        try:
            while True:
                await self._look_at_lag(told, pipeline, reader)
                await asyncio.sleep(_LAG_EVERY_S)
        finally:
            cluster.close()

    async def _look_at_lag(self, told: Telling, pipeline: Pipeline, reader: LagReader) -> None:
        if told.done is None and self._reads_checkpoints:
            with suppress(CheckpointError):
                done = await asyncio.to_thread(read_done, pipeline.checkpoint)
                # A batch may have told more meanwhile.
                told.done = done.offsets if told.done is None else told.done
        if told.done is None:
            return
        try:
            async with asyncio.timeout(_LAG_TIMEOUT_S):
                told.lagging(await reader.read(told.done))
        except Exception:
            # Supervised: whatever is wrong with brokers or topics ends the query, which tells it, and not this thread.
            told.lagging(None)


async def _beat(told: Telling) -> None:
    told.beat()


async def _every(seconds: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    while True:
        await work()
        await asyncio.sleep(seconds)
