"""The cluster as its metadata has it: on every node with the controller role, as in Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tailrace.broker.metrics.families.meters import gauge, meter
from tailrace.controller.image import NO_LEADER

if TYPE_CHECKING:
    from tailrace.broker.metrics.watched import Watched
    from tailrace.model.metrics.text import Text

_MBEAN = "kafka_controller_kafkacontroller"
_ACTIVE = gauge(_MBEAN, "ActiveControllerCount", "1 on the active controller, 0 on the others.")
_TOPICS = gauge(_MBEAN, "GlobalTopicCount", "Topics of the cluster.")
_PARTITIONS = gauge(_MBEAN, "GlobalPartitionCount", "Partitions of the cluster.")
_OFFLINE = gauge(_MBEAN, "OfflinePartitionsCount", "Partitions without a leader.")
_IMBALANCE = gauge(_MBEAN, "PreferredReplicaImbalanceCount", "Partitions not led by their first replica.")
_BROKERS = gauge(_MBEAN, "ActiveBrokerCount", "Brokers that are registered and not fenced.")
_FENCED = gauge(_MBEAN, "FencedBrokerCount", "Brokers that are registered and fenced.")
_UNCLEAN = meter("kafka_controller_controllerstats", "UncleanLeaderElections", "Leaders elected that may lack records.")
_APPLIED = gauge(_MBEAN, "LastAppliedRecordOffset", "The last metadata record that this node has applied.")
_COMMITTED = gauge(_MBEAN, "LastCommittedRecordOffset", "The last metadata record that is committed.")
_ERRORS = gauge(_MBEAN, "MetadataErrorCount", "1 if this node can take no part in the quorum until it is restarted.")


def pieces(watched: Watched, text: Text) -> Iterator[str]:
    quorum, image = watched.services.quorum, watched.services.image
    offline = imbalanced = 0
    for topic in image.topics.values():
        for partition in topic.partitions.values():
            offline += partition.leader == NO_LEADER
            imbalanced += partition.leader != partition.replicas[0]
        yield ""
    fenced = sum(each.fenced for each in image.brokers.values())
    for metric, value in (
        (_ACTIVE, int(quorum.is_active)),
        (_TOPICS, len(image.topics)),
        (_PARTITIONS, image.partition_count),
        (_OFFLINE, offline),
        (_IMBALANCE, imbalanced),
        (_BROKERS, len(image.brokers) - fenced),
        (_FENCED, fenced),
        (_APPLIED, image.next_offset - 1),
        (_COMMITTED, quorum.driver.high_watermark - 1),
        (_ERRORS, int(quorum.failure is not None)),
    ):
        yield text.write(metric, [("", value)])
    yield text.write(_UNCLEAN, [("", watched.elections.unclean_count)])
