"""Who of several replicas that have all been away is to lead: the one whose log reaches furthest. Soft state of the
active controller, made of what brokers report (`reports`).

A replica that is in sync has been there all the time, and is elected at once. One that is merely eligible has
restarted, or was cut off: it says itself that it lost nothing, and a file that was cut short at the edge of a batch
looks whole to it. So an election among such is held back until all of them have told how far they reach, and for
eligible.leader.wait.ms at most: then the best of those that are there is taken.

Times are those of the monotonic clock, in milliseconds.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from tailrace.controller.image import NO_LEADER, BrokerImage, MetadataImage
from tailrace.model.ids import NodeId, Uuid

# Topic id and partition.
Key = tuple[Uuid, int]
# The rank of a replica that has not told, below all that have.
_UNKNOWN_RANK = (-2, 0, 0)


class ReplicaEnd(NamedTuple):
    """How far the log of a replica reaches, as the incarnation with this epoch has found it."""

    broker_epoch: int
    last_epoch: int
    log_end_offset: int
    log_start_offset: int

    @property
    def rank(self) -> tuple[int, int, int]:
        """The higher the better: the latest history, then the longest, then the one that begins first."""
        return self.last_epoch, self.log_end_offset, -self.log_start_offset


class Candidates:
    """Bounded by the partitions without a leader: others are forgotten when deadlines are looked at."""

    def __init__(self, wait_ms: float) -> None:
        self._wait_ms = wait_ms
        self._now_ms = 0.0
        self._ends: dict[Key, dict[int, ReplicaEnd]] = {}
        # Since when the election of a partition is held back.
        self._held_since_ms: dict[Key, float] = {}

    def clear(self) -> None:
        """A new controller begins without: brokers report anew to each."""
        self._ends.clear()
        self._held_since_ms.clear()

    def advance(self, monotonic_ms: float) -> None:
        self._now_ms = max(self._now_ms, monotonic_ms)

    def note(self, key: Key, node_id: int, end: ReplicaEnd) -> None:
        self._ends.setdefault(key, {})[node_id] = end

    def choose(
        self,
        key: Key,
        brokers: Mapping[int, BrokerImage],
        *,
        members: Collection[NodeId],
        able: Sequence[NodeId],
        is_urgent: bool = False,
    ) -> NodeId | None:
        """The best of `able`, those of the `members` that can lead now, in the order of preference among equals; None
        as long as a better one may come. What is urgent waits for nobody."""
        if len(members) == 1:
            return able[0]
        told = self._ends.get(key, {})
        ranks = {
            node: told[node].rank
            for node in members
            if node in told and node in brokers and told[node].broker_epoch == brokers[node].epoch
        }
        if not is_urgent and not self._is_over(key):
            if len(ranks) < len(members):
                return None
            best = max(ranks.values())
            return next((node for node in able if ranks[node] == best), None)
        return max(able, key=lambda node: ranks.get(node, _UNKNOWN_RANK))  # The first of equals.

    def next_deadline_ms(self) -> float | None:
        return min(self._held_since_ms.values()) + self._wait_ms if self._held_since_ms else None

    def due(self, image: MetadataImage) -> list[Key]:
        """The partitions whose elections have been held back for long enough."""
        for key in [key for key in {*self._ends, *self._held_since_ms} if not _is_leaderless(image, key)]:
            self._ends.pop(key, None)
            self._held_since_ms.pop(key, None)
        return [key for key, since_ms in self._held_since_ms.items() if self._now_ms >= since_ms + self._wait_ms]

    def look_again_later(self, key: Key) -> None:
        """It was due and has a leader now, unless that could not be written."""
        self._held_since_ms[key] = self._now_ms

    def stop_waiting(self, key: Key) -> None:
        """It was due, and nobody can lead: the next who can begins a new wait."""
        self._held_since_ms.pop(key, None)

    def _is_over(self, key: Key) -> bool:
        return self._now_ms >= self._held_since_ms.setdefault(key, self._now_ms) + self._wait_ms


def _is_leaderless(image: MetadataImage, key: Key) -> bool:
    topic = image.topic_by_id(key[0])
    partition = topic.partitions.get(key[1]) if topic is not None else None
    return partition is not None and partition.leader == NO_LEADER
