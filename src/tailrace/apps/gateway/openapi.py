"""The OpenAPI document, made of the operations themselves: what is served is described, and nothing else.

Schemas are written short: a name with a question mark may be missing, a list of one stands for a list of many.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tailrace import __version__
from tailrace.apps.gateway.web import JSON, Operation

_PARAMETER = re.compile(r"\{(\w+)\}")
_NUMBERS = ("broker_id", "partition_id")
_RELATED = {"related": "text"}
_RESOURCE: dict[str, Any] = {
    "kind": "text",
    "metadata": {"self": "text", "resource_name?": "text"},
    "cluster_id": "text",
}
_CONFIG: dict[str, Any] = {
    **_RESOURCE,
    "name": "text",
    "value": "text or null",
    "is_default": "flag",
    "is_read_only": "flag",
    "is_sensitive": "flag",
    "source": "text",
    "synonyms": [{"name": "text", "value": "text or null", "source": "text"}],
}
_ACL = {
    "resource_type": "text",
    "resource_name": "text",
    "pattern_type?": "text",
    "principal": "text",
    "host?": "text",
    "operation": "text",
    "permission": "text",
}
_DATA = {
    "type?": "text",
    "data?": "any",
    "subject?": "text",
    "subject_name_strategy?": "text",
    "schema_id?": "number",
    "schema_version?": "number",
    "schema?": "text",
}
_PART = {"type": "text", "size": "number", "subject?": "text", "schema_id?": "number", "schema_version?": "number"}
_PRODUCED = {
    "cluster_id?": "text",
    "topic_name?": "text",
    "partition_id?": "number",
    "offset?": "number",
    "timestamp?": "text",
    "key?": _PART,
    "value?": _PART,
}
_NEW_RECORD = {
    "partition_id?": "number",
    "headers?": [{"name": "text", "value?": "text or null"}],
    "key?": _DATA,
    "value?": _DATA,
    "timestamp?": "any",
}
_FAILED = {"error_code": "number", "message?": "text", "outcome?": "text"}
_MEMBER = {**_RESOURCE, "consumer_group_id": "text", "consumer_id": "text"}
_PLACED = {"topic_name": "text", "partition_id": "number"}

_RESOURCES: dict[str, Any] = {
    "ClusterData": {
        **_RESOURCE,
        "controller": "any",
        "acls": _RELATED,
        "brokers": _RELATED,
        "broker_configs": _RELATED,
        "consumer_groups": _RELATED,
        "topics": _RELATED,
        "partition_reassignments": _RELATED,
    },
    "BrokerData": {
        **_RESOURCE,
        "broker_id": "number",
        "host": "text",
        "port": "number",
        "rack": "text or null",
        "configs": _RELATED,
        "partition_replicas": _RELATED,
    },
    "TopicData": {
        **_RESOURCE,
        "topic_name": "text",
        "is_internal": "flag",
        "replication_factor": "number",
        "partitions_count": "number",
        "partitions": _RELATED,
        "configs": _RELATED,
        "partition_reassignments": _RELATED,
    },
    "PartitionData": {**_RESOURCE, **_PLACED, "leader": "any", "replicas": _RELATED, "reassignment": _RELATED},
    "ReplicaData": {
        **_RESOURCE,
        **_PLACED,
        "broker_id": "number",
        "is_leader": "flag",
        "is_in_sync": "flag",
        "broker": _RELATED,
    },
    "ReassignmentData": {
        **_RESOURCE,
        **_PLACED,
        "adding_replicas": ["number"],
        "removing_replicas": ["number"],
        "replicas": _RELATED,
    },
    "TopicConfigData": {**_CONFIG, "topic_name": "text"},
    "BrokerConfigData": {**_CONFIG, "broker_id": "number"},
    "ClusterConfigData": {**_CONFIG, "config_type": "text"},
    "ConsumerGroupData": {
        **_RESOURCE,
        "consumer_group_id": "text",
        "is_simple": "flag",
        "partition_assignor": "text",
        "state": "text",
        "type": "text",
        "is_mixed_consumer_group": "flag",
        "coordinator": _RELATED,
        "consumer": _RELATED,
        "consumers": _RELATED,
        "lag_summary": _RELATED,
    },
    "ConsumerData": {**_MEMBER, "instance_id": "text or null", "client_id": "text", "assignments": _RELATED},
    "ConsumerAssignmentData": {**_MEMBER, **_PLACED, "partition": _RELATED, "lag": _RELATED},
    "ConsumerLagData": {
        **_MEMBER,
        **_PLACED,
        "current_offset": "number",
        "log_end_offset": "number",
        "lag": "number",
        "instance_id": "text or null",
        "client_id": "text",
    },
    "AclData": {"kind": "text", "metadata": {"self": "text"}, "cluster_id": "text", **_ACL},
}
_OTHERS: dict[str, Any] = {
    "Any": {},
    "Error": {"error_code": "number", "message": "text"},
    "Root": {"clusters": "text", "openapi": "text"},
    "PartitionWithOffsetsData": {**_RESOURCE, **_PLACED, "earliest_offset": "number", "latest_offset": "number"},
    "ConsumerGroupLagSummaryData": {
        **_RESOURCE,
        "consumer_group_id": "text",
        "max_lag_consumer_id": "text",
        "max_lag_instance_id": "text or null",
        "max_lag_client_id": "text",
        "max_lag_topic_name": "text",
        "max_lag_partition_id": "number",
        "max_lag": "number",
        "total_lag": "number",
        "max_lag_consumer": "any",
        "max_lag_partition": _RELATED,
    },
    "CreateTopicRequestData": {
        "topic_name": "text",
        "partitions_count?": "number",
        "replication_factor?": "number",
        "replicas_assignments?": "any",
        "configs?": [{"name": "text", "value": "any"}],
        "validate_only?": "flag",
    },
    "UpdatePartitionCountRequestData": {"partitions_count": "number"},
    "UpdateConfigRequestData": {"value?": "any"},
    "AlterConfigBatchRequestData": {
        "data": [{"name": "text", "value?": "any", "operation?": "text or null"}],
        "validate_only?": "flag",
    },
    "CreateAclRequestData": _ACL,
    "CreateAclRequestDataList": {"data": [_ACL]},
    "ProduceRequest": _NEW_RECORD,
    "ProduceResponse": {**_FAILED, **_PRODUCED},
    "ProduceBatchRequest": {"entries": [{"id": "text", **_NEW_RECORD}]},
    "ProduceBatchResponse": {"successes": [{"id": "text", **_PRODUCED}], "failures": [{"id": "text", **_FAILED}]},
    "PlainRecords": [
        {
            "key?": "any",
            "value?": "any",
            "key_base64?": "text",
            "value_base64?": "text",
            "headers?": "any",
            "partition?": "number",
            "timestamp?": "any",
        }
    ],
    "PlainResults": {
        "topic": "text",
        "results": [
            {
                "partition?": "number",
                "offset?": "number",
                "timestamp?": "number",
                "error_code?": "number",
                "message?": "text",
                "outcome?": "text",
            }
        ],
    },
    "V2Records": {
        "records": [{"key?": "any", "value?": "any", "partition?": "number", "timestamp?": "any"}],
        "key_schema?": "any",
        "key_schema_id?": "any",
        "value_schema?": "any",
        "value_schema_id?": "any",
    },
    "V2Offsets": {
        "offsets": [
            {
                "partition": "any",
                "offset": "any",
                "error_code": "any",
                "error": "text or null",
                "outcome?": "text",
            }
        ],
        "key_schema_id": "any",
        "value_schema_id": "any",
    },
}
_WORDS: dict[str, Any] = {
    "any": {},
    "text": {"type": "string"},
    "text or null": {"type": ["string", "null"]},
    "number": {"type": "integer"},
    "flag": {"type": "boolean"},
}


def describe(operations: Iterable[Operation]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each)
    schemas = {name: _schema(short) for name, short in (_RESOURCES | _OTHERS).items()}
    lists = {f"{name}List": _schema(_list_of(short)) for name, short in _RESOURCES.items()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tailrace gateway", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": schemas | lists,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{"basic": []}, {"bearer": []}, {}],
    }


def _list_of(short: Any) -> dict[str, Any]:
    return {"kind?": "text", "metadata?": {"self": "text", "next": "text or null"}, "data": [short]}


def _operation(operation: Operation) -> dict[str, Any]:
    answers: dict[str, Any] = {str(operation.status): {"description": "Done", **_content(operation)}}
    failure = {"application/json": {"schema": _reference("Error")}}
    answers["default"] = {"description": "Refused, or failed", "content": failure}
    document: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": _name_of(operation),
        "parameters": [*_path_parameters(operation.path), *_query_parameters(operation)],
        "responses": answers,
    }
    if operation.body is not None:
        content = {kind: {"schema": _body_schema(operation, kind)} for kind in operation.takes}
        document["requestBody"] = {"required": True, "content": content}
    return document


def _body_schema(operation: Operation, kind: str) -> dict[str, Any]:
    assert operation.body is not None, "it has one"
    return _reference(operation.body if kind == JSON else "V2Records")


def _content(operation: Operation) -> dict[str, Any]:
    if operation.gives != JSON:
        return {"content": {operation.gives: {"schema": {"type": "string"}}}}
    if operation.answer is None:
        return {}
    return {"content": {JSON: {"schema": _reference(operation.answer)}}}


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": _WORDS["number" if name in _NUMBERS else "text"],
        }
        for name in _PARAMETER.findall(path)
    ]


def _query_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "query", "required": False, "description": what, "schema": _WORDS["text"]}
        for name, what in (operation.query or {}).items()
    ]


def _name_of(operation: Operation) -> str:
    words = re.sub(r"\W+", "_", operation.path.replace("/-/", "/all/")).strip("_") or "root"
    return f"{operation.method.lower()}_{words}"


def _schema(short: Any) -> dict[str, Any]:
    if isinstance(short, str):
        return dict(_WORDS[short])
    if isinstance(short, list):
        return {"type": "array", "items": _schema(short[0])}
    if not short:
        return {}
    return {
        "type": "object",
        "properties": {name.rstrip("?"): _schema(each) for name, each in short.items()},
        "required": [name for name in short if not name.endswith("?")],
    }


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
