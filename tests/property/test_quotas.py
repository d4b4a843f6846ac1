"""Windows and buckets under random use. That their numbers are Kafka's is compared in tests/golden."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.quotas.windows import Bucket, Rate, Windows

WINDOWS = st.builds(Windows, st.integers(2, 12), st.sampled_from([1000.0, 5000.0]))
BOUNDS = st.sampled_from([0.25, 1.0, 10.0, 100_000.0])
# Pauses in ms, and how many seconds' worth of the bound is used then.
USES = st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 20)), min_size=1, max_size=40)


@given(WINDOWS, BOUNDS, USES)
def test_who_waits_as_a_bucket_says_gets_no_more_than_it_lets_pass(
    windows: Windows, bound: float, uses: list[tuple[int, int]]
) -> None:
    bucket = Bucket(windows)
    now_ms = taken = last = 0.0
    for pause_ms, seconds in uses:
        now_ms += pause_ms
        value = seconds * bound
        waits = 0
        while throttle_ms := bucket.ask(value, bound, now_ms):
            now_ms += throttle_ms
            waits += 1
        assert waits <= 2, "what it says is enough, but for a rounded millisecond"
        taken += value
        last = max(last, value)
        burst = windows.samples * windows.size_ms / 1000 * bound
        # Half a millisecond may be rounded away each time.
        assert taken <= burst + last + bound * (now_ms + len(uses)) / 1000 + 1e-6


@given(WINDOWS, BOUNDS, USES, st.integers(1, 20))
def test_what_is_taken_back_was_never_used(
    windows: Windows, bound: float, uses: list[tuple[int, int]], seconds: int
) -> None:
    rate, now_ms = Rate(windows), 0.0
    for pause_ms, used in uses:
        now_ms += pause_ms
        rate.note(used * bound, now_ms)
    before_ms, before = rate.throttle_ms(bound, now_ms), rate.used(now_ms)
    rate.note(seconds * bound, now_ms)
    assert rate.throttle_ms(bound, now_ms) >= before_ms, "who uses more waits no shorter"
    rate.note(-seconds * bound, now_ms)
    assert (rate.throttle_ms(bound, now_ms), rate.used(now_ms)) == (before_ms, before)


@given(WINDOWS, BOUNDS, USES)
def test_what_was_used_long_ago_is_forgotten(windows: Windows, bound: float, uses: list[tuple[int, int]]) -> None:
    rate, now_ms = Rate(windows), 0.0
    for pause_ms, used in uses:
        now_ms += pause_ms
        rate.note(used * bound, now_ms)
    later_ms = now_ms + windows.samples * windows.size_ms
    assert (rate.used(later_ms), rate.throttle_ms(bound, later_ms)) == (0.0, 0)
