"""Every API that is declared, by key. Nothing is imported before it is asked for.

Declared is not served: what a broker serves, and in which versions, stands in its table of handlers. Not declared
are the keys 4-7, which Kafka removed, and delegation tokens, telemetry, share groups and streams groups.
"""

from __future__ import annotations

from importlib import import_module
from typing import cast

from tailrace.wire.schema import Message

# key: (name, module that declares <name>Request and <name>Response)
_APIS = {
    0: ("Produce", "data"),
    1: ("Fetch", "data"),
    2: ("ListOffsets", "data"),
    3: ("Metadata", "data"),
    8: ("OffsetCommit", "groups"),
    9: ("OffsetFetch", "groups"),
    10: ("FindCoordinator", "groups"),
    11: ("JoinGroup", "groups"),
    12: ("Heartbeat", "groups"),
    13: ("LeaveGroup", "groups"),
    14: ("SyncGroup", "groups"),
    15: ("DescribeGroups", "groups"),
    16: ("ListGroups", "groups"),
    17: ("SaslHandshake", "security"),
    18: ("ApiVersions", "data"),
    19: ("CreateTopics", "admin"),
    20: ("DeleteTopics", "admin"),
    21: ("DeleteRecords", "data"),
    22: ("InitProducerId", "transactions"),
    23: ("OffsetForLeaderEpoch", "data"),
    24: ("AddPartitionsToTxn", "transactions"),
    25: ("AddOffsetsToTxn", "transactions"),
    26: ("EndTxn", "transactions"),
    27: ("WriteTxnMarkers", "transactions"),
    28: ("TxnOffsetCommit", "transactions"),
    29: ("DescribeAcls", "security"),
    30: ("CreateAcls", "security"),
    31: ("DeleteAcls", "security"),
    32: ("DescribeConfigs", "admin"),
    33: ("AlterConfigs", "admin"),
    34: ("AlterReplicaLogDirs", "admin"),
    35: ("DescribeLogDirs", "admin"),
    36: ("SaslAuthenticate", "security"),
    37: ("CreatePartitions", "admin"),
    42: ("DeleteGroups", "groups"),
    43: ("ElectLeaders", "admin"),
    44: ("IncrementalAlterConfigs", "admin"),
    45: ("AlterPartitionReassignments", "admin"),
    46: ("ListPartitionReassignments", "admin"),
    47: ("OffsetDelete", "groups"),
    48: ("DescribeClientQuotas", "admin"),
    49: ("AlterClientQuotas", "admin"),
    50: ("DescribeUserScramCredentials", "security"),
    51: ("AlterUserScramCredentials", "security"),
    52: ("Vote", "quorum"),
    53: ("BeginQuorumEpoch", "quorum"),
    54: ("EndQuorumEpoch", "quorum"),
    55: ("DescribeQuorum", "quorum"),
    56: ("AlterPartition", "quorum"),
    57: ("UpdateFeatures", "admin"),
    58: ("Envelope", "quorum"),
    59: ("FetchSnapshot", "quorum"),
    60: ("DescribeCluster", "admin"),
    61: ("DescribeProducers", "transactions"),
    62: ("BrokerRegistration", "quorum"),
    63: ("BrokerHeartbeat", "quorum"),
    64: ("UnregisterBroker", "admin"),
    65: ("DescribeTransactions", "transactions"),
    66: ("ListTransactions", "transactions"),
    67: ("AllocateProducerIds", "quorum"),
    68: ("ConsumerGroupHeartbeat", "groups"),
    69: ("ConsumerGroupDescribe", "groups"),
    70: ("ControllerRegistration", "quorum"),
    73: ("AssignReplicasToDirs", "quorum"),
    74: ("ListConfigResources", "admin"),
    75: ("DescribeTopicPartitions", "admin"),
    80: ("AddRaftVoter", "quorum"),
    81: ("RemoveRaftVoter", "quorum"),
    82: ("UpdateRaftVoter", "quorum"),
}
# Ours alone.
_OWN_APIS = {
    10_000: ("DescribeGroupHistory", "own"),
    10_100: ("ReportReplicas", "own"),
    10_101: ("AllowTruncation", "own"),
    10_102: ("MoveLeader", "own"),
}
# Asked by our commands, advertised to nobody.
UNADVERTISED_API_KEYS = range(10_000, 10_100)
_KNOWN = _APIS | _OWN_APIS
_requests: dict[int, type[Message]] = {}
_responses: dict[int, type[Message]] = {}


def api_keys() -> list[int]:
    """Kafka's."""
    return list(_APIS)


def is_declared(api_key: int) -> bool:
    return api_key in _KNOWN


def api_name(api_key: int) -> str:
    """Kafka's name, such as `Produce`; for log lines also of keys that are not declared."""
    return _KNOWN[api_key][0] if api_key in _KNOWN else f"api{api_key}"


def request_type(api_key: int) -> type[Message]:
    """Raises KeyError for a key that is not declared."""
    found = _requests.get(api_key)
    if found is None:
        found = _requests[api_key] = _load(api_key, "Request")
    return found


def response_type(api_key: int) -> type[Message]:
    """Raises KeyError for a key that is not declared."""
    found = _responses.get(api_key)
    if found is None:
        found = _responses[api_key] = _load(api_key, "Response")
    return found


def _load(api_key: int, suffix: str) -> type[Message]:
    name, module = _KNOWN[api_key]
    return cast("type[Message]", getattr(import_module(f"{__name__}.{module}"), name + suffix))
