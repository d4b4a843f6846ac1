"""Topics: listed, made, described, grown and deleted."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from tailrace.apps.gateway.errors import GatewayError, bad_field
from tailrace.apps.gateway.rest.clusters import CLUSTER
from tailrace.apps.gateway.web import Call, Operation, answer, nothing
from tailrace.client.admin import BROKER_DEFAULT
from tailrace.client.metadata import TopicMetadata
from tailrace.model.errors import ErrorCode, KafkaError

TOPIC = f"{CLUSTER}/topics/{{topic_name}}"
_INT16_MAX, _INT32_MAX = (1 << 15) - 1, (1 << 31) - 1


async def topic_of(call: Call) -> TopicMetadata:
    """Of the path, as it is now."""
    name = call.text("topic_name")
    try:
        return (await call.caller.admin.describe_topics([name]))[0]
    except KafkaError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise GatewayError(404, 40403, f"This server does not host this topic-partition: {error.message}") from None
        raise


async def _list(call: Call) -> Response:
    cluster_id = await call.cluster_id()
    found = [_topic(call, cluster_id, each) for each in await call.caller.admin.topics()]
    return call.collection("KafkaTopicList", (cluster_id, "topics"), found)


async def _get(call: Call) -> Response:
    cluster_id = await call.cluster_id()
    return answer(_topic(call, cluster_id, await topic_of(call)))


async def _create(call: Call) -> Response:
    cluster_id = await call.cluster_id()
    optional = ("partitions_count", "replication_factor", "replicas_assignments", "configs", "validate_only")
    document = await call.fields(("topic_name",), optional)
    name = document["topic_name"]
    if not isinstance(name, str):
        raise bad_field("topic_name is a text.")
    assignments = _assignments(document.get("replicas_assignments"))
    partitions, factor = (
        _count(document, "partitions_count", _INT32_MAX),
        _count(document, "replication_factor", _INT16_MAX),
    )
    if assignments is not None and (partitions, factor) != (BROKER_DEFAULT, BROKER_DEFAULT):
        raise bad_field("replicas_assignments stands alone: without partitions_count and replication_factor.")
    is_dry = document.get("validate_only") is True
    admin = call.caller.admin
    created = await admin.create_topic(
        name,
        partition_count=partitions,
        replication_factor=factor,
        assignments=assignments,
        configs=_configs(document.get("configs")),
        validate_only=is_dry,
    )
    fields = _fields(
        call, cluster_id, name, is_internal=False, factor=created.replication_factor, partitions=created.partition_count
    )
    return answer(fields, 200 if is_dry else 201)


async def _grow(call: Call) -> Response:
    cluster_id, topic = await call.cluster_id(), await topic_of(call)
    document = await call.fields(("partitions_count",))
    count = _count(document, "partitions_count", _INT32_MAX)
    await call.caller.admin.create_partitions(topic.name, count)
    call.caller.cluster.forget(topic.name)
    factor = len(topic.partitions[0].replicas)
    return answer(_fields(call, cluster_id, topic.name, is_internal=topic.is_internal, factor=factor, partitions=count))


async def _delete(call: Call) -> Response:
    await call.cluster_id()
    name = call.text("topic_name")
    try:
        await call.caller.admin.delete_topic(name)
    except KafkaError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise GatewayError(404, 40403, f"This server does not host this topic-partition: {error.message}") from None
        raise
    call.caller.cluster.forget(name)
    return nothing()


def _topic(call: Call, cluster_id: str, topic: TopicMetadata) -> dict[str, Any]:
    factor = max((len(each.replicas) for each in topic.partitions.values()), default=0)
    return _fields(
        call,
        cluster_id,
        topic.name,
        is_internal=topic.is_internal,
        factor=factor,
        partitions=len(topic.partitions),
    )


def _fields(
    call: Call, cluster_id: str, name: str, *, is_internal: bool, factor: int, partitions: int
) -> dict[str, Any]:
    place = (cluster_id, "topics", name)
    return call.resource(
        "KafkaTopic",
        place,
        f"/topic={name}",
        cluster_id=cluster_id,
        topic_name=name,
        is_internal=is_internal,
        replication_factor=factor,
        partitions_count=partitions,
        partitions=call.related(*place, "partitions"),
        configs=call.related(*place, "configs"),
        partition_reassignments=call.related(*place, "partitions", "-", "reassignment"),
    )


def _count(document: dict[str, Any], name: str, most: int) -> int:
    found = document.get(name)
    if found is None:
        return BROKER_DEFAULT
    if not isinstance(found, int) or isinstance(found, bool) or not 0 < found <= most:
        raise bad_field(f"{name} is a number from 1 to {most}.")
    return found


def _assignments(raw: Any) -> dict[int, list[int]] | None:
    """Partition to brokers, by JSON's texts or as a list of objects."""
    if raw is None:
        return None
    if isinstance(raw, dict):
        pairs = [(int(key) if key.isascii() and key.isdigit() else -1, nodes) for key, nodes in raw.items()]
    elif isinstance(raw, list) and all(isinstance(each, dict) for each in raw):
        pairs = [(each.get("partition_id", -1), each.get("broker_ids")) for each in raw]
    else:
        pairs = []
    for partition, nodes in pairs:
        is_good = isinstance(partition, int) and 0 <= partition <= _INT32_MAX and isinstance(nodes, list)
        if not is_good or not all(isinstance(node, int) and 0 <= node <= _INT32_MAX for node in nodes):
            pairs = []
            break
    if not pairs:
        raise bad_field('replicas_assignments is an object such as {"0": [1, 2, 3]}.')
    return dict(pairs)


def _configs(raw: Any) -> dict[str, str]:
    if raw is None:
        return {}
    if not isinstance(raw, list):
        raise bad_field('configs is a list such as [{"name": "retention.ms", "value": "3600000"}].')
    found: dict[str, str] = {}
    for each in raw:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str) or each.get("value") is None:
            raise bad_field('each of configs is an object {"name": "...", "value": "..."}.')
        found[each["name"]] = setting_text(each["value"])
    return found


def setting_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise bad_field("the value of a setting is a text.")


OPERATIONS = (
    Operation("GET", f"{CLUSTER}/topics", _list, "All topics that the caller may describe", answer="TopicDataList"),
    Operation(
        "POST",
        f"{CLUSTER}/topics",
        _create,
        "Make a topic",
        body="CreateTopicRequestData",
        answer="TopicData",
        status=201,
    ),
    Operation("GET", TOPIC, _get, "A topic", answer="TopicData"),
    Operation("PATCH", TOPIC, _grow, "Add partitions", body="UpdatePartitionCountRequestData", answer="TopicData"),
    Operation("DELETE", TOPIC, _delete, "Delete a topic with its records", status=204),
)
