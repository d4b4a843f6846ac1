"""The leader's arithmetic and what a follower does with its log."""

from math import inf

from tailrace.model.ids import Uuid
from tailrace.raft.leader import Leader, decide_fetch
from tailrace.raft.messages import Fetch, SnapshotFailed, Tick, Unwritable
from tailrace.raft.roles import Follower
from tailrace.raft.step import answer_fetch, step
from tailrace.raft.types import OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from tests.unit.raft.model_log import ModelLog
from tests.unit.raft.test_elections import followers, settled

KEYS = [ReplicaKey(node_id, Uuid(bytes([node_id]) * 16)) for node_id in range(1, 6)]
THREE = VoterSet(tuple(Voter(key) for key in KEYS[:3]))
FIVE = VoterSet(tuple(Voter(key) for key in KEYS))


def leader_of(offsets: dict[ReplicaKey, int], *, epoch_start_offset: int = 0) -> Leader:
    leader = Leader(0.0, epoch_start_offset=epoch_start_offset)
    for key, offset in offsets.items():
        leader.note_fetch(key, 0.0, patient_ms=0.0, offset=offset, leader_end_offset=100)
    return leader


def test_the_high_watermark_is_what_a_majority_has_synced() -> None:
    leader = leader_of({KEYS[1]: 7, KEYS[2]: 3})
    assert leader.decide_high_watermark(THREE, KEYS[0], 10) == 7
    assert leader.decide_high_watermark(THREE, KEYS[0], 5) == 5, "what the leader has not synced does not count"
    assert leader.decide_high_watermark(FIVE, KEYS[0], 10) == 3
    assert leader_of({KEYS[1]: 7}).decide_high_watermark(FIVE, KEYS[0], 10) is None


def test_an_entry_of_an_older_epoch_is_not_committed_by_counting() -> None:
    """Figure 8 of the Raft paper: it could still be replaced by a leader that never saw it."""
    leader = leader_of({KEYS[1]: 7, KEYS[2]: 3}, epoch_start_offset=7)
    assert leader.decide_high_watermark(THREE, KEYS[0], 10) is None
    leader.note_fetch(KEYS[2], 0.0, patient_ms=0.0, offset=8, leader_end_offset=100)
    assert leader.decide_high_watermark(THREE, KEYS[0], 10) == 8


def test_a_leader_that_removed_itself_does_not_count() -> None:
    leader = leader_of({KEYS[1]: 7, KEYS[2]: 3})
    two = THREE.without(KEYS[0])
    assert leader.decide_high_watermark(two, KEYS[0], 100) == 3


def test_an_emptied_disk_does_not_count_for_the_one_before() -> None:
    leader = leader_of({ReplicaKey(2, Uuid(b"x" * 16)): 9})
    assert leader.decide_high_watermark(THREE, KEYS[0], 10) is None


def test_when_a_leader_has_been_left_alone() -> None:
    leader = Leader(1000.0)
    assert leader.check_quorum_deadline_ms(THREE, KEYS[0], 300) == 1300
    leader.note_fetch(KEYS[1], 1200.0, patient_ms=1200.0, offset=None, leader_end_offset=0)
    assert leader.check_quorum_deadline_ms(THREE, KEYS[0], 300) == 1500, "one of two others is a majority"
    assert leader.check_quorum_deadline_ms(FIVE, KEYS[0], 300) == 1300, "one of four is not"
    alone = VoterSet((Voter(KEYS[0]),))
    assert leader.check_quorum_deadline_ms(alone, KEYS[0], 300) == inf


def test_a_fetch_that_was_held_back_is_as_old_as_the_answer_before_it() -> None:
    leader = Leader(1000.0, waits_from_ms=900.0)
    assert leader.resign_deadline_ms(THREE, KEYS[0], 300) == 1500, "by patient time"
    leader.note_fetch(KEYS[1], 5000.0, patient_ms=4000.0, after_ms=1100.0, offset=None, leader_end_offset=0)
    assert leader.check_quorum_deadline_ms(THREE, KEYS[0], 300) == 1400
    leader.note_fetch(KEYS[1], 6000.0, patient_ms=4500.0, after_ms=-inf, offset=None, leader_end_offset=0)
    assert leader.check_quorum_deadline_ms(THREE, KEYS[0], 300) == 1400, "the first one of a connection proves nothing"
    assert leader.resign_deadline_ms(THREE, KEYS[0], 300) == 5100, "but it is a reason not to give up yet"
    leader.note_fetch(KEYS[1], 6000.0, patient_ms=4500.0, after_ms=5900.0, offset=None, leader_end_offset=0)
    assert leader.check_quorum_deadline_ms(THREE, KEYS[0], 300) == 6200


def test_the_longest_log_is_the_first_successor() -> None:
    leader = leader_of({KEYS[1]: 3, KEYS[2]: 7})
    assert leader.successors(THREE, KEYS[0]) == (KEYS[2], KEYS[1])


def test_caught_up_is_who_has_what_the_leader_had_at_the_last_fetch() -> None:
    leader = Leader(0.0)
    leader.note_fetch(KEYS[1], 10.0, patient_ms=10.0, offset=5, leader_end_offset=8)
    assert leader.replicas[KEYS[1]].last_caught_up_ms == -inf
    leader.note_fetch(KEYS[1], 20.0, patient_ms=20.0, offset=8, leader_end_offset=12)
    assert leader.replicas[KEYS[1]].last_caught_up_ms == 10.0
    leader.note_fetch(KEYS[1], 30.0, patient_ms=30.0, offset=12, leader_end_offset=12)
    assert leader.replicas[KEYS[1]].last_caught_up_ms == 30.0


def log_of(*epochs: int) -> ModelLog:
    log = ModelLog()
    log.entries = [(epoch, index) for index, epoch in enumerate(epochs)]
    return log


def test_a_prefix_is_served() -> None:
    log = log_of(1, 1, 2, 4)
    assert decide_fetch(log, offset=0, last_epoch=0) == (None, None)
    assert decide_fetch(log, offset=2, last_epoch=1) == (None, None)
    assert decide_fetch(log, offset=4, last_epoch=4) == (None, None)


def test_where_logs_part() -> None:
    log = log_of(1, 1, 2, 4)
    assert decide_fetch(log, offset=3, last_epoch=1) == (OffsetAndEpoch(2, 1), None)
    assert decide_fetch(log, offset=6, last_epoch=3) == (OffsetAndEpoch(3, 2), None)
    assert decide_fetch(log, offset=5, last_epoch=4) == (OffsetAndEpoch(4, 4), None)


def test_what_a_snapshot_replaces() -> None:
    log = log_of(1, 1, 2, 4)
    log.take_snapshot(3, THREE, is_cut=True)
    snapshot = OffsetAndEpoch(3, 2)
    assert decide_fetch(log, offset=0, last_epoch=0) == (None, snapshot)
    assert decide_fetch(log, offset=2, last_epoch=1) == (None, snapshot)
    assert decide_fetch(log, offset=3, last_epoch=1) == (None, snapshot), "its end, but of another epoch"
    assert decide_fetch(log, offset=9, last_epoch=1) == (None, snapshot), "older than all that is left"
    assert decide_fetch(log, offset=3, last_epoch=2) == (None, None)
    assert decide_fetch(log, offset=5, last_epoch=3) == (OffsetAndEpoch(3, 2), None)


def test_a_new_leader_tells_no_high_watermark_before_it_has_committed_anything() -> None:
    """It may know of a lower one than the follower, and Kafka's controllers die of one that falls."""
    quorum, leader = settled()
    leader.crash(power_loss=False)
    assert quorum.run(3000, until=lambda: quorum.leader() not in (None, leader))
    new = quorum.leader()
    assert new is not None
    (other,) = (host for host in followers(quorum) if host is not leader)

    def told() -> int:
        log = other.log
        reply = answer_fetch(new.node, Fetch(new.node.epoch, other.key, log.end_offset, log.last_epoch, 0))
        assert reply.fetched is not None
        return reply.fetched.high_watermark

    heard = new.high_watermark
    assert quorum.run(100, until=lambda: new.log.end_offset > heard)
    assert told() == -1
    assert quorum.run(1000, until=lambda: new.high_watermark > heard)
    assert told() == new.high_watermark


def test_what_could_not_be_written_is_asked_for_again_after_a_pause() -> None:
    quorum, leader = settled()
    node = followers(quorum)[0].node
    assert isinstance(node.role, Follower)
    quorum.run(70)
    assert step(node, Unwritable(), quorum.now_ms).sends == []
    assert node.outgoing.ready_ms(leader.id, Fetch) > quorum.now_ms


def test_a_snapshot_that_failed_is_asked_for_again() -> None:
    quorum, _ = settled()
    node = followers(quorum)[0].node
    assert isinstance(node.role, Follower)
    node.role.snapshot = OffsetAndEpoch(50, 1)
    step(node, SnapshotFailed(OffsetAndEpoch(50, 1)), quorum.now_ms)
    assert node.snapshot_to_fetch is None


def test_a_node_that_reads_a_newer_epoch_in_its_log_has_not_voted_in_it() -> None:
    quorum, leader = settled()
    follower = followers(quorum)[0]
    follower.crash(power_loss=False)
    follower.state = follower.state._replace(epoch=0)
    follower.start()
    assert follower.node.epoch == leader.node.epoch
    assert follower.node.standing.state.voted is None


def test_a_tick_too_many_changes_nothing() -> None:
    quorum, leader = settled()
    quorum.run(70)
    role = leader.node.role
    ready = step(leader.node, Tick(), quorum.now_ms)
    assert (ready.persist, ready.answers, leader.node.role) == (None, [], role)
