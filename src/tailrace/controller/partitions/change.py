"""Changes of partitions: the one place that decides on leaders, in-sync and eligible replicas.

Whatever happens to a partition (a broker leaves or comes back, the leader proposes another in-sync set, replicas are
reassigned, an election is asked for) becomes the partition as it is wanted, and these steps make it right:

    gone        brokers that leave, and those that may have lost data, are taken out of the in-sync set
    complete    a reassignment ends when all its target replicas are in sync
    eligible    below min.insync.replicas nothing more is committed, so that a replica which leaves the in-sync set then
                has everything committed: it stays eligible (KIP-966), unless it may have lost data
    elect       in this order: the leader it has, the first in-sync replica; with nobody in sync the best of the
                eligible ones and of those that have only started again (`candidates`), which may mean to wait for
                them; with none of these the last known leader; and if the topic allows unclean elections, the best of
                all. Only active brokers whose directory works can be elected
    compare     what differs becomes a PartitionChangeRecord

The last two kinds of leader may lack records: they have to recover, and the others follow them. A replica that was
found damaged belongs to none of these sets until it has caught up with a leader again.
"""

from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from tailrace.controller.effective import topic_config
from tailrace.controller.features import MIN_INSYNC_REPLICAS, keeps_eligible_leader_replicas
from tailrace.controller.image import (
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    MetadataImage,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from tailrace.controller.partitions.candidates import Key
from tailrace.controller.view import View
from tailrace.model.ids import NodeId, Uuid
from tailrace.wire.apis.stored_records import PartitionChangeRecord

RECOVERED, RECOVERING = 0, 1


class Election(Enum):
    # The preferred leader if it can lead, else as ONLINE.
    PREFERRED = "preferred"
    # Only if the leader cannot go on, and only a replica with all that was committed.
    ONLINE = "online"
    # As ONLINE, and any replica before none.
    UNCLEAN = "unclean"


class _Rules(NamedTuple):
    min_insync_replicas: int
    election: Election


class PartitionChanges:
    """Decides on any number of partitions under the same circumstances."""

    def __init__(
        self,
        view: View,
        *,
        leaving: Collection[int] = (),
        lost: Collection[int] = (),
        damaged: Collection[int] = (),
        joining: Collection[int] = (),
    ) -> None:
        """`leaving` brokers can no longer lead; `lost` ones may lack records as well, and `damaged` ones do; `joining`
        ones can lead now."""
        self._view = view
        self._gone = frozenset({*leaving, *lost, *damaged})
        self._lost = frozenset({*lost, *damaged})
        self._damaged = frozenset(damaged)
        self._joining = frozenset(joining)
        self._keeps_elr = keeps_eligible_leader_replicas(view.image)
        self._rules: dict[str, _Rules] = {}

    def decide(
        self,
        topic: TopicImage,
        index: int,
        target: PartitionImage | None = None,
        *,
        election: Election | None = None,
    ) -> PartitionChangeRecord | None:
        """None if nothing changes. `target` has the replicas, in-sync replicas and so on that are wanted; an `election`
        that is asked for waits for nobody."""
        old = topic.partitions[index]
        rules = self._rules_of(topic.name)
        wanted = old if target is None else target
        wanted = wanted._replace(isr=tuple(node for node in wanted.isr if node not in self._gone))
        wanted = complete_reassignment(wanted)
        wanted = self._place(old, wanted)
        wanted = self._keep_eligible(old, wanted, rules)
        key = (topic.id, index)
        leader, has_everything = self._find_leader(
            key, old, wanted, election or rules.election, is_asked=bool(election)
        )
        if leader == NO_LEADER:
            wanted = self._without_leader(old, wanted)
        else:
            if leader not in wanted.isr:
                self._view.candidates.forget_restarted(key)
            wanted = _with_leader(wanted, leader, has_everything=has_everything)
        if wanted.eligible_leader_replicas and self._can_commit(wanted, rules):
            # An eligible replica that was elected is enough to commit: from now on the others fall behind.
            wanted = wanted._replace(eligible_leader_replicas=())
        return _difference(topic.id, index, old, wanted)

    def decide_all(self, partitions: Iterable[tuple[TopicImage, int]]) -> list[PartitionChangeRecord]:
        records = (self.decide(topic, index) for topic, index in partitions)
        return [record for record in records if record is not None]

    def can_lead(self, partition: PartitionImage, node: NodeId) -> bool:
        """Whether it could be elected without any loss, as the partition is."""
        return node in partition.isr and self._can_lead(partition, node)

    def _rules_of(self, topic: str) -> _Rules:
        rules = self._rules.get(topic)
        if rules is None:
            is_unclean = topic_config(self._view.config, self._view.image, topic).unclean_leader_election_enable
            election = Election.UNCLEAN if is_unclean else Election.ONLINE
            rules = self._rules[topic] = _Rules(agreed_min_insync_replicas(self._view.image, topic), election)
        return rules

    def _place(self, old: PartitionImage, wanted: PartitionImage) -> PartitionImage:
        if wanted.replicas == old.replicas:
            return wanted
        directories = dict(zip(old.replicas, old.directories, strict=False))
        return wanted._replace(
            directories=tuple(
                directories[node] if node in directories else default_directory(self._view.image, node)
                for node in wanted.replicas
            )
        )

    def _keep_eligible(self, old: PartitionImage, wanted: PartitionImage, rules: _Rules) -> PartitionImage:
        eligible: tuple[NodeId, ...] = ()
        if not self._can_commit(wanted, rules):
            # Where the feature was taken back, those that are left are used up.
            newly = old.isr if self._keeps_elr else ()
            have_everything = {*newly, *wanted.eligible_leader_replicas} - self._lost
            eligible = tuple(node for node in wanted.replicas if node in have_everything and node not in wanted.isr)
        if eligible == wanted.eligible_leader_replicas:
            return wanted
        return wanted._replace(eligible_leader_replicas=eligible)

    def _find_leader(
        self, key: Key, old: PartitionImage, wanted: PartitionImage, election: Election, *, is_asked: bool
    ) -> tuple[NodeId, bool]:
        """Who leads, and whether it has everything that was committed."""
        first = wanted.replicas[:1] if election is Election.PREFERRED else ()
        able = [node for node in dict.fromkeys((*first, old.leader, *wanted.replicas)) if self._can_lead(wanted, node)]
        for node in able:
            if node in wanted.isr:
                return node, True
        eligible, last_known = wanted.eligible_leader_replicas, wanted.last_known_elr
        if not wanted.isr and any(node in eligible for node in able):
            return self._choose(key, eligible, able, self._restarted(key, wanted), is_asked=is_asked), True
        if not wanted.isr and not eligible and self._keeps_elr and len(last_known) == 1 and last_known[0] in able:
            return last_known[0], False
        if election is Election.UNCLEAN and able:
            return self._choose(key, wanted.replicas, able, is_asked=is_asked), False
        return NO_LEADER, False

    def _restarted(self, key: Key, wanted: PartitionImage) -> list[NodeId]:
        known = (self._view.image.brokers.keys() & wanted.replicas) - self._lost
        return [node for node in self._view.candidates.restarted(key) if node in known]

    def _choose(
        self,
        key: Key,
        members: Collection[NodeId],
        able: Sequence[NodeId],
        restarted: Collection[NodeId] = (),
        *,
        is_asked: bool,
    ) -> NodeId:
        chosen = self._view.candidates.choose(
            key,
            self._view.image,
            members=members,
            able=[node for node in able if node in members or node in restarted],
            restarted=restarted,
            is_urgent=is_asked,
        )
        return NO_LEADER if chosen is None else chosen

    def _without_leader(self, old: PartitionImage, wanted: PartitionImage) -> PartitionImage:
        isr = wanted.isr
        if not isr and not self._keeps_elr:
            # Without eligible replicas the last one in sync has to be remembered here.
            isr = old.isr
        last_known = wanted.last_known_elr
        if old.isr and not isr and old.leader != NO_LEADER:
            last_known = (old.leader,)
        if not last_known and not isr and not wanted.eligible_leader_replicas:
            # The last one that was counted on cannot prove any more that it has everything: still better than nobody.
            last_known = old.eligible_leader_replicas[:1]
        last_known = tuple(node for node in last_known if node not in self._damaged)
        return wanted._replace(leader=NO_LEADER, isr=isr, last_known_elr=last_known)

    def _can_commit(self, partition: PartitionImage, rules: _Rules) -> bool:
        """Whether the high watermark may rise with these in sync."""
        needed = min(rules.min_insync_replicas, len(partition.replicas)) if self._keeps_elr else 1
        return len(partition.isr) >= needed

    def _can_lead(self, partition: PartitionImage, node: NodeId) -> bool:
        if node in self._gone or node not in partition.replicas:
            return False
        broker = self._view.image.brokers.get(node)
        if broker is None or not (broker.is_active or node in self._joining):
            return False
        return broker.has_online(partition.directory(node))


def _with_leader(wanted: PartitionImage, leader: NodeId, *, has_everything: bool) -> PartitionImage:
    if leader != wanted.leader or wanted.last_known_elr:
        wanted = wanted._replace(leader=leader, last_known_elr=())
    if leader in wanted.isr:
        return wanted
    if has_everything:
        eligible = tuple(node for node in wanted.eligible_leader_replicas if node != leader)
        return wanted._replace(isr=(leader,), eligible_leader_replicas=eligible)
    return wanted._replace(isr=(leader,), eligible_leader_replicas=(), leader_recovery_state=RECOVERING)


def complete_reassignment(partition: PartitionImage) -> PartitionImage:
    """Without the replicas that were to go, if all others are in sync."""
    if not partition.is_reassigning:
        return partition
    replicas = tuple(node for node in partition.replicas if node not in partition.removing_replicas)
    isr = tuple(node for node in partition.isr if node not in partition.removing_replicas)
    if not replicas or not set(replicas) <= set(isr):
        return partition
    return partition._replace(replicas=replicas, isr=isr, adding_replicas=(), removing_replicas=())


def agreed_min_insync_replicas(image: MetadataImage, topic: str) -> int:
    """What leaders go by at least. Only what is on the metadata log is known to all of them; their files may differ."""
    text = image.config(ResourceType.TOPIC, topic).get(MIN_INSYNC_REPLICAS)
    if text is None:
        text = image.config(ResourceType.BROKER, "").get(MIN_INSYNC_REPLICAS)
    return 1 if text is None else int(text)


def decide_without_eligible(topic: TopicImage) -> list[PartitionChangeRecord]:
    """For a change of min.insync.replicas: with a lower one the leader may commit what eligible replicas lack. Where
    there is no leader nothing is committed, and they stay."""
    return [
        PartitionChangeRecord(topic_id=topic.id, partition_id=index, eligible_leader_replicas=[])
        for index, partition in topic.partitions.items()
        if partition.eligible_leader_replicas and partition.leader != NO_LEADER
    ]


def default_directory(image: MetadataImage, node: int) -> Uuid:
    """A broker with one data folder has no choice to make; others assign the replica to a folder themselves."""
    broker = image.brokers.get(node)
    if broker is None or len(broker.log_dirs) != 1:
        return UNASSIGNED_DIRECTORY
    return broker.log_dirs[0]


def _difference(topic_id: Uuid, index: int, old: PartitionImage, new: PartitionImage) -> PartitionChangeRecord | None:
    changes: dict[str, Any] = {
        name: list(value) for name in _LISTS if (value := getattr(new, name)) != getattr(old, name)
    }
    if new.leader_recovery_state != old.leader_recovery_state:
        changes["leader_recovery_state"] = new.leader_recovery_state
    # A replica that is taken away must not go on as one of this epoch.
    if new.leader != old.leader or not set(old.replicas) <= set(new.replicas):
        changes["leader"] = new.leader
    if not changes:
        return None
    return PartitionChangeRecord(topic_id=topic_id, partition_id=index, **changes)


_LISTS = (
    "isr",
    "replicas",
    "adding_replicas",
    "removing_replicas",
    "directories",
    "eligible_leader_replicas",
    "last_known_elr",
)
