"""The share-partitions of this broker, and the sessions of the members that fetch from them.

A share-partition is made when the first member asks for it. It is ended when no session reads it any more, so that the
next one finds offsets that an administrator has set meanwhile, and when the broker no longer leads its partition. A
session ends with its connection, as in Kafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tailrace.broker.shares.sessions import Place, SessionKey, ShareSession, ShareSessions
from tailrace.broker.shares.share_partition import SharePartition
from tailrace.broker.shares.tally import Tallies
from tailrace.controller.effective import group_config
from tailrace.controller.image import ResourceType
from tailrace.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tailrace.broker.coordinators.coordination import Coordination
    from tailrace.broker.departures import Departures
    from tailrace.broker.node import Node
    from tailrace.controller.image import MetadataImage
    from tailrace.model.config import BrokerConfig, GroupConfig

SHARE_VERSION = "share.version"


class ShareGroups:
    def __init__(self, node: Node, coordination: Coordination) -> None:
        self.partitions: dict[tuple[str, Place], SharePartition] = {}
        self.sessions = ShareSessions()
        self.tallies = Tallies()
        # How many sessions read a share-partition: without one it is ended, and so it is loaded anew for the next.
        self._readers: Counter[tuple[str, Place]] = Counter()
        self._by_peer: dict[str, set[SessionKey]] = {}
        # With what they follow from.
        self._configs: dict[str, tuple[BrokerConfig, Mapping[str, str], GroupConfig]] = {}
        self._node = node
        self._coordination = coordination
        node.quorum.subscribe(self.follow_image)

    def check_enabled(self) -> None:
        check_enabled(self._node.image)

    @property
    def read_count(self) -> int:
        """Partitions that are fetched, each counted for each member."""
        return self._readers.total()

    def find(self, group_id: str, place: Place) -> SharePartition:
        """Raises KafkaError if this broker does not lead the partition."""
        share_partition = self.partitions.get((group_id, place))
        if share_partition is not None:
            share_partition.check()
            return share_partition
        replicas = self._node.replicas
        partition = replicas.find(replicas.topic_name(place.topic_id), place.partition)
        partition.check_leader()
        share_partition = self.partitions[group_id, place] = SharePartition(
            self._node,
            self._coordination.share_states,
            group_id=group_id,
            partition=partition,
            config=lambda: self.config(group_id),
            tally=self.tallies.of(group_id, groups_max=self._node.config.group_history_max_groups),
            on_end=lambda ended: self._forget((group_id, place), ended),
            is_read=lambda: self._is_read((group_id, place)),
        )
        return share_partition

    def config(self, group_id: str) -> GroupConfig:
        """The group's settings as they are now; asked for with each request, and so kept until they change."""
        node = self._node
        given = node.config, node.image.config(ResourceType.GROUP, group_id)
        known = self._configs.get(group_id)
        if known is not None and known[0] is given[0] and known[1] is given[1]:
            return known[2]
        if len(self._configs) >= node.config.group_history_max_groups:
            self._configs.clear()
        config = group_config(node.config, node.image, group_id)
        self._configs[group_id] = (*given, config)
        return config

    # ---- sessions

    def update(
        self,
        session: ShareSession,
        added: Iterable[Place],
        forgotten: Iterable[Place],
        *,
        peer: str,
        departures: Departures,
    ) -> None:
        """What a request of the member says that it fetches, and no longer fetches."""
        group_id = session.key.group_id
        for place in added:
            if place not in session.places:
                session.places[place] = None
                self._readers[group_id, place] += 1
                if self._readers[group_id, place] == 1 and (group_id, place) in self.partitions:
                    self.partitions[group_id, place].look_again()
        for place in forgotten:
            if place in session.places:
                del session.places[place]
                self._leave((group_id, place))
        if session.peer != peer:
            session.peer = peer
            self._by_peer.setdefault(peer, set()).add(session.key)
            departures.watch(peer, self._on_departure)

    def release(self, session: ShareSession) -> None:
        """A member is gone: what it holds here is for others."""
        group_id, member_id = session.key
        for place in session.places:
            share_partition = self.partitions.get((group_id, place))
            if share_partition is not None:
                share_partition.release(member_id)
        self.replace(session)

    def replace(self, session: ShareSession) -> None:
        """The member has another session now: what it holds it still holds, as in Kafka."""
        for place in session.places:
            self._leave((session.key.group_id, place))
        session.places.clear()

    def _leave(self, key: tuple[str, Place]) -> None:
        self._readers[key] -= 1
        if self._readers[key] > 0:
            return
        del self._readers[key]
        share_partition = self.partitions.get(key)
        if share_partition is not None:
            share_partition.end_if_idle()

    def _is_read(self, key: tuple[str, Place]) -> bool:
        return key in self._readers

    def _on_departure(self, peer: str) -> None:
        """A connection has ended: a member that goes on by another one opens a session there."""
        for key in self._by_peer.pop(peer, ()):
            try:
                if self.sessions.find(key).peer == peer:
                    self.release(self.sessions.close(key))
            except KafkaError:
                continue  # It was closed before.

    def _forget(self, key: tuple[str, Place], ended: SharePartition) -> None:
        if self.partitions.get(key) is ended:
            del self.partitions[key]

    def follow_image(self, old: MetadataImage, new: MetadataImage) -> None:
        if old.topics is new.topics:
            return
        for share_partition in list(self.partitions.values()):
            partition = share_partition.partition
            if partition.leader_epoch != share_partition.leader_epoch or not partition.is_leader:
                share_partition.end()


def check_enabled(image: MetadataImage) -> None:
    if image.features.get(SHARE_VERSION, 0) < 1:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Share groups are off: {SHARE_VERSION} is not finalized.")
