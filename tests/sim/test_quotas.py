"""Quotas of clients while nodes die and links break: throttles are kept, and confirmed quotas are not lost."""

import pytest

from tailrace.broker.serving.connection import KafkaConnection
from tailrace.controller.replay import Replay
from tailrace.sim.faults import PROCESS_AND_LINK_KINDS
from tailrace.sim.plan import Plan
from tailrace.sim.scenario import Outcome, Scenario
from tailrace.wire.apis.stored_records import ClientQuotaRecord


def run(seed: int, faults: tuple[str, ...] = PROCESS_AND_LINK_KINDS) -> Outcome:
    return Scenario(seed, plan=Plan(has_quotas=True, has_snapshots=True, faults=faults, fault_seconds=8.0)).run()


@pytest.mark.parametrize("seed", range(1, 3))
def test_quotas_hold_under_faults(seed: int) -> None:
    outcome = run(seed)
    assert outcome.failure is None, outcome.failure
    assert ", 0 throttles" not in outcome.story
    assert ", 0 kept" not in outcome.story


def test_a_connection_that_is_read_all_the_same_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KafkaConnection, "mute", lambda _self, _throttle_ms: None)
    failure = run(1, ("slow links",)).failure
    assert failure is not None
    assert failure.startswith("a throttled connection is not read")


def test_a_quota_that_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By every node alike, so that they agree."""
    original = Replay._replay_client_quota

    def forget(self: Replay, record: ClientQuotaRecord) -> None:
        if record.value <= 1000:
            original(self, record)

    monkeypatch.setitem(Replay._HANDLERS, ClientQuotaRecord, forget)
    failures = (run(seed, ("slow links",)).failure for seed in range(3, 9))
    assert next(filter(None, failures), "none").startswith("a confirmed quota is there")
