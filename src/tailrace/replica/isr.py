"""Who is in sync with a leader, and how far the high watermark may rise: pure decisions over what followers reported.

- A follower has what its last fetch asked for next, if that fetch named the leader's own epoch; before its first fetch
  of an epoch nothing is known of it, and it holds the high watermark back if it counts.
- The high watermark counts every member of the committed in-sync set and of one that is proposed and not yet answered:
  whichever of the two the controller elects from, its members have all that was confirmed. So one change is proposed
  at a time: with two under way there would be more sets that it may elect from than are counted.
- A follower that has caught up and may join is waited for too, or a busy leader would run away from it for ever.
- A leader past its lease goes on while all who could take over still follow it (`lease`). When a follower did is known
  from its fetch session: each fetch of a session follows upon the answer to the one before, so it was sent after that
  one was looked at, however long it was on its way, lay in a buffer, or waited for a process that was stopped.
- A follower leaves when it was not caught up at any moment of the last replica.lag.time.max.ms. It joins when it has
  reached the high watermark and the first offset of the leader's epoch: below that the leader itself does not know what
  its predecessor confirmed (KAFKA-7128).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tailrace.model.errors import ErrorCode
from tailrace.model.ids import NodeId, TopicPartition

if TYPE_CHECKING:
    from tailrace.replica.partition import Partition

# Answers to a proposal after which the metadata will tell what holds now; until then the proposal stands, and its
# members count. Every other error is tried again.
ISR_ERRORS_TO_WAIT_OUT = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
# The controller has done nothing and will do nothing: the proposal is dropped.
ISR_ERRORS_TO_DROP = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)

UNKNOWN_OFFSET = -1
NO_BROKER_EPOCH = -1
NEVER_MS = float("-inf")
# A follower that is given the same records so often in a row cannot use them: they may be damaged.
GIVEN_TO_A_SUSPECT = 3


class FollowingProof:
    """When the last fetch of a follower's session must have been sent, at the earliest. One for all its partitions."""

    __slots__ = ("sent_ms",)

    def __init__(self) -> None:
        self.sent_ms = NEVER_MS  # The first fetch of a session proves nothing: it may have been sent at any time.


class FollowerState:
    """What a leader knows of one other replica. Made anew, or reset, with every leader epoch, even under the same
    leader: it costs one fetch, and needs no argument."""

    __slots__ = (
        "_given_count",
        "_given_offset",
        "_proof",
        "_proven_ms",
        "broker_epoch",
        "last_caught_up_ms",
        "last_fetch_ms",
        "leader_end_at_last_fetch",
        "log_end_offset",
        "log_start_offset",
        "node_id",
    )

    def __init__(self, node_id: NodeId) -> None:
        self.node_id = node_id
        self._given_offset, self._given_count = UNKNOWN_OFFSET, 0  # What it was given last, how often in a row.
        # That of the incarnation that fetched last. It never falls: a late fetch of an earlier one does not count, for
        # the broker may have come back without its records.
        self.broker_epoch = NO_BROKER_EPOCH
        self.reset(caught_up_ms=NEVER_MS)

    def reset(self, *, caught_up_ms: float) -> None:
        """A new leader epoch: an in-sync follower gets the whole lag time to show itself, others count as lagging."""
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_caught_up_ms = caught_up_ms
        self.last_fetch_ms = NEVER_MS
        self.leader_end_at_last_fetch = UNKNOWN_OFFSET
        self._proof: FollowingProof | None = None
        self._proven_ms = NEVER_MS  # By sessions before that of the proof.

    @property
    def followed_ms(self) -> float:
        """When it still followed this leader in this leader epoch: at that moment it led in no later one."""
        return self._proven_ms if self._proof is None else max(self._proven_ms, self._proof.sent_ms)

    def note_proof(self, proof: FollowingProof | None) -> None:
        """It has fetched with this leader epoch, in a session with this proof, or in none."""
        if proof is not self._proof:
            self._proven_ms = self.followed_ms
            self._proof = proof

    def end_following(self, proof: FollowingProof) -> None:
        """It has dropped the partition from the session with this proof: it may have heard of another leader."""
        if proof is self._proof:
            self._proof, self._proven_ms = None, NEVER_MS

    def pause_following(self, proof: FollowingProof) -> None:
        """It has dropped the partition for a reason of its own. What was proven stays so; the further fetches of the
        session tell nothing of this partition."""
        if proof is self._proof:
            self._proof, self._proven_ms = None, self.followed_ms

    def note_given(self, offset: int) -> bool:
        """It was given records from `offset` on. Whether that was so again and again, as if it could not take them."""
        self._given_count = self._given_count + 1 if offset == self._given_offset else 1
        self._given_offset = offset
        return self._given_count % GIVEN_TO_A_SUSPECT == 0

    def note_fetch(
        self, *, offset: int, log_start_offset: int, broker_epoch: int, leader_end_offset: int, now_ms: float
    ) -> None:
        """It was caught up when it has all that the leader had now or, on a busy partition, at its previous fetch."""
        if offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif offset >= self.leader_end_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self.last_fetch_ms = now_ms
        self.leader_end_at_last_fetch = leader_end_offset

    def is_caught_up(self, leader_end_offset: int, now_ms: float, lag_max_ms: float) -> bool:
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_max_ms


class Proposal(NamedTuple):
    """An in-sync set that the controller was asked for, until it answers or the metadata overtakes it."""

    isr: tuple[NodeId, ...]
    # The incarnations that were caught up when it was made, one a member; -1 where a member has not fetched yet. A
    # later one may have come back without its records, and the controller refuses the set then (KIP-903).
    broker_epochs: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int  # What it is to follow upon: the controller refuses it if anything changed meanwhile.


def decide_high_watermark(
    own_end_offset: int,
    followers: Iterable[FollowerState],
    *,
    counted: Collection[NodeId],
    may_join: Callable[[FollowerState], bool],
) -> int:
    """`own_end_offset` is what the leader itself may count; `counted` the committed and the proposed in-sync set."""
    lowest = own_end_offset
    for follower in followers:
        if follower.log_end_offset < lowest and (follower.node_id in counted or may_join(follower)):
            lowest = follower.log_end_offset
    return lowest


def decide_isr_shrink(
    isr: tuple[NodeId, ...],
    followers: Iterable[FollowerState],
    *,
    leader_end_offset: int,
    now_ms: float,
    lag_max_ms: float,
) -> tuple[NodeId, ...]:
    """The in-sync set without those that lag; `isr` itself if none does."""
    lagging = [each.node_id for each in followers if not each.is_caught_up(leader_end_offset, now_ms, lag_max_ms)]
    return tuple(node_id for node_id in isr if node_id not in lagging)


def decide_isr_expand(
    isr: tuple[NodeId, ...],
    follower: FollowerState,
    *,
    replicas: tuple[NodeId, ...],
    high_watermark: int,
    leader_epoch_start_offset: int,
) -> tuple[NodeId, ...]:
    """The in-sync set with the follower; `isr` itself if it is in it or has not caught up."""
    if follower.node_id in isr or follower.log_end_offset < max(high_watermark, leader_epoch_start_offset):
        return isr
    return tuple(node_id for node_id in replicas if node_id in isr or node_id == follower.node_id)


def decide_takers(
    leader_id: NodeId,
    *,
    isr: Collection[NodeId],
    proposed: Collection[NodeId],
    eligible: Collection[NodeId],
    unclean: Collection[NodeId],
) -> set[NodeId]:
    """Everyone whom the controller could make leader without having heard from this one: the in-sync set, the one that
    was proposed, the eligible replicas and, where elections may be unclean, all replicas. Nobody joins these sets but
    by a proposal of the leader."""
    return {*isr, *proposed, *eligible, *unclean} - {leader_id}


class Surroundings(Protocol):
    """What a leader asks of the world around its partition."""

    @property
    def lag_max_ms(self) -> float: ...

    @property
    def own_epoch(self) -> int:
        """The broker epoch of this incarnation."""

    def patient_ms(self) -> float:
        """What followers are judged by: their fetches may lie unread."""

    def registered_epoch(self, node_id: NodeId) -> int:
        """The broker epoch that the metadata knows; -1 if it knows none."""

    def may_be_in_sync(self, topic_partition: TopicPartition, node_id: NodeId, broker_epoch: int) -> bool:
        """Alive, not about to stop, still the incarnation that fetched, and its data folder works."""

    def propose_isr(self, partition: Partition) -> None:
        """`partition.proposal` is new."""


class Alone:
    """Around a partition whose broker knows of no other."""

    lag_max_ms = 0.0
    own_epoch = -1

    def patient_ms(self) -> float:
        return 0.0

    def registered_epoch(self, node_id: NodeId) -> int:  # noqa: ARG002
        return -1

    def may_be_in_sync(self, topic_partition: TopicPartition, node_id: NodeId, broker_epoch: int) -> bool:  # noqa: ARG002
        return False

    def propose_isr(self, partition: Partition) -> None:
        """Nobody could answer."""
