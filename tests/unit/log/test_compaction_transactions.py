"""Compaction of transactions: what was committed counts, what was aborted goes, markers stay while they are needed."""

from tailrace.log.validation import Origin
from tailrace.wire.markers import Marker, build_marker

from .shelf import Pair, Shelf, records_of


def append_transactional(shelf: Shelf, *pairs: Pair, sequence: int) -> None:
    shelf.append(*pairs, producer_id=9, producer_epoch=0, base_sequence=sequence, transactional=True)


def end_transaction(shelf: Shelf, *, is_commit: bool) -> None:
    marker = build_marker(Marker(is_commit, 0), producer_id=9, producer_epoch=0, timestamp_ms=shelf.clock.wall_ms())
    shelf.log.append_as_leader(memoryview(marker), leader_epoch=1, origin=Origin.COORDINATOR)


def test_what_was_committed_replaces_and_is_replaced() -> None:
    shelf = Shelf()
    shelf.append(("a", "1"))
    append_transactional(shelf, ("a", "2"), sequence=0)
    end_transaction(shelf, is_commit=True)
    shelf.roll()
    shelf.compact()
    assert next((record.offset, record.value) for record in shelf.records()) == (1, b"2")
    shelf.append(("a", "3"))
    shelf.append(("b", "1"))
    shelf.roll()
    shelf.compact()
    assert [record.offset for record in shelf.records() if record.value in (b"2", b"3")] == [3]


def test_what_was_aborted_replaces_nothing_and_goes() -> None:
    shelf = Shelf()
    shelf.append(("a", "1"))
    append_transactional(shelf, ("a", "2"), sequence=0)
    end_transaction(shelf, is_commit=False)
    append_transactional(shelf, ("b", "1"), sequence=1)
    end_transaction(shelf, is_commit=True)
    shelf.roll()
    shelf.compact()
    data = [record for header, batch in shelf.batches() if not header.is_control for record in records_of(batch)]
    assert [(record.key, record.value) for record in data] == [(b"a", b"1"), (b"b", b"1")]
    assert not any(name.endswith(".txnindex") for name in shelf.files())


def test_a_marker_stays_as_long_as_a_record_of_its_transaction_and_then_for_delete_retention_ms() -> None:
    shelf = Shelf()
    append_transactional(shelf, ("a", "1"), sequence=0)
    end_transaction(shelf, is_commit=True)
    append_transactional(shelf, ("z", "1"), sequence=1)  # So that the first batch is not the last of its producer.
    end_transaction(shelf, is_commit=True)

    def pass_over(value: str) -> list[int]:
        shelf.append(("b", value))
        shelf.roll()
        shelf.compact()
        return [header.base_offset for header, _ in shelf.batches() if header.is_control and header.record_count]

    assert pass_over("1") == [1, 3]
    shelf.clock.advance_ms(2 * shelf.config.delete_retention_ms)
    assert pass_over("2") == [1, 3], "its record is still there"
    shelf.append(("a", "2"))
    assert pass_over("3") == [1, 3], "its time begins now"
    assert pass_over("4") == [1, 3]
    shelf.clock.advance_ms(shelf.config.delete_retention_ms)
    assert pass_over("5") == [3]
    shelf.reopen()
    assert shelf.log.last_stable_offset(shelf.log.log_end_offset) == shelf.log.log_end_offset
