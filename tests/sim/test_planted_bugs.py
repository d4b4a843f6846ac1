"""Each check is shown to fail on a bug that the test plants: a patch of one function, and the promise it breaks."""

import dataclasses
from math import inf

from tailrace.broker.cluster.lifecycle import Lifecycle
from tailrace.broker.quorum import driver
from tailrace.broker.refused_batches import RefusedBatches
from tailrace.controller.machine import Controller
from tailrace.log.log import Log
from tailrace.log.producers import ProducerStates
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.raft import step as raft_step
from tailrace.raft.leader import Leader
from tailrace.raft.roles import Unattached
from tailrace.replica import partition
from tailrace.replica.following import changes
from tailrace.replica.partition import Partition
from tailrace.sim.checks.replicas import ReplicaChecks
from tailrace.sim.plan import Plan
from tailrace.sim.scenario import Scenario
from tailrace.wire.records import set_log_append_time

SMALL = Plan(faults=("slow links",))


def broken_promise(seeds: range = range(1, 2), **changes) -> str:
    """What the first seed that fails has found."""
    for seed in seeds:
        outcome = Scenario(seed, plan=dataclasses.replace(SMALL, **changes)).run()
        if outcome.failure is not None:
            return outcome.failure
    return "none"


def after(monkeypatch, owner, name, then):
    """Lets something happen after each call of a method."""
    original = getattr(owner, name)

    def patched(self, *arguments, **options):
        result = original(self, *arguments, **options)
        then(self)
        return result

    monkeypatch.setattr(owner, name, patched)


def test_without_a_bug_nothing_is_found():
    assert broken_promise() == "none"


def test_a_second_leader(monkeypatch):
    def usurp(self):
        if self.node_id == 2:
            self.leader_id = 2

    after(monkeypatch, Partition, "follow_image", usurp)
    assert broken_promise().startswith("at most one leader per partition and epoch")


def test_a_high_watermark_that_falls(monkeypatch):
    def lower(self):
        if self.high_watermark > 40:
            self.high_watermark -= 20

    after(monkeypatch, Partition, "note_fetch", lower)
    assert broken_promise().startswith("within a leader epoch the high watermark never falls")


def test_a_high_watermark_above_the_log_end(monkeypatch):
    original = changes.append_fetched

    def believe(replica, batches, **options):
        size = original(replica, batches, **options)
        replica.high_watermark = replica.log.log_end_offset + 1
        return size

    monkeypatch.setattr(changes, "append_fetched", believe)
    assert broken_promise().startswith("log_start_offset <= high_watermark <= log_end_offset")


def test_a_high_watermark_that_does_not_wait_for_followers(monkeypatch):
    monkeypatch.setattr(partition, "decide_high_watermark", lambda own_end, _followers, **_: own_end)
    assert broken_promise().startswith("what is committed is in the log of every live ISR member")


def test_a_follower_that_stores_something_else(monkeypatch):
    original = Log.append_as_follower

    def alter(self, batches, **options):
        altered = bytearray(batches)
        set_log_append_time(altered, 0, 5)
        return original(self, memoryview(altered), **options)

    monkeypatch.setattr(Log, "append_as_follower", alter)
    assert broken_promise().startswith("committed prefixes agree")


def test_a_batch_that_is_taken_twice(monkeypatch):
    monkeypatch.setattr(ProducerStates, "check", lambda *_arguments, **_options: None)
    found = broken_promise(range(1, 6), faults=("reset",), producers=3)
    assert found.startswith("a sequence is committed once")


def test_a_batch_that_is_judged_without_the_refused_one_before_it(monkeypatch):
    monkeypatch.setattr(RefusedBatches, "judge", lambda _self, _place, _batch, error: error)
    found = broken_promise(range(1, 4), faults=("full disk",), producers=0, pipelines=3, fault_seconds=10.0)
    assert found.startswith("a leader knows what its producers had acknowledged")


def test_an_ack_before_the_record_is_replicated(monkeypatch):
    monkeypatch.setattr(Partition, "must_wait", lambda *_arguments: False)
    assert broken_promise().startswith("an acked record is committed")


def test_acked_records_that_are_lost(monkeypatch):
    """The same, where nobody looks before the end."""
    monkeypatch.setattr(Partition, "must_wait", lambda *_arguments: False)
    monkeypatch.setattr(ReplicaChecks, "judge_acked", lambda *_arguments: None)
    found = broken_promise(range(1, 6), faults=("isolate",), fault_seconds=10.0)
    assert found.startswith(("an acked record can be read", "an offset holds one record"))


def test_in_sync_replicas_that_never_come_back(monkeypatch):
    monkeypatch.setattr(partition, "decide_isr_expand", lambda isr, *_arguments, **_options: isr)
    assert broken_promise(range(1, 4), faults=("kill",)).startswith("all replicas are in sync again")


def test_a_voter_that_forgets_its_vote(monkeypatch):
    original = raft_step._receive_vote

    def forget(node, request, now_ms):
        standing = node.standing
        if request.epoch == node.epoch and isinstance(node.role, Unattached):
            standing.state = standing._stored = standing.state._replace(voted=None)
        return original(node, request, now_ms)

    monkeypatch.setattr(raft_step, "_receive_vote", forget)
    monkeypatch.setattr(
        raft_step, "decide_vote", lambda _request, *, voted, has_leader, **_: not voted and not has_leader
    )
    found = broken_promise(range(1, 20), voters=5, faults=("isolate", "kill leader"))
    assert found.startswith("a vote is given once per epoch")


def test_a_quorum_that_commits_without_a_majority(monkeypatch):
    monkeypatch.setattr(
        Leader, "decide_high_watermark", lambda _self, _voters, _own, synced_end_offset: synced_end_offset
    )
    found = broken_promise(range(1, 6), faults=("isolate",), has_operator=True, fault_seconds=10.0)
    assert found.startswith(("committed prefixes agree", "a leader of the quorum has all that is committed"))


def test_a_vote_for_a_candidate_that_lacks_records(monkeypatch):
    def decide_blindly(request, *, voted, has_leader, **_):
        return request.is_pre_vote or (not has_leader and voted in (None, request.candidate))

    monkeypatch.setattr(raft_step, "decide_vote", decide_blindly)
    found = broken_promise(range(2, 4), faults=("isolate",), has_operator=True, fault_seconds=10.0)
    assert found.startswith("a leader of the quorum has all that is committed")


def test_metadata_that_is_not_in_the_log(monkeypatch):
    def tamper(self):
        if self.image.topics:  # Not before all brokers are registered: one that does not know it would be refused.
            self.image.features["planted"] = 1

    after(monkeypatch, Controller, "op", tamper)
    assert broken_promise().startswith("the replay of the metadata log gives the live state")


def test_a_follower_that_never_hears_of_the_high_watermark(monkeypatch):
    original = changes.append_fetched

    def ignore(replica, batches, *, high_watermark, **options):
        return original(replica, batches, high_watermark=0, **options)

    monkeypatch.setattr(changes, "append_fetched", ignore)
    assert broken_promise(fault_seconds=1.0).startswith("all replicas are equal")


def test_a_broker_that_cannot_come_back(monkeypatch):
    original = Lifecycle.register
    registered = []

    async def register_once(self):
        registered.append(None)
        if len(registered) > 3:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "planted")
        return await original(self)

    monkeypatch.setattr(Lifecycle, "register", register_once)
    assert broken_promise(range(1, 4), faults=("kill",)).startswith("all nodes are ready again")


def forget_the_answer_before(monkeypatch):
    original = Leader.note_fetch

    def note_fetch(self, key, now_ms, *, after_ms, **told):
        assert after_ms < inf
        original(self, key, now_ms, **told)

    monkeypatch.setattr(Leader, "note_fetch", note_fetch)


def test_a_leader_that_takes_an_old_fetch_for_a_new_one(monkeypatch):
    """It was stopped after it had read the fetch, and counts it as of when it goes on."""
    original = driver.step

    def step_without_a_look(node, event, now_ms, *, clock_ms, looked_ms):
        return original(node, event, now_ms, clock_ms=clock_ms, looked_ms=clock_ms)

    monkeypatch.setattr(driver, "step", step_without_a_look)
    forget_the_answer_before(monkeypatch)
    found = broken_promise(range(1, 4), faults=("pause controller",), is_dedicated=True, fault_seconds=20.0)
    assert found.startswith("a controller that was replaced stops in time")


def test_a_leader_that_takes_a_fetch_for_new_that_was_held_back(monkeypatch):
    forget_the_answer_before(monkeypatch)
    failure = Scenario(524).run().failure or ""
    assert failure.startswith("a controller that was replaced stops in time")
