"""The window of a share-partition: which records are available, with whom, accepted or given up. A pure machine.

    start_offset          all records before it are done with, or are gone
    [start, end)          the window: each offset is in one delivery, which has its state
    from end_offset on    nothing was delivered yet

    acquire          available records go to a member, each with a lock, and their delivery count rises
    acknowledge      a member says what became of records that it holds
    release          a member is gone: what it held is available again
    expire           the same for locks that have run out; delays that are over end
    take_dead        what was given up, and needs dead letters
    archive          it has them
    commit, undo     how the storing of a change ended

A change of state is begun (`acknowledge`, `release`, `expire`, `archive`), stored by whoever has asked, and then
committed or undone. Meanwhile its records are nobody's. Acquiring is not stored: whoever leads next delivers those
records again. So he does what was given up and has no dead letter yet.

A record that was delivered as often as it may be is given up when it comes back. From half of that on it comes alone or
in ever smaller company, as in Kafka, so that a record that kills its consumer takes few others along. With a back-off
it is kept from everybody for a while when it comes back, longer each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise

from tailrace.coordinator.share_partition.delivery import (
    Acknowledge,
    Acknowledged,
    Acquired,
    Counts,
    Dead,
    Delivery,
    Limits,
    RecordState,
)
from tailrace.coordinator.share_partition.pieces import Pieces
from tailrace.coordinator.share_state.batches import StateBatch
from tailrace.model.errors import ErrorCode, KafkaError

Changes = list[Delivery]
_TIMED = (RecordState.ACQUIRED, RecordState.DELAYED)
# A batch of the log: its first and its last offset.
LogBatch = tuple[int, int]


class Window(Pieces):
    def __init__(self, start_offset: int, stored: Iterable[StateBatch] = ()) -> None:
        """`stored` are in order; what lies between them was not delivered, or not stored."""
        super().__init__(start_offset)
        self._free_from = start_offset  # Nothing before it is free.
        # No lock runs out and no delay is over before that. A time for each of them would be more than what they lock.
        self._due_ms: float | None = None
        self._dead: list[Dead] = []
        for batch in stored:
            if batch.last_offset < self.end_offset:
                continue
            self._extend(batch.first_offset - 1)
            state = RecordState(batch.delivery_state)
            self._append(Delivery(self.end_offset, batch.last_offset, state, batch.delivery_count))
        self.advance()

    # ---- looking

    def counts(self) -> Counts:
        sums = Counter[RecordState]()
        for each in self._deliveries:
            sums[each.state] += each.size
        return Counts(sums[RecordState.ACQUIRED], sums[RecordState.DELAYED], sums[RecordState.ARCHIVING])

    @property
    def has_held(self) -> bool:
        """Somebody has records, or a change is being stored."""
        return any(each.state is RecordState.ACQUIRED or each.before is not None for each in self._deliveries)

    @property
    def has_delayed(self) -> bool:
        return any(each.state is RecordState.DELAYED for each in self._deliveries)

    @property
    def begins_with_dead(self) -> bool:
        """What waits for its dead letter keeps the window from moving on."""
        return bool(self._deliveries) and self._deliveries[0].state is RecordState.ARCHIVING

    def next_offset(self) -> int:
        """Where to read for whoever wants records next."""
        for index in range(self._index(self._free_from), len(self._deliveries)):
            delivery = self._deliveries[index]
            if delivery.is_free:
                self._free_from = max(self._free_from, delivery.first)
                return max(delivery.first, self.start_offset)
        self._free_from = self.end_offset
        return self.end_offset

    def may_acquire(self, limits: Limits) -> bool:
        return self.next_offset() < self.end_offset or self.size < limits.window_max

    def next_due_ms(self) -> float | None:
        """When `expire` wants to be called; it may find nothing then."""
        return self._due_ms

    def _wake(self, due_ms: float) -> None:
        if self._due_ms is None or due_ms < self._due_ms:
            self._due_ms = due_ms

    def prospect(self) -> tuple[int, int]:
        """Where the window begins once all changes that are being stored are committed, and how many offsets after that
        are done with then."""
        for delivery in self._deliveries:
            if not delivery.is_done:
                start_offset = max(delivery.first, self.start_offset)
                return start_offset, self._done_count - (start_offset - self.start_offset)
        return self.end_offset, 0

    # ---- acquiring

    def acquire(
        self,
        member_id: str,
        found: Sequence[LogBatch],
        *,
        max_records: int,
        batch_size: int,
        is_strict: bool,
        limits: Limits,
        now_ms: float,
    ) -> list[Acquired]:
        """`found` are batches of the log from `next_offset` on. Whole batches are given out, as many as it takes to
        reach `max_records`; with `is_strict` no more than that. New ones are told in pieces of about `batch_size`."""
        offset, last = self.next_offset(), found[-1][1]
        self._pass_over(offset, min(found[0][0], last + 1))
        offset = max(offset, found[0][0])
        room = limits.window_max - self.size
        if room > 0:
            max_records = min(max_records, room)
        else:
            last = min(last, self.end_offset - 1)
        due_ms = now_ms + limits.lock_ms
        acquired: list[Acquired] = []
        taken = 0
        index = self._index(offset)
        while index < len(self._deliveries) and taken < max_records and offset <= last:
            delivery = self._deliveries[index]
            index += 1
            if not delivery.is_free or delivery.last < offset:
                continue
            is_suspect = delivery.count >= suspect_count(limits)
            if delivery.first > last or (is_suspect and taken):
                return acquired
            end = min(delivery.last, last)
            if is_suspect:
                end = min(end, max(delivery.first, offset) + _company(delivery, limits) - 1)
            if is_strict:
                end = min(end, max(delivery.first, offset) + max_records - taken - 1)
            delivery = self._cut_out(delivery, max(delivery.first, offset), end)
            self._acquire(delivery, member_id, due_ms)
            _tell(acquired, delivery)
            taken += delivery.size
            if is_suspect:
                return acquired
            index = self._index(delivery.last) + 1
        if taken < max_records and last >= self.end_offset:
            for first, end in _new_ranges(found, self.end_offset, max_records - taken, batch_size, is_strict=is_strict):
                self._pass_over(self.end_offset, first)
                delivery = Delivery(self.end_offset, end)
                self._append(delivery)
                self._acquire(delivery, member_id, due_ms)
                acquired.append(Acquired(delivery.first, delivery.last, delivery.count))
        return acquired

    def extend(self, first: int, offsets: Iterable[int], end: int) -> None:
        """The log has records at these offsets, in order, from `first` to `end`, and no others there."""
        expected = first
        for offset in offsets:
            if offset != expected:
                self._extend(expected - 1)
                self._pass_over(expected, offset)
            expected = offset + 1
        self._extend(expected - 1)
        self._pass_over(expected, end)

    def first_in_order(self, keys: Mapping[int, int], end: int) -> int | None:
        """Where `acquire_in_order` would find the first record."""
        found = next(self._in_order(keys, end), None)
        return None if found is None else found[1]

    def acquire_in_order(
        self, member_id: str, keys: Mapping[int, int], end: int, *, max_records: int, limits: Limits, now_ms: float
    ) -> list[Acquired]:
        """At most one record of a key is out: the first that is not done with. `keys` are those of records before
        `end`; who has none there may go at any time."""
        chosen: list[tuple[Delivery, int, int]] = []
        for taken, (delivery, offset) in enumerate(self._in_order(keys, end)):
            is_suspect = delivery.count >= suspect_count(limits)
            if taken == max_records or (is_suspect and taken):
                break
            if chosen and chosen[-1][0] is delivery and chosen[-1][2] == offset - 1:
                chosen[-1] = (delivery, chosen[-1][1], offset)
            else:
                chosen.append((delivery, offset, offset))
            if is_suspect:
                break
        acquired: list[Acquired] = []
        for _, first, last in chosen:
            (delivery,) = self._overlapping(first, last)
            delivery = self._cut_out(delivery, first, last)
            self._acquire(delivery, member_id, now_ms + limits.lock_ms)
            _tell(acquired, delivery)
        return acquired

    def _in_order(self, keys: Mapping[int, int], end: int) -> Iterator[tuple[Delivery, int]]:
        seen: set[int] = set()
        for delivery in self._deliveries:
            if delivery.is_done and delivery.before is None:
                continue
            for offset in range(max(delivery.first, self.start_offset), min(delivery.last + 1, end)):
                key = keys.get(offset)
                if key is not None and key in seen:
                    continue
                if key is not None:
                    seen.add(key)
                if delivery.is_free:
                    yield delivery, offset

    def discard(self, acquired: Sequence[Acquired], ranges: Sequence[LogBatch]) -> list[Acquired]:
        """Takes back what was acquired of these ranges: they are records of aborted transactions. Not stored by itself:
        the log says it again."""
        for first, last in ranges:
            for delivery in self._overlapping(first, last):
                if delivery.state is RecordState.ACQUIRED and delivery.before is None:
                    self._archive(self._cut_out(delivery, max(first, delivery.first), min(last, delivery.last)))
        left: list[Acquired] = []
        for each in acquired:
            for delivery in self._overlapping(each.first_offset, each.last_offset):
                if delivery.state is RecordState.ACQUIRED and delivery.before is None:
                    first, last = max(delivery.first, each.first_offset), min(delivery.last, each.last_offset)
                    left.append(Acquired(first, last, delivery.count))
        self.advance()
        return left

    def _acquire(self, delivery: Delivery, member_id: str, due_ms: float) -> None:
        delivery.state, delivery.member_id, delivery.due_ms = RecordState.ACQUIRED, member_id, due_ms
        delivery.count += 1
        self._wake(due_ms)

    def _pass_over(self, first: int, end: int) -> None:
        """The log has no records there."""
        if first >= end:
            return
        for delivery in self._overlapping(first, end - 1):
            if delivery.is_free:
                self._archive(self._cut_out(delivery, max(first, delivery.first), min(end - 1, delivery.last)))
        if end > self.end_offset:
            delivery = Delivery(self.end_offset, end - 1, RecordState.ARCHIVED)
            self._append(delivery)
        self.advance()

    def _archive(self, delivery: Delivery) -> None:
        delivery.state, delivery.member_id = RecordState.ARCHIVED, ""
        self._done_count += delivery.size

    # ---- changes

    def acknowledge(self, member_id: str, batches: Sequence[Acknowledged], *, limits: Limits, now_ms: float) -> Changes:
        """All of them or, with a KafkaError, none. What lies before the window is passed over: it is done with."""
        for batch in batches:
            self._check(member_id, batch, limits)
        for earlier, batch in pairwise(batches):
            if self.start_offset <= batch.first_offset <= earlier.last_offset:
                raise _invalid_state(f"Offset {batch.first_offset} is acknowledged twice.")
        changes: Changes = []
        for batch in batches:
            for kind, first, last in _runs(batch):
                for delivery in self._overlapping(max(first, self.start_offset), last):
                    part = self._cut_out(delivery, max(first, delivery.first), min(last, delivery.last))
                    if kind is Acknowledge.RENEW:
                        part.due_ms = now_ms + limits.lock_ms
                        self._wake(part.due_ms)
                    elif kind is Acknowledge.GAP:
                        changes.append(self._begin(part, RecordState.ARCHIVED))
                    elif kind is Acknowledge.ACCEPT:
                        changes.append(self._begin(part, RecordState.ACKNOWLEDGED))
                    elif kind is Acknowledge.REJECT:
                        changes += self._give_up(part, limits, is_rejected=True)
                    else:
                        changes += self._give_back(part, limits, now_ms)
        return changes

    def release(self, member_id: str, *, limits: Limits, now_ms: float) -> Changes:
        changes: Changes = []
        for delivery in self._deliveries:
            if delivery.is_held_by(member_id):
                changes += self._give_back(delivery, limits, now_ms)
        return changes

    def expire(self, now_ms: float, limits: Limits) -> Changes:
        changes: Changes = []
        if self._due_ms is None or now_ms < self._due_ms:
            return changes
        self._due_ms = None
        for delivery in self._deliveries:
            if delivery.before is not None or delivery.state not in _TIMED:
                continue
            if delivery.due_ms > now_ms:
                self._wake(delivery.due_ms)
            elif delivery.state is RecordState.ACQUIRED:
                changes += self._give_back(delivery, limits, now_ms)
            else:
                delivery.state = RecordState.AVAILABLE
                self._free_from = min(self._free_from, delivery.first)
        return changes

    def take_dead(self) -> list[Dead]:
        """Each of them once; it is then up to the caller that `archive` follows."""
        dead, self._dead = self._dead, []
        return dead

    def archive(self, deliveries: Iterable[Delivery]) -> Changes:
        """Their dead letters are written, or given up too."""
        return [
            self._begin(each, RecordState.ARCHIVED)
            for each in deliveries
            if each.state is RecordState.ARCHIVING and each.before is None and each.last >= self.start_offset
        ]

    def commit(self, changes: Changes) -> None:
        for delivery in changes:
            delivery.before = None
            if delivery.state is RecordState.AVAILABLE:
                self._free_from = min(self._free_from, delivery.first)
            elif delivery.state is RecordState.DELAYED:
                self._wake(delivery.due_ms)
        self.advance()

    def undo(self, changes: Changes) -> None:
        """They are as they were, with the lock that they had: if it has run out meanwhile, `expire` is due."""
        for delivery in changes:
            assert delivery.before is not None, "a change that is being stored"
            if delivery.is_done and delivery.last >= self.start_offset:
                self._done_count -= delivery.last - max(delivery.first, self.start_offset) + 1
            delivery.state, delivery.member_id, delivery.due_ms = delivery.before
            delivery.before = None
            self._wake(delivery.due_ms)

    def move_start(self, log_start_offset: int) -> None:
        """The log has lost what lies before; whoever still holds it may acknowledge it in vain."""
        if log_start_offset <= self.start_offset:
            return
        kept = 0
        while kept < len(self._deliveries) and self._deliveries[kept].last < log_start_offset:
            kept += 1
        self._drop(kept, log_start_offset)
        self.advance()

    def advance(self) -> None:
        """Past what is done with, and stored."""
        kept = 0
        for delivery in self._deliveries:
            if not delivery.is_done or delivery.before is not None:
                break
            kept += 1
        if kept:
            is_all = kept == len(self._deliveries)
            self._drop(kept, self.end_offset if is_all else self._firsts[kept])

    def _give_back(self, delivery: Delivery, limits: Limits, now_ms: float) -> Changes:
        """It comes back from a member."""
        if delivery.count >= limits.delivery_count_max:
            return self._give_up(delivery, limits, is_rejected=False)
        if not limits.backoff_ms:
            return [self._begin(delivery, RecordState.AVAILABLE)]
        self._begin(delivery, RecordState.DELAYED)
        delivery.due_ms = now_ms + limits.delay_ms(delivery.count)
        return [delivery]

    def _give_up(self, delivery: Delivery, limits: Limits, *, is_rejected: bool) -> Changes:
        if not limits.has_dead_letters:
            return [self._begin(delivery, RecordState.ARCHIVED)]
        delivery.state, delivery.member_id = RecordState.ARCHIVING, ""
        self._dead.append(Dead(delivery, is_rejected))
        return []

    def _begin(self, delivery: Delivery, state: RecordState) -> Delivery:
        delivery.begin(state)
        if delivery.is_done:
            self._done_count += delivery.last - max(delivery.first, self.start_offset) + 1
        return delivery

    def _check(self, member_id: str, batch: Acknowledged, limits: Limits) -> None:
        first, last = max(batch.first_offset, self.start_offset), batch.last_offset
        if last < self.start_offset:
            return
        if not self._deliveries:
            raise _invalid_state("Batch record not found. The request batch offsets are not found in the cache.")
        if first >= self.end_offset:
            raise _not_acquired("first")
        if last >= self.end_offset:
            raise _not_acquired("last")
        if Acknowledge.RENEW in batch.types and not limits.may_renew:
            raise _invalid_state("Renewing acquisition locks is not enabled for the group.")
        for delivery in self._overlapping(first, last):
            if delivery.before is not None:
                raise _invalid_state(
                    "The record state is invalid. The acknowledgement of delivery could not be completed."
                )
            if delivery.state is not RecordState.ACQUIRED:
                raise _invalid_state("The batch cannot be acknowledged. The batch is not in the acquired state.")
            if delivery.member_id != member_id:
                raise _invalid_state("Member is not the owner of batch record")


def suspect_count(limits: Limits) -> int:
    """From so many deliveries on a record may be what kills its consumers."""
    return max(2, (limits.delivery_count_max + 1) // 2)


def _company(delivery: Delivery, limits: Limits) -> int:
    """With how many others, and itself, a record goes out that is suspect: a part of those that it went out with first,
    alone for the last time."""
    if limits.delivery_count_max > 2 and delivery.count == limits.delivery_count_max - 1:
        return 1
    return max(1, delivery.batch_size >> (delivery.count - suspect_count(limits) + 1))


def _new_ranges(
    found: Sequence[LogBatch], offset: int, max_records: int, batch_size: int, *, is_strict: bool
) -> Iterator[LogBatch]:
    """From `offset` on, which no delivery has yet: whole batches of the log, together at least `batch_size`."""
    first = -1
    taken = 0
    for base, last in found:
        if last < offset:
            continue
        if first < 0:
            first = max(base, offset)
        taken += last - max(base, offset) + 1
        if taken >= max_records:
            yield first, last - (taken - max_records) if is_strict else last
            return
        if last - first + 1 >= batch_size:
            yield first, last
            first = -1
    if first >= 0:
        yield first, found[-1][1]


def _tell(acquired: list[Acquired], delivery: Delivery) -> None:
    """Neighbours that were delivered equally often are told as one."""
    if acquired and acquired[-1].last_offset + 1 == delivery.first and acquired[-1].delivery_count == delivery.count:
        acquired[-1] = acquired[-1]._replace(last_offset=delivery.last)
    else:
        acquired.append(Acquired(delivery.first, delivery.last, delivery.count))


def _runs(batch: Acknowledged) -> Iterator[tuple[Acknowledge, int, int]]:
    """Ranges that are acknowledged alike."""
    if len(batch.types) == 1:
        yield Acknowledge(batch.types[0]), batch.first_offset, batch.last_offset
        return
    first = batch.first_offset
    for kind, same in groupby(batch.types):
        end = first + sum(1 for _ in same)
        yield Acknowledge(kind), first, end - 1
        first = end


def _invalid_state(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD_STATE, message)


def _not_acquired(which: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REQUEST, f"Batch record not found. The {which} offset in request is past acquired records."
    )
