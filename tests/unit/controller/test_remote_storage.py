"""Topics with remote storage, and brokers that cannot serve it, such as those of Apache Kafka: never both."""

from tailrace.controller.features import REMOTE_STORAGE
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.admin import (
    CreateTopicsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tailrace.wire.apis.quorum import BrokerRegistrationRequest, BrokerRegistrationResponse
from tests.unit.controller.cluster import Cluster, topic

ON = {"remote_log_storage_system_enable": True, "remote_log_storage_url": "file:///store"}


def foreign(cluster: Cluster, node_id: int) -> BrokerRegistrationRequest:
    request = cluster.registration(node_id)
    request.features = [each for each in request.features if each.name != REMOTE_STORAGE]
    return request


def create(cluster: Cluster, name: str, enable: str) -> CreateTopicsResponse.CreatableTopicResult:
    return cluster.create(topic(name, 1, 1, remote_storage_enable=enable)).topics[0]


def enable(cluster: Cluster, name: str) -> IncrementalAlterConfigsResponse.AlterConfigsResourceResponse:
    change = IncrementalAlterConfigsRequest.AlterableConfig(name="remote.storage.enable", value="true")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=2, resource_name=name, configs=[change]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    return cluster.do(request, IncrementalAlterConfigsResponse).responses[0]


def test_it_is_refused_while_a_broker_cannot_read_it() -> None:
    cluster = Cluster(brokers=2, **ON)
    assert cluster.do(foreign(cluster, 3), BrokerRegistrationResponse).error_code == ErrorCode.NONE
    created = create(cluster, "cold", "true")
    assert created.error_code == ErrorCode.INVALID_CONFIG
    assert "cannot: 3." in (created.error_message or "")
    assert create(cluster, "local", "false").error_code == ErrorCode.NONE
    assert enable(cluster, "local").error_code == ErrorCode.INVALID_CONFIG
    cluster.register(3)
    assert enable(cluster, "local").error_code == ErrorCode.NONE
    assert create(cluster, "cold", "true").error_code == ErrorCode.NONE


def test_who_cannot_read_it_does_not_join() -> None:
    cluster = Cluster(brokers=1, **ON)
    assert create(cluster, "cold", "true").error_code == ErrorCode.NONE
    answer = cluster.do(foreign(cluster, 2), BrokerRegistrationResponse)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert 2 not in cluster.image.brokers
    assert cluster.register(2) >= 0
