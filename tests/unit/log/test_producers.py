"""Sequences, epochs, duplicates, expiry and snapshots of producers."""

import struct

import pytest

from tailrace.log.producers import MAX_SEQUENCE, Duplicate, ProducerStates
from tailrace.log.validation import Origin
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.wire.checksum import crc32c
from tailrace.wire.markers import Marker
from tailrace.wire.records import BatchHeader

PRODUCER = 7
TRANSACTIONAL, CONTROL = 0x10, 0x30


def header(
    sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = PRODUCER, time: int = 1000, attributes: int = 0
) -> BatchHeader:
    return BatchHeader(0, 100, 0, 2, 0, attributes, count - 1, time, time, producer_id, epoch, sequence, count)


class Writer:
    """A log's use of the states: check, then update at the next offset."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.end_offset = 0

    def write(self, batch: BatchHeader, origin: Origin = Origin.CLIENT) -> Duplicate | None:
        duplicate = self.states.check(batch, origin=origin)
        if duplicate is None:
            self.states.update(batch, self.end_offset)
            self.end_offset += batch.last_offset_delta + 1
        return duplicate

    def refusal(self, batch: BatchHeader, origin: Origin = Origin.CLIENT) -> ErrorCode:
        with pytest.raises(KafkaError) as raised:
            self.write(batch, origin)
        return raised.value.code


@pytest.fixture
def writer() -> Writer:
    return Writer()


def test_batches_without_a_producer_id_leave_no_trace(writer: Writer) -> None:
    for _ in range(3):
        assert writer.write(header(-1, producer_id=-1)) is None
    assert len(writer.states) == 0


def test_each_of_the_last_five_batches_is_known_as_a_duplicate(writer: Writer) -> None:
    sequence = 0
    for count in (1, 2, 3, 4, 5, 6):
        assert writer.write(header(sequence, count, time=1000 + count)) is None
        sequence += count
    assert writer.write(header(1, 2)) == Duplicate(1, 2, 1002)
    assert writer.write(header(15, 6)) == Duplicate(15, 20, 1006)
    assert writer.refusal(header(0, 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert writer.end_offset == 21


@pytest.mark.parametrize("is_commit", [False, True])
def test_sequences_of_a_transaction_that_has_ended_are_no_duplicates(writer: Writer, is_commit: bool) -> None:
    """A client that counts anew after an abort has other records in them, which must not be acknowledged unwritten."""
    writer.write(header(0, 3, attributes=TRANSACTIONAL))
    assert writer.write(header(0, 3, attributes=TRANSACTIONAL)) == Duplicate(0, 2, 1000)
    writer.states.update(header(-1, attributes=CONTROL), 3, marker=Marker(is_commit=is_commit, coordinator_epoch=0))
    writer.end_offset = 4
    assert writer.refusal(header(0, 3, attributes=TRANSACTIONAL)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert writer.write(header(3, 2, attributes=TRANSACTIONAL)) is None
    assert writer.refusal(header(0, 3, attributes=TRANSACTIONAL)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert writer.write(header(3, 2, attributes=TRANSACTIONAL)) == Duplicate(4, 5, 1000)


def test_a_duplicate_has_the_whole_range_of_sequences(writer: Writer) -> None:
    writer.write(header(0, 3))
    assert writer.refusal(header(0, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert writer.refusal(header(1, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_may_begin_anywhere(writer: Writer) -> None:
    assert writer.write(header(4711)) is None
    assert writer.write(header(4712)) is None


@pytest.mark.parametrize("sequence", [0, 4, 5, 7, 100])
def test_a_gap_or_a_step_back_is_out_of_order(writer: Writer, sequence: int) -> None:
    writer.write(header(0, 3))
    writer.write(header(3, 3))
    assert writer.refusal(header(sequence)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert writer.write(header(6)) is None


def test_sequences_wrap_after_the_largest_int32(writer: Writer) -> None:
    writer.write(header(MAX_SEQUENCE - 1, 2))
    assert writer.refusal(header(1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert writer.write(header(0, 5)) is None
    assert writer.write(header(MAX_SEQUENCE - 1, 2)) == Duplicate(0, 1, 1000)


def test_a_batch_may_itself_wrap(writer: Writer) -> None:
    writer.write(header(MAX_SEQUENCE - 1, 4))
    assert writer.write(header(2)) is None
    assert writer.write(header(MAX_SEQUENCE - 1, 4)) == Duplicate(0, 3, 1000)


def test_an_older_epoch_is_fenced(writer: Writer) -> None:
    writer.write(header(0, epoch=3))
    assert writer.refusal(header(1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert writer.refusal(header(-1, epoch=2), Origin.COORDINATOR) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_new_epoch_begins_at_zero_and_forgets_the_old_batches(writer: Writer) -> None:
    writer.write(header(0, epoch=3))
    assert writer.refusal(header(1, epoch=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert writer.write(header(0, epoch=4)) is None
    assert writer.refusal(header(0, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_coordinators_have_no_sequences(writer: Writer) -> None:
    writer.write(header(-1, epoch=0), Origin.COORDINATOR)
    assert writer.write(header(-1, epoch=0), Origin.COORDINATOR) is None


def test_replicated_batches_are_only_recorded(writer: Writer) -> None:
    writer.write(header(0, epoch=5))
    for origin in (Origin.REPLICATION, Origin.RAFT):
        assert writer.write(header(100, epoch=1), origin) is None
    assert writer.states.states[PRODUCER].epoch == 1
    assert writer.write(header(101, epoch=1)) is None


def test_an_open_transaction_takes_no_plain_batch(writer: Writer) -> None:
    writer.write(header(0, attributes=TRANSACTIONAL))
    assert writer.refusal(header(1)) is ErrorCode.INVALID_TXN_STATE
    writer.write(header(1, 2, attributes=TRANSACTIONAL))
    assert writer.states.states[PRODUCER].current_txn_first_offset == 0
    writer.states.update(header(-1, attributes=CONTROL), 3, marker=Marker(is_commit=True, coordinator_epoch=9))
    state = writer.states.states[PRODUCER]
    assert (state.current_txn_first_offset, state.coordinator_epoch, state.last_sequence) == (-1, 9, 2)
    assert writer.write(header(3)) is None


def test_a_marker_with_a_new_epoch_forgets_the_sequences(writer: Writer) -> None:
    writer.write(header(0, 5, attributes=TRANSACTIONAL))
    writer.states.update(
        header(-1, epoch=1, attributes=CONTROL), 5, marker=Marker(is_commit=False, coordinator_epoch=0)
    )
    assert writer.refusal(header(5, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert writer.write(header(0, epoch=1)) is None


def test_idle_producers_expire_but_not_amid_a_transaction() -> None:
    states = ProducerStates(expiration_ms=100)
    states.update(header(0, producer_id=1, time=1000), 0)
    states.update(header(0, producer_id=2, time=1001), 1)
    states.update(header(0, producer_id=3, time=0, attributes=TRANSACTIONAL), 2)
    assert states.expire(1099) == 0
    assert states.expire(1100) == 1
    assert set(states.states) == {2, 3}


def test_the_number_of_producers_is_bounded_and_the_longest_silent_goes() -> None:
    states = ProducerStates(max_producers=3)
    states.update(header(0, producer_id=9, attributes=TRANSACTIONAL), 0)
    for offset, producer_id in enumerate((1, 2, 1, 3), 1):
        states.update(header(offset, producer_id=producer_id), offset)
    assert set(states.states) == {9, 1, 3}


def test_a_snapshot_keeps_all_that_is_remembered(writer: Writer) -> None:
    writer.write(header(0, 3, time=5))
    writer.write(header(3, 2, time=6))
    writer.write(header(MAX_SEQUENCE, 2, producer_id=8, epoch=2, attributes=TRANSACTIONAL))
    writer.states.update(
        header(-1, producer_id=9, epoch=1, attributes=CONTROL), 7, marker=Marker(is_commit=True, coordinator_epoch=4)
    )

    loaded = Writer()
    loaded.states.load(writer.states.snapshot())
    assert loaded.states.snapshot() == writer.states.snapshot()
    # Kafka keeps the last batch only; a client with several in flight sends the earlier ones again too.
    assert loaded.write(header(3, 2)) == Duplicate(3, 4, 6)
    assert loaded.write(header(0, 3)) == Duplicate(0, 2, 5)
    assert loaded.write(header(MAX_SEQUENCE, 2, producer_id=8, epoch=2)) == Duplicate(5, 6, 1000)
    assert loaded.states.states[8].current_txn_first_offset == 5
    assert loaded.states.states[9].coordinator_epoch == 4


def test_the_snapshot_file_is_laid_out_as_kafka_does() -> None:
    states = ProducerStates()
    states.update(header(10, 3, epoch=1, time=77), 100)
    data = states.snapshot()
    entries = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", PRODUCER, 1, 12, 102, 2, 77, -1, -1)
    assert data == struct.pack(">hI", 1, crc32c(entries)) + entries


def test_kafka_finds_the_last_batch_of_a_producer_behind_the_earlier_ones() -> None:
    states = ProducerStates()
    states.update(header(10, 3, epoch=1, time=77), 100)
    states.update(header(13, 1, epoch=1, time=78, attributes=TRANSACTIONAL), 103)
    layout = ">qhiqiqiq"
    entries = struct.pack(layout, PRODUCER, 1, 12, 102, 2, 77, -1, -1)
    entries += struct.pack(layout, PRODUCER, 1, 13, 103, 0, 78, -1, 103)
    assert states.snapshot()[6:] == struct.pack(">i", 2) + entries


def test_loading_drops_the_expired_and_what_was_there() -> None:
    states = ProducerStates(expiration_ms=100)
    states.update(header(0, producer_id=1, time=1000), 0)
    states.update(header(0, producer_id=2, time=2000), 1)
    data = states.snapshot()
    states.update(header(0, producer_id=3, time=2000), 2)
    states.load(data, now_ms=2050)
    assert set(states.states) == {2}


@pytest.mark.parametrize("damage", ["flip", "cut", "version", "empty", "count"])
def test_a_damaged_snapshot_is_refused_and_leaves_nothing(damage: str) -> None:
    states = ProducerStates()
    states.update(header(0), 0)
    data = bytearray(states.snapshot())
    match damage:
        case "flip":
            data[20] ^= 1
        case "cut":
            del data[-1]
        case "version":
            data[1] = 2
        case "empty":
            data = bytearray()
        case "count":
            data[6:10] = (2**30).to_bytes(4, "big")
            data[2:6] = crc32c(data[6:]).to_bytes(4, "big")
    with pytest.raises(StorageError):
        states.load(bytes(data))
    assert len(states) == 0
