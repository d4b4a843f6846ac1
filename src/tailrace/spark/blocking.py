"""The asyncio client where there is no loop: in a Spark task, and in the processes in which Spark plans.

A loop of its own runs only while the caller waits in `run`; between two calls the sockets rest, and the kernel
receives. There is no thread.

Spark uses its worker processes again, so `kept_cluster` keeps connections and metadata from one task to the next. Who
uses a cluster has it alone; what a process has inherited by a fork it never touches; one whose user has failed is
closed; and none is used beyond its time, so that new certificates, passwords and addresses are taken up.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine, Hashable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

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

    def notice_closed(self) -> None:
        """Connections that brokers have closed while nobody looked are opened anew when they are needed."""
        self._runner.run(_turn())

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


class _Kept(NamedTuple):
    made_at: float  # by time.monotonic
    blocking: BlockingCluster


# By process and credentials, the one that was used last at the end. A key holds its process id, since a child that
# closed what it has from its parent would take the parent's sockets out of the epoll that both share.
_kept: dict[tuple[int, Hashable], _Kept] = {}


@contextmanager
def kept_cluster(settings: KafkaSettings) -> Iterator[BlockingCluster]:
    """The cluster that this process has used before with the same credentials, or a new one. Raises as
    BlockingCluster."""
    key = os.getpid(), settings.identity
    kept = _kept.pop(key, None)
    if kept is not None and time.monotonic() - kept.made_at >= settings.kept_ms / 1000:
        kept.blocking.close()
        kept = None
    if kept is None:
        kept = _Kept(time.monotonic(), BlockingCluster(settings))
    else:
        kept.blocking.notice_closed()
    try:
        yield kept.blocking
    except BaseException:
        kept.blocking.close()
        raise
    if key in _kept or not settings.kept_ms or not settings.kept_max:
        kept.blocking.close()  # Another one of this process is there already: a query within a query.
        return
    _kept[key] = kept
    close_kept(settings.kept_max)


def close_kept(but: int = 0) -> None:
    """All that this process keeps, but for so many that were used last."""
    ours = [key for key in _kept if key[0] == os.getpid()]
    for key in ours[: max(0, len(ours) - but)]:
        _kept.pop(key).blocking.close()


async def _turn() -> None:
    """The loop looks at its sockets once."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
