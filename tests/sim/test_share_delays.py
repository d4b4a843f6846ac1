"""The state of a share-partition takes long to be stored: locks run out meanwhile, members leave and leaders die. What
members are told is compared with the same promises as in `test_shares`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from tailrace.broker.shares.share_partition import SharePartition
from tailrace.coordinator.share_partition.delivery import Delivery
from tailrace.coordinator.share_partition.window import Changes, Window
from tailrace.model.errors import KafkaError
from tailrace.sim.random import SimRandom
from tests.sim.share_ledger import BACKOFF, KEY_ORDER, LETTERS, LOCK_MS
from tests.sim.test_shares import simulate

_PLAIN: Mapping[str, str] = {}


# In parts of a lock. A member asks both leaders at once: if one of them kept it waiting for a whole lock, it would hear
# from the other one of records that are no longer its own, which tells nothing of these.
WAIT_MAX = 0.2


def store_slowly(patch: pytest.MonkeyPatch, seed: int) -> list[Delivery]:
    """Writes wait before they are made and before anybody hears of them. Gives what lost its lock meanwhile."""
    write_state, random = SharePartition._write_state, SimRandom(seed)
    overdue: list[Delivery] = []

    async def write_slowly(self: SharePartition, changes: Changes) -> KafkaError | None:
        said = [each for each in changes if each.before is not None and each.before[2] > self._now_ms()]
        await asyncio.sleep(random.between(0, WAIT_MAX) * LOCK_MS / 1000)
        problem = await write_state(self, changes)
        await asyncio.sleep(random.between(0, WAIT_MAX) * LOCK_MS / 1000)
        overdue.extend(each for each in said if each.before is not None and each.before[2] <= self._now_ms())
        return problem

    patch.setattr(SharePartition, "_write_state", write_slowly)
    return overdue


@pytest.mark.parametrize("settings", [_PLAIN, KEY_ORDER | LETTERS | BACKOFF], ids=("plain", "ordered"))
@pytest.mark.parametrize(
    "seeds", [range(1, 3), pytest.param(range(3, 30), marks=pytest.mark.long)], ids=("few", "many")
)
def test_locks_run_out_while_a_state_is_stored(
    seeds: range, settings: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    overdue = store_slowly(monkeypatch, seeds[0])
    for seed in seeds:
        assert len(simulate(seed, 60, settings).delivered) > 60
    assert len(overdue) >= len(seeds) / 4


@pytest.mark.long
def test_a_lock_that_ends_what_is_being_stored_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    expire = Window.expire

    def too_eager(self: Window, now_ms: float, limits: object) -> Changes:
        """What a member has said is forgotten when its lock runs out, though it is on its way to the coordinator."""
        for delivery in list(self):
            if delivery.before is not None and delivery.due_ms <= now_ms:
                delivery.state, delivery.member_id, delivery.due_ms = delivery.before
                delivery.before = None
        return expire(self, now_ms, limits)  # type: ignore[arg-type]

    monkeypatch.setattr(Window, "expire", too_eager)
    store_slowly(monkeypatch, 1)
    with pytest.raises(AssertionError, match="is done with"):
        simulate(1, 60, _PLAIN)
