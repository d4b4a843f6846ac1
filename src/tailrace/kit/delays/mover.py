"""The mover: brings delayed records to their topics when they are due, each once for readers of committed records.

One process of a group moves, the others wait to replace it: it is the member that has the one partition of cancelled
tickets. Everything that it does stands in transactions under one id, so that whoever takes over fences it. A
transaction has the deliveries of a step and, as metadata of committed offsets, what of each slot is done (`pending`).

A step ends with the tickets that were cancelled before its time: a cancel that was confirmed in time is always seen.
What cannot be delivered (its topic is gone, or does not take it) goes to the room's dead letters.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from tailrace.client.admin import Admin
from tailrace.client.consumer import EARLIEST, LATEST, Consumer, ConsumerOptions, Isolation
from tailrace.client.groups.consumer import GroupConsumer, GroupOptions
from tailrace.client.groups.coordinator import Coordinator
from tailrace.client.groups.membership import MemberOptions
from tailrace.client.groups.offsets import Committed, GroupMetadata, GroupOffsets
from tailrace.client.lanes import ProducerOptions
from tailrace.client.metadata import Cluster
from tailrace.client.producer import Sendable
from tailrace.client.transactions.producer import TransactionalProducer, TransactionOptions
from tailrace.kit.delays.headers import Delayed, Headers, Room, all_slots, unwrap, wrap
from tailrace.kit.delays.pending import Moment, Pending, Progress, parse_progress
from tailrace.kit.delays.slots import RINGS, Level, Slot, act_ms, horizon_ms, open_slots, slot_for
from tailrace.kit.retries.refusals import cause_of, is_record_refused
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.wire.records import Record

_log = logging.getLogger("tailrace.delays")

_TIMEOUT_MS = 30_000
_TRANSACTION_TIMEOUT_MS = 15_000
# What a segment of a slot grows to: its space is given back only when it is rolled.
_SLOT_CONFIG = {
    "retention.ms": "-1",
    "segment.bytes": str(16 * 1024 * 1024),
    "max.message.bytes": str(16 * 1024 * 1024),
}
# A ticket is of no use after 90 days.
_CANCELS_CONFIG = {"retention.ms": str(91 * 86_400_000)}
_DEAD_LETTERS_CONFIG = {"retention.ms": "-1"}
# What the objects of a waiting record take beside its key and value, and those of a header, about.
_WAITING_BYTES = 700
_HEADER_BYTES = 250
# How long a topic that was made just now may be unknown to a broker.
_NEW_TOPIC_S = 1.0
REASON = "tailrace.delay.error"


class MoverOptions(NamedTuple):
    room: Room = Room()
    # How often it looks: a delivery is no later than that, and the time of a transaction.
    tick_ms: int = 100
    # Of one transaction.
    records_max: int = 10_000
    # Of records in memory, by their bytes. Beyond it no more is read until some have left.
    memory_bytes: int = 256 * 1024 * 1024


class _Waiting(NamedTuple):
    """No more than is needed to move it: many wait."""

    level: Level
    key: bytes | None
    value: bytes | None
    headers: Headers  # of the record itself; all of them if nobody can tell where it goes
    delayed: Delayed | None

    @property
    def size_bytes(self) -> int:
        return _WAITING_BYTES + len(self.key or b"") + len(self.value or b"") + _HEADER_BYTES * len(self.headers)


Entries = list[tuple[Moment, _Waiting]]


async def create_topics(cluster: Cluster, room: Room) -> None:
    """Those of a room that are not there."""
    wanted = {room.topic(level): (ring.partitions, _SLOT_CONFIG) for level, ring in RINGS.items()}
    wanted |= {room.cancels: (1, _CANCELS_CONFIG), room.dead_letters: (1, _DEAD_LETTERS_CONFIG)}
    admin = Admin(cluster)
    known = {topic.name: topic.partitions for topic in await admin.topics()}
    for name, (count, config) in wanted.items():
        if name not in known:
            try:
                await admin.create_topic(name, partition_count=count, configs=config)
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # Another mover starts, too.
                    raise
        elif len(known[name]) != count:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {name} has {len(known[name])} partitions, and slots need {count}: choose another --name",
            )


class Mover:
    def __init__(self, cluster: Cluster, options: MoverOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._clock = cluster.ports.clock
        self._is_stopping = asyncio.Event()
        self._is_leading = asyncio.Event()
        self.delivered = 0

    @property
    def is_leading(self) -> bool:
        return self._is_leading.is_set()

    def stop(self) -> None:
        self._is_stopping.set()

    async def run(self) -> None:
        """Until it is stopped. Raises KafkaError for what does not pass by itself."""
        room = self._options.room
        await create_topics(self._cluster, room)
        member = GroupConsumer(
            self._cluster,
            GroupOptions(
                f"{room.name}-mover",
                MemberOptions(topics=(room.cancels,)),
                start=LATEST,
                auto_commit_interval_ms=None,
                retry_timeout_ms=_TIMEOUT_MS,
            ),
        )
        try:
            while not self._is_stopping.is_set():
                await member.poll(self._options.tick_ms)
                if member.assignment:
                    await self._lead(member)
        finally:
            await member.close()

    async def _lead(self, member: GroupConsumer) -> None:
        """For as long as the member has the partition."""
        term = _Term(self._cluster, self._options)
        try:
            await term.begin()
            self._is_leading.set()
            while member.assignment and not self._is_stopping.is_set():
                await member.poll(1)
                self.delivered += await term.step()
        except KafkaError as error:
            # Whoever was fenced waits for its turn; what has failed begins anew from what is committed.
            _log.warning("the mover begins anew: %s", error)
            await asyncio.sleep(self._options.tick_ms / 1000)
        finally:
            self._is_leading.clear()
            await term.close()


class _Term:
    """Of one leader: from what is committed on, until something goes wrong."""

    def __init__(self, cluster: Cluster, options: MoverOptions) -> None:
        # The member of the group waits for records on the connections that were given, the consumer on others.
        self._cluster, self._reading = cluster.twin(), cluster.twin()
        cluster, reading = self._cluster, self._reading
        self._clock = cluster.ports.clock
        self._options = options
        self._room = options.room
        self._group = GroupMetadata(f"{self._room.name}-progress")
        self._coordinator = Coordinator(cluster, self._group.group_id)
        self._producer = TransactionalProducer(
            cluster,
            TransactionOptions(
                f"{self._room.name}-mover",
                timeout_ms=_TRANSACTION_TIMEOUT_MS,
                retry_timeout_ms=_TIMEOUT_MS,
                # What a topic does not take in this time goes to the dead letters, and others wait for it.
                producing=ProducerOptions(linger_ms=0, delivery_timeout_ms=10_000),
            ),
        )
        committed_only = ConsumerOptions(isolation=Isolation.READ_COMMITTED, fetch_max_wait_ms=options.tick_ms)
        self._consumer = Consumer(reading, committed_only)
        self._cancels = Consumer(cluster)
        self._cancelled: set[str] = set()  # bounded by the retention of their topic
        self._committed: dict[Slot, Progress] = {}
        self._pendings: dict[Slot, Pending[_Waiting]] = {}
        # Of a slot that is closed: when what it has next is to move.
        self._next_ms: dict[Slot, int] = {}
        self._memory_bytes = 0
        # More is due than the last step could take.
        self._is_behind_time = False

    async def begin(self) -> None:
        """First nobody else may move any more; then what is committed is read."""
        await self._cluster.with_retries(self._producer.init, timeout_ms=_TIMEOUT_MS)
        places = {self._place(slot): slot for slot in all_slots()}
        starts = await self._consumer.offsets_at(places, EARLIEST)
        ends = await self._consumer.offsets_at(places, LATEST)
        found = await GroupOffsets(self._coordinator, timeout_ms=_TIMEOUT_MS).fetch(places)
        for place, slot in places.items():
            committed = found.get(place, Committed(starts[place]))
            self._committed[slot] = parse_progress(committed.offset, committed.metadata)
        # Their time may have passed while nobody moved: the first record of each tells.
        self._open({slot for place, slot in places.items() if self._committed[slot].position < ends[place]})
        cancels = TopicPartition(self._room.cancels, PartitionIndex(0))
        await self._cancels.assign(await self._cancels.offsets_at([cancels], EARLIEST))

    async def close(self) -> None:
        self._producer.close()
        self._coordinator.close()
        await self._consumer.close()
        await self._cancels.close()
        self._cluster.close()
        self._reading.close()

    async def step(self) -> int:
        """How many records have moved."""
        now = self._clock.wall_ms()
        self._open({slot for slot in open_slots(now) - self._pendings.keys() if self._next_ms.get(slot, 0) <= now})
        self._take(await self._read(1 if self._is_behind_time else self._options.tick_ms))
        now = self._clock.wall_ms()
        due = {
            slot: pending.pop_due(now, count_max=self._options.records_max) for slot, pending in self._pendings.items()
        }
        due = {slot: entries for slot, entries in due.items() if entries}
        self._is_behind_time = any(len(entries) >= self._options.records_max for entries in due.values())
        if due:
            await self._learn_cancels()
            # What comes next is read meanwhile, and taken when it is certain what was done before.
            reading = asyncio.create_task(self._read(1))
            try:
                await self._move(due, now)
            finally:
                self._take(await reading)
        await self._close_slots(now)
        return sum(map(len, due.values()))

    # --- slots

    def _open(self, slots: set[Slot]) -> None:
        added = {}
        for slot in slots:
            self._pendings[slot] = Pending(self._committed[slot])
            self._next_ms.pop(slot, None)
            added[self._place(slot)] = self._committed[slot].position
        self._consumer.change(added=added)

    async def _read(self, wait_ms: float) -> Mapping[TopicPartition, Sequence[Record]]:
        if self._memory_bytes >= self._options.memory_bytes:
            await asyncio.sleep(wait_ms / 1000)
            return {}
        return await self._consumer.poll(wait_ms)

    def _take(self, records: Mapping[TopicPartition, Sequence[Record]]) -> None:
        now = self._clock.wall_ms()
        for place, found in records.items():
            slot = self._slot(place)
            pending = self._pendings[slot]
            horizon = horizon_ms(slot.level, now)
            for record in found:
                delayed, headers = unwrap(record.headers)
                at_ms = now if delayed is None else act_ms(slot.level, delayed.ticket.due_ms)
                kept = record.headers if delayed is None else headers
                waiting = _Waiting(slot.level, record.key, record.value, kept, delayed)
                if pending.take(record.offset, at_ms, waiting, horizon_ms=horizon):
                    self._memory_bytes += waiting.size_bytes
            if pending.next is not None:
                self._consumer.change(added={}, removed=[place])

    async def _close_slots(self, now_ms: int) -> None:
        """Those whose time is over, or that have nothing more for this time."""
        present = open_slots(now_ms)
        closed: dict[TopicPartition, int] = {}
        for slot, pending in list(self._pendings.items()):
            place = self._place(slot)
            if len(pending) or (pending.next is None and (slot in present or self._is_behind(place))):
                continue
            if pending.next is not None:
                self._next_ms[slot] = pending.next.at_ms - RINGS[slot.level].lead_ms
            else:
                self._consumer.change(added={}, removed=[place])
            if pending.progress.position > 0:
                closed[place] = pending.progress.position
            del self._pendings[slot]
        if closed:
            with suppress(KafkaError):  # The space is given back next time.
                await Admin(self._cluster).delete_records(closed)

    def _is_behind(self, place: TopicPartition) -> bool:
        offset, end_offset = self._consumer.position(place)
        return end_offset < 0 or offset < end_offset

    # --- moves

    async def _learn_cancels(self) -> None:
        """All that were confirmed before now: not those alone of transactions that have ended."""
        place = TopicPartition(self._room.cancels, PartitionIndex(0))
        end = (await self._cancels.offsets_at([place], LATEST))[place]
        while self._cancels.position(place).offset < end:
            for record in (await self._cancels.poll(_TIMEOUT_MS)).get(place, []):
                self._cancelled.add((record.key or b"").decode(errors="replace"))

    async def _move(self, due: dict[Slot, Entries], now_ms: int) -> None:
        try:
            await self._try_move(due, now_ms)
        except KafkaError as error:
            if not is_record_refused(error):
                raise
            await self._producer.abort()
            await self._move_one_by_one(due, now_ms)

    async def _try_move(self, due: dict[Slot, Entries], now_ms: int, *, buried: str | None = None) -> None:
        progress = {slot: self._pendings[slot].decide_progress(entries) for slot, entries in due.items()}
        self._producer.begin()
        moves: dict[str, list[Sendable]] = {}
        for entries in due.values():
            for _, waiting in entries:
                for topic, record in self._moves_of(waiting, now_ms, buried):
                    moves.setdefault(topic, []).append(record)
        for topic, records in moves.items():
            sent = await self._producer.send_many(topic, records)
            sent.add_done_callback(_look)  # What has failed is told by the commit.
        await self._producer.send_offsets(
            {self._place(slot): Committed(each.position, -1, each.metadata) for slot, each in progress.items()},
            self._group,
        )
        await self._producer.commit()
        for slot, entries in due.items():
            self._committed[slot] = progress[slot]
            self._pendings[slot].note_committed(progress[slot], entries)
            for _, waiting in entries:
                self._memory_bytes -= waiting.size_bytes
                if self._cancelled and slot.level is Level.MINUTES and waiting.delayed is not None:
                    self._cancelled.discard(str(waiting.delayed.ticket))

    async def _move_one_by_one(self, due: dict[Slot, Entries], now_ms: int) -> None:
        """So that only those go to the dead letters that cannot be delivered."""
        is_known_bad = False
        for slot, entries in due.items():
            for entry in entries:
                one = {slot: [entry]}
                try:
                    await self._try_move(one, now_ms)
                except KafkaError as error:
                    if not is_record_refused(error):
                        raise
                    await self._producer.abort()
                    if not is_known_bad and cause_of(error) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        # It may have been made just now; once more for all that come with it.
                        await asyncio.sleep(_NEW_TOPIC_S)
                        is_known_bad = True
                        with suppress(KafkaError):
                            await self._try_move(one, now_ms)
                            continue
                        await self._producer.abort()
                    _log.warning("to %s: %s", self._room.dead_letters, error)
                    await self._try_move(one, now_ms, buried=str(error))

    def _moves_of(self, waiting: _Waiting, now_ms: int, buried: str | None) -> list[tuple[str, Sendable]]:
        """Where it goes, and as what; nowhere if it was cancelled."""
        level, key, value, headers, delayed = waiting
        if delayed is None or buried is not None:
            reason = buried or "nobody can tell when it is due, and where it goes"
            said = (*(headers if delayed is None else wrap(headers, delayed)), (REASON, reason.encode()))
            return [(self._room.dead_letters, (value, key, said, None, None))]
        if level is not Level.MINUTES and delayed.ticket.due_ms > now_ms:
            slot = slot_for(delayed.ticket.due_ms, now_ms)
            return [(self._room.topic(slot.level), (value, key, wrap(headers, delayed), slot.partition, None))]
        if self._cancelled and str(delayed.ticket) in self._cancelled:
            return []
        return [(delayed.topic, (value, key, headers, delayed.partition, None))]

    # --- names

    def _place(self, slot: Slot) -> TopicPartition:
        return TopicPartition(self._room.topic(slot.level), PartitionIndex(slot.partition))

    def _slot(self, place: TopicPartition) -> Slot:
        level = next(level for level in Level if self._room.topic(level) == place.topic)
        return Slot(level, int(place.partition))


def _look(sent: asyncio.Future[int]) -> None:
    """So that nobody complains that nobody has."""
    if not sent.cancelled():
        sent.exception()
