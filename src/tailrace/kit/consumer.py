"""The consumer: records out of topics, alone or with the other members of a group.

`poll` gives a list of messages; `async for` gives one after the other. With enable.auto.commit what a poll has given
counts as done at the next poll, and at `close`, so that every record is given to some member at least once; without it
the caller commits. Hooks tell of partitions that come and go, while `poll` or `close` runs. One caller at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from tailrace.client.consumer import EARLIEST, LATEST
from tailrace.kit.engines.choice import consumer_engine
from tailrace.kit.engines.port import Hooks, OnPartitions, Subscription
from tailrace.kit.messages import Message, OffsetAndMetadata, Place, Source, TopicPartition, message_type
from tailrace.kit.options import Options, ParsedOptions, Value
from tailrace.kit.serdes import AskingSerde, Bytes, Serde
from tailrace.model import ids
from tailrace.model.errors import ErrorCode, KafkaError

# Where to seek to, or to begin with an assignment.
BEGINNING, END = EARLIEST, LATEST

# A hook that is a coroutine function is waited for.
Hook = Callable[[Sequence[TopicPartition]], Awaitable[None] | None]
# How long `async for` waits in one poll: only a bound, since it polls again.
_POLL_S = 1.0


class Consumer:
    """Use it as an async context manager: leaving it commits what is done, and leaves the group. Options have Kafka's
    names."""

    def __init__(
        self,
        options: Options | None = None,
        /,
        *,
        topics: Iterable[str] = (),
        keys: Serde | None = None,
        values: Serde | None = None,
        on_assigned: Hook | None = None,
        on_revoked: Hook | None = None,
        on_lost: Hook | None = None,
        **named: Value,
    ) -> None:
        """`topics` are subscribed to at the start."""
        self.options = ParsedOptions(options, named)
        self._keys = keys or Bytes()
        self._values = values or Bytes()
        self._asks = isinstance(self._keys, AskingSerde) or isinstance(self._values, AskingSerde)
        self._topics = _names(topics)
        self._hooks = on_assigned, on_revoked, on_lost
        self._engine = consumer_engine(self.options, self._message_type)
        self._message_types: dict[ids.TopicPartition, type[Message]] = {}
        self._starting = asyncio.Lock()
        self._is_started = self._is_closed = False

    async def __aenter__(self) -> Consumer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Done by itself at the first use, too."""
        async with self._starting:
            if self._is_closed:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "this consumer was closed: make another one")
            if not self._is_started:
                await self._engine.start()
                self._is_started = True
                if self._topics:
                    await self._subscribe(self._topics, None, *self._hooks)

    # --- what is read

    async def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        on_assigned: Hook | None = None,
        on_revoked: Hook | None = None,
        on_lost: Hook | None = None,
    ) -> None:
        """As a member of the group, from the next poll on. `pattern` is an RE2 expression (group.protocol=consumer).
        Between assigned and revoked nobody else has a partition; after a loss somebody may have had it already."""
        await self.start()
        own = self._hooks
        hooks = (on_assigned or own[0], on_revoked or own[1], on_lost or own[2])
        await self._subscribe(_names(topics), pattern, *hooks)

    async def _subscribe(
        self,
        topics: tuple[str, ...],
        pattern: str | None,
        on_assigned: Hook | None,
        on_revoked: Hook | None,
        on_lost: Hook | None,
    ) -> None:
        if not topics and pattern is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "subscribe to what? Name topics, or give a pattern")
        hooks = Hooks(_hook(on_assigned), _hook(on_revoked), _hook(on_lost or on_revoked))
        await self._engine.subscribe(Subscription(topics, pattern, hooks))

    async def assign(self, positions: Mapping[ids.TopicPartition, int] | Iterable[ids.TopicPartition]) -> None:
        """These partitions and no others, without a group's say: each from an offset, BEGINNING or END. Without offsets
        it is auto.offset.reset."""
        await self.start()
        if not isinstance(positions, Mapping):
            positions = dict.fromkeys(positions, self.options.start)
        await self._engine.assign(positions)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(map(TopicPartition.of, self._engine.assignment))

    # --- reading

    async def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[Message]:  # noqa: ASYNC109 - an empty list is its answer
        """The next messages, in order within a partition; none if none came within so many seconds. At most
        max.poll.records, unless another number is given."""
        if not self._is_started or self._is_closed:
            await self.start()
        found = await self._engine.poll(timeout * 1000, max_records or self.options.config.max_poll_records)
        messages = [message for given in found.values() for message in given]
        if self._asks and messages:
            try:
                await self._prepare(messages)
            except BaseException:  # Whoever waited does no more: these were not given, and come again.
                for partition, records in found.items():
                    await self._engine.seek(partition, records[0].offset)
                raise
        return messages

    async def _prepare(self, messages: Sequence[Message]) -> None:
        if isinstance(self._keys, AskingSerde):
            await self._keys.prepare_read(((each.raw_key, each.headers) for each in messages), "key")
        if isinstance(self._values, AskingSerde):
            await self._values.prepare_read(((each.raw_value, each.headers) for each in messages), "value")

    async def __aiter__(self) -> AsyncIterator[Message]:
        """For ever; `break` to end. A message is done when the next one is asked for."""
        while True:
            for message in await self.poll(_POLL_S):
                yield message

    def _message_type(self, partition: ids.TopicPartition) -> type[Message]:
        found = self._message_types.get(partition)
        if found is None:
            source = Source(partition.topic, partition.partition, self._keys, self._values)
            found = self._message_types[partition] = message_type(source)
        return found

    # --- where reading goes on

    def position(self, partition: ids.TopicPartition) -> int:
        """The offset of the next record that a poll gives."""
        return self._engine.position(partition)

    def end_offset(self, partition: ids.TopicPartition) -> int:
        """Where reading a partition of the assignment ends, as last heard with records; -1 if nothing was heard yet."""
        return self._engine.end_offset(partition)

    async def seek(self, partition: ids.TopicPartition, offset: int) -> None:
        """The next poll goes on from there; BEGINNING and END are the two ends."""
        await self._engine.seek(partition, offset)

    def pause(self, partitions: Iterable[ids.TopicPartition]) -> None:
        """Polls give nothing of them until they are resumed; they stay with this member all the while."""
        self._engine.pause(partitions)

    def resume(self, partitions: Iterable[ids.TopicPartition]) -> None:
        self._engine.resume(partitions)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(map(TopicPartition.of, self._engine.paused))

    async def offsets_for_time(
        self, partitions: Iterable[ids.TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        """The first offset at or after a time in milliseconds, or the end."""
        await self.start()
        return _places(await self._engine.offsets_at(list(partitions), timestamp))

    async def beginning_offsets(self, partitions: Iterable[ids.TopicPartition]) -> dict[TopicPartition, int]:
        return await self.offsets_for_time(partitions, BEGINNING)

    async def end_offsets(self, partitions: Iterable[ids.TopicPartition]) -> dict[TopicPartition, int]:
        return await self.offsets_for_time(partitions, END)

    async def lag(self) -> dict[TopicPartition, int]:
        """How many offsets lie between each position and the end of its partition."""
        ends = await self.end_offsets(self.assignment)
        return {each: max(0, end - self.position(each)) for each, end in ends.items() if each in self.assignment}

    # --- what is done

    async def commit(self, offsets: Mapping[Place, int | OffsetAndMetadata] | None = None) -> None:
        """The offset behind the last record that is done, for each partition; without offsets, behind everything that
        polls have given. Raises KafkaError if the group refuses, as after this member was put out of it."""
        await self._engine.commit(None if offsets is None else dict(offsets.items()))

    async def committed(self, partitions: Iterable[ids.TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """What the group has committed, of these partitions or the assigned ones; without those that have nothing.
        Waits for open transactions that would change it."""
        found = await self.committed_with_metadata(partitions)
        return {partition: each.offset for partition, each in found.items()}

    async def committed_with_metadata(
        self, partitions: Iterable[ids.TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        await self.start()
        found = await self._engine.committed(self.assignment if partitions is None else list(partitions))
        return {TopicPartition.of(partition): each for partition, each in found.items()}

    def group_metadata(self) -> Any:
        """For `Producer.send_offsets_to_transaction`. Raises KafkaError if this member was put out of the group."""
        return self._engine.group_metadata()

    async def close(self, *, leave: bool = True) -> None:
        """Without `leave` the group finds out when the session ends, and nothing is committed: as if the process had
        died."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._is_started:
            await self._engine.close(leave=leave)


def _names(topics: Iterable[str]) -> tuple[str, ...]:
    return (topics,) if isinstance(topics, str) else tuple(topics)


def _places(offsets: Mapping[ids.TopicPartition, int]) -> dict[TopicPartition, int]:
    return {TopicPartition.of(partition): offset for partition, offset in offsets.items()}


def _hook(hook: Hook | None) -> OnPartitions:
    def call(partitions: Sequence[ids.TopicPartition]) -> Awaitable[None] | None:
        return None if hook is None else hook(list(map(TopicPartition.of, partitions)))

    return call
