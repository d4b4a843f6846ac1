"""The window of a partition against a model, with crashes: no record passed over, order kept, nothing written twice."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tailrace.kit.app.window import Entry, Order, Window

RECORDS = 30
KEYS = (None, b"a", b"b")


@given(st.data(), st.sampled_from(list(Order)))
def test_every_record_is_written_for_once_and_in_order_of_its_key(data: st.DataObject, order: Order) -> None:
    """Each record writes itself. A crash begins a new window from what was committed."""
    gaps = data.draw(st.lists(st.integers(1, 3), min_size=RECORDS, max_size=RECORDS))
    offsets = [sum(gaps[: index + 1]) for index in range(RECORDS)]
    keys = {offset: data.draw(st.sampled_from(KEYS)) for offset in offsets}
    committed, written, begun = 0, [], Counter()
    finished_of: dict[bytes | None, list[int]] = {}
    window: Window[int, int] = Window(order, records_max=8, bytes_max=1000)
    coming, running = list(offsets), []

    def order_key(offset: int) -> bytes | None:
        return {Order.KEY: keys[offset], Order.PARTITION: b"", Order.NONE: None}[order]

    def start(entry: Entry[int, int] | None) -> None:
        if entry is not None:
            mine = order_key(entry.offset)
            assert mine is None or all(order_key(other.offset) != mine for other in running)
            before = [each for each in offsets if each < entry.offset and order_key(each) == mine]
            if mine is not None:
                assert set(before) <= set(finished_of.get(mine, ())) | {o for o in offsets if o < committed}
            begun[entry.offset] += 1
            running.append(entry)

    for _ in range(400):
        if committed > offsets[-1]:
            break
        step = data.draw(st.sampled_from(("read", "read", "finish", "finish", "finish", "commit", "crash")))
        if step == "read" and coming and not window.is_full:
            offset = coming.pop(0)
            start(window.add(offset, offset, key=keys[offset], size_bytes=100))
        elif step == "finish" and running:
            entry = running.pop(data.draw(st.integers(0, len(running) - 1)))
            finished_of.setdefault(order_key(entry.offset), []).append(entry.offset)
            start(window.finish(entry, (entry.item,)))
        elif step == "commit":
            found = window.decide_commit(writes_max=data.draw(st.integers(1, 5)))
            if found is not None:
                assert found.position > committed
                # Nothing below the position is left out, and nothing at or above it is in.
                assert [o for o in offsets if committed <= o < found.position] == found.writes
                written += found.writes
                committed = found.position
                window.note_committed(found)
        elif step == "crash" and data.draw(st.integers(0, 5)) == 0:
            window, running, finished_of = Window(order, records_max=8, bytes_max=1000), [], {}
            coming = [offset for offset in offsets if offset >= committed]
    assert written == [offset for offset in offsets if offset < committed]
    assert all(begun[offset] for offset in written)


def test_one_record_with_more_writes_than_allowed_goes_alone():
    window: Window[int, int] = Window(Order.NONE, records_max=8, bytes_max=1000)
    entries = [window.add(offset, offset, key=None, size_bytes=1) for offset in range(3)]
    for entry, writes in zip(entries, ((1,), (2, 3, 4), (5,)), strict=True):
        assert entry is not None
        window.finish(entry, writes)
    sizes = []
    while (found := window.decide_commit(writes_max=2)) is not None:
        sizes.append(len(found.writes))
        window.note_committed(found)
    assert sizes == [1, 3, 1]


def test_full_by_records_or_by_bytes_until_half_is_free():
    window: Window[int, int] = Window(Order.NONE, records_max=4, bytes_max=100)
    entry = window.add(0, 0, key=None, size_bytes=100)
    assert window.is_full
    assert entry is not None
    window.finish(entry)
    found = window.decide_commit(writes_max=1)
    assert found is not None
    window.note_committed(found)
    assert not window.is_full
    assert window.has_room
    for offset in range(1, 4):
        window.add(offset, offset, key=None, size_bytes=1)
    assert not window.is_full
    assert not window.has_room
    assert [each.offset for each in window.unfinished] == [1, 2, 3]
