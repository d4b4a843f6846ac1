"""Bugs that are planted into share groups, each found by the check that is there for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from tailrace.broker.shares.giving_up import GivenUp
from tailrace.broker.shares.key_order import KeyOrder
from tailrace.broker.shares.share_partition import SharePartition
from tailrace.coordinator.share_partition.delivery import Dead, Delivery, Limits, RecordState
from tailrace.coordinator.share_partition.window import Changes, Window
from tailrace.coordinator.share_state.state import ShareState
from tests.sim.share_ledger import BACKOFF, KEY_ORDER, LETTERS, LOCK_MS
from tests.sim.test_shares import simulate

pytestmark = pytest.mark.long

SEEDS = range(1, 7)
Plant = Callable[[pytest.MonkeyPatch], None]


def _found_by(checks: Mapping[Plant, str]) -> list[Any]:
    """Each bug with what the check says that is there to find it: found by another, it would not count."""
    return [pytest.param(plant, check, id=plant.__name__.strip("_")) for plant, check in checks.items()]


def _states_are_not_read(patch: pytest.MonkeyPatch) -> None:
    init = Window.__init__
    patch.setattr(Window, "__init__", lambda self, start, _stored=(): init(self, start))


def _acknowledgements_are_not_stored(patch: pytest.MonkeyPatch) -> None:
    def store(self: SharePartition, changes: Changes, tell: Any) -> None:
        self.window.commit(changes)
        if tell is not None:
            tell(None)

    patch.setattr(SharePartition, "_store", store)


def _locks_are_short(patch: pytest.MonkeyPatch) -> None:
    expire = Window.expire
    patch.setattr(Window, "expire", lambda self, now_ms, limits: expire(self, now_ms + LOCK_MS, limits))
    next_due_ms = Window.next_due_ms

    def sooner(self: Window) -> float | None:
        due_ms = next_due_ms(self)
        return None if due_ms is None else due_ms - LOCK_MS / 2

    patch.setattr(Window, "next_due_ms", sooner)


def _nothing_is_given_up(patch: pytest.MonkeyPatch) -> None:
    give_back = Window._give_back
    patch.setattr(
        Window,
        "_give_back",
        lambda self, delivery, limits, now_ms: give_back(
            self, delivery, limits._replace(delivery_count_max=99), now_ms
        ),
    )


def _gaps_are_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    def extend(self: Window, last: int) -> None:
        if last >= self.end_offset:
            self._append(Delivery(self.end_offset, last, RecordState.ARCHIVED))

    patch.setattr(Window, "_extend", extend)


def _the_start_falls(patch: pytest.MonkeyPatch) -> None:
    with_update = ShareState.with_update

    def fallen(self: ShareState, value: Any) -> ShareState:
        state = with_update(self, value)
        return state._replace(start_offset=max(0, state.start_offset - 1)) if state.update_count == 3 else state

    patch.setattr(ShareState, "with_update", fallen)


def _archived_before_the_letter_is_written(patch: pytest.MonkeyPatch) -> None:
    add = GivenUp.add

    def add_archived(self: GivenUp, dead: Sequence[Dead], tell: Any) -> None:
        self._archive([each.delivery for each in dead], tell)
        add(self, dead, None)

    patch.setattr(GivenUp, "add", add_archived)


def _archived_though_the_letter_was_refused(patch: pytest.MonkeyPatch) -> None:
    note_failure = GivenUp._note_failure

    def note(self: GivenUp, error: Any) -> None:
        note_failure(self, error)
        self.make_room()

    patch.setattr(GivenUp, "_note_failure", note)


def _no_letters_for_what_is_delivered_too_often(patch: pytest.MonkeyPatch) -> None:
    give_up = Window._give_up

    def without(self: Window, delivery: Delivery, limits: Limits, *, is_rejected: bool) -> Changes:
        limits = limits._replace(has_dead_letters=limits.has_dead_letters and is_rejected)
        return give_up(self, delivery, limits, is_rejected=is_rejected)

    patch.setattr(Window, "_give_up", without)


def _what_comes_back_does_not_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Limits, "delay_ms", lambda _self, _count: 0.0)


def _delays_do_not_grow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Limits, "delay_ms", lambda self, _count: self.backoff_ms)


def _delays_never_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Limits, "delay_ms", lambda _self, _count: 1e9)


PLAIN = ({},)
BEYOND = (LETTERS | BACKOFF, LETTERS | {"share.delivery.count.limit": "2"})
ORDERED = (KEY_ORDER | BACKOFF,)


@pytest.mark.parametrize("groups", [PLAIN, BEYOND, ORDERED], ids=("plain", "beyond", "ordered"))
def test_without_a_bug_nothing_is_found(groups: Sequence[Mapping[str, str]]) -> None:
    _simulate_all(*groups)


@pytest.mark.parametrize(
    ("plant", "found"),
    _found_by(
        {
            _states_are_not_read: "is done with",
            _acknowledgements_are_not_stored: "is done with",
            _locks_are_short: "'s and went to",
            _nothing_is_given_up: "was delivered 6 times",
            _gaps_are_taken_for_done: "lost before anybody was done with it",
            _the_start_falls: "the start of . fell",
        }
    ),
)
def test_a_planted_bug_is_found(plant: Plant, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=found):
        _simulate_all(*PLAIN)


def _a_key_that_is_out_does_not_count(patch: pytest.MonkeyPatch) -> None:
    def in_order(self: Window, _keys: Mapping[int, int], end: int) -> Iterator[tuple[Delivery, int]]:
        for delivery in list(self):
            for offset in range(max(delivery.first, self.start_offset), min(delivery.last + 1, end)):
                if delivery.is_free:
                    yield delivery, offset

    patch.setattr(Window, "_in_order", in_order)


def _a_key_that_comes_back_does_not_count(patch: pytest.MonkeyPatch) -> None:
    def in_order(self: Window, keys: Mapping[int, int], end: int) -> Iterator[tuple[Delivery, int]]:
        seen: set[int] = set()
        for delivery in list(self):
            if delivery.is_done or delivery.state is RecordState.DELAYED:
                continue
            for offset in range(max(delivery.first, self.start_offset), min(delivery.last + 1, end)):
                if keys.get(offset, -1) not in seen and delivery.is_free:
                    yield delivery, offset
                seen.add(keys.get(offset, -2))

    patch.setattr(Window, "_in_order", in_order)


def _keys_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    place = KeyOrder._place

    def forget(self: KeyOrder) -> None:
        place(self)
        self.keys = {offset: key for offset, key in self.keys.items() if offset % 5}

    patch.setattr(KeyOrder, "_place", forget)


@pytest.mark.parametrize(
    "plant",
    [_a_key_that_is_out_does_not_count, _a_key_that_comes_back_does_not_count, _keys_are_forgotten],
    ids=lambda plant: plant.__name__.strip("_"),
)
def test_a_bug_of_key_order_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="of the same key"):
        _simulate_all(*ORDERED)


@pytest.mark.parametrize(
    ("plant", "found"),
    _found_by(
        {
            _archived_before_the_letter_is_written: "given up without a dead letter",
            _archived_though_the_letter_was_refused: "given up without a dead letter",
            _no_letters_for_what_is_delivered_too_often: "given up without a dead letter",
            _what_comes_back_does_not_wait: "ms too soon",
            _delays_do_not_grow: "ms too soon",
            _delays_never_end: "not emptied in time",
        }
    ),
)
def test_a_bug_of_what_is_beyond_kafka_is_found(plant: Plant, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=found):
        _simulate_all(*BEYOND)


def _simulate_all(*groups: Mapping[str, str]) -> None:
    for group_settings in groups:
        for seed in SEEDS:
            simulate(seed, 80, group_settings)
