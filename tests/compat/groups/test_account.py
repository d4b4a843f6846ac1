"""The account itself: each thing that must not happen is told, and what may happen passes."""

from collections.abc import Callable

import pytest

from .account import Event, check_account

Journals = dict[str, list[Event]]


def _read(time_ns: int, *offsets: int, partition: int = 0) -> Event:
    return Event("read", time_ns, [(partition, offset, offset) for offset in offsets])


def _sound() -> Journals:
    """a reads and commits two records, dies with a third read; b goes on from the commit."""
    return {
        "a": [
            Event("assigned", 10, [0]),
            _read(20, 0, 1),
            Event("committed", 30, [(0, 2)]),
            _read(40, 2),
        ],
        "b": [Event("assigned", 60, [0]), _read(70, 2, 3), Event("committed", 80, [(0, 4)]), Event("revoked", 90, [0])],
    }


ENDS = {"a": 50, "b": 100}


def test_a_sound_account_passes():
    assert check_account(_sound(), ENDS, [4]) == (2, 0, 5, 1)


def _two_owners(journals: Journals) -> None:
    journals["b"][0] = Event("assigned", 45, [0])


def _a_gap(journals: Journals) -> None:
    journals["a"].pop()
    journals["b"][1] = _read(70, 3)


def _a_hole_within(journals: Journals) -> None:
    journals["b"][1] = _read(70, 1, 3)


def _back_before_a_commit(journals: Journals) -> None:
    journals["b"][1] = _read(70, 1, 2, 3)


def _the_end_is_missing(journals: Journals) -> None:
    journals["b"][1] = _read(70, 2)


def _another_value(journals: Journals) -> None:
    journals["b"][1] = Event("read", 70, [(0, 2, 2), (0, 3, 7)])


def _not_owned(journals: Journals) -> None:
    journals["b"].append(_read(95, 4))


def _given_twice(journals: Journals) -> None:
    journals["a"].insert(1, Event("assigned", 15, [0]))


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (_two_owners, "two owners"),
        (_a_gap, "never read"),
        (_a_hole_within, "after 1"),
        (_back_before_a_commit, "after a commit of 2"),
        (_the_end_is_missing, "never read"),
        (_another_value, "holds 7"),
        (_not_owned, "does not own"),
        (_given_twice, "twice"),
    ],
)
def test_what_must_not_happen_is_told(spoil: Callable[[Journals], None], told: str):
    journals = _sound()
    spoil(journals)
    with pytest.raises(AssertionError, match=told):
        check_account(journals, ENDS, [4])


def test_who_has_lost_a_partition_may_have_been_replaced_before():
    journals = _sound()
    journals["a"].append(Event("lost", 65, [0]))
    assert check_account(journals, {"a": 100, "b": 100}, [4]).lost == 1
