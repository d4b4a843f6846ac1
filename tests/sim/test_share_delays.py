"""The state of a share-partition takes longer to be stored than a lock lasts: locks run out, members give up and leave,
and leaders die meanwhile. What members are told is compared with the same promises as in `test_shares`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from tailrace.broker.shares.share_partition import SharePartition
from tailrace.coordinator.share_partition.window import Changes, Window
from tailrace.model.errors import KafkaError
from tailrace.sim.random import SimRandom
from tests.sim.share_ledger import BACKOFF, KEY_ORDER, LETTERS, LOCK_MS
from tests.sim.test_shares import simulate

_PLAIN: Mapping[str, str] = {}


def store_slowly(patch: pytest.MonkeyPatch, seed: int) -> list[float]:
    """Every third write or so waits before it is made or before anybody hears of it: how long the waits were."""
    write_state, random = SharePartition._write_state, SimRandom(seed)
    waits: list[float] = []

    async def wait() -> None:
        seconds = random.choice((0.0, 0.0, 0.0, 0.0, random.between(0.5, 2.5))) * LOCK_MS / 1000
        waits.append(seconds)
        await asyncio.sleep(seconds)

    async def write_slowly(self: SharePartition, changes: Changes) -> KafkaError | None:
        await wait()
        problem = await write_state(self, changes)
        await wait()
        return problem

    patch.setattr(SharePartition, "_write_state", write_slowly)
    return waits


@pytest.mark.parametrize("settings", [_PLAIN, KEY_ORDER | LETTERS | BACKOFF], ids=("plain", "ordered"))
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 20))])
def test_locks_run_out_while_a_state_is_stored(
    seed: int, settings: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = store_slowly(monkeypatch, seed)
    ledger = simulate(seed, 60, settings)
    assert sum(each > LOCK_MS / 1000 for each in waits) > 3
    assert len(ledger.delivered) > 60


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
