"""How much a micro-batch takes."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.ids import TopicPartition
from tailrace.spark.source.limits import TriggerDelay, limit_end, limit_to

A, B, C = (TopicPartition("t", index) for index in range(3))


def test_in_proportion_to_what_there_is():
    start, latest = {A: 0, B: 100, C: 7}, {A: 900, B: 200, C: 7}
    assert limit_end(start, latest, 100) == {A: 90, B: 110, C: 7}
    assert limit_end(start, latest, 5000) == latest


def test_a_small_partition_is_not_starved():
    assert limit_end({A: 0, B: 0}, {A: 1_000_000, B: 1}, 10) == {A: 9, B: 1}


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 1000)), min_size=1, max_size=5), st.integers(1, 500))
def test_a_limited_stream_comes_to_its_end(drawn: list[tuple[int, int]], most: int):
    latest = {TopicPartition("t", index): start + size for index, (start, size) in enumerate(drawn)}
    start = {TopicPartition("t", index): begin for index, (begin, _) in enumerate(drawn)}
    while start != latest:
        end = limit_end(start, latest, most)
        taken = sum(end[each] - start[each] for each in end)
        assert 0 < taken <= most + len(drawn)
        assert all(start[each] <= end[each] <= latest[each] for each in end)
        start = end


def test_a_stream_that_has_an_end():
    latest = {A: 50, B: 60, C: 70}
    assert limit_to({A: 20, B: 100}, {A: 0, B: 0}, latest) == {A: 20, B: 60}
    assert limit_to({A: 20}, {A: 30, B: 10}, latest) == {A: 30, B: 10}  # What is beyond it is not taken back.


def test_a_batch_waits_for_enough_but_not_for_ever():
    delay = TriggerDelay(offsets_min=100, delay_ms_max=1000)
    assert not delay.must_wait({A: 0}, {A: 1}, now_ms=5000)  # The first does not wait.
    assert delay.must_wait({A: 1}, {A: 100}, now_ms=5500)
    assert not delay.must_wait({A: 1}, {A: 101}, now_ms=5600)
    assert delay.must_wait({A: 101}, {A: 102}, now_ms=6599)
    assert not delay.must_wait({A: 101}, {A: 102}, now_ms=6600)
