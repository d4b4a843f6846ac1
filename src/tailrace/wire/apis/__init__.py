"""Every API that is declared, by key. Nothing is imported before it is asked for.

Declared is not served: what a node serves, in which versions and where, stands in `tailrace.catalogue`.
"""

from __future__ import annotations

from importlib import import_module
from typing import cast

from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.schema import Message

# Where <Name>Request and <Name>Response are declared.
_MODULES: dict[str, tuple[ApiKey, ...]] = {
    "data": (
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.API_VERSIONS,
        ApiKey.DELETE_RECORDS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ),
    "groups": (
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.FIND_COORDINATOR,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
    ),
    "security": (
        ApiKey.SASL_HANDSHAKE,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ),
    "admin": (
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ),
    "transactions": (
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
    ),
    "quorum": (
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.ALTER_PARTITION,
        ApiKey.ENVELOPE,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.UPDATE_RAFT_VOTER,
    ),
    "own": (
        ApiKey.DESCRIBE_GROUP_HISTORY,
        ApiKey.REPORT_REPLICAS,
        ApiKey.ALLOW_TRUNCATION,
        ApiKey.MOVE_LEADER,
    ),
}
_module_of: dict[int, str] = {api_key: module for module, api_keys in _MODULES.items() for api_key in api_keys}
_requests: dict[int, type[Message]] = {}
_responses: dict[int, type[Message]] = {}


def is_declared(api_key: int) -> bool:
    return api_key in _module_of


def api_name(api_key: int) -> str:
    """Kafka's name, such as `Produce`; for log lines also of keys that are not declared."""
    if not is_declared(api_key):
        return f"api{api_key}"
    return "".join(word.capitalize() for word in ApiKey(api_key).name.split("_"))


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
    module = import_module(f"{__name__}.{_module_of[api_key]}")
    return cast("type[Message]", getattr(module, api_name(api_key) + suffix))
