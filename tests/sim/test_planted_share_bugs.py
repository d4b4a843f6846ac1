"""Bugs that are planted into share groups, and found by what members see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tailrace.broker.shares.share_partition import SharePartition
from tailrace.coordinator.share_partition.delivery import Delivery, RecordState
from tailrace.coordinator.share_partition.window import Changes, Window
from tailrace.coordinator.share_state.state import ShareState
from tests.sim.test_shares import LOCK_MS, simulate

pytestmark = pytest.mark.long

SEEDS = range(1, 7)


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
    begin = Window._begin
    patch.setattr(
        Window,
        "_begin",
        lambda self, delivery, state, limits: begin(self, delivery, state, limits._replace(delivery_count_max=99)),
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


@pytest.mark.parametrize(
    "plant",
    [
        _states_are_not_read,
        _acknowledgements_are_not_stored,
        _locks_are_short,
        _nothing_is_given_up,
        _gaps_are_taken_for_done,
        _the_start_falls,
    ],
    ids=lambda plant: plant.__name__.strip("_"),
)
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, TimeoutError)):
        _simulate_all()


def _simulate_all() -> None:
    for seed in SEEDS:
        simulate(seed, 80)
