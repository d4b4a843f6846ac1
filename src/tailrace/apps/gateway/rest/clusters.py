"""The cluster, and its brokers."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from tailrace.apps.gateway.errors import not_found
from tailrace.apps.gateway.web import Call, Operation, answer
from tailrace.client.admin import BrokerEntry

CLUSTER = "/v3/clusters/{cluster_id}"


async def _list_clusters(call: Call) -> Response:
    await call.caller.cluster.refresh([])
    return call.collection("KafkaClusterList", (), [_cluster(call, str(call.caller.cluster.cluster_id))])


async def _get_cluster(call: Call) -> Response:
    cluster_id = await call.cluster_id()
    await call.caller.cluster.refresh([])
    return answer(_cluster(call, cluster_id))


def _cluster(call: Call, cluster_id: str) -> dict[str, Any]:
    controller = call.caller.cluster.controller_id
    return call.resource(
        "KafkaCluster",
        (cluster_id,),
        "",
        cluster_id=cluster_id,
        controller=call.related(cluster_id, "brokers", controller) if controller >= 0 else None,
        acls=call.related(cluster_id, "acls"),
        brokers=call.related(cluster_id, "brokers"),
        broker_configs=call.related(cluster_id, "broker-configs"),
        consumer_groups=call.related(cluster_id, "consumer-groups"),
        topics=call.related(cluster_id, "topics"),
        partition_reassignments=call.related(cluster_id, "topics", "-", "partitions", "-", "reassignment"),
    )


async def _list_brokers(call: Call) -> Response:
    cluster_id = await call.cluster_id()
    found = [_broker(call, cluster_id, each) for each in await call.caller.admin.brokers() if not each.is_fenced]
    return call.collection("KafkaBrokerList", (cluster_id, "brokers"), found)


async def _get_broker(call: Call) -> Response:
    cluster_id, broker_id = await call.cluster_id(), call.number("broker_id")
    for each in await call.caller.admin.brokers():
        if each.node_id == broker_id and not each.is_fenced:
            return answer(_broker(call, cluster_id, each))
    raise not_found(f"there is no broker {broker_id}, or it does not serve now")


def _broker(call: Call, cluster_id: str, broker: BrokerEntry) -> dict[str, Any]:
    place = (cluster_id, "brokers", broker.node_id)
    return call.resource(
        "KafkaBroker",
        place,
        f"/broker={broker.node_id}",
        cluster_id=cluster_id,
        broker_id=broker.node_id,
        host=broker.host,
        port=broker.port,
        rack=broker.rack,
        configs=call.related(*place, "configs"),
        partition_replicas=call.related(*place, "partition-replicas"),
    )


OPERATIONS = (
    Operation(
        "GET", "/v3/clusters", _list_clusters, "The cluster that this gateway leads to", answer="ClusterDataList"
    ),
    Operation("GET", CLUSTER, _get_cluster, "A cluster", answer="ClusterData"),
    Operation("GET", f"{CLUSTER}/brokers", _list_brokers, "The brokers that serve", answer="BrokerDataList"),
    Operation("GET", f"{CLUSTER}/brokers/{{broker_id}}", _get_broker, "A broker", answer="BrokerData"),
)
