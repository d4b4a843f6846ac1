"""What a partition remembers of its producers, so that a retried batch is written once and a zombie is fenced.

    batch of a client                                    answer
    no producer id                                       accepted, nothing remembered
    same epoch, sequences of one of the last five        Duplicate: where the original lies
    the same, but its transaction has ended              OUT_OF_ORDER_SEQUENCE_NUMBER
    older epoch                                          INVALID_PRODUCER_EPOCH
    newer epoch, first sequence not 0                    OUT_OF_ORDER_SEQUENCE_NUMBER
    same epoch, sequence not the next                    OUT_OF_ORDER_SEQUENCE_NUMBER
    plain batch while a transaction is open              INVALID_TXN_STATE
    unknown producer id                                  accepted with any first sequence: its state may have expired
    else                                                 accepted

Five batches are remembered because a client may have five requests in flight (KIP-98). Sequences count 0..2^31-1 and
then begin again at 0. Once a transaction has ended its producer waits for no answer about it: sequences that come again
are of new records, sent by a client that counts anew after an abort (librdkafka does, if an answer was lost), and would
be lost without a word if they were taken for the old ones.

A coordinator's batches have no sequences, so only their epoch is checked; replicated batches are only recorded. `check`
decides and changes nothing, `update` records what was written; the state of a log is what `update` makes of its
batches, so a log can always be scanned to rebuild it. A snapshot is Kafka's own file.

A producer's transaction is open from its first batch to its marker. Nothing from the first open one on is stable, nor
what belongs to one whose marker the high watermark has not passed yet: the marker could still be lost.

A truncation needs the state at an earlier offset. A few recent snapshots are kept in memory, so that it need not read a
whole segment again: with a million small batches that would hold the loop for seconds, at a time when leaders change.

A barrier (`wire.markers`) ends a mirror: producers before it are those of another cluster, whose ids may be given to
others here, and none of them is known after it.

The number of producers is bounded: above it the one that wrote longest ago is forgotten, as if it had expired.
Never reads or writes files: `Log` does.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from struct import Struct
from types import MappingProxyType
from typing import NamedTuple

from tailrace.log.validation import Origin
from tailrace.model.errors import ErrorCode, KafkaError, ProtocolError, StorageError
from tailrace.model.ids import NO_OFFSET, NO_PRODUCER_EPOCH, NO_SEQUENCE
from tailrace.wire.apis.stored_records import ProducerSnapshot
from tailrace.wire.checksum import crc32c
from tailrace.wire.compile import decode, encode
from tailrace.wire.markers import Marker
from tailrace.wire.records import BatchHeader

BATCHES_REMEMBERED = 5
MAX_SEQUENCE = 2**31 - 1
MAX_EPOCH = 2**15 - 1
# Kafka's producer.id.expiration.ms.
DEFAULT_EXPIRATION_MS = 86_400_000
# About 6 MB in a partition that is written by ever new producers; a forgotten one may go on with any sequence.
DEFAULT_MAX_PRODUCERS = 10_000

# Between two snapshots in memory: reading this much again takes 40 ms at most (batches of 1 KB), else 1 ms.
KEPT_EVERY_BYTES = 8 << 20
_KEPT_MAX = 4
# A snapshot takes up to 15 microseconds a producer; of more than these none is kept in memory.
_KEPT_PRODUCERS_MAX = 1000

_SNAPSHOT_VERSION = 1
_VERSION = Struct(">h")
_CRC_POSITION, _CRC = 2, Struct(">I")
_ENTRIES_POSITION = 6
_OFFSET_DELTA_MIN = -(2**31)
_CLIENT = Origin.CLIENT  # An enum's lookup takes 0.07 us: by its name, a check took 0.64 us instead of 0.42.
_TRANSACTIONAL_BIT = 0x10
_CONTROL_BIT = 0x20


class Duplicate(NamedTuple):
    """Where the original of a retried batch lies. It is answered once that is below the high watermark."""

    base_offset: int
    last_offset: int
    timestamp: int


class EndedTransaction(NamedTuple):
    """A marker has ended it. Offsets are those of its first record and of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class RememberedBatch(NamedTuple):
    base_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int


class ProducerState:
    """One producer id. Its batches all carry `epoch`; a new epoch forgets those of the old one."""

    __slots__ = ("batches", "coordinator_epoch", "current_txn_first_offset", "epoch", "last_timestamp")

    def __init__(self) -> None:
        self.epoch: int = NO_PRODUCER_EPOCH
        self.batches: deque[RememberedBatch] = deque(maxlen=BATCHES_REMEMBERED)
        self.last_timestamp = -1
        self.coordinator_epoch = -1
        self.current_txn_first_offset: int = NO_OFFSET  # -1 while no transaction is open

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def next_sequence(self) -> int:
        """0 after the largest sequence, and where none is known."""
        return (self.last_sequence + 1) & MAX_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET


class ProducerStates:
    def __init__(
        self, *, expiration_ms: int = DEFAULT_EXPIRATION_MS, max_producers: int = DEFAULT_MAX_PRODUCERS
    ) -> None:
        self.expiration_ms = expiration_ms
        self.max_producers = max_producers
        # In the order of their last update, oldest first.
        self._states: dict[int, ProducerState] = {}
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=_KEPT_MAX)  # snapshots by offset, oldest first
        self._unkept_bytes = 0  # written since the last of them
        # Open transactions, by their first offset: producer ids. In order, since a later one begins later.
        self._open: dict[int, int] = {}
        # Producers whose next batch is being verified: one object each, for as long as no marker comes.
        self._verifying: dict[int, object] = {}
        # Ended ones whose marker may not be below the high watermark yet, in the order of their markers.
        self._ended: deque[EndedTransaction] = deque()

    @property
    def states(self) -> Mapping[int, ProducerState]:
        """By producer id; for reading only."""
        return MappingProxyType(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def check(self, header: BatchHeader, *, origin: Origin) -> Duplicate | None:
        """Raises KafkaError if the batch may not be appended."""
        producer_id = header.producer_id
        is_client = origin is _CLIENT
        if producer_id < 0 or not (is_client or origin is Origin.COORDINATOR):
            return None
        state = self._states.get(producer_id)
        if state is None:
            return None
        if is_client and header.producer_epoch == state.epoch:
            # What comes next in sequence is no duplicate: five batches do not hold 2^31 records.
            if header.base_sequence != state.next_sequence:
                duplicate = _find_duplicate(state, header)
                if duplicate is None:
                    raise _out_of_order(state, header, state.next_sequence)
                if (
                    header.attributes & _TRANSACTIONAL_BIT
                    and not 0 <= state.current_txn_first_offset <= duplicate.last_offset
                ):
                    raise KafkaError(
                        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                        f"Producer {producer_id} with epoch {state.epoch} sent sequence {header.base_sequence} again: "
                        "it belongs to a transaction that has ended. Begin a new epoch with InitProducerId.",
                    )
                return duplicate
        elif header.producer_epoch < state.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {producer_id} writes with epoch {header.producer_epoch} but {state.epoch} was seen already: "
                "a newer instance has taken over its id. Abort and call InitProducerId.",
            )
        elif is_client and header.base_sequence != 0:
            raise _out_of_order(state, header, 0)
        if state.current_txn_first_offset >= 0 and not header.attributes & _TRANSACTIONAL_BIT:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {producer_id} has an open transaction since offset {state.current_txn_first_offset} and "
                "sent a plain batch. End the transaction first.",
            )
        return None

    def update(
        self, header: BatchHeader, base_offset: int | None = None, *, marker: Marker | None = None
    ) -> EndedTransaction | None:
        """Records a batch that was written at `base_offset` (the header's own where none is given). A `marker`, which a
        control batch holds unless it was emptied, ends the producer's transaction."""
        producer_id = header.producer_id
        if producer_id < 0:
            return None
        first_offset = header.base_offset if base_offset is None else base_offset
        ended: EndedTransaction | None = None
        # Taken out and put back, so that the dict stays ordered by last update.
        state = self._states.pop(producer_id, None) or ProducerState()
        self._states[producer_id] = state
        if header.producer_epoch != state.epoch:
            state.epoch = header.producer_epoch
            state.batches.clear()
        state.last_timestamp = header.max_timestamp
        if header.attributes & _CONTROL_BIT:
            if marker is not None:
                ended = self._end_transaction(producer_id, state, first_offset, marker)
        else:
            delta = header.last_offset_delta
            fields = (header.base_sequence, header.last_sequence, first_offset + delta, delta, header.max_timestamp)
            # Past the NamedTuple's own constructor, which takes three times as long.
            state.batches.append(tuple.__new__(RememberedBatch, fields))
            if header.attributes & _TRANSACTIONAL_BIT and state.current_txn_first_offset < 0:
                # The one that has been open for longest is the first: the last stable offset is found by that.
                assert first_offset > next(reversed(self._open), NO_OFFSET), f"{first_offset} after {[*self._open]}"
                state.current_txn_first_offset = first_offset
                self._open[first_offset] = producer_id
        if len(self._states) > self.max_producers:
            self._forget_oldest()
        return ended

    def _end_transaction(
        self, producer_id: int, state: ProducerState, offset: int, marker: Marker
    ) -> EndedTransaction | None:
        """None if there was nothing to end: a transaction need not have written to each of its partitions."""
        self._verifying.pop(producer_id, None)
        state.coordinator_epoch = max(state.coordinator_epoch, marker.coordinator_epoch)
        first_offset = state.current_txn_first_offset
        if first_offset < 0:
            return None
        state.current_txn_first_offset = NO_OFFSET
        del self._open[first_offset]
        ended = EndedTransaction(producer_id, first_offset, offset, not marker.is_commit)
        self._ended.append(ended)
        return ended

    def forget_before_barrier(self) -> None:
        """All of them. Markers have ended their transactions, which count as long as they may be lost."""
        self._states.clear()
        self._open.clear()
        self._verifying.clear()

    @property
    def idlest_open_ms(self) -> int | None:
        """When that open transaction was last written to that has not been for longest, by its records' own time."""
        return min((self._states[each].last_timestamp for each in self._open.values()), default=None)

    @property
    def first_open_offset(self) -> int | None:
        """The first offset of the transaction that has been open for longest; None if none is open."""
        return next(iter(self._open), None)

    @property
    def has_undecided(self) -> bool:
        return bool(self._open or self._ended)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Everything below is decided for good; at most the high watermark."""
        self.forget_decided(high_watermark)
        first_offsets = [high_watermark, *(ended.first_offset for ended in self._ended)]
        if self._open:
            first_offsets.append(next(iter(self._open)))
        return min(first_offsets)

    def forget_decided(self, high_watermark: int) -> None:
        """The transactions whose markers it has passed."""
        while self._ended and self._ended[0].last_offset < high_watermark:
            self._ended.popleft()

    def check_marker(
        self, producer_id: int, producer_epoch: int, *, coordinator_epoch: int, transaction_version: int
    ) -> None:
        """Raises unless a marker with this epoch may end the producer's transaction, or has nothing to end. From
        version 2 on it has a later epoch than the records that it follows (KIP-890): one that was delayed cannot end
        the next transaction."""
        state = self._states.get(producer_id)
        if state is None:
            return
        is_open = state.current_txn_first_offset >= 0
        is_old = producer_epoch < state.epoch or (
            producer_epoch == state.epoch and is_open and transaction_version >= 2 and producer_epoch < MAX_EPOCH
        )
        if is_old:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"A marker of producer {producer_id} has epoch {producer_epoch} but {state.epoch} was seen already",
            )
        if coordinator_epoch < state.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"A marker of producer {producer_id} comes from coordinator epoch {coordinator_epoch} but "
                f"{state.coordinator_epoch} was seen already",
            )

    def is_in_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether it has an open transaction here in which this epoch may go on."""
        state = self._states.get(producer_id)
        return state is not None and state.current_txn_first_offset >= 0 and state.epoch == producer_epoch

    def begin_verification(self, producer_id: int) -> object:
        """The coordinator is asked whether the producer's transaction includes this partition. Its yes holds only as
        long as `is_verified`: until a marker comes, which ends the transaction that was asked about."""
        return self._verifying.setdefault(producer_id, object())

    def is_verified(self, producer_id: int, verification: object) -> bool:
        return self._verifying.get(producer_id) is verification

    def end_verification(self, producer_id: int) -> None:
        self._verifying.pop(producer_id, None)

    def note_written(self, size_bytes: int, next_offset: int) -> None:
        """The log has grown to `next_offset`, and `update` was told of it: time for another snapshot in memory?"""
        self._unkept_bytes += size_bytes
        if self._unkept_bytes >= KEPT_EVERY_BYTES:
            self._unkept_bytes = 0
            if len(self._states) <= _KEPT_PRODUCERS_MAX:
                self._kept.append((next_offset, self.snapshot()))

    def forget_after(self, end_offset: int) -> int:
        """The log is cut at `end_offset`; the offset of the newest snapshot in memory that still holds, or -1."""
        while self._kept and self._kept[-1][0] > end_offset:
            self._kept.pop()
        self._unkept_bytes = 0
        return self._kept[-1][0] if self._kept else NO_OFFSET

    def load_kept(self, *, now_ms: int) -> None:
        """The newest of them becomes the state; without any, there is none."""
        if self._kept:
            self.load(self._kept[-1][1], now_ms=now_ms)
        else:
            self.clear()

    def expire(self, now_ms: int) -> int:
        """Forgets producers whose last batch is older than producer.id.expiration.ms; returns how many."""
        oldest_ms = now_ms - self.expiration_ms
        expired = [
            producer_id
            for producer_id, state in self._states.items()
            if state.last_timestamp <= oldest_ms and state.current_txn_first_offset < 0
        ]
        for producer_id in expired:
            del self._states[producer_id]
        return len(expired)

    def clear(self) -> None:
        self._forget_all()
        self._kept.clear()

    def _forget_all(self) -> None:
        self._states.clear()
        self._open.clear()
        self._ended.clear()

    def snapshot(self) -> bytes:
        """Kafka's file: int16 version, CRC-32C of all that follows it, entries with the last batch of each. The batches
        before it stand before it, as entries of the same producer: Kafka takes the last, and a client that has five
        requests in flight while we restart must find all of them. So do transactions whose markers may still be lost:
        their entries count back from the marker."""
        entries = [_snapshot_ended(ended) for ended in self._ended]
        entries += [
            entry for producer_id, state in self._states.items() for entry in _snapshot_entries(producer_id, state)
        ]
        data = bytearray(_VERSION.pack(_SNAPSHOT_VERSION))
        data += encode(ProducerSnapshot(producer_entries=entries), _SNAPSHOT_VERSION)
        _CRC.pack_into(data, _CRC_POSITION, crc32c(memoryview(data)[_ENTRIES_POSITION:]))
        return bytes(data)

    def load(self, data: bytes, *, now_ms: int | None = None) -> None:
        """Replaces all state by a snapshot's, without the producers that have expired by `now_ms`. StorageError if
        the file is damaged: the state is then empty and the log must be scanned."""
        self._forget_all()
        for entry in _read_snapshot(data).producer_entries:
            if entry.offset_delta < 0:
                first_offset = entry.last_offset + entry.offset_delta
                self._ended.append(EndedTransaction(entry.producer_id, first_offset, entry.last_offset, False))
                continue
            # The same producer again: a later batch of it.
            state = self._states.get(entry.producer_id) or ProducerState()
            state.epoch = entry.epoch
            state.last_timestamp = entry.timestamp
            state.coordinator_epoch = entry.coordinator_epoch
            state.current_txn_first_offset = entry.current_txn_first_offset
            if entry.last_offset >= 0:
                base_sequence = decrement_sequence(entry.last_sequence, entry.offset_delta)
                batch = RememberedBatch(
                    base_sequence, entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp
                )
                state.batches.append(batch)
            self._states[entry.producer_id] = state
        opened = [(state.current_txn_first_offset, producer_id) for producer_id, state in self._states.items()]
        self._open = dict(sorted(each for each in opened if each[0] >= 0))
        if now_ms is not None:
            self.expire(now_ms)

    def _forget_oldest(self) -> None:
        """A producer in a transaction is never forgotten: its marker is still to come."""
        for producer_id, state in self._states.items():
            if state.current_txn_first_offset < 0:
                del self._states[producer_id]
                return


def follows(header: BatchHeader, before: BatchHeader | None) -> bool:
    """Whether `check` will take a client's batch once `before`, which it has taken, is written: the same producer and
    epoch, the next sequence. Neither is of a transaction. Of None nothing is known."""
    return (
        before is not None
        and header.producer_id == before.producer_id
        and header.producer_epoch == before.producer_epoch
        and header.base_sequence == (before.last_sequence + 1) & MAX_SEQUENCE
    )


def decrement_sequence(sequence: int, count: int) -> int:
    """The sequence `count` before; the one before 0 is 2^31-1."""
    return sequence - count if sequence >= count else MAX_SEQUENCE - (count - sequence) + 1


def _find_duplicate(state: ProducerState, header: BatchHeader) -> Duplicate | None:
    base_sequence, last_sequence = header.base_sequence, header.last_sequence
    for batch in state.batches:
        if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
            return Duplicate(batch.last_offset - batch.offset_delta, batch.last_offset, batch.timestamp)
    return None


def _out_of_order(state: ProducerState, header: BatchHeader, expected: int) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Producer {header.producer_id} with epoch {header.producer_epoch} sent sequence {header.base_sequence} where "
        f"{expected} comes next (epoch {state.epoch} here): an earlier batch is missing. "
        "Send the missing batch first, or begin a new epoch with InitProducerId.",
    )


def _snapshot_ended(ended: EndedTransaction) -> ProducerSnapshot.ProducerEntry:
    return ProducerSnapshot.ProducerEntry(
        producer_id=ended.producer_id,
        epoch=NO_PRODUCER_EPOCH,
        last_sequence=NO_SEQUENCE,
        last_offset=ended.last_offset,
        offset_delta=max(ended.first_offset - ended.last_offset, _OFFSET_DELTA_MIN),
        timestamp=-1,
        coordinator_epoch=-1,
        current_txn_first_offset=NO_OFFSET,
    )


def _snapshot_entries(producer_id: int, state: ProducerState) -> Iterator[ProducerSnapshot.ProducerEntry]:
    batches = list(state.batches)
    for batch in batches[:-1]:
        yield ProducerSnapshot.ProducerEntry(
            producer_id=producer_id,
            epoch=state.epoch,
            last_sequence=batch.last_sequence,
            last_offset=batch.last_offset,
            offset_delta=batch.offset_delta,
            timestamp=batch.timestamp,
            coordinator_epoch=state.coordinator_epoch,
            current_txn_first_offset=NO_OFFSET,
        )
    yield ProducerSnapshot.ProducerEntry(
        producer_id=producer_id,
        epoch=state.epoch,
        last_sequence=state.last_sequence,
        last_offset=state.last_data_offset,
        offset_delta=batches[-1].offset_delta if batches else 0,
        timestamp=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch,
        current_txn_first_offset=state.current_txn_first_offset,
    )


def _read_snapshot(data: bytes) -> ProducerSnapshot:
    if len(data) < _ENTRIES_POSITION:
        raise StorageError(f"the producer snapshot has only {len(data)} bytes; it is rebuilt from the log")
    (version,) = _VERSION.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise StorageError(f"the producer snapshot has the unknown version {version}; it is rebuilt from the log")
    (stored_crc,) = _CRC.unpack_from(data, _CRC_POSITION)
    if crc32c(memoryview(data)[_ENTRIES_POSITION:]) != stored_crc:
        raise StorageError("the CRC of the producer snapshot does not match; it is rebuilt from the log")
    try:
        return decode(ProducerSnapshot, version, data, _VERSION.size)
    except ProtocolError as error:
        raise StorageError(f"the producer snapshot does not decode ({error}); it is rebuilt from the log") from error
