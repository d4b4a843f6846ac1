"""Each check of transactions is shown to fail on a bug that the test plants, as in test_planted_bugs."""

import dataclasses

import pytest

from tailrace.broker.coordinators import markers, verification
from tailrace.broker.coordinators.markers import MarkerWriter
from tailrace.coordinator.classic.group import ClassicGroup
from tailrace.coordinator.consumers.group import ConsumerGroup
from tailrace.coordinator.machine import GroupMachine
from tailrace.coordinator.op import Result
from tailrace.coordinator.transactions import beginning, ending, machine, state, timers, transaction
from tailrace.coordinator.transactions.machine import TransactionMachine
from tailrace.coordinator.transactions.state import TransactionsState
from tailrace.log.producers import ProducerStates
from tailrace.replica.partition import Partition
from tailrace.sim.checks.transaction_logs import TransactionLog
from tailrace.sim.checks.transactions import Transaction, TransactionChecks
from tailrace.sim.plan import Plan
from tailrace.sim.scenario import Scenario
from tailrace.sim.transactions.transactions import TransactionPlan, Transactions

PRODUCERS = TransactionPlan(ids=2, producers=3, timeout_ms=1000)
ZOMBIES = PRODUCERS._replace(ids=1)
LOOPS = TransactionPlan(ids=1, producers=1, loops=2, timeout_ms=2500)
SMALL = Plan(topics=(("orders", 2, ()),), producers=1, faults=("slow links",), fault_seconds=3.0)


def broken_promise(seeds=range(1, 2), *, transactions=PRODUCERS, **changes) -> str:
    """What the first seed that fails has found."""
    for seed in seeds:
        plan = dataclasses.replace(SMALL, transactions=transactions, **changes)
        outcome = Scenario(seed, plan=plan).run()
        if outcome.failure is not None:
            return outcome.failure
    return "none"


@pytest.mark.parametrize("transactions", [PRODUCERS, LOOPS])
def test_without_a_bug_nothing_is_found(transactions):
    assert broken_promise(transactions=transactions) == "none"


# ---- last stable offset and readers


def test_a_last_stable_offset_that_passes_open_transactions(monkeypatch):
    monkeypatch.setattr(ProducerStates, "last_stable_offset", lambda _self, high_watermark: high_watermark)
    assert broken_promise().startswith("the last stable offset is what the log says")


def test_a_last_stable_offset_that_falls(monkeypatch):
    original = ProducerStates.last_stable_offset
    monkeypatch.setattr(
        ProducerStates,
        "last_stable_offset",
        lambda self, high_watermark: max(0, original(self, high_watermark) - (high_watermark % 3) * 5),
    )
    monkeypatch.setattr(TransactionChecks, "judge_stable", lambda *_arguments: None)
    assert broken_promise().startswith("within a leader epoch the last stable offset never falls")


def test_readers_that_are_not_told_what_was_aborted(monkeypatch):
    monkeypatch.setattr(Partition, "find_aborted", lambda *_arguments: [])
    assert broken_promise().startswith("a reader is given what is committed, all of it and nothing else")


def test_readers_that_are_given_what_is_undecided(monkeypatch):
    monkeypatch.setattr(Partition, "readable_end", lambda self, _isolation_level: self.high_watermark)
    assert broken_promise().startswith("at read_committed nothing undecided is passed")


def test_an_aborted_read_in_the_recorded_history(monkeypatch):
    monkeypatch.setattr(Partition, "find_aborted", lambda *_arguments: [])
    monkeypatch.setattr(TransactionLog, "judge_read", lambda *_arguments, **_options: None)
    found = broken_promise()
    assert found.startswith("the recorded history has no anomaly")
    assert "aborted-read" in found


# ---- decisions and markers


def test_a_torn_transaction(monkeypatch):
    original = markers._part

    def tear(marker, partitions):
        part = original(marker, partitions)
        part.transaction_result = marker.transaction_result and partitions[0].partition == 0
        return part

    monkeypatch.setattr(markers, "_part", tear)
    monkeypatch.setattr(Transaction, "note_told", lambda *_arguments, **_options: None)
    assert broken_promise().startswith("a transaction is committed in all its partitions or in none")


def test_a_commit_that_aborts(monkeypatch):
    original = ending._markers

    def abort(decided):
        request = original(decided)
        request.markers[0].transaction_result = False
        return request

    monkeypatch.setattr(ending, "_markers", abort)
    assert broken_promise().startswith("a transaction has ended as its producer was told")


def test_a_commit_that_nobody_asked_for(monkeypatch):
    original = ending._decide
    monkeypatch.setattr(
        ending, "_decide", lambda *arguments, is_commit, **options: original(*arguments, is_commit=True, **options)
    )
    assert broken_promise().startswith("only what its producer has asked to commit is committed")


def test_completion_before_the_markers_are_written(monkeypatch):
    original = MarkerWriter.write

    def hurry(self, marker, on_written, *, is_wanted):
        original(self, marker, lambda *_key: None, is_wanted=lambda: True)
        on_written(marker.producer_id, marker.producer_epoch)

    monkeypatch.setattr(MarkerWriter, "write", hurry)
    assert broken_promise().startswith("a transaction is complete once all its markers are committed")


def test_a_decision_that_is_taken_back(monkeypatch):
    original = timers.on_loaded

    def abort_all(state, call):
        results = original(state, call)
        for each in list(state.transactions.values()):
            if each.state.is_prepared:
                results.append(ending.decide_abort(state, call, each))
        return results

    monkeypatch.setattr(timers, "on_loaded", abort_all)
    found = broken_promise(range(1, 8), faults=("kill leader", "kill leader", "slow links"), fault_seconds=8.0)
    assert found.startswith("transactions go from state to state as the table says")


def test_transactions_that_never_time_out(monkeypatch):
    monkeypatch.setattr(timers, "_abort", lambda *_arguments: Result())
    many = PRODUCERS._replace(ids=6, producers=6)
    assert broken_promise(range(1, 4), transactions=many).startswith("no transaction stays open beyond its timeout")


def test_state_that_is_not_in_the_log(monkeypatch):
    original = TransactionMachine.replay

    def tamper(self, key, value, producer=None, stored=None):
        original(self, key, value, producer, stored)
        if stored is not None:
            transactions = self.state.transactions
            transactions[key.transactional_id] = transactions[key.transactional_id]._replace(updated_ms=7)

    monkeypatch.setattr(TransactionMachine, "replay", tamper)
    assert broken_promise().startswith("the replay of a transaction coordinator's log gives the live state")


def test_records_that_come_after_the_end_of_their_transaction(monkeypatch):
    """The coordinator is not asked whether the producer's transaction has the partition."""

    async def believe(*_arguments, **_options):
        return {}

    monkeypatch.setattr(verification, "_ask_coordinator", believe)
    old = PRODUCERS._replace(timeout_ms=6000, old_share=1.0)
    found = broken_promise(range(20, 24), transactions=old, fault_seconds=8.0)
    assert found.startswith("only what its producer has asked to commit is committed")


# ---- fencing


def test_an_epoch_that_two_producers_have(monkeypatch):
    monkeypatch.setattr(beginning, "_next", lambda _state, transaction, _request: transaction)
    assert broken_promise(transactions=ZOMBIES).startswith("an epoch is given to one producer")


def test_a_zombie_that_can_write(monkeypatch):
    monkeypatch.setattr(TransactionsState, "check_producer", lambda self, name, **_options: self.find(name))
    monkeypatch.setattr(Transaction, "note_decision", lambda *_arguments, **_options: None)
    assert broken_promise(range(1, 6), transactions=ZOMBIES).startswith("nothing of a fenced producer is taken")


def test_a_producer_that_is_fenced_by_its_own_end(monkeypatch):
    """It has the next epoch, and ends the next transaction, while the markers of the last one are being written."""

    def fence(found, call, caller, request):
        ending_now = found.find(request.transactional_id)
        if ending_now.state.is_prepared and ending_now.producer_epoch == request.producer_epoch:
            raise state.fenced(ending_now, request.producer_epoch)
        return ending.end_transaction(found, call, caller, request)

    monkeypatch.setitem(machine._OPS, 26, fence)
    assert broken_promise(range(1, 4)).startswith("a producer goes on unless it is fenced")


def test_an_end_that_cannot_be_asked_for_again(monkeypatch):
    monkeypatch.setattr(ending, "_is_sent_again", lambda *_arguments: False)
    found = broken_promise(range(1, 4))
    assert found.startswith(("an end that is asked for again is what it was", "a producer goes on unless"))


def test_a_producer_epoch_that_goes_back(monkeypatch):
    original = markers._part

    def lower(marker, partitions):
        part = original(marker, partitions)
        part.producer_epoch = 0
        return part

    monkeypatch.setattr(markers, "_part", lower)
    monkeypatch.setattr(ProducerStates, "check_marker", lambda *_arguments, **_options: None)
    monkeypatch.setattr(ProducerStates, "check", lambda *_arguments, **_options: None)
    assert broken_promise().startswith("the epoch of a producer never goes back")


def test_the_epoch_of_a_transactional_id_that_goes_back(monkeypatch):
    original = transaction.Transaction.completed
    monkeypatch.setattr(
        transaction.Transaction,
        "completed",
        lambda self, **options: original(self, **options)._replace(producer_epoch=0),
    )
    assert broken_promise().startswith("the epoch of a transactional id never goes back")


# ---- exactly once


def test_offsets_that_are_lost_with_their_transaction(monkeypatch):
    original = GroupMachine.replay_marker
    monkeypatch.setattr(
        GroupMachine,
        "replay_marker",
        lambda self, producer_id, *, is_commit: original(self, producer_id, is_commit=False),
    )
    found = broken_promise(range(1, 4), transactions=LOOPS)
    assert found.startswith("an input record has one effect")


def test_offsets_that_count_though_their_transaction_was_aborted(monkeypatch):
    original = GroupMachine.replay_marker
    monkeypatch.setattr(
        GroupMachine,
        "replay_marker",
        lambda self, producer_id, *, is_commit: original(self, producer_id, is_commit=True),
    )
    found = broken_promise(range(1, 4), transactions=LOOPS)
    assert found.startswith("every input record has its effect")


@pytest.mark.parametrize(("is_classic", "first_seed"), [(True, 142), (False, 78)])
def test_offsets_of_members_that_are_not_fenced(monkeypatch, is_classic, first_seed):
    for group in (ClassicGroup, ConsumerGroup):
        monkeypatch.setattr(group, "check_offset_commit", lambda *_arguments, **_options: None)
    for fate in ("_kill", "_slow"):
        monkeypatch.setattr(Transactions, fate, Transactions._stall)
    stalled = LOOPS._replace(is_classic=is_classic, loops=3, timeout_ms=6000)
    found = broken_promise(range(first_seed, first_seed + 2), transactions=stalled, fault_seconds=6.0)
    assert found.startswith("an input record has one effect")
