"""Whether this broker may answer as the leader of a partition: by its lease or, past that, by what its followers show.

    in the lease   no other broker can have been made a leader of what is led here: everything is answered
    past it        by partition: it is answered while everyone who could take over has followed this leader in this
                   leader epoch within the time of a session. With nobody who could, it always is

Rules past the lease
- Readers are judged by the clock: what they are told is as old as a session at most.
- Writers lose nothing by any delay: a record is confirmed by everyone who could take over. So time in which this
  process was stopped, or had no processor, is not held against its followers: whoever refuses writes because all
  nodes of a busy machine are late makes their clients ask again, which is the load that nobody has room for.
- Those who could take over are decided by what the metadata say and by what this leader has proposed (`decide_takers`).
- A follower counts from the moment at which it must still have followed (`FollowerState.followed_ms`): no message that
  was on its way or lay in a buffer, and no process that was stopped, makes it later than it was.
- acks=1 is answered like acks=all: a record that is confirmed is on everyone who could take over, whoever leads by now.
- Nothing is refused for good: what this leader does not know, or knows otherwise, another one may know better.
- Who asks where a partition is led is told that it is not known, and the connection ends: clients ask the broker that
  they are connected to, and one that refuses them would keep them for as long as it is cut off. It lists itself all the
  same: between it and others who do, librdkafka would drop it and take it up again a hundred times a second.
- Followers are served all the same, and count for what they fetch. They hear of another leader by the metadata.

A broker that was not let in yet has no lease, and confirms nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Protocol

from tailrace.controller.image import PartitionImage
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, TopicPartition
from tailrace.replica.isr import decide_takers
from tailrace.replica.partition import ACKS_ALL, Partition

NO_LEASE_YET = 0.0

# Refusals that a client takes for the last word, made of what this broker knows of logs, producers, groups and
# transactions. What is wrong with a request by itself may be said by anybody.
_FOR_GOOD = frozenset(
    {
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.UNRELEASED_INSTANCE_ID,
    }
)

StateOf = Callable[[TopicPartition], PartitionImage | None]


class Times(Protocol):
    def monotonic_ms(self) -> float: ...
    def patient_ms(self) -> float:
        """Without the absences of this process."""


class Lease:
    """`state_of` gives what the metadata say of a partition."""

    __slots__ = ("_absent_ms", "_monotonic_ms", "_node_id", "_patient_ms", "_session_ms", "_state_of", "ends_ms")

    def __init__(self, node_id: NodeId, times: Times, state_of: StateOf, *, session_ms: float) -> None:
        # Monotonic. Until then nobody else leads what is led here; for ever on a node that is a cluster by itself.
        self.ends_ms = inf
        self._absent_ms = 0.0  # How long this loop had been absent, in its whole life, when the lease was granted.
        self._node_id = node_id
        self._monotonic_ms, self._patient_ms = times.monotonic_ms, times.patient_ms
        self._state_of = state_of
        self._session_ms = session_ms

    def grant(self, ends_ms: float) -> None:
        self.ends_ms = ends_ms
        self._absent_ms = self._monotonic_ms() - self._patient_ms()

    @property
    def is_past(self) -> bool:
        return self.ends_ms != inf and self._monotonic_ms() >= self.ends_ms

    def allows(self, partition: Partition | None) -> bool:
        """To act as the leader of a partition: in the lease, or past it where that is confirmed."""
        return not self.is_past or (partition is not None and self.is_confirmed(partition))

    def check(self, partition: Partition) -> None:
        """Raises if another broker may lead the partition for longer than reads may be late."""
        if not self.allows(partition):
            raise self._unconfirmed(partition)

    def check_write(self, partition: Partition) -> None:
        """Raises if those who could take over have been silent for so long that a producer should look for another
        leader."""
        if self.sends_away(partition):
            raise self._unconfirmed(partition)

    def sends_away(self, partition: Partition) -> bool:
        """Whether producers should look for another leader; and whoever asks who leads is not told that it is here."""
        return self.is_past and not self._is_followed(partition, self._session_ms + self._absent_since_grant_ms())

    def is_confirmed(self, partition: Partition) -> bool:
        """Whether everyone who could take over has followed this leader within the time of a session."""
        return self._is_followed(partition, self._session_ms)

    def _absent_since_grant_ms(self) -> float:
        return max(0.0, self._monotonic_ms() - self._patient_ms() - self._absent_ms)

    def _is_followed(self, partition: Partition, within_ms: float) -> bool:
        state = self._state_of(partition.topic_partition)
        if self.ends_ms == NO_LEASE_YET or state is None or not partition.is_leader:
            return False
        since_ms = self._monotonic_ms() - within_ms
        takers = decide_takers(
            partition.node_id,
            isr=partition.isr,
            proposed=() if partition.proposal is None else partition.proposal.isr,
            eligible=state.eligible_leader_replicas,
            unclean=partition.replicas if partition.log.config.unclean_leader_election_enable else (),
        )
        followers = partition.followers
        return all(node_id in followers and followers[node_id].followed_ms >= since_ms for node_id in takers)

    def required_acks(self, acks: int) -> int:
        """How many a request that asks for `acks` has to wait for."""
        return ACKS_ALL if acks == 1 and self.is_past else acks

    def soften(self, error: KafkaError) -> KafkaError:
        """What a client is told instead of a refusal that it would take for the last word."""
        if error.code in _FOR_GOOD and self.is_past:
            return KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{error.code.name} by what broker {self._node_id} knows, but it has not heard from the controller for "
                "longer than its lease lasts, and does not say so for good",
            )
        return error

    def is_for_good(self, code: int) -> bool:
        """Whether a client would take this code for the last word, which nobody can say now."""
        return code in _FOR_GOOD and self.is_past

    def fail_unconfirmed(self, partitions: Iterable[Partition]) -> None:
        """Producers that wait for followers who may have another leader by now are told to look for it. What they sent
        may be stored all the same: an idempotent producer sends it again, and it is recognised."""
        if not self.is_past:
            return
        within_ms = self._session_ms + self._absent_since_grant_ms()
        for partition in partitions:
            if partition.produces and not self._is_followed(partition, within_ms):
                partition.produces.fail(self._unconfirmed(partition))

    def _unconfirmed(self, partition: Partition) -> KafkaError:
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"Broker {self._node_id} has not heard from the controller for longer than its lease lasts, nor from all "
            f"brokers that could lead {partition.topic_partition} in its place",
        )
