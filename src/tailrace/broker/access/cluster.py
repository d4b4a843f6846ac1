"""Who may see and change settings: those of a topic, of a group, and of the brokers, which belong to the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailrace.broker.access.access import refusal
from tailrace.broker.access.judging import ask, keep_allowed
from tailrace.controller.image import ResourceType
from tailrace.model.acls import CLUSTER_NAME, Kind, Operation
from tailrace.model.errors import KafkaError

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services
    from tailrace.wire.apis.admin import AlterConfigsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest

# What settings belong to; a type that is not here is unknown, and its handler says so.
_KINDS = {
    ResourceType.TOPIC: Kind.TOPIC,
    ResourceType.GROUP: Kind.GROUP,
    ResourceType.BROKER: Kind.CLUSTER,
    ResourceType.BROKER_LOGGER: Kind.CLUSTER,
    ResourceType.CLIENT_METRICS: Kind.CLUSTER,
}


def judge_describe_configs(
    services: Services, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsRequest:
    kept: DescribeConfigsRequest = _keep(services, context, request, Operation.DESCRIBE_CONFIGS)
    return kept


def judge_alter_configs(
    services: Services, context: RequestContext, request: AlterConfigsRequest | IncrementalAlterConfigsRequest
) -> AlterConfigsRequest | IncrementalAlterConfigsRequest:
    kept: AlterConfigsRequest | IncrementalAlterConfigsRequest = _keep(
        services, context, request, Operation.ALTER_CONFIGS
    )
    return kept


def _keep(services: Services, context: RequestContext, request: Any, operation: Operation) -> Any:
    errors = {kind: refusal(context, operation, kind) for kind in set(_KINDS.values())}

    def judge(resource: Any) -> KafkaError | None:
        kind = _KINDS.get(resource.resource_type)
        if kind is None:
            return None
        name = CLUSTER_NAME if kind is Kind.CLUSTER else resource.resource_name
        return None if ask(services, context, operation, kind, name) else errors[kind]

    return keep_allowed(context, request, "resources", judge)
