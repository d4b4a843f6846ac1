"""Between the messages of the machine and those of the wire, both ways. Pure; decides nothing.

The quorum has one partition, so the wire's lists of topics and partitions hold one each. A request without it, or of
another partition, has no translation: the driver refuses it as a whole.
"""

from __future__ import annotations

from typing import Any

from tailrace.model.config import Endpoint
from tailrace.model.errors import ErrorCode, ProtocolError
from tailrace.model.ids import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID, Uuid
from tailrace.raft.messages import (
    NO_LEADER,
    AddVoter,
    BeginEpoch,
    EndEpoch,
    Fetch,
    Fetched,
    FetchPiece,
    RemoveVoter,
    Reply,
    Request,
    UpdateVoter,
    Vote,
)
from tailrace.raft.types import KRAFT_VERSION, OffsetAndEpoch, ReplicaKey, Voter
from tailrace.wire.apis import quorum as wire
from tailrace.wire.apis import response_type
from tailrace.wire.apis.data import FetchRequest, FetchResponse
from tailrace.wire.schema import Message

_PARTITION = 0
# A piece of the log that a replica takes at once (Kafka's figure).
_FETCH_MAX_BYTES = 8 << 20


# ---- requests, outwards


def to_wire_request(request: Request, *, cluster_id: str, max_wait_ms: int) -> Message:
    if isinstance(request, Vote):
        return _vote_request(request, cluster_id)
    if isinstance(request, BeginEpoch):
        return _begin_request(request, cluster_id)
    if isinstance(request, EndEpoch):
        return _end_request(request, cluster_id)
    if isinstance(request, Fetch):
        return _fetch_request(request, cluster_id, max_wait_ms)
    if isinstance(request, AddVoter):
        return wire.AddRaftVoterRequest(
            cluster_id=cluster_id,
            timeout_ms=request.timeout_ms,
            voter_id=request.voter.key.id,
            voter_directory_id=request.voter.key.directory_id,
            listeners=_to_wire_endpoints(wire.AddRaftVoterRequest.Listener, request.voter.endpoints),
            ack_when_committed=request.ack_when_committed,
        )
    if isinstance(request, RemoveVoter):
        return wire.RemoveRaftVoterRequest(
            cluster_id=cluster_id, voter_id=request.key.id, voter_directory_id=request.key.directory_id
        )
    assert isinstance(request, UpdateVoter), "pieces of snapshots are asked for by the driver"
    return wire.UpdateRaftVoterRequest(
        cluster_id=cluster_id,
        current_leader_epoch=request.epoch,
        voter_id=request.voter.key.id,
        voter_directory_id=request.voter.key.directory_id,
        listeners=_to_wire_endpoints(wire.UpdateRaftVoterRequest.Listener, request.voter.endpoints),
        kraft_version_feature=wire.UpdateRaftVoterRequest.KRaftVersionFeature(
            min_supported_version=0, max_supported_version=KRAFT_VERSION
        ),
    )


def _vote_request(request: Vote, cluster_id: str) -> Message:
    partition = wire.VoteRequest.PartitionData(
        partition_index=_PARTITION,
        replica_epoch=request.epoch,
        replica_id=request.candidate.id,
        replica_directory_id=request.candidate.directory_id,
        voter_directory_id=request.voter.directory_id,
        last_offset_epoch=request.last.epoch,
        last_offset=request.last.offset,
        pre_vote=request.is_pre_vote,
    )
    topic = wire.VoteRequest.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])
    return wire.VoteRequest(cluster_id=cluster_id, voter_id=request.voter.id, topics=[topic])


def _begin_request(request: BeginEpoch, cluster_id: str) -> Message:
    partition = wire.BeginQuorumEpochRequest.PartitionData(
        partition_index=_PARTITION,
        voter_directory_id=request.voter.directory_id,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
    )
    topic = wire.BeginQuorumEpochRequest.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])
    return wire.BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=request.voter.id,
        topics=[topic],
        leader_endpoints=_to_wire_endpoints(wire.BeginQuorumEpochRequest.LeaderEndpoint, request.endpoints),
    )


def _end_request(request: EndEpoch, cluster_id: str) -> Message:
    partition = wire.EndQuorumEpochRequest.PartitionData(
        partition_index=_PARTITION,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
        preferred_candidates=[
            wire.EndQuorumEpochRequest.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id)
            for key in request.successors
        ],
    )
    topic = wire.EndQuorumEpochRequest.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])
    return wire.EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[topic],
        leader_endpoints=_to_wire_endpoints(wire.EndQuorumEpochRequest.LeaderEndpoint, request.endpoints),
    )


def _fetch_request(request: Fetch, cluster_id: str, max_wait_ms: int) -> Message:
    partition = FetchRequest.FetchPartition(
        partition=_PARTITION,
        current_leader_epoch=request.epoch,
        fetch_offset=request.offset,
        last_fetched_epoch=request.last_epoch,
        partition_max_bytes=_FETCH_MAX_BYTES,
        replica_directory_id=request.replica.directory_id,
        high_watermark=request.high_watermark,
    )
    topic = FetchRequest.FetchTopic(
        topic=CLUSTER_METADATA_TOPIC, topic_id=CLUSTER_METADATA_TOPIC_ID, partitions=[partition]
    )
    return FetchRequest(
        cluster_id=cluster_id,
        replica_id=request.replica.id,
        replica_state=FetchRequest.ReplicaState(replica_id=request.replica.id),
        max_wait_ms=max_wait_ms,
        max_bytes=_FETCH_MAX_BYTES,
        topics=[topic],
    )


# ---- requests, inwards


def of_wire_request(message: Message, *, own_id: int) -> Request | None:
    """None if it is not about the one partition there is."""
    if isinstance(message, wire.AddRaftVoterRequest):
        voter = Voter(_key(message.voter_id, message.voter_directory_id), _endpoints(message.listeners))
        return AddVoter(voter, message.timeout_ms, message.ack_when_committed)
    if isinstance(message, wire.RemoveRaftVoterRequest):
        return RemoveVoter(_key(message.voter_id, message.voter_directory_id))
    if isinstance(message, wire.UpdateRaftVoterRequest):
        voter = Voter(_key(message.voter_id, message.voter_directory_id), _endpoints(message.listeners))
        return UpdateVoter(message.current_leader_epoch, voter)
    partition = the_partition(message)
    if partition is None:
        return None
    if isinstance(message, wire.VoteRequest):
        # Requests without a voter id are meant for whoever gets them (versions before 1).
        voter_id = own_id if message.voter_id < 0 else message.voter_id
        return Vote(
            partition.replica_epoch,
            _key(partition.replica_id, partition.replica_directory_id),
            _key(voter_id, partition.voter_directory_id),
            OffsetAndEpoch(partition.last_offset, partition.last_offset_epoch),
            partition.pre_vote,
        )
    if isinstance(message, wire.BeginQuorumEpochRequest):
        voter_id = own_id if message.voter_id < 0 else message.voter_id
        return BeginEpoch(
            partition.leader_epoch,
            partition.leader_id,
            _key(voter_id, partition.voter_directory_id),
            _endpoints(message.leader_endpoints),
        )
    if isinstance(message, wire.EndQuorumEpochRequest):
        keys = tuple(_key(each.candidate_id, each.candidate_directory_id) for each in partition.preferred_candidates)
        return EndEpoch(partition.leader_epoch, partition.leader_id, keys, _endpoints(message.leader_endpoints))
    if isinstance(message, wire.FetchSnapshotRequest):
        key = _key(message.replica_id, partition.replica_directory_id)
        return FetchPiece(partition.current_leader_epoch, key)
    assert isinstance(message, FetchRequest), "a request of the quorum"
    replica_id = max(message.replica_id, message.replica_state.replica_id)
    return Fetch(
        partition.current_leader_epoch,
        _key(replica_id, partition.replica_directory_id),
        partition.fetch_offset,
        partition.last_fetched_epoch,
        partition.high_watermark,
    )


def the_partition(message: Any) -> Any:
    """The one entry of a request or response with topics; None if it has another, or more."""
    topics = message.responses if isinstance(message, FetchResponse) else message.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    topic, partition = topics[0], topics[0].partitions[0]
    name = getattr(topic, "topic_name", None) or getattr(topic, "name", None) or getattr(topic, "topic", "")
    is_ours = name == CLUSTER_METADATA_TOPIC or getattr(topic, "topic_id", b"") == CLUSTER_METADATA_TOPIC_ID
    for field in ("partition_index", "partition", "index"):
        if hasattr(partition, field):
            return partition if is_ours and getattr(partition, field) == _PARTITION else None
    return None


# ---- responses, outwards


def to_wire_response(request: Message, reply: Reply) -> Message:
    if isinstance(request, FetchRequest):
        return _fetch_response(reply)
    if isinstance(request, wire.AddRaftVoterRequest):
        return wire.AddRaftVoterResponse(error_code=reply.error, error_message=reply.message or None)
    if isinstance(request, wire.RemoveRaftVoterRequest):
        return wire.RemoveRaftVoterResponse(error_code=reply.error, error_message=reply.message or None)
    if isinstance(request, wire.UpdateRaftVoterRequest):
        leader = wire.UpdateRaftVoterResponse.CurrentLeader(
            leader_id=reply.leader_id,
            leader_epoch=reply.epoch,
            host=reply.endpoint.host if reply.endpoint else "",
            port=reply.endpoint.port if reply.endpoint else 0,
        )
        return wire.UpdateRaftVoterResponse(error_code=reply.error, current_leader=leader)
    response: Any = response_type(request.api_key)
    partition = response.PartitionData(
        partition_index=_PARTITION, error_code=reply.error, leader_id=reply.leader_id, leader_epoch=reply.epoch
    )
    if isinstance(request, wire.VoteRequest):
        partition.vote_granted = reply.is_granted
    topic = response.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])
    answer: Message = response(topics=[topic], node_endpoints=_node_endpoints(response, reply))
    return answer


def refuse(request: Message, error: ErrorCode) -> Message:
    """Refuses the request as a whole."""
    response: Any = response_type(request.api_key)
    refusal: Message = response(error_code=error)
    return refusal


def _fetch_response(reply: Reply) -> Message:
    fetched = reply.fetched or Fetched(-1)
    partition = FetchResponse.PartitionData(
        partition_index=_PARTITION,
        error_code=reply.error,
        high_watermark=fetched.high_watermark,
        current_leader=FetchResponse.LeaderIdAndEpoch(leader_id=reply.leader_id, leader_epoch=reply.epoch),
        records=fetched.records,
    )
    if fetched.diverging is not None:
        offset, epoch = fetched.diverging
        partition.diverging_epoch = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=offset)
    if fetched.snapshot is not None:
        offset, epoch = fetched.snapshot
        partition.snapshot_id = FetchResponse.SnapshotId(end_offset=offset, epoch=epoch)
    topic = FetchResponse.FetchableTopicResponse(
        topic=CLUSTER_METADATA_TOPIC, topic_id=CLUSTER_METADATA_TOPIC_ID, partitions=[partition]
    )
    return FetchResponse(responses=[topic], node_endpoints=_node_endpoints(FetchResponse, reply))


# ---- responses, inwards


def of_wire_response(message: Any) -> Reply:
    """Raises ProtocolError if it answers something else."""
    endpoint: Endpoint | None = None
    if isinstance(message, wire.AddRaftVoterResponse | wire.RemoveRaftVoterResponse):
        return Reply(-1, error=error_code_of(message.error_code), message=message.error_message or "")
    if isinstance(message, wire.UpdateRaftVoterResponse):
        leader = message.current_leader
        if leader.host:
            endpoint = Endpoint("", leader.host, leader.port)
        return Reply(leader.leader_epoch, leader.leader_id, endpoint, error_code_of(message.error_code))
    if message.error_code:
        return Reply(-1, error=error_code_of(message.error_code))
    partition = the_partition(message)
    if partition is None:
        raise ProtocolError(f"a {type(message).__name__} about another partition than the quorum's")
    error = error_code_of(partition.error_code)
    leader_id = partition.current_leader.leader_id if isinstance(message, FetchResponse) else partition.leader_id
    for node in message.node_endpoints:
        if node.node_id == leader_id:
            endpoint = Endpoint("", node.host, node.port)
    if isinstance(message, FetchResponse):
        fetched = None if error else _fetched(partition)
        return Reply(partition.current_leader.leader_epoch, leader_id, endpoint, error, fetched=fetched)
    is_granted = isinstance(message, wire.VoteResponse) and partition.vote_granted
    return Reply(partition.leader_epoch, leader_id, endpoint, error, is_granted=is_granted)


def _fetched(partition: Any) -> Fetched:
    diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
    return Fetched(
        partition.high_watermark,
        OffsetAndEpoch(diverging.end_offset, diverging.epoch) if diverging.end_offset >= 0 else None,
        OffsetAndEpoch(snapshot.end_offset, snapshot.epoch) if snapshot.end_offset >= 0 else None,
        partition.records or b"",
    )


def _node_endpoints(response: Any, reply: Reply) -> list[Any]:
    if reply.leader_id == NO_LEADER or reply.endpoint is None:
        return []
    return [response.NodeEndpoint(node_id=reply.leader_id, host=reply.endpoint.host, port=reply.endpoint.port)]


def error_code_of(number: int) -> ErrorCode:
    """A newer peer may know errors that we do not."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _key(node_id: int, directory_id: bytes) -> ReplicaKey:
    return ReplicaKey(node_id, Uuid(bytes(directory_id)))


def _to_wire_endpoints(kind: Any, endpoints: tuple[Endpoint, ...]) -> list[Any]:
    return [kind(name=name, host=host, port=port) for name, host, port in endpoints]


def _endpoints(listeners: Any) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(each.name, each.host, each.port) for each in listeners)
