"""Past its lease: who could take over, when they were last known to follow, and what is answered then."""

from math import inf

import pytest

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId
from tailrace.replica.isr import NEVER_MS, FollowerState, FollowingProof, Proposal, decide_takers
from tailrace.replica.lease import NO_LEASE_YET, Lease
from tailrace.replica.partition import ACKS_ALL, Partition
from tests.unit.replica.replicas import ME, led_by, make_partition

A, B = NodeId(2), NodeId(3)
ALL = (ME, A, B)
SESSION_MS = 1000.0


class Leader:
    """A partition that is led here, and the lease that it is led on, which ended at 5,000 ms."""

    def __init__(self, isr: tuple[NodeId, ...] = ALL, eligible: tuple[NodeId, ...] = (), **config: object) -> None:
        self.now_ms = 6000.0
        self.partition: Partition = make_partition(**config)
        self.state = led_by(ME, epoch=1, isr=isr, replicas=ALL)._replace(eligible_leader_replicas=eligible)
        self.partition.follow_image(self.state)
        self.absent_ms = 0.0
        self.lease = Lease(ME, self, lambda _: self.state, session_ms=SESSION_MS)
        self.lease.ends_ms = 5000.0
        self.proofs: dict[NodeId, FollowingProof] = {}

    def monotonic_ms(self) -> float:
        return self.now_ms

    def patient_ms(self) -> float:
        return self.now_ms - self.absent_ms

    def follow(self, node_id: NodeId, at_ms: float) -> None:
        proof = self.proofs.setdefault(node_id, FollowingProof())
        proof.sent_ms = at_ms
        self.partition.followers[node_id].note_proof(proof)

    @property
    def is_confirmed(self) -> bool:
        return self.lease.is_confirmed(self.partition)


def test_everyone_who_could_take_over():
    def takers(**sets: tuple[NodeId, ...]) -> set[NodeId]:
        return decide_takers(ME, **{"isr": (ME,), "proposed": (), "eligible": (), "unclean": (), **sets})

    assert takers() == set()
    assert takers(isr=ALL) == {A, B}
    assert takers(proposed=(ME, A)) == {A}
    assert takers(eligible=(B,)) == {B}
    assert takers(unclean=ALL) == {A, B}


def test_all_of_them_have_to_follow():
    leader = Leader()
    assert not leader.is_confirmed
    leader.follow(A, 5500.0)
    assert not leader.is_confirmed
    leader.follow(B, 5100.0)
    assert leader.is_confirmed
    leader.lease.check(leader.partition)
    leader.now_ms = 6101.0
    assert not leader.is_confirmed
    with pytest.raises(KafkaError) as caught:
        leader.lease.check(leader.partition)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader.lease.ends_ms = 7000.0
    leader.lease.check(leader.partition)


def test_a_leader_whom_nobody_could_follow_goes_on():
    assert Leader(isr=(ME,)).is_confirmed


def test_those_who_are_eligible_have_to_follow_too():
    leader = Leader(isr=(ME, A), eligible=(B,))
    leader.follow(A, 5900.0)
    assert not leader.is_confirmed
    leader.follow(B, 5900.0)
    assert leader.is_confirmed


def test_those_who_were_proposed_have_to_follow_too():
    leader = Leader(isr=(ME,))
    leader.partition.proposal = Proposal((ME, A), (1, 2), 1, 1)
    assert not leader.is_confirmed
    leader.follow(A, 5900.0)
    assert leader.is_confirmed


def test_where_elections_may_be_unclean_all_replicas_have_to_follow():
    leader = Leader(isr=(ME,), unclean_leader_election_enable=True)
    assert not leader.is_confirmed
    leader.follow(A, 5900.0)
    leader.follow(B, 5900.0)
    assert leader.is_confirmed


def test_a_new_leader_epoch_begins_without_followers():
    leader = Leader()
    leader.follow(A, 5900.0)
    leader.follow(B, 5900.0)
    assert leader.is_confirmed
    leader.state = led_by(ME, epoch=2, isr=ALL, replicas=ALL)
    leader.partition.follow_image(leader.state)
    assert not leader.is_confirmed


def test_who_was_not_let_in_yet_confirms_nothing():
    leader = Leader(isr=(ME,))
    leader.lease.ends_ms = NO_LEASE_YET
    assert not leader.is_confirmed


def test_what_is_led_elsewhere_is_not_confirmed():
    leader = Leader(isr=(A,))
    leader.state = led_by(A, epoch=2, isr=(A,), replicas=ALL)
    leader.partition.follow_image(leader.state)
    assert not leader.is_confirmed


def test_a_follower_is_proven_by_its_session_and_by_those_before():
    follower, first, second = FollowerState(A), FollowingProof(), FollowingProof()
    assert follower.followed_ms == NEVER_MS
    follower.note_proof(first)
    assert follower.followed_ms == NEVER_MS, "the first fetch of a session may have been sent at any time"
    first.sent_ms = 10.0
    assert follower.followed_ms == 10.0
    follower.note_proof(second)
    assert follower.followed_ms == 10.0, "a new session takes nothing back"
    first.sent_ms = 99.0
    assert follower.followed_ms == 10.0, "the old one proves nothing more"
    second.sent_ms = 20.0
    assert follower.followed_ms == 20.0
    follower.note_proof(None)
    assert follower.followed_ms == 20.0


def test_a_follower_that_drops_the_partition_ends_it_at_once():
    follower, old, proof = FollowerState(A), FollowingProof(), FollowingProof()
    follower.note_proof(proof)
    proof.sent_ms = 10.0
    follower.end_following(old)
    assert follower.followed_ms == 10.0, "another session says nothing of this one"
    follower.end_following(proof)
    assert follower.followed_ms == NEVER_MS
    proof.sent_ms = 20.0
    assert follower.followed_ms == NEVER_MS


def test_a_follower_that_drops_the_partition_for_a_while_is_not_proven_by_what_it_fetches_meanwhile():
    follower, proof = FollowerState(A), FollowingProof()
    follower.note_proof(proof)
    proof.sent_ms = 10.0
    follower.pause_following(proof)
    assert follower.followed_ms == 10.0
    proof.sent_ms = 20.0
    assert follower.followed_ms == 10.0, "the fetches of other partitions"
    follower.note_proof(proof)
    assert follower.followed_ms == 20.0


@pytest.mark.parametrize(("ends_ms", "acks", "required"), [(5000.0, 1, ACKS_ALL), (5000.0, 0, 0), (7000.0, 1, 1)])
def test_one_ack_is_like_all_of_them(ends_ms: float, acks: int, required: int):
    leader = Leader()
    leader.lease.ends_ms = ends_ms
    assert leader.lease.required_acks(acks) == required


def test_nothing_is_refused_for_good():
    leader = Leader()
    for code in (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ):
        softened = leader.lease.soften(KafkaError(code, "so it seems"))
        assert softened.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert leader.lease.is_for_good(code)
        leader.lease.ends_ms = inf
        assert leader.lease.soften(KafkaError(code, "so it is")).code is code
        leader.lease.ends_ms = 5000.0
    asked = KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "for anybody")
    assert leader.lease.soften(asked) is asked


def test_producers_that_wait_are_told_once_a_follower_is_silent():
    leader, told = Leader(), []
    leader.follow(A, 5900.0)
    leader.follow(B, 5900.0)
    leader.partition.wait_for_high_watermark(1, told.append)
    leader.lease.fail_unconfirmed([leader.partition])
    assert not told
    leader.now_ms = 6901.0
    leader.lease.fail_unconfirmed([leader.partition])
    assert [error.code for error in told] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_time_in_which_this_process_was_absent_is_not_held_against_the_followers_of_writes():
    leader, told = Leader(), []
    leader.follow(A, 5900.0)
    leader.follow(B, 5900.0)
    leader.partition.wait_for_high_watermark(1, told.append)
    leader.now_ms, leader.absent_ms = 16_000.0, 9_500.0
    assert not leader.is_confirmed, "what readers are told goes by the clock"
    leader.lease.check_write(leader.partition)
    leader.lease.fail_unconfirmed([leader.partition])
    assert not told
    leader.now_ms = 16_401.0
    with pytest.raises(KafkaError):
        leader.lease.check_write(leader.partition)
    leader.lease.fail_unconfirmed([leader.partition])
    assert [error.code for error in told] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_only_absences_since_the_lease_was_granted_count():
    leader = Leader()
    leader.absent_ms = 50_000.0
    leader.lease.grant(5000.0)
    leader.follow(A, 4999.0)
    leader.follow(B, 4999.0)
    with pytest.raises(KafkaError):
        leader.lease.check_write(leader.partition)
    leader.absent_ms += 1.0
    leader.lease.check_write(leader.partition)


def test_writes_need_no_followers_in_the_lease():
    leader = Leader()
    leader.lease.grant(7000.0)
    leader.lease.check_write(leader.partition)


def test_who_was_not_let_in_yet_takes_no_writes():
    leader = Leader(isr=(ME,))
    leader.lease.ends_ms = NO_LEASE_YET
    with pytest.raises(KafkaError):
        leader.lease.check_write(leader.partition)
