"""Transactions under faults that aim at them: short runs of little else. In `test_seeds` they are among the rest."""

import pytest

from tailrace.coordinator.transactions import beginning, ending, transaction
from tailrace.log import producers
from tailrace.sim.plan import Plan
from tailrace.sim.random import SimRandom
from tailrace.sim.scenario import Scenario
from tailrace.sim.transactions.transactions import TransactionPlan

SEEDS = range(1, 7)
MORE_SEEDS = range(7, 151)
# Instead of 32,766: a producer id lasts for a few transactions, and is replaced all the time.
FEW_EPOCHS = 4
FAULTS = (
    *("kill between",) * 8,
    *("kill", "kill leader", "kill leader", "kill all", "restart", "pause", "die writing", "power", "slow disk"),
    *("isolate", "isolate", "cut", "slow links", "reset", "reset"),
)


def plan_of(seed: int) -> Plan:
    random = SimRandom(seed)
    return Plan(
        topics=(("orders", 1 + random.randrange(2), ()),),
        producers=1,
        has_operator=random.random() < 0.3,
        transactions=TransactionPlan.of(random),
        fault_seconds=random.between(4, 8),
        faults=FAULTS,
    )


def check(seed: int) -> None:
    outcome = Scenario(seed, plan=plan_of(seed)).run()
    assert outcome.failure is None, "\n".join([*outcome.lines[-60:], f"seed {seed}"])


@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_keep_their_promises(seed):
    check(seed)


@pytest.mark.parametrize("seed", range(1, 4))
def test_producer_ids_are_replaced_when_their_epochs_are_used_up(monkeypatch, seed):
    for module in (transaction, beginning, ending):
        monkeypatch.setattr(module, "LAST_EPOCH", FEW_EPOCHS)
    monkeypatch.setattr(producers, "MAX_EPOCH", FEW_EPOCHS + 1)
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_transactions_keep_their_promises_for_long(seed):
    check(seed)
