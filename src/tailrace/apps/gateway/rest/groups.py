"""Consumer groups: their members, what these are assigned, and how far behind they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.responses import Response

from tailrace.apps.gateway.errors import GatewayError, not_found
from tailrace.apps.gateway.rest.clusters import CLUSTER
from tailrace.apps.gateway.web import Call, Operation, answer
from tailrace.client.fetching import Isolation
from tailrace.client.groups.admin import DescribedGroup, GroupAdmin, GroupMember
from tailrace.client.offsets import LATEST, list_offsets
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition

_GROUP = f"{CLUSTER}/consumer-groups/{{consumer_group_id}}"
_CONSUMER = f"{_GROUP}/consumers/{{consumer_id}}"
# As Kafka's protocol says it, and as Confluent's enumeration does.
_STATES = {
    "stable": "STABLE",
    "empty": "EMPTY",
    "dead": "DEAD",
    "preparingrebalance": "PREPARING_REBALANCE",
    "completingrebalance": "COMPLETING_REBALANCE",
    "assigning": "ASSIGNING",
    "reconciling": "RECONCILING",
}


def _admin(call: Call) -> GroupAdmin:
    return GroupAdmin(call.caller.admin.cluster)


async def _group(call: Call) -> DescribedGroup:
    group_id = call.text("consumer_group_id")
    try:
        return await _admin(call).describe(group_id)
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            raise GatewayError(404, 40405, f"Consumer group id not found. {error.message}") from None
        raise


async def _list(call: Call) -> Response:
    cluster_id = await call.cluster_id()
    admin = _admin(call)
    found = []
    for each in await admin.groups():
        if each.protocol_type in ("consumer", "") and each.type in ("", "classic", "consumer", "unknown"):
            try:
                found.append(_document(call, cluster_id, await admin.describe(each.group_id)))
            except KafkaError as error:
                if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:  # It was deleted meanwhile.
                    raise
    return call.collection("KafkaConsumerGroupList", (cluster_id, "consumer-groups"), found)


async def _get(call: Call) -> Response:
    cluster_id = await call.cluster_id()
    return answer(_document(call, cluster_id, await _group(call)))


def _document(call: Call, cluster_id: str, group: DescribedGroup) -> dict[str, Any]:
    place = (cluster_id, "consumer-groups", group.group_id)
    has_classic = any(each.protocol == "classic" for each in group.members)
    return call.resource(
        "KafkaConsumerGroup",
        place,
        f"/consumer-group={group.group_id}",
        cluster_id=cluster_id,
        consumer_group_id=group.group_id,
        is_simple=group.type == "classic" and not group.assignor and not group.members,
        partition_assignor=group.assignor,
        state=_STATES.get(group.state.lower(), "UNKNOWN"),
        type=group.type.upper(),
        is_mixed_consumer_group=group.type == "consumer" and has_classic,
        coordinator=call.related(cluster_id, "brokers", group.coordinator_id),
        consumer=call.related(*place, "consumers"),
        consumers=call.related(*place, "consumers"),
        lag_summary=call.related(*place, "lag-summary"),
    )


# --- members


async def _list_members(call: Call) -> Response:
    cluster_id, group = await call.cluster_id(), await _group(call)
    found = [_member(call, cluster_id, group.group_id, each) for each in group.members]
    return call.collection("KafkaConsumerList", (cluster_id, "consumer-groups", group.group_id, "consumers"), found)


async def _get_member(call: Call) -> Response:
    cluster_id, group = await call.cluster_id(), await _group(call)
    return answer(_member(call, cluster_id, group.group_id, _asked_member(call, group)))


def _asked_member(call: Call, group: DescribedGroup) -> GroupMember:
    member_id = call.text("consumer_id")
    for each in group.members:
        if each.member_id == member_id:
            return each
    raise not_found(f"group {group.group_id} has no member {member_id}")


def _member(call: Call, cluster_id: str, group_id: str, member: GroupMember) -> dict[str, Any]:
    place = (cluster_id, "consumer-groups", group_id, "consumers", member.member_id)
    return call.resource(
        "KafkaConsumer",
        place,
        f"/consumer-group={group_id}/consumer={member.member_id}",
        cluster_id=cluster_id,
        consumer_group_id=group_id,
        consumer_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        assignments=call.related(*place, "assignments"),
    )


async def _list_assignments(call: Call) -> Response:
    cluster_id, group = await call.cluster_id(), await _group(call)
    member = _asked_member(call, group)
    found = [_assignment(call, cluster_id, group.group_id, member, each) for each in member.assignment]
    place = (cluster_id, "consumer-groups", group.group_id, "consumers", member.member_id, "assignments")
    return call.collection("KafkaConsumerAssignmentList", place, found)


async def _get_assignment(call: Call) -> Response:
    cluster_id, group = await call.cluster_id(), await _group(call)
    member = _asked_member(call, group)
    where = _asked_partition(call)
    if where not in member.assignment:
        raise not_found(f"{where} is not assigned to member {member.member_id}")
    return answer(_assignment(call, cluster_id, group.group_id, member, where))


def _asked_partition(call: Call) -> TopicPartition:
    return TopicPartition(call.text("topic_name"), PartitionIndex(call.number("partition_id")))


def _assignment(
    call: Call, cluster_id: str, group_id: str, member: GroupMember, where: TopicPartition
) -> dict[str, Any]:
    group = (cluster_id, "consumer-groups", group_id)
    partition = (where.topic, "partitions", where.partition)
    return call.resource(
        "KafkaConsumerAssignment",
        (*group, "consumers", member.member_id, "assignments", *partition),
        f"/consumer-group={group_id}/consumer={member.member_id}/assignment={where.partition}",
        cluster_id=cluster_id,
        consumer_group_id=group_id,
        consumer_id=member.member_id,
        topic_name=where.topic,
        partition_id=where.partition,
        partition=call.related(cluster_id, "topics", *partition),
        lag=call.related(*group, "lags", *partition),
    )


# --- lag


class _Lag(NamedTuple):
    current_offset: int
    log_end_offset: int
    member: GroupMember | None

    @property
    def lag(self) -> int:
        return max(0, self.log_end_offset - self.current_offset)


async def _lags(call: Call, group: DescribedGroup) -> Mapping[TopicPartition, _Lag]:
    admin = _admin(call)
    committed = await admin.offsets_of(group.group_id, lambda offsets: offsets.fetch(require_stable=False))
    cluster = admin.cluster
    known = {topic.name: topic for topic in await call.caller.admin.topics()}
    # What was deleted since has no end to be behind of.
    alive = [each for each in committed if each.topic in known and each.partition in known[each.topic].partitions]
    ends = await list_offsets(
        cluster,
        dict.fromkeys(alive, LATEST),
        isolation=Isolation.READ_COMMITTED,
        timeout_ms=cluster.limits.request_timeout_ms,
    )
    owners = {where: member for member in group.members for where in member.assignment}
    return {each: _Lag(committed[each].offset, ends[each], owners.get(each)) for each in sorted(alive)}


async def _list_lags(call: Call) -> Response:
    cluster_id, group = await call.cluster_id(), await _group(call)
    found = [_lag(call, cluster_id, group.group_id, *each) for each in (await _lags(call, group)).items()]
    return call.collection("KafkaConsumerLagList", (cluster_id, "consumer-groups", group.group_id, "lags"), found)


async def _get_lag(call: Call) -> Response:
    cluster_id, group, where = await call.cluster_id(), await _group(call), _asked_partition(call)
    found = (await _lags(call, group)).get(where)
    if found is None:
        raise not_found(f"group {group.group_id} has committed no offset of {where}")
    return answer(_lag(call, cluster_id, group.group_id, where, found))


def _lag(call: Call, cluster_id: str, group_id: str, where: TopicPartition, found: _Lag) -> dict[str, Any]:
    return call.resource(
        "KafkaConsumerLag",
        (cluster_id, "consumer-groups", group_id, "lags", where.topic, "partitions", where.partition),
        f"/consumer-group={group_id}/lag={where.topic}/partition={where.partition}",
        cluster_id=cluster_id,
        consumer_group_id=group_id,
        topic_name=where.topic,
        partition_id=where.partition,
        current_offset=found.current_offset,
        log_end_offset=found.log_end_offset,
        lag=found.lag,
        consumer_id=found.member.member_id if found.member else "",
        instance_id=found.member.instance_id if found.member else None,
        client_id=found.member.client_id if found.member else "",
    )


async def _summary(call: Call) -> Response:
    cluster_id, group = await call.cluster_id(), await _group(call)
    lags = await _lags(call, group)
    if not lags:
        raise not_found(f"group {group.group_id} has committed no offsets")
    where, worst = max(lags.items(), key=lambda item: item[1].lag)
    place = (cluster_id, "consumer-groups", group.group_id)
    member = worst.member
    fields = {
        "cluster_id": cluster_id,
        "consumer_group_id": group.group_id,
        "max_lag_consumer_id": member.member_id if member else "",
        "max_lag_instance_id": member.instance_id if member else None,
        "max_lag_client_id": member.client_id if member else "",
        "max_lag_topic_name": where.topic,
        "max_lag_partition_id": where.partition,
        "max_lag": worst.lag,
        "total_lag": sum(each.lag for each in lags.values()),
        "max_lag_consumer": call.related(*place, "consumers", member.member_id) if member else None,
        "max_lag_partition": call.related(cluster_id, "topics", where.topic, "partitions", where.partition),
    }
    name = f"/consumer-group={group.group_id}/lag-summary"
    return answer(call.resource("KafkaConsumerGroupLagSummary", (*place, "lag-summary"), name, **fields))


OPERATIONS = (
    Operation("GET", f"{CLUSTER}/consumer-groups", _list, "All groups of consumers", answer="ConsumerGroupDataList"),
    Operation("GET", _GROUP, _get, "A group", answer="ConsumerGroupData"),
    Operation("GET", f"{_GROUP}/consumers", _list_members, "Its members", answer="ConsumerDataList"),
    Operation("GET", _CONSUMER, _get_member, "A member", answer="ConsumerData"),
    Operation(
        "GET", f"{_CONSUMER}/assignments", _list_assignments, "What it reads", answer="ConsumerAssignmentDataList"
    ),
    Operation(
        "GET",
        f"{_CONSUMER}/assignments/{{topic_name}}/partitions/{{partition_id}}",
        _get_assignment,
        "A partition that it reads",
        answer="ConsumerAssignmentData",
    ),
    Operation(
        "GET", f"{_GROUP}/lag-summary", _summary, "How far behind a group is", answer="ConsumerGroupLagSummaryData"
    ),
    Operation("GET", f"{_GROUP}/lags", _list_lags, "How far behind, by partition", answer="ConsumerLagDataList"),
    Operation(
        "GET",
        f"{_GROUP}/lags/{{topic_name}}/partitions/{{partition_id}}",
        _get_lag,
        "How far behind in a partition",
        answer="ConsumerLagData",
    ),
)
