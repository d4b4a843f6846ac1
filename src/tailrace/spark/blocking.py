"""The asyncio client where there is no loop: in a Spark task, and in the processes in which Spark plans.

A loop of its own runs only while the caller waits in `run`; between two calls the sockets rest, and the kernel
receives. Spark forks its workers and uses them again, so nothing here outlives its with-block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from tailrace.real.cluster import open_cluster
from tailrace.spark.options.kafka import KafkaSettings

if TYPE_CHECKING:
    from typing import Self

T = TypeVar("T")


class BlockingCluster:
    """Raises KafkaError INVALID_CONFIG if certificates cannot be read on this machine; connects when it is used."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.cluster = open_cluster(
            settings.bootstrap, security=settings.security, client_id=settings.client_id, limits=settings.limits
        )
        self._runner = asyncio.Runner()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def close(self) -> None:
        self._runner.run(self._close())
        self._runner.close()

    async def _close(self) -> None:
        self.cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
