"""What the kit asks of whoever speaks Kafka's protocol for it. Keys and values are bytes here, times milliseconds.

An engine may be started, used and closed on one event loop only. It raises KafkaError.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from tailrace.client.groups.offsets import Committed, Offsets
from tailrace.client.lanes import Delivered
from tailrace.client.producer import Sendable
from tailrace.kit.messages import WireHeaders
from tailrace.model.ids import TopicPartition
from tailrace.wire.records import Record

OnPartitions = Callable[[Sequence[TopicPartition]], Awaitable[None] | None]


class Hooks(NamedTuple):
    """Called, and waited for, while a consumer polls or closes."""

    on_assigned: OnPartitions
    on_revoked: OnPartitions
    on_lost: OnPartitions


class Subscription(NamedTuple):
    """`pattern` is an RE2 expression."""

    topics: tuple[str, ...]
    pattern: str | None
    hooks: Hooks


class ProducerEngine(Protocol):
    async def start(self) -> None:
        """Connects to nobody yet, but for a transactional producer, which fences its predecessors."""

    async def partition_count(self, topic: str) -> int: ...

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None,
        headers: WireHeaders,
        partition: int | None,
        timestamp: int | None,
    ) -> Future[Delivered]:
        """Waits until there is room for the record."""

    async def send_many(self, topic: str, records: Iterable[Sendable]) -> Future[int]:
        """As `send` for each. The future gives their number once all are written, or else the first failure."""

    async def flush(self, timeout_ms: float) -> int:
        """How many records are left without an answer."""

    def begin(self) -> None: ...

    async def commit(self) -> None: ...

    async def abort(self) -> None: ...

    async def send_offsets(self, offsets: Offsets, group: Any) -> None:
        """`group` is what a consumer of the same engine gave as its group metadata."""

    async def close(self) -> None:
        """At once: what has no answer fails."""


class ConsumerEngine(Protocol):
    async def start(self) -> None: ...

    async def subscribe(self, subscription: Subscription) -> None: ...

    async def assign(self, positions: Mapping[TopicPartition, int]) -> None: ...

    @property
    def assignment(self) -> frozenset[TopicPartition]: ...

    @property
    def paused(self) -> frozenset[TopicPartition]: ...

    async def poll(self, timeout_ms: float, max_records: int) -> Mapping[TopicPartition, Sequence[Record]]: ...

    async def commit(self, offsets: Offsets | None) -> None: ...

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed]: ...

    def position(self, partition: TopicPartition) -> int: ...

    def end_offset(self, partition: TopicPartition) -> int:
        """As last heard, or -1."""

    async def seek(self, partition: TopicPartition, offset: int) -> None: ...

    def pause(self, partitions: Iterable[TopicPartition]) -> None: ...

    def resume(self, partitions: Iterable[TopicPartition]) -> None: ...

    async def offsets_at(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]: ...

    def group_metadata(self) -> Any: ...

    async def close(self, *, leave: bool) -> None: ...
