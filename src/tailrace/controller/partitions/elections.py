"""Elections that are asked for, by ElectLeaders (KIP-460) or by allowing unclean ones.

A preferred election gives a partition back to its first replica if that one is in sync; an unclean one gives a
partition without a leader any leader, though records may be lost.
"""

from collections.abc import Iterable
from enum import IntEnum

from tailrace.controller.image import NO_LEADER, PartitionImage, TopicImage
from tailrace.controller.partitions.change import Election, PartitionChanges
from tailrace.controller.view import Result, View
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.admin import ElectLeadersRequest, ElectLeadersResponse
from tailrace.wire.apis.stored_records import PartitionChangeRecord
from tailrace.wire.schema import Message

TopicResult = ElectLeadersResponse.ReplicaElectionResult
PartitionResult = ElectLeadersResponse.PartitionResult


class ElectionType(IntEnum):
    """The numbers are those of ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


def elect_leaders(view: View, request: ElectLeadersRequest) -> Result:
    """Without a list all partitions are meant, and those that need no election are left out of the answer."""
    try:
        election_type = ElectionType(request.election_type)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}") from None
    asked: Iterable[tuple[str, Iterable[int]]]
    if request.topic_partitions is None:
        asked = [(topic.name, topic.partitions) for topic in view.image.topics.values()]
    else:
        asked = [(each.topic, dict.fromkeys(each.partitions)) for each in request.topic_partitions]
    changes = PartitionChanges(view)
    records: dict[tuple[str, int], Message] = {}
    response = ElectLeadersResponse()
    for name, indexes in asked:
        result = TopicResult(topic=name)
        response.replica_election_results.append(result)
        for index in indexes:
            code, message = ErrorCode.NONE, None
            try:
                records[name, index] = _elect(view, changes, name, index, election_type)
            except KafkaError as error:
                code, message = error.code, error.message
            if request.topic_partitions is not None or code != ErrorCode.ELECTION_NOT_NEEDED:
                result.partition_result.append(
                    PartitionResult(partition_id=index, error_code=code, error_message=message)
                )
    return Result(list(records.values()), response)


def decide_unclean_elections(view: View, topic: TopicImage) -> list[PartitionChangeRecord]:
    """For a topic that allows them from now on."""
    changes = PartitionChanges(view)
    leaderless = [index for index, partition in topic.partitions.items() if partition.leader == NO_LEADER]
    records = (changes.decide(topic, index, election=Election.UNCLEAN) for index in leaderless)
    return [record for record in records if record is not None]


def _elect(
    view: View, changes: PartitionChanges, name: str, index: int, election_type: ElectionType
) -> PartitionChangeRecord:
    topic = view.image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    if not _needs_election(partition, election_type):
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    if election_type is ElectionType.PREFERRED:
        record = changes.decide(topic, index, election=Election.PREFERRED)
        if record is None:
            raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
        return record
    record = changes.decide(topic, index, election=Election.UNCLEAN)
    if record is None:
        message = "Eligible topic partition leaders are not available."
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, message)
    return record


def _needs_election(partition: PartitionImage, election_type: ElectionType) -> bool:
    if election_type is ElectionType.PREFERRED:
        return partition.leader != partition.replicas[0]
    return partition.leader == NO_LEADER
