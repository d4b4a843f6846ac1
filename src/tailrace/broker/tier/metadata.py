"""__remote_log_metadata as this broker follows it: a machine for each of its partitions that tells of a partition here.

    followed   what is led here is read from the log up to the high watermark; else the leader is asked, for all its
               partitions in one long fetch
    ready      all that was committed when this broker began to follow, by the word of the leader, is replayed
    appended   records go to the leader by the ordinary way of produced records, acks=all; who appends waits until its
               record came back and was replayed, for only then it is known whether it counts

What is replayed is committed, so it is never taken back. Where the log has lost it all the same (an unclean election of
somebody who had to), or was cut before it was replayed here (`topic.restating`), the machine is made anew. Snapshots
spare a start the replay (`on_disk`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from tailrace.broker.tier.on_disk import Snapshots
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError, ProtocolError, StorageError
from tailrace.model.ids import REMOTE_LOG_METADATA_TOPIC
from tailrace.tier.metadata.machine import TierMachine
from tailrace.tier.metadata.records import metadata_partition
from tailrace.wire.apis.data import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
)
from tailrace.wire.apis.stored_records import REMOTE_LOG_RECORDS
from tailrace.wire.record_envelopes import decode_metadata_record, encode_metadata_record
from tailrace.wire.records import Record, build_batch, iterate_headers, iterate_records

if TYPE_CHECKING:
    from tailrace.broker.node import Node
    from tailrace.controller.image import TopicImage
    from tailrace.replica.partition import Partition
    from tailrace.tier.format.names import TieredPartition
    from tailrace.wire.schema import Message

_log = events.logger("tier")

_CHANNEL = "tier"
_FETCH_CHANNEL = "tier fetch"
_LATEST = -1
_EARLIEST = -2
_CONSUMER = -1
_READ_BYTES = 1 << 20
# Appends that may wait at a time are far fewer.
_REFUSED_MAX = 1000
_FETCH_WAIT_MS = 500
# Replayed before others have a turn: about a millisecond.
_RECORDS_PER_TURN = 50
_PAUSE_SECONDS = 0.2
_LOOK_SECONDS = 1.0


class MetadataPartition:
    """One that is followed."""

    def __init__(self, index: int, machine: TierMachine) -> None:
        self.index = index
        self.machine = machine
        self.is_ready = False
        self.stored_offset = machine.next_offset  # Up to which there is a snapshot.
        self.replaying = asyncio.Lock()  # Or a snapshot of the machine is being made, in another thread.
        self._refused: dict[int, None] = {}  # Offsets of the last records that did not count.
        self._replayed = asyncio.Event()

    def replay(self, record: Message | None, offset: int) -> None:
        if not self.machine.replay(record, offset):
            self._refused[offset] = None
            if len(self._refused) > _REFUSED_MAX:
                del self._refused[next(iter(self._refused))]

    def tell(self) -> None:
        replayed, self._replayed = self._replayed, asyncio.Event()
        replayed.set()

    async def wait_counted(self, offset: int) -> bool:
        """Whether the record at `offset` counts, once it is replayed. KafkaError if it may be lost."""
        machine = self.machine
        await self.wait_offset(offset + 1)
        if self.machine is not machine:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The record may be lost")
        return offset not in self._refused

    async def wait_offset(self, offset: int) -> None:
        while self.machine.next_offset < offset:
            await self._replayed.wait()

    def forget(self, machine: TierMachine) -> None:
        """What was replayed is not in the log any more."""
        self.machine, self.is_ready = machine, False
        self._refused.clear()


class MetadataTopic:
    def __init__(
        self, node: Node, folder: str, on_replayed: Callable[[MetadataPartition, Collection[TieredPartition]], None]
    ) -> None:
        """`on_replayed` is told on the loop after each piece of the log, and whom it was about."""
        self.parts: dict[int, MetadataPartition] = {}
        self._node = node
        self._on_replayed = on_replayed
        self._snapshots = Snapshots(node.ports.disk, node.ports.background, folder)
        self._tasks: dict[int, asyncio.Task[None]] = {}  # By whom is asked: a node's number, or this one's.
        self._wakeup = asyncio.Event()
        self._creating: asyncio.Task[None] | None = None
        self._readying: dict[int, asyncio.Task[None]] = {}
        self._is_closed = False
        self._needed: set[int] = set()
        self._is_wanted = False

    # ---- which partitions

    @property
    def topic(self) -> TopicImage | None:
        return self._node.image.topics.get(REMOTE_LOG_METADATA_TOPIC)

    def index_of(self, owner: TieredPartition) -> int | None:
        """None while the topic does not exist."""
        topic = self.topic
        return None if topic is None else metadata_partition(owner, len(topic.partitions))

    def part_of(self, owner: TieredPartition) -> MetadataPartition | None:
        index = self.index_of(owner)
        return None if index is None else self.parts.get(index)

    def need(self, indexes: set[int], *, is_wanted: bool) -> None:
        """From now on these are followed. `is_wanted`: there has to be the topic."""
        self._needed, self._is_wanted = indexes, is_wanted
        if self.topic is None and is_wanted and self._creating is None and not self._is_closed:
            self._creating = asyncio.get_running_loop().create_task(self._create(), name="create tier metadata")
        for index in indexes - self.parts.keys():
            self._begin(index)
        for index in self.parts.keys() - indexes:
            part = self.parts.pop(index)
            part.forget(part.machine)
            if (task := self._readying.pop(index, None)) is not None:
                task.cancel()
        self.follow_leaders()

    def follow_leaders(self) -> None:
        """The image or what is needed has changed."""
        if self._is_closed:
            return
        sources = {source for index in self.parts if (source := self._source(index)) is not None}
        for source in sources - self._tasks.keys():
            follow = self._follow_here if source == self._node.node_id else self._follow_leader
            task = asyncio.get_running_loop().create_task(follow(source), name=f"tier metadata of {source}")
            self._tasks[source] = task
        self.wake()

    def _begin(self, index: int) -> None:
        topic = self.topic
        assert topic is not None, "who needs a partition knows the topic"
        part = self.parts[index] = MetadataPartition(index, TierMachine())
        self._readying[index] = asyncio.get_running_loop().create_task(
            self._get_ready(part, topic), name=f"tier metadata {index} gets ready"
        )

    async def _get_ready(self, part: MetadataPartition, topic: TopicImage) -> None:
        machine = await self._snapshots.read(topic.id, part.index)
        if machine is not None and machine.next_offset > part.machine.next_offset:
            part.machine, part.stored_offset = machine, machine.next_offset
            self._on_replayed(part, machine.partitions.keys())
        self.wake()
        while not part.is_ready:
            try:
                await self.catch_up(part)
            except (KafkaError, OSError) as error:
                _log.debug("the records of the tier cannot be read yet", partition=part.index, cause=error)
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            part.is_ready = True
            self._on_replayed(part, part.machine.partitions.keys())

    async def _create(self) -> None:
        from tailrace.broker.tier.topic.creation import create_metadata_topic

        while self.topic is None and not self._is_closed:
            await create_metadata_topic(self._node)
            await asyncio.sleep(_PAUSE_SECONDS)
        self._creating = None

    # ---- following

    def _source(self, index: int) -> int | None:
        """Who is read: the leader, for a replica here would know half a second later what is committed."""
        topic = self.topic
        state = None if topic is None else topic.partitions.get(index)
        return state.leader if state is not None and state.leader >= 0 else None

    def _parts_at(self, source: int) -> list[MetadataPartition]:
        return [part for index, part in self.parts.items() if self._source(index) == source]

    def on_readable(self) -> None:
        """As a Reader of logs that lie here."""
        self._wakeup.set()

    wake = on_readable

    async def _follow_here(self, source: int) -> None:
        while not self._is_closed:
            self._wakeup.clear()
            for part in self._parts_at(source):
                try:
                    await self._read_here(part)
                except (KafkaError, StorageError, OSError) as error:
                    _log.info("records of the tier cannot be read yet", partition=part.index, cause=error)
                except Exception as error:
                    _log.error("records of the tier cannot be read", trace=True, partition=part.index)
                    self._node.judge_bug(error)
            await _wait(self._wakeup, _LOOK_SECONDS)

    async def _read_here(self, part: MetadataPartition) -> None:
        partition = self._node.replicas.find_any(REMOTE_LOG_METADATA_TOPIC, part.index)
        log = partition.log
        if not partition.is_leader:
            return
        if part.machine.next_offset > log.log_end_offset:
            self._begin_anew(part, log.log_start_offset)
        while part.machine.next_offset < partition.high_watermark:
            if part.machine.next_offset < log.log_start_offset:
                self._begin_anew(part, log.log_start_offset)
            end_offset = partition.high_watermark
            piece = log.read(part.machine.next_offset, _READ_BYTES, end_offset=end_offset)
            if piece is None:
                break
            data = await self._node.ports.background.run(piece.read)
            await self._replay(part, data, end_offset)
        partition.readers.add(self)

    async def _follow_leader(self, source: int) -> None:
        while not self._is_closed and (parts := self._parts_at(source)):
            try:
                await self._fetch(source, parts)
            except KafkaError as error:
                _log.debug("records of the tier cannot be fetched", leader=source, cause=error)
                await asyncio.sleep(_PAUSE_SECONDS)
            except Exception as error:
                _log.error("records of the tier cannot be fetched", trace=True, leader=source)
                self._node.judge_bug(error)
                await asyncio.sleep(_LOOK_SECONDS)
        self._tasks.pop(source, None)

    async def _fetch(self, source: int, parts: list[MetadataPartition]) -> None:
        topic = self.topic
        if topic is None:
            return
        fetch = FetchRequest.FetchPartition
        asked = FetchRequest.FetchTopic(
            topic=topic.name,
            topic_id=topic.id,
            partitions=[
                fetch(partition=part.index, fetch_offset=part.machine.next_offset, partition_max_bytes=_READ_BYTES)
                for part in parts
            ],
        )
        asked_offsets = {part.index: part.machine.next_offset for part in parts}
        request = FetchRequest(
            replica_id=_CONSUMER,
            max_wait_ms=_FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=8 * _READ_BYTES,
            session_epoch=-1,
            topics=[asked],
        )
        response = await self._node.call_broker(source, request, FetchResponse, channel=_FETCH_CHANNEL)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), "the leader refuses a fetch")
        has_failed = False
        for answer in (each for told in response.responses for each in told.partitions):
            part = self.parts.get(answer.partition_index)
            if part is None:
                continue
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                start_offset = await self._ask_offset(part.index, _EARLIEST)
                # Meanwhile somebody else may lead, and it was read from there.
                if part.machine.next_offset == asked_offsets[part.index]:
                    self._begin_anew(part, start_offset)
            has_failed = has_failed or bool(answer.error_code)
            if isinstance(answer.records, bytes | bytearray | memoryview) and len(answer.records):
                await self._replay(part, bytes(answer.records), answer.high_watermark)
        if has_failed:
            await asyncio.sleep(_PAUSE_SECONDS)

    def _begin_anew(self, part: MetadataPartition, start_offset: int) -> None:
        is_cut = part.machine.next_offset < start_offset
        (_log.info if is_cut else _log.error)(
            "records of the tier are gone from their log: what is left is replayed anew",
            partition=part.index,
            replayed=part.machine.next_offset,
            log_start=start_offset,
        )
        machine = TierMachine()
        machine.next_offset = start_offset
        part.forget(machine)
        topic = self.topic
        if topic is not None:
            self._readying[part.index] = asyncio.get_running_loop().create_task(self._catch_up_again(part))

    async def _catch_up_again(self, part: MetadataPartition) -> None:
        while self.parts.get(part.index) is part and not part.is_ready:
            try:
                await self.catch_up(part)
                part.is_ready = True
                self._on_replayed(part, part.machine.partitions.keys())
            except (KafkaError, OSError):
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _replay(self, part: MetadataPartition, data: bytes, end_offset: int) -> None:
        machine = part.machine
        limit = self._node.config.max_decompressed_bytes
        async with part.replaying:
            for count, (offset, record) in enumerate(records_of(data, machine.next_offset, limit), 1):
                if offset >= end_offset or part.machine is not machine:
                    break
                part.replay(record, offset)
                if count % _RECORDS_PER_TURN == 0:
                    await asyncio.sleep(0)
            if part.machine is machine:  # Its last batch may have no record of ours.
                ends = [header.next_offset for _, header in iterate_headers(data, allow_partial=True)]
                machine.next_offset = max(machine.next_offset, min([*ends[-1:], end_offset]))
        part.tell()
        touched, machine.touched = machine.touched, set()
        self._on_replayed(part, touched)

    # ---- asking the leader

    async def catch_up(self, part: MetadataPartition) -> None:
        """Until all that is committed now is replayed. Raises KafkaError if there is no telling."""
        await part.wait_offset(await self._find_end(part.index))

    async def _find_end(self, index: int) -> int:
        partition = self._here(index)
        if partition is not None and partition.is_leader:
            partition = self._node.replicas.find(REMOTE_LOG_METADATA_TOPIC, index)
            if partition.high_watermark < partition.leader_epoch_start_offset:
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, "the leader is new")
            return partition.high_watermark
        return await self._ask_offset(index, _LATEST)

    async def _ask_offset(self, index: int, timestamp: int) -> int:
        """The leader's. Raises KafkaError."""
        asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        topic = ListOffsetsRequest.ListOffsetsTopic(name=REMOTE_LOG_METADATA_TOPIC, partitions=[asked])
        request = ListOffsetsRequest(replica_id=_CONSUMER, topics=[topic])
        response = await self._node.call_broker(self._leader_of(index), request, ListOffsetsResponse, channel=_CHANNEL)
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), "the leader does not tell where its log begins or ends")
        return answer.offset

    async def append(self, owner: TieredPartition, record: Message) -> None:
        """As `tier.keeping.copying.MetadataLog`."""
        part = self.part_of(owner)
        if part is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The records of the tier are not followed yet")
        timeout_ms = self._node.config.rlmm_config_remote_log_metadata_consume_wait_ms
        now_ms = self._node.ports.clock.wall_ms()
        batch = build_batch([Record(0, now_ms, None, encode_metadata_record(record), ())])
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                counts = await part.wait_counted(await self._append(part, batch, int(timeout_ms)))
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "A record of the tier was not committed in time") from None
        if not counts:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, "Another broker leads by now")

    async def _append(self, part: MetadataPartition, batch: bytes, timeout_ms: int) -> int:
        partition = self._here(part.index)
        if partition is None or not partition.is_leader:
            return await self._append_there(part, batch, timeout_ms)
        partition = self._node.replicas.find_to_write(REMOTE_LOG_METADATA_TOPIC, part.index)
        result = partition.append(memoryview(bytearray(batch)), required_acks=-1)
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def tell(error: KafkaError | None) -> None:
            if committed.done():
                return
            if error is None:
                committed.set_result(None)
            else:
                committed.set_exception(error)

        partition.wait_for_high_watermark(result.next_offset, tell)
        await committed
        self.wake()
        return result.base_offset

    async def _append_there(self, part: MetadataPartition, batch: bytes, timeout_ms: int) -> int:
        topic = self.topic
        assert topic is not None, "a partition of it is followed"
        data = ProduceRequest.PartitionProduceData(index=part.index, records=batch)
        told = ProduceRequest.TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=[data])
        timeout_ms = min(timeout_ms, self._node.config.request_timeout_ms)
        request = ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[told])
        response = await self._node.call_broker(
            self._leader_of(part.index), request, ProduceResponse, channel=_CHANNEL, timeout_ms=timeout_ms
        )
        answer = response.responses[0].partition_responses[0]
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), answer.error_message or "the leader refuses the record")
        return answer.base_offset

    def leads(self, index: int) -> bool:
        partition = self._here(index)
        return partition is not None and partition.is_leader

    def _here(self, index: int) -> Partition | None:
        return self._node.replicas.partitions.get((REMOTE_LOG_METADATA_TOPIC, index))

    def _leader_of(self, index: int) -> int:
        topic = self.topic
        leader = -1 if topic is None else topic.partitions[index].leader
        if leader < 0 or leader == self._node.node_id:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"Nobody leads {REMOTE_LOG_METADATA_TOPIC}-{index}")
        return leader

    # ---- the end

    async def store_snapshots(self, *, records_min: int) -> None:
        topic = self.topic
        for part in tuple(self.parts.values()) if topic is not None else ():
            if part.machine.next_offset - part.stored_offset < records_min:
                continue
            async with part.replaying:
                if not part.machine.is_restating:
                    assert topic is not None
                    part.stored_offset = part.machine.next_offset
                    await self._snapshots.write(topic.id, part.index, part.machine)

    async def close(self) -> None:
        self._is_closed = True
        tasks = [*self._tasks.values(), *self._readying.values(), *([self._creating] if self._creating else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.store_snapshots(records_min=1)


def records_of(data: bytes, start_offset: int, max_decompressed_bytes: int) -> Iterator[tuple[int, Message | None]]:
    """None for one that this version does not know, or that is none."""
    for position, header in iterate_headers(data, allow_partial=True):
        if header.is_control or header.next_offset <= start_offset:
            continue
        batch = memoryview(data)[position : position + header.size_bytes]
        for record in iterate_records(batch, max_decompressed_bytes=max_decompressed_bytes):
            if record.offset < start_offset:
                continue
            try:
                yield record.offset, decode_metadata_record(record.value or b"", REMOTE_LOG_RECORDS)
            except ProtocolError:
                yield record.offset, None


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
