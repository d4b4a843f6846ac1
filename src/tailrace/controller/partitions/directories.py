"""AssignReplicasToDirs (KIP-858): a broker with several data folders tells in which of them its replicas lie.

A replica that lay in a folder which its broker no longer has is a new, empty one: whatever made it eligible to lead
without being in sync is taken from it. One assigned to a folder that does not work leaves the in-sync set.
"""

from tailrace.controller.brokers.registration import check_epoch
from tailrace.controller.image import NO_DIRECTORY, BrokerImage, PartitionImage, TopicImage
from tailrace.controller.partitions.change import PartitionChanges
from tailrace.controller.view import Result, View
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import Uuid
from tailrace.wire.apis.quorum import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from tailrace.wire.apis.stored_records import PartitionChangeRecord
from tailrace.wire.schema import Message

DirectoryResult = AssignReplicasToDirsResponse.DirectoryData
TopicResult = AssignReplicasToDirsResponse.TopicData
PartitionResult = AssignReplicasToDirsResponse.PartitionData


def assign_replicas_to_dirs(view: View, request: AssignReplicasToDirsRequest) -> Result:
    """Each replica succeeds or fails by itself; one that is named twice gets the last directory."""
    broker = view.image.brokers.get(request.broker_id)
    error = check_epoch(broker, request.broker_epoch)
    if broker is None or error is not ErrorCode.NONE:
        return Result([], AssignReplicasToDirsResponse(error_code=error))
    assigner = _Assigner(view, broker)
    response = AssignReplicasToDirsResponse()
    for directory in request.directories:
        directory_result = DirectoryResult(id=directory.id)
        response.directories.append(directory_result)
        for asked in directory.topics:
            result = TopicResult(topic_id=asked.topic_id)
            directory_result.topics.append(result)
            topic = view.image.topic_by_id(Uuid(asked.topic_id))
            for partition in asked.partitions:
                code = assigner.assign(topic, partition.partition_index, Uuid(directory.id))
                result.partitions.append(PartitionResult(partition_index=partition.partition_index, error_code=code))
    return Result(assigner.records, response)


class _Assigner:
    def __init__(self, view: View, broker: BrokerImage) -> None:
        self._broker = broker
        self._changes = PartitionChanges(view)
        self._changes_of_failed = PartitionChanges(view, leaving={broker.node_id})
        self._records: dict[tuple[Uuid, int], PartitionChangeRecord | None] = {}

    @property
    def records(self) -> list[Message]:
        return [record for record in self._records.values() if record is not None]

    def assign(self, topic: TopicImage | None, index: int, directory: Uuid) -> ErrorCode:
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        partition = topic.partitions.get(index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self._broker.node_id not in partition.replicas:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        changes = self._changes if self._broker.has_online(directory) else self._changes_of_failed
        self._records[topic.id, index] = changes.decide(topic, index, self._assigned(partition, directory))
        return ErrorCode.NONE

    def _assigned(self, partition: PartitionImage, directory: Uuid) -> PartitionImage:
        node_id = self._broker.node_id
        old = partition.directory(node_id)
        target = partition._replace(
            directories=tuple(
                directory if node == node_id else partition.directory(node) for node in partition.replicas
            )
        )
        if old in NO_DIRECTORY or old == directory or self._broker.has_online(old):
            return target
        return target._replace(
            eligible_leader_replicas=tuple(node for node in partition.eligible_leader_replicas if node != node_id),
            last_known_elr=tuple(node for node in partition.last_known_elr if node != node_id),
        )
