"""Which step comes after a failure, what topics are called, and what the headers of a moved record say."""

import pytest

from tailrace.kit.retries.headers import (
    STAGE_HANDLER,
    Failure,
    Origin,
    Trail,
    buried_headers,
    moved_headers,
    own_headers,
    read_trail,
)
from tailrace.kit.retries.plan import (
    Again,
    Bury,
    Later,
    Retries,
    SettingError,
    Stop,
    decide_next,
    parse_duration_ms,
)

ERROR = RuntimeError("no luck")


def _way(retries: Retries, error: BaseException = ERROR) -> list[object]:
    """Every decision for a record that always fails, until the last."""
    way: list[object] = []
    level, tries = 0, 1
    while True:
        decision = decide_next(retries, "orders", level=level, tries=tries, error=error)
        way.append(decision)
        assert len(way) < 100
        if isinstance(decision, Again):
            tries += 1
        elif isinstance(decision, Later):
            level, tries = decision.level, 1
        else:
            return way


def test_on_the_spot_then_each_topic_then_the_dead_letters():
    assert _way(Retries(on_the_spot=3, back_off_ms=100, back_off_max_ms=250, steps=("5s", "1m"))) == [
        Again(100),
        Again(200),
        Again(250),
        Later(1, "orders.retry.5s", 5000),
        Later(2, "orders.retry.1m", 60_000),
        Bury("orders.dlq"),
    ]


def test_who_keeps_order_waits_on_the_spot():
    assert _way(Retries(on_the_spot=1, back_off_ms=10, steps=("5s", "1m"), keep_order=True)) == [
        Again(10),
        Again(5000),
        Again(60_000),
        Bury("orders.dlq"),
    ]


def test_what_no_attempt_would_mend_is_buried_at_once():
    retries = Retries(never_for=(ValueError,))
    assert _way(retries, UnicodeDecodeError("utf-8", b"", 0, 1, "bad")) == [Bury("orders.dlq")]
    assert len(_way(retries, KeyError("x"))) == 6


def test_without_dead_letters_it_stops():
    assert _way(Retries(on_the_spot=0, steps=(), dead_letters=False)) == [Stop()]


def test_a_step_that_was_taken_away_since_leads_to_the_dead_letters():
    assert decide_next(Retries(steps=("5s",)), "orders", level=3, tries=1, error=ERROR) == Bury("orders.dlq")


def test_names_are_settings():
    retries = Retries(steps=("2h",), retry_topic="again-{delay}-{topic}", dead_letter_topic="{topic}.errors")
    assert retries.retry_topics("orders") == ["again-2h-orders"]
    assert retries.dead_letter_name("orders") == "orders.errors"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"steps": ("5 s",)}, "'5 s' is not a time"),
        ({"steps": ("0s",)}, "'0s' is not a time"),
        ({"steps": ("5s", "5s")}, "two are the same"),
        ({"steps": tuple(f"{n}s" for n in range(1, 30))}, "29 steps: at most 16"),
        ({"on_the_spot": -1}, "0 or more"),
        ({"retry_topic": "retry.{delay}", "dead_letter_topic": "x", "steps": ("5s", "1m")}, None),
        ({"retry_topic": "{topic}.retry"}, "all names differ"),
        ({"dead_letter_topic": "{topic}"}, "all names differ"),
        ({"retry_topic": "{topic}/{delay}"}, "cannot be the name of a topic"),
    ],
)
def test_settings_that_are_wrong_are_refused(settings, said):
    if said is None:
        Retries(**settings)
        return
    with pytest.raises(SettingError, match=said):
        Retries(**settings)


def test_a_name_that_gets_too_long_is_refused():
    with pytest.raises(SettingError, match="at most 249"):
        Retries().retry_topics("t" * 245)


@pytest.mark.parametrize(
    ("text", "ms"), [("500ms", 500), ("5s", 5000), ("10m", 600_000), ("1h", 3_600_000), ("90d", 7_776_000_000)]
)
def test_times(text, ms):
    assert parse_duration_ms(text) == ms


def _raised() -> Failure:
    try:
        raise KeyError("amount")
    except KeyError as error:
        return Failure(error, STAGE_HANDLER, 1_700_000_000_000)


def test_a_trail_is_read_as_it_was_written_and_own_headers_stay():
    mine = [("event-id", b"1"), ("event-id", b"2"), ("empty", None)]
    trail = Trail(Origin("orders", 3, 77, 1_600_000_000_000), "billing", 2, 5, 1_700_000_005_000, 1)
    moved = moved_headers(mine, trail, _raised())
    assert read_trail(Origin("orders.retry.5s", 0, 12), moved) == trail
    assert own_headers(moved) == mine
    # Moving it again replaces what the last move has said.
    again = moved_headers(moved, trail._replace(level=3), _raised())
    assert len(again) == len(moved)
    assert read_trail(Origin("orders.retry.1m", 0, 5), again).level == 3


def test_a_record_that_never_moved_has_its_own_place_as_origin():
    assert read_trail(Origin("orders", 3, 77), [("event-id", b"1")]) == Trail(Origin("orders", 3, 77))


def test_headers_that_somebody_else_wrote_do_no_harm():
    odd = [("tailrace.retry.level", b"many"), ("tailrace.retry.attempts", b"9" * 30), ("tailrace.retry.group", b"\xff")]
    trail = read_trail(Origin("orders", 3, 77), odd)
    assert (trail.level, trail.attempts, trail.group) == (0, 0, "\ufffd")


def test_a_dead_letter_speaks_kafka_connects_language():
    trail = Trail(Origin("orders", 3, 77), "billing", 0, 3)
    said = dict(buried_headers([], trail, _raised()))
    assert said["__connect.errors.topic"] == b"orders"
    assert said["__connect.errors.partition"] == b"3"
    assert said["__connect.errors.offset"] == b"77"
    assert said["__connect.errors.connector.name"] == b"billing"
    assert said["__connect.errors.stage"] == b"TASK_PUT"
    assert said["__connect.errors.exception.class.name"] == b"KeyError"
    assert said["__connect.errors.exception.message"] == b"'amount'"
    assert b"_raised" in (said["__connect.errors.exception.stacktrace"] or b"")


def test_a_long_stack_is_cut_in_the_middle():
    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        raise RuntimeError("é" * 100_000)

    try:
        deep(50)
    except RuntimeError as error:
        said = dict(buried_headers([], Trail(Origin("t", 0, 0)), Failure(error, STAGE_HANDLER, 0)))
    assert all(len(value or b"") <= 9000 for value in said.values())
    assert b"left out" in (said["tailrace.retry.error.message"] or b"")
