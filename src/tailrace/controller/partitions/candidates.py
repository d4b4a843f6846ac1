"""Who of several replicas that have all been away is to lead: the one whose log reaches furthest. Soft state of the
active controller, made of what brokers report (`reports`).

A replica that is in sync has been there all the time, and is elected at once. One that is merely eligible has
restarted, or was cut off: it says itself that it lost nothing, and a file that was cut short at the edge of a batch
looks whole to it. So an election among such is held back until all of them have told how far they reach, and for
eligible.leader.wait.ms at most: then the best of those that are there is taken.

When all brokers were killed and come back one after the other, the first of them leaves the in-sync set while enough
others seem to be in sync, and is not eligible: these might go on without it. Mostly they are dead as well. So whoever
has left the in-sync set only by starting again is compared too, until there has been an election or a word from the
leader. It may lead only if its log reaches further than that of an eligible replica which has told. Then it has all
that this one has: of two logs the one with the later epoch, or the longer one of the same epoch, has every record of
the other that was committed, as in Raft.

Times are those of the monotonic clock, in milliseconds.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from tailrace.controller.image import NO_LEADER, MetadataImage, PartitionImage
from tailrace.model.ids import NodeId, Uuid

# Topic id and partition.
Key = tuple[Uuid, int]
# The rank of a replica that has not told, below all that have.
_UNKNOWN_RANK = (-2, 0, 0)


class ReplicaEnd(NamedTuple):
    """How far the log of a replica reaches, as the incarnation with this epoch has found it while the partition had
    this leader epoch. Without a leader no log changes."""

    broker_epoch: int
    leader_epoch: int
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
        # Who has left the in-sync set only by starting again. At most the replicas of all partitions.
        self._restarted: dict[Key, set[NodeId]] = {}

    def clear(self) -> None:
        """A new controller begins without: brokers report anew to each. It does not know who has started again."""
        self._ends.clear()
        self._held_since_ms.clear()
        self._restarted.clear()

    def advance(self, monotonic_ms: float) -> None:
        self._now_ms = max(self._now_ms, monotonic_ms)

    def note(self, key: Key, node_id: int, end: ReplicaEnd) -> None:
        self._ends.setdefault(key, {})[node_id] = end

    def note_restarted(self, node_id: NodeId, keys: Iterable[Key], image: MetadataImage) -> None:
        """It was in sync in these partitions, starts again, and proves that it has lost nothing."""
        for key in [key for key in self._restarted if _find(image, key) is None]:
            del self._restarted[key]
        for key in keys:
            self._restarted.setdefault(key, set()).add(node_id)

    def restarted(self, key: Key) -> Collection[NodeId]:
        return self._restarted.get(key, ())

    def forget_restarted(self, key: Key, node_id: NodeId | None = None) -> None:
        """There was an election, or the leader has spoken; or this one lacks something after all."""
        nodes = self._restarted.get(key)
        if nodes is None:
            return
        nodes.discard(node_id) if node_id is not None else nodes.clear()
        if not nodes:
            del self._restarted[key]

    def choose(
        self,
        key: Key,
        image: MetadataImage,
        *,
        members: Collection[NodeId],
        able: Sequence[NodeId],
        restarted: Collection[NodeId] = (),
        is_urgent: bool = False,
    ) -> NodeId | None:
        """The best of `able`, those of all that can lead now, in the order of preference among equals; None as long as
        a better one may come. One of the `members` is able; one of the `restarted` must be better than it, and both
        have told. What is urgent waits for nobody."""
        compared = {*members, *restarted}
        if len(compared) == 1:
            return able[0]
        ranks = self._ranks(key, image, compared)
        is_over = is_urgent or self._is_over(key)
        if not is_over and len(ranks) < len(compared):
            return None
        leader = _best((node for node in able if node in members), ranks)
        if leader in ranks:
            leader = _best((leader, *(node for node in able if node in restarted)), ranks)
        if not is_over and ranks[leader] < max(ranks.values()):
            return None
        return leader

    def _ranks(self, key: Key, image: MetadataImage, nodes: Iterable[NodeId]) -> dict[NodeId, tuple[int, int, int]]:
        """Of those that have told since there is no leader."""
        told, partition, brokers = self._ends.get(key, {}), _find(image, key), image.brokers
        if partition is None or partition.leader != NO_LEADER:
            return {}
        return {
            node: told[node].rank
            for node in nodes
            if node in told
            and node in brokers
            and told[node].broker_epoch == brokers[node].epoch
            and told[node].leader_epoch == partition.leader_epoch
        }

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


def _best(nodes: Iterable[NodeId], ranks: Mapping[NodeId, tuple[int, int, int]]) -> NodeId:
    return max(nodes, key=lambda node: ranks.get(node, _UNKNOWN_RANK))  # The first of equals.


def _find(image: MetadataImage, key: Key) -> PartitionImage | None:
    topic = image.topic_by_id(key[0])
    return topic.partitions.get(key[1]) if topic is not None else None


def _is_leaderless(image: MetadataImage, key: Key) -> bool:
    partition = _find(image, key)
    return partition is not None and partition.leader == NO_LEADER
