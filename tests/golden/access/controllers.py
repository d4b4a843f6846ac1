"""What is asked on the listener of a controller, as in `cases`: what nodes ask each other, and what administrators may
ask there. Whatever is let through is of another cluster, or of a broker that is not there, and changes nothing."""

from __future__ import annotations

from typing import Any

from tailrace.model.acls import CLUSTER_NAME, Kind, Operation
from tailrace.model.ids import CLUSTER_METADATA_TOPIC
from tailrace.model.security import Principal
from tailrace.wire.apis import admin, data, quorum
from tailrace.wire.frame import encode_request
from tailrace.wire.principals import encode_principal
from tailrace.wire.schema import Message
from tests.golden.access import requests
from tests.golden.access.cases import CASES, Case
from tests.golden.access.requests import State

_NODES = ((Operation.CLUSTER_ACTION, Kind.CLUSTER, CLUSTER_NAME),)
_ALTER = ((Operation.ALTER, Kind.CLUSTER, CLUSTER_NAME),)
_OTHER_CLUSTER = "another"
_NOBODY = 77
_METADATA_TOPIC_ID = bytes(15) + b"\1"
# What brokers answer too, and whose requests are forwarded: the same question, asked where it ends.
_SHARED = (
    "CreateTopics",
    "CreateTopics by cluster",
    "CreatePartitions",
    "DescribeConfigs",
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "ElectLeaders",
    "AlterPartitionReassignments",
    "ListPartitionReassignments",
    "AlterClientQuotas",
    "DescribeUserScramCredentials",
    "AlterUserScramCredentials",
    "DescribeQuorum",
    "UpdateFeatures",
    "UnregisterBroker",
    "AddRaftVoter",
    "RemoveRaftVoter",
    "DescribeAcls",
    "CreateAcls",
    "DeleteAcls",
    "DeleteTopics, old",
    "DeleteTopics",
    "DeleteTopics by cluster",
)


def _about_metadata(request: Any, **fields: Any) -> Message:
    partition = request.PartitionData(partition_index=0, **fields)
    topic = request.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])
    asked: Message = request(cluster_id=_OTHER_CLUSTER, topics=[topic])
    return asked


def _fetch(_state: State) -> Message:
    partition = data.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topic = data.FetchRequest.FetchTopic(topic_id=_METADATA_TOPIC_ID, partitions=[partition])
    return data.FetchRequest(
        cluster_id=_OTHER_CLUSTER,
        replica_state=data.FetchRequest.ReplicaState(replica_id=_NOBODY, replica_epoch=-1),
        max_wait_ms=0,
        max_bytes=1,
        topics=[topic],
    )


def _fetch_snapshot(_state: State) -> Message:
    request = quorum.FetchSnapshotRequest
    wanted = request.PartitionSnapshot(partition=0, snapshot_id=request.SnapshotId(end_offset=1, epoch=1))
    topic = request.TopicSnapshot(name=CLUSTER_METADATA_TOPIC, partitions=[wanted])
    return request(cluster_id=_OTHER_CLUSTER, replica_id=_NOBODY, topics=[topic])


def _envelope(_state: State) -> Message:
    """Of somebody who may do nothing: what is inside is refused inside."""
    inner = admin.CreateTopicsRequest(topics=[], timeout_ms=100, validate_only=True)
    frame = b"".join(bytes(part) for part in encode_request(inner.api_key, 7, 1, "inner", inner))
    return quorum.EnvelopeRequest(
        request_data=frame[4:],
        request_principal=encode_principal(Principal("User", "bob")),
        client_host_address=bytes([127, 0, 0, 1]),
    )


def _registration(_state: State) -> Message:
    request = quorum.BrokerRegistrationRequest
    return request(broker_id=_NOBODY, cluster_id=_OTHER_CLUSTER, incarnation_id=b"?" * 16, log_dirs=[b"?" * 16])


def _describe_controllers(_state: State) -> Message:
    return admin.DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=2)


CONTROLLER_CASES = (
    Case("Fetch", _fetch, (17, 18), _NODES),
    Case("FetchSnapshot", _fetch_snapshot, (0, 1), _NODES),
    Case("Vote", lambda _: _about_metadata(quorum.VoteRequest), (0, 2), _NODES),
    Case("BeginQuorumEpoch", lambda _: _about_metadata(quorum.BeginQuorumEpochRequest), (0, 1), _NODES),
    Case("EndQuorumEpoch", lambda _: _about_metadata(quorum.EndQuorumEpochRequest), (0, 1), _NODES),
    Case("AlterPartition", requests.plain(quorum.AlterPartitionRequest(broker_id=_NOBODY)), (2, 3), _NODES),
    Case("BrokerRegistration", _registration, (0, 4), _NODES),
    Case("BrokerHeartbeat", requests.plain(quorum.BrokerHeartbeatRequest(broker_id=_NOBODY)), (0, 2), _NODES),
    Case("AllocateProducerIds", requests.plain(quorum.AllocateProducerIdsRequest(broker_id=_NOBODY)), (0, 0), _NODES),
    Case(
        "ControllerRegistration",
        requests.plain(quorum.ControllerRegistrationRequest(controller_id=_NOBODY, incarnation_id=b"?" * 16)),
        (0, 0),
        _NODES,
    ),
    Case("AssignReplicasToDirs", requests.plain(quorum.AssignReplicasToDirsRequest(broker_id=_NOBODY)), (0, 0), _NODES),
    Case(
        "UpdateRaftVoter",
        requests.plain(quorum.UpdateRaftVoterRequest(cluster_id=_OTHER_CLUSTER, voter_id=_NOBODY)),
        (0, 0),
        _NODES,
    ),
    Case("Envelope", _envelope, (0, 0), _NODES),
    Case("DescribeCluster", _describe_controllers, (1, 2), _ALTER),
    Case("DescribeCluster of brokers", requests.describe_cluster, (0, 2), _ALTER),
    *(case for name in _SHARED for case in CASES if case.name == name),
)
