"""Dead letters of a share group: read, sent back to where their records came from, deleted.

Sent back is the record itself, with its headers, as long as its topic has it; else the copy in the letter, if there is
one. It is a new record at the end of the partition that it came from, which all readers of the topic see. Letters that
were sent back are deleted (DeleteRecords), so that nobody sends them again: at least once, for whoever is interrupted
between the two begins with the same letters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tailrace.client.admin import RESOURCE_GROUP, Admin
from tailrace.client.connection import error_code
from tailrace.client.consumer import EARLIEST, LATEST, Consumer
from tailrace.client.metadata import Cluster
from tailrace.client.producer import Delivered, Producer
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import DEAD_LETTER_HEADER_PREFIX, PartitionIndex, TopicPartition
from tailrace.wire.apis.data import DeleteRecordsRequest, DeleteRecordsResponse
from tailrace.wire.records import Record

_TOPIC_NAME = "errors.deadletterqueue.topic.name"
# Sent back before they are deleted: what is sent twice at most by whoever is interrupted.
_CHUNK = 500
_POLL_MS = 5000


class Letter(NamedTuple):
    """Whose record it is about, and why it was given up."""

    source: TopicPartition
    offset: int
    group_id: str
    delivery_count: int
    message: str
    record: Record  # The letter as it was read.

    @property
    def has_copy(self) -> bool:
        return self.record.key is not None or self.record.value is not None


class Depth(NamedTuple):
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class Outcome(NamedTuple):
    redriven_count: int
    # Of letters whose records are gone, and that have no copy.
    dropped_count: int
    # Why not all: one sentence for each partition that was left.
    problems: list[str]


async def find_topic(cluster: Cluster, group_id: str) -> str | None:
    """The topic that the group names for its dead letters. Raises KafkaError."""
    for entry in await Admin(cluster).configs_of(RESOURCE_GROUP, group_id):
        if entry.name == _TOPIC_NAME:
            return entry.value or None
    return None


def read_letter(record: Record) -> Letter | None:
    """None if it is something else."""
    told = {
        name.removeprefix(DEAD_LETTER_HEADER_PREFIX): (value or b"").decode("utf-8", "replace")
        for name, value in record.headers
        if name.startswith(DEAD_LETTER_HEADER_PREFIX)
    }
    try:
        source = TopicPartition(told["topic"], PartitionIndex(int(told["partition"])))
        return Letter(
            source,
            int(told["offset"]),
            told["group"],
            int(told.get("delivery.count", 0)),
            told.get("message", ""),
            record,
        )
    except (KeyError, ValueError):
        return None


class DeadLetters:
    """Those in one topic."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.topic = topic
        self._cluster = cluster

    async def depths(self) -> dict[TopicPartition, Depth]:
        """Raises KafkaError."""
        topic = await self._cluster.topic(self.topic)
        partitions = [TopicPartition(self.topic, each.partition) for each in topic.partitions.values()]
        consumer = Consumer(self._cluster)
        starts, ends = await consumer.offsets_at(partitions, EARLIEST), await consumer.offsets_at(partitions, LATEST)
        return {each: Depth(starts[each], ends[each]) for each in sorted(partitions)}

    async def redrive(
        self,
        group_id: str,
        *,
        target: str | None = None,
        count_max: int | None = None,
        is_for_all_groups: bool = False,
        drops_lost: bool = False,
    ) -> Outcome:
        """All letters that are there now. A partition is left where the next letter is another group's, or cannot be
        sent back: what lies behind it would be deleted with it."""
        redriven = dropped = 0
        problems: list[str] = []
        async with Producer(self._cluster) as producer:
            for partition, depth in (await self.depths()).items():
                offset = depth.start
                while offset < depth.end and (count_max is None or redriven < count_max):
                    limit = _CHUNK if count_max is None else min(_CHUNK, count_max - redriven)
                    letters, offset, problem = await self._next(
                        partition, offset, depth.end, limit, None if is_for_all_groups else group_id
                    )
                    records = await find_records(self._cluster, letters)
                    sent = _sendable(letters, records, drops_lost=drops_lost)
                    if len(sent) < len(letters):
                        offset = letters[len(sent)].record.offset
                        problem = (
                            f"{partition} from {offset} on: the record {letters[len(sent)].source} "
                            f"{letters[len(sent)].offset} is gone, and its letter has no copy"
                        )
                    under_way = [
                        await _send(producer, letter, record, target) for letter, record in sent if record is not None
                    ]
                    await producer.flush()
                    for delivered in under_way:
                        delivered.result()  # Nothing is deleted that has not arrived.
                    await self.delete({partition: offset})
                    redriven += sum(record is not None for _, record in sent)
                    dropped += sum(record is None for _, record in sent)
                    if problem:
                        problems.append(problem)
                        break
        return Outcome(redriven, dropped, problems)

    async def _next(
        self, partition: TopicPartition, offset: int, end: int, count: int, group_id: str | None
    ) -> tuple[list[Letter], int, str]:
        """Letters, the offset after them, and why there are no more."""
        letters: list[Letter] = []
        records, next_offset = await _read(self._cluster, partition, offset, end, count)
        for record in records:
            letter = read_letter(record)
            if letter is None:
                return letters, record.offset, f"{partition} from {record.offset} on: this is no dead letter"
            if group_id is not None and letter.group_id != group_id:
                other = f"{partition} from {record.offset} on: a dead letter of group {letter.group_id}"
                return letters, record.offset, other
            letters.append(letter)
        return letters, next_offset, "" if next_offset > offset else f"{partition} cannot be read at {offset}"

    async def delete(self, before: Mapping[TopicPartition, int]) -> None:
        """What lies before these offsets. Raises KafkaError."""
        for partition, offset in before.items():
            await self._cluster.with_retries(
                lambda at=partition, end=offset: self._delete(at, end),  # type: ignore[misc]
                timeout_ms=self._cluster.limits.request_timeout_ms,
            )

    async def _delete(self, partition: TopicPartition, offset: int) -> None:
        leader = await self._cluster.leader_of(partition)
        connection = await self._cluster.connection_to(leader.leader_id)
        request = DeleteRecordsRequest
        asked = request.DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
        topic = request.DeleteRecordsTopic(name=partition.topic, partitions=[asked])
        timeout_ms = self._cluster.limits.request_timeout_ms
        answer = await connection.call(request(topics=[topic], timeout_ms=timeout_ms), DeleteRecordsResponse)
        code = error_code(answer.topics[0].partitions[0].error_code)
        if code is not ErrorCode.NONE:
            self._cluster.forget(partition.topic)
            raise KafkaError(code, f"dead letters of {partition} were not deleted")


async def find_records(cluster: Cluster, letters: Iterable[Letter]) -> dict[tuple[TopicPartition, int], Record]:
    """Those that their topics still have."""
    wanted: dict[TopicPartition, set[int]] = {}
    for letter in letters:
        wanted.setdefault(letter.source, set()).add(letter.offset)
    found: dict[tuple[TopicPartition, int], Record] = {}
    for partition, offsets in wanted.items():
        try:
            starts = await Consumer(cluster).offsets_at([partition], EARLIEST)
            ends = await Consumer(cluster).offsets_at([partition], LATEST)
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            raise
        left = sorted(each for each in offsets if starts[partition] <= each < ends[partition])
        while left:
            records, next_offset = await _read(cluster, partition, left[0], ends[partition], _CHUNK)
            found |= {(partition, each.offset): each for each in records if each.offset in offsets}
            if next_offset == left[0]:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{partition} cannot be read at {next_offset}")
            left = [each for each in left if each >= next_offset]
    return found


async def _read(
    cluster: Cluster, partition: TopicPartition, offset: int, end: int, count: int
) -> tuple[list[Record], int]:
    """So many records before the end, or what there is of them, and the offset after all that was read."""
    consumer = Consumer(cluster)
    found: list[Record] = []
    try:
        await consumer.assign({partition: offset})
        while len(found) < count and consumer.position(partition).offset < end:
            polled = await consumer.poll(_POLL_MS)
            if not polled:
                break
            found += [each for each in polled.get(partition, ()) if each.offset < end]
        position = min(consumer.position(partition).offset, end)
    finally:
        await consumer.close()
    return (found, position) if len(found) <= count else (found[:count], found[count].offset)


def _sendable(
    letters: Sequence[Letter], records: Mapping[tuple[TopicPartition, int], Record], *, drops_lost: bool
) -> list[tuple[Letter, Record | None]]:
    """Each record once, until there is a letter of which nothing can be had."""
    sent: list[tuple[Letter, Record | None]] = []
    seen: set[tuple[TopicPartition, int]] = set()
    for letter in letters:
        place = letter.source, letter.offset
        record = records.get(place)
        if record is None and letter.has_copy:
            record = letter.record._replace(headers=())
        if record is None and not drops_lost:
            break
        sent.append((letter, None if place in seen else record))
        seen.add(place)
    return sent


async def _send(producer: Producer, letter: Letter, record: Record, target: str | None) -> asyncio.Future[Delivered]:
    is_home = target is None or target == letter.source.topic
    return await producer.send(
        target or letter.source.topic,
        record.value,
        key=record.key,
        headers=record.headers,
        partition=letter.source.partition if is_home else None,
    )
