"""The dead letters of one topic: which wait, and what becomes of them.

What is settled lies below the offset that the group `tailrace-dlq-TOPIC` has committed. To settle some letters and not
others, those that stay are written again to the end of their partition, in one transaction with the replayed ones and
the offset. So each letter is replayed once or not at all, whatever dies, and whoever else settles letters at the same
time is fenced. Then the settled range is deleted: a group without members forgets its offsets after some days.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from tailrace.client.admin import Admin
from tailrace.client.consumer import Consumer
from tailrace.client.fetching import ConsumerOptions, Isolation
from tailrace.client.groups.coordinator import Coordinator
from tailrace.client.groups.offsets import GroupMetadata, GroupOffsets
from tailrace.client.metadata import Cluster
from tailrace.client.offsets import EARLIEST, LATEST, list_offsets
from tailrace.client.transactions.producer import TransactionalProducer, TransactionOptions
from tailrace.kit.letters.letter import Letter, open_letter
from tailrace.kit.retries.headers import replayed_headers
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition

_POLL_MS = 500
# Of one transaction.
_LETTERS_MAX = 500
_TRANSACTION_TIMEOUT_MS = 60_000

Chosen = Callable[[Letter], bool]
# Where a chosen letter goes; None is nowhere.
Target = Callable[[Letter], str | None]


class Settled(NamedTuple):
    replayed: int = 0
    dropped: int = 0
    # Others that had to be written again, since they lay before or among those that were chosen.
    moved: int = 0


class Desk:
    """`close` it at the end. Works for one caller at a time."""

    def __init__(self, cluster: Cluster, topic: str, *, timeout_ms: int) -> None:
        self.topic = topic
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._group = GroupMetadata(f"tailrace-dlq-{topic}")
        self._coordinator = Coordinator(cluster, self._group.group_id)

    def close(self) -> None:
        self._coordinator.close()

    async def waiting(self) -> AsyncGenerator[Letter, None]:
        """All that are not settled, partition by partition, as they are now."""
        for partition, (start, end) in (await self._ranges()).items():
            async for letters in self._read(partition, start, end):
                for letter in letters:
                    yield letter

    async def waiting_offsets(self) -> int:
        """How many offsets there are to look at: the letters, and some that are none."""
        return sum(end - start for start, end in (await self._ranges()).values())

    async def settle(self, is_chosen: Chosen, target: Target) -> Settled:
        """Letters that come meanwhile are not looked at. Raises KafkaError; what was settled before stays so."""
        options = TransactionOptions(
            self._group.group_id, timeout_ms=_TRANSACTION_TIMEOUT_MS, retry_timeout_ms=self._timeout_ms
        )
        settled = Settled()
        producer = TransactionalProducer(self._cluster, options)
        try:
            await self._cluster.with_retries(producer.init, timeout_ms=self._timeout_ms)
            # Only now: what another desk has begun is over.
            ranges = await self._ranges()
            for partition, (start, end) in ranges.items():
                last = await self._last_chosen(partition, start, end, is_chosen)
                if last is not None:
                    async for letters in self._read(partition, start, last + 1):
                        found = await self._settle_some(producer, partition, letters, is_chosen, target)
                        settled = Settled(*(a + b for a, b in zip(settled, found, strict=True)))
            await self._delete_settled(ranges)
        finally:
            producer.close()
        return settled

    async def _last_chosen(self, partition: TopicPartition, start: int, end: int, is_chosen: Chosen) -> int | None:
        last: int | None = None
        async for letters in self._read(partition, start, end):
            for letter in letters:
                if is_chosen(letter):
                    last = letter.record.offset
        return last

    async def _settle_some(
        self,
        producer: TransactionalProducer,
        partition: TopicPartition,
        letters: Sequence[Letter],
        is_chosen: Chosen,
        target: Target,
    ) -> Settled:
        replayed = dropped = moved = 0
        producer.begin()
        try:
            for letter in letters:
                record = letter.record
                if not is_chosen(letter):
                    moved += 1
                    await producer.send(
                        self.topic,
                        record.value,
                        key=record.key,
                        headers=record.headers,
                        partition=partition.partition,
                        timestamp=record.timestamp,
                    )
                elif (topic := target(letter)) is not None:
                    replayed += 1
                    headers = replayed_headers(record.headers, letter.trail)
                    await producer.send(topic, record.value, key=record.key, headers=headers)
                else:
                    dropped += 1
            await producer.send_offsets({partition: letters[-1].record.offset + 1}, self._group)
            await producer.commit()
        except KafkaError:
            with suppress(KafkaError):
                await producer.abort()
            raise
        return Settled(replayed, dropped, moved)

    async def _delete_settled(self, partitions: Iterable[TopicPartition]) -> None:
        committed = await self._offsets().fetch(partitions)
        offsets = {partition: found.offset for partition, found in committed.items()}
        try:
            await Admin(self._cluster).delete_records(offsets)
        except KafkaError as error:
            raise KafkaError(
                error.code,
                f"the letters are settled, but cannot be deleted from {self.topic}: {error.message}. Let somebody who "
                "may delete its records call this command again, within offsets.retention.minutes",
            ) from error

    # --- reading

    async def _ranges(self) -> dict[TopicPartition, tuple[int, int]]:
        known = await self._cluster.topic(self.topic)
        partitions = [TopicPartition(self.topic, PartitionIndex(index)) for index in sorted(known.partitions)]
        starts, ends = [
            await list_offsets(
                self._cluster,
                dict.fromkeys(partitions, end),
                isolation=Isolation.READ_COMMITTED,
                timeout_ms=self._timeout_ms,
            )
            for end in (EARLIEST, LATEST)
        ]
        committed = await self._offsets().fetch(partitions)
        begun = {each: max(starts[each], committed[each].offset if each in committed else 0) for each in partitions}
        return {each: (begun[each], ends[each]) for each in partitions if begun[each] < ends[each]}

    async def _read(self, partition: TopicPartition, start: int, end: int) -> AsyncGenerator[list[Letter], None]:
        """In steps that one transaction takes."""
        consumer = Consumer(self._cluster, ConsumerOptions(isolation=Isolation.READ_COMMITTED))
        try:
            await consumer.assign({partition: start})
            silent_since = self._cluster.ports.clock.monotonic_ms()
            while consumer.position(partition).offset < end:
                records = (await consumer.poll(_POLL_MS, _LETTERS_MAX)).get(partition, [])
                letters = [open_letter(partition, record) for record in records if record.offset < end]
                now = self._cluster.ports.clock.monotonic_ms()
                if letters:
                    silent_since = now
                    yield letters
                elif not records and now - silent_since > self._timeout_ms:
                    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{partition} gives nothing more before offset {end}")
        finally:
            await consumer.close()

    def _offsets(self) -> GroupOffsets:
        return GroupOffsets(self._coordinator, timeout_ms=self._timeout_ms)
