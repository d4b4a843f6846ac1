"""The metadata quorum as this node sees it: voters and brokers alike. Names as Strimzi's rules give them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tailrace.broker.metrics.families.meters import gauge
from tailrace.model.metrics.text import label

if TYPE_CHECKING:
    from tailrace.broker.metrics.watched import Watched
    from tailrace.model.metrics.text import Text

_RAFT = "kafka_server_raftmetrics"
_LOADER = "kafka_server_brokermetadatametrics"
_LEADER = gauge(_RAFT, "current_leader", "Node that leads the metadata quorum; -1 if none is known.")
_EPOCH = gauge(_RAFT, "current_epoch", "Epoch of the metadata quorum.")
_VOTE = gauge(_RAFT, "current_vote", "Whom this node has voted for in this epoch; -1 for nobody.")
_STATE = gauge(_RAFT, "current_state", "1 with the role of this node.")
_HIGH_WATERMARK = gauge(_RAFT, "high_watermark", "Metadata records below it are committed.")
_LOG_END = gauge(_RAFT, "log_end_offset", "Where this node's copy of the metadata log ends.")
_LOG_END_EPOCH = gauge(_RAFT, "log_end_epoch", "Epoch of the last record of that log.")
_VOTERS = gauge(_RAFT, "number_of_voters", "Voters of the metadata quorum.")
_APPLIED = gauge(_LOADER, "last_applied_record_offset", "The last metadata record that this broker has applied.")


def pieces(watched: Watched, text: Text) -> Iterator[str]:
    quorum = watched.services.quorum
    driver = quorum.driver
    node = driver.node
    role, voted = type(node.role).__name__.lower(), node.standing.state.voted
    if role == "follower" and not node.is_voter:
        role = "observer"
    for metric, labels, value in (
        (_LEADER, "", driver.leadership.leader_id),
        (_EPOCH, "", node.epoch),
        (_VOTE, "", -1 if voted is None else voted.id),
        (_STATE, label(current_state=role), 1),
        (_HIGH_WATERMARK, "", driver.high_watermark),
        (_LOG_END, "", node.log.end_offset),
        (_LOG_END_EPOCH, "", node.log.last_epoch),
        (_VOTERS, "", len(driver.voters)),
    ):
        yield text.write(metric, [(labels, value)])
    if watched.roles.is_broker:
        yield text.write(_APPLIED, [("", watched.services.image.next_offset - 1)])
