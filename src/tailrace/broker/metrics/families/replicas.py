"""The replicas of this broker as a whole: how many are led, in sync and offline; data folders; what is not synced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tailrace.broker.metrics.families.meters import gauge, meter, own_gauge
from tailrace.model.metrics.text import label

if TYPE_CHECKING:
    from tailrace.broker.metrics.watched import Watched
    from tailrace.model.metrics.text import Text

_MBEAN = "kafka_server_replicamanager"
_LOGS = "kafka_log_logmanager"
_GAUGES = (
    (gauge(_MBEAN, "PartitionCount", "Replicas on this broker."), "all"),
    (gauge(_MBEAN, "LeaderCount", "Partitions that this broker leads."), "led"),
    (gauge(_MBEAN, "UnderReplicatedPartitions", "Led here, with fewer in sync than replicas."), "under_replicated"),
    (gauge(_MBEAN, "UnderMinIsrPartitionCount", "Led here, with too few in sync to be written to."), "under_min_isr"),
    (gauge(_MBEAN, "AtMinIsrPartitionCount", "Led here, with just as many in sync as it takes."), "at_min_isr"),
    (gauge(_MBEAN, "OfflineReplicaCount", "Replicas whose log cannot be used."), "offline"),
    (gauge(_MBEAN, "ReassigningPartitions", "Led here, and being reassigned."), "reassigning"),
)
_STATE = gauge("kafka_server_kafkaserver", "BrokerState", "3, running: a broker in another state tells no metrics.")
_RUNNING = 3
_SHRINKS = meter(_MBEAN, "IsrShrinks", "In-sync sets that have lost a replica.")
_EXPANDS = meter(_MBEAN, "IsrExpands", "In-sync sets that a replica has joined.")
_OFFLINE_FOLDERS = gauge(_LOGS, "OfflineLogDirectoryCount", "Data folders that cannot be used.")
_FOLDER_OFFLINE = gauge(_LOGS, "LogDirectoryOffline", "1 if this data folder cannot be used.")
_UNSYNCED = own_gauge("unsynced_bytes", "Bytes written and not yet synced to the device; see log.unsynced.max.bytes.")
_SATURATED = own_gauge("unsynced_is_full", "1 while producers wait for the device.")
_CHUNK = 32


def pieces(watched: Watched, text: Text) -> Iterator[str]:
    replicas = watched.services.replicas
    counts = dict.fromkeys((field for _, field in _GAUGES), 0)
    shrinks, expands = replicas.retired.isr_shrinks, replicas.retired.isr_expands
    for number, partition in enumerate(list(replicas.partitions.values())):
        counts["all"] += 1
        counts["offline"] += partition.log.is_offline
        shrinks += partition.traffic.isr_shrinks
        expands += partition.traffic.isr_expands
        if partition.is_leader:
            counts["led"] += 1
            counts["under_replicated"] += len(partition.isr) < len(partition.replicas)
            counts["under_min_isr"] += partition.is_under_min_isr
            counts["at_min_isr"] += len(partition.isr) == partition.min_insync_replicas
        if number % _CHUNK == 0:
            yield ""
    counts["offline"] += len(replicas.missing)
    for name, indexes in watched.services.image.partitions_by_broker.get(replicas.node_id, {}).items():
        topic = watched.services.image.topics.get(name)
        if topic is not None:
            led = (topic.partitions[index] for index in indexes if topic.partitions[index].leader == replicas.node_id)
            counts["reassigning"] += sum(each.is_reassigning for each in led)
        yield ""
    yield text.write(_STATE, [("", _RUNNING)])
    for metric, field in _GAUGES:
        yield text.write(metric, [("", counts[field])])
    yield text.write(_SHRINKS, [("", shrinks)])
    yield text.write(_EXPANDS, [("", expands)])
    folders = [(each.path, each.is_offline) for each in replicas.directories]
    folders += [(path, True) for path in replicas.directories.unusable]
    yield text.write(_OFFLINE_FOLDERS, [("", sum(is_offline for _, is_offline in folders))])
    yield text.write(_FOLDER_OFFLINE, [(label(logDirectory=path), int(is_offline)) for path, is_offline in folders])
    yield text.write(_UNSYNCED, [("", replicas.flusher.unsynced_bytes)])
    yield text.write(_SATURATED, [("", int(replicas.flusher.is_saturated))])
