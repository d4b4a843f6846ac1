"""Groups with dead letters, back-off or the order of keys, and brokers that know none of it: never both."""

import pytest

from tailrace.controller.features import QUEUES
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.admin import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from tailrace.wire.apis.quorum import BrokerRegistrationRequest, BrokerRegistrationResponse
from tests.unit.controller.cluster import Cluster

GROUP_RESOURCE = 32
BEYOND_KAFKA = {
    "errors.deadletterqueue.topic.name": "dlq.jobs",
    "share.retry.backoff.ms": "100",
    "share.key.order": "true",
}


def foreign(cluster: Cluster, node_id: int) -> BrokerRegistrationRequest:
    request = cluster.registration(node_id)
    request.features = [each for each in request.features if each.name != QUEUES]
    return request


def set_group(
    cluster: Cluster, name: str, value: str | None
) -> IncrementalAlterConfigsResponse.AlterConfigsResourceResponse:
    request = IncrementalAlterConfigsRequest
    change = request.AlterableConfig(name=name, value=value, config_operation=0 if value is not None else 1)
    resource = request.AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name="workers", configs=[change])
    return cluster.do(request(resources=[resource]), IncrementalAlterConfigsResponse).responses[0]


@pytest.mark.parametrize(("name", "value"), BEYOND_KAFKA.items())
def test_they_are_refused_while_a_broker_does_not_know_them(name: str, value: str) -> None:
    cluster = Cluster(brokers=2)
    assert cluster.do(foreign(cluster, 3), BrokerRegistrationResponse).error_code == ErrorCode.NONE
    refused = set_group(cluster, name, value)
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert "these do not: 3." in (refused.error_message or "")
    assert set_group(cluster, "share.delivery.count.limit", "3").error_code == ErrorCode.NONE
    cluster.register(3)
    assert set_group(cluster, name, value).error_code == ErrorCode.NONE


@pytest.mark.parametrize(("name", "value"), BEYOND_KAFKA.items())
def test_who_does_not_know_them_does_not_join(name: str, value: str) -> None:
    cluster = Cluster(brokers=1)
    assert set_group(cluster, name, value).error_code == ErrorCode.NONE
    assert cluster.do(foreign(cluster, 2), BrokerRegistrationResponse).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert 2 not in cluster.image.brokers
    assert set_group(cluster, name, None).error_code == ErrorCode.NONE
    assert cluster.do(foreign(cluster, 2), BrokerRegistrationResponse).error_code == ErrorCode.NONE
