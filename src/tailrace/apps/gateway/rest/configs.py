"""Settings of topics, of brokers, and of all brokers: listed, set, put back to their defaults, several at a time.

The three differ in where they stand in the path, and in what names them: a `_Owner`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from starlette.responses import Response

from tailrace.apps.gateway.errors import bad_field, not_found
from tailrace.apps.gateway.rest.clusters import CLUSTER
from tailrace.apps.gateway.rest.topics import TOPIC, setting_text, topic_of
from tailrace.apps.gateway.web import Call, Operation, answer, nothing
from tailrace.client.admin import RESOURCE_BROKER, RESOURCE_TOPIC, ConfigEntry

_SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
_DEFAULT = 5
_DEFAULT_OF_ALL_BROKERS = 3
_OPERATIONS = ("SET", "DELETE")


class _Owner(NamedTuple):
    """Whose settings: `place` is where they stand below the cluster."""

    resource_type: int
    name: str
    kind: str
    place: tuple[object, ...]
    crn: str
    fields: dict[str, Any]


async def _topic(call: Call) -> _Owner:
    name = (await topic_of(call)).name  # Else brokers speak of a topic with other words than Confluent's.
    return _topic_owner(name)


def _topic_owner(name: str) -> _Owner:
    place = ("topics", name, "configs")
    return _Owner(RESOURCE_TOPIC, name, "KafkaTopicConfig", place, f"/topic={name}/config=", {"topic_name": name})


async def _broker(call: Call) -> _Owner:
    node = call.number("broker_id")
    if all(each.node_id != node for each in await call.caller.admin.brokers()):
        raise not_found(f"there is no broker {node}")
    return _broker_owner(node)


def _broker_owner(node: int) -> _Owner:
    place = ("brokers", node, "configs")
    return _Owner(
        RESOURCE_BROKER, str(node), "KafkaBrokerConfig", place, f"/broker={node}/config=", {"broker_id": node}
    )


async def _cluster(call: Call) -> _Owner:
    del call
    fields = {"config_type": "BROKER"}
    return _Owner(RESOURCE_BROKER, "", "KafkaClusterConfig", ("broker-configs",), "/broker-config=", fields)


async def _entries(call: Call, owner: _Owner) -> list[ConfigEntry]:
    found = await call.caller.admin.configs_of(owner.resource_type, owner.name, with_synonyms=True)
    if owner.kind == "KafkaClusterConfig":
        return [each for each in found if each.source == _DEFAULT_OF_ALL_BROKERS]
    return found


def _document(call: Call, cluster_id: str, owner: _Owner, entry: ConfigEntry) -> dict[str, Any]:
    return call.resource(
        owner.kind,
        (cluster_id, *owner.place, entry.name),
        f"{owner.crn}{entry.name}",
        cluster_id=cluster_id,
        **owner.fields,
        name=entry.name,
        value=entry.value,
        is_default=entry.source == _DEFAULT,
        is_read_only=entry.is_read_only,
        is_sensitive=entry.is_sensitive,
        source=_SOURCES.get(entry.source, "UNKNOWN"),
        synonyms=[
            {"name": each.name, "value": each.value, "source": _SOURCES.get(each.source, "UNKNOWN")}
            for each in entry.synonyms
        ],
    )


Find = Callable[[Call], Awaitable[_Owner]]


def _operations(base: str, find: Find, what: str, schema: str) -> tuple[Operation, ...]:
    async def show_all(call: Call) -> Response:
        cluster_id, owner = await call.cluster_id(), await find(call)
        found = [_document(call, cluster_id, owner, each) for each in await _entries(call, owner)]
        return call.collection(f"{owner.kind}List", (cluster_id, *owner.place), found)

    async def show(call: Call) -> Response:
        cluster_id, owner, name = await call.cluster_id(), await find(call), call.text("name")
        for each in await _entries(call, owner):
            if each.name == name:
                return answer(_document(call, cluster_id, owner, each))
        raise not_found(f"there is no setting {name} here")

    async def put(call: Call) -> Response:
        await call.cluster_id()
        owner, document = await find(call), await call.fields((), ("value",))
        changes, removals = _change(call.text("name"), document.get("value"))
        await call.caller.admin.alter_configs(owner.resource_type, owner.name, changes=changes, removals=removals)
        return nothing()

    async def reset(call: Call) -> Response:
        await call.cluster_id()
        owner, name = await find(call), call.text("name")
        # Brokers take it for done where there is no such setting, and a slip of the hand would not be seen.
        if all(each.name != name for each in await _entries(call, owner)):
            raise not_found(f"there is no setting {name} here")
        await call.caller.admin.alter_configs(owner.resource_type, owner.name, changes={}, removals=[name])
        return nothing()

    async def alter(call: Call) -> Response:
        await call.cluster_id()
        owner, document = await find(call), await call.fields(("data",), ("validate_only",))
        changes, removals = _changes(document["data"])
        await call.caller.admin.alter_configs(
            owner.resource_type,
            owner.name,
            changes=changes,
            removals=removals,
            validate_only=document.get("validate_only") is True,
        )
        return nothing()

    one = f"{base}/{{name}}"
    return (
        Operation("GET", base, show_all, f"The settings of {what}", answer=f"{schema}List"),
        Operation("GET", one, show, f"A setting of {what}", answer=schema),
        Operation("PUT", one, put, f"Change a setting of {what}", body="UpdateConfigRequestData", status=204),
        Operation("DELETE", one, reset, f"Put a setting of {what} back to its default", status=204),
        Operation(
            "POST",
            f"{base}:alter",
            alter,
            f"Change several settings of {what} at once",
            body="AlterConfigBatchRequestData",
            status=204,
        ),
    )


def _change(name: str, value: Any) -> tuple[dict[str, str], list[str]]:
    return ({}, [name]) if value is None else ({name: setting_text(value)}, [])


def _changes(raw: Any) -> tuple[dict[str, str], list[str]]:
    changes: dict[str, str] = {}
    removals: list[str] = []
    if not isinstance(raw, list) or not raw:
        raise bad_field('data is a list such as [{"name": "retention.ms", "value": "3600000"}].')
    for each in raw:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise bad_field("each of data has a name.")
        operation = each.get("operation") or "SET"
        if operation not in _OPERATIONS:
            raise bad_field(f"operation is one of {', '.join(_OPERATIONS)}.")
        change, removal = _change(each["name"], None if operation == "DELETE" else each.get("value"))
        changes |= change
        removals += removal
    return changes, removals


async def _of_all_topics(call: Call) -> Response:
    cluster_id = await call.cluster_id()
    found = []
    for topic in await call.caller.admin.topics():
        owner = _topic_owner(topic.name)
        found += [_document(call, cluster_id, owner, each) for each in await _entries(call, owner)]
    return call.collection("KafkaTopicConfigList", (cluster_id, "topics", "-", "configs"), found)


async def _of_all_brokers(call: Call) -> Response:
    cluster_id = await call.cluster_id()
    found = []
    for broker in await call.caller.admin.brokers():
        if not broker.is_fenced:
            owner = _broker_owner(broker.node_id)
            found += [_document(call, cluster_id, owner, each) for each in await _entries(call, owner)]
    return call.collection("KafkaBrokerConfigList", (cluster_id, "brokers", "-", "configs"), found)


OPERATIONS = (
    Operation(
        "GET",
        f"{CLUSTER}/topics/-/configs",
        _of_all_topics,
        "The settings of all topics",
        answer="TopicConfigDataList",
    ),
    Operation(
        "GET",
        f"{CLUSTER}/brokers/-/configs",
        _of_all_brokers,
        "The settings of the brokers that serve",
        answer="BrokerConfigDataList",
    ),
    *_operations(f"{TOPIC}/configs", _topic, "a topic", "TopicConfigData"),
    *_operations(f"{CLUSTER}/brokers/{{broker_id}}/configs", _broker, "a broker", "BrokerConfigData"),
    *_operations(f"{CLUSTER}/broker-configs", _cluster, "all brokers", "ClusterConfigData"),
)
