"""Features, controllers, and brokers that are let go."""

import pytest

from tailrace.controller.features import QUEUES, SUPPORTED_FEATURES
from tailrace.controller.image import METADATA_VERSION, ResourceType
from tailrace.model.config import Endpoint
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.admin import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tailrace.wire.apis.quorum import (
    BrokerRegistrationResponse,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from tests.unit.controller.cluster import Cluster, assigned

UPGRADE, SAFE_DOWNGRADE = 1, 2
ELR = "eligible.leader.replicas.version"


def update(cluster: Cluster, name: str, level: int, kind: int = UPGRADE, *, validate_only: bool = False) -> int:
    key = UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
    request = UpdateFeaturesRequest(feature_updates=[key], validate_only=validate_only)
    response = cluster.do(request, UpdateFeaturesResponse)
    assert [result.error_code for result in response.results] == [response.error_code]
    return response.error_code


def test_a_new_cluster_has_all_features() -> None:
    cluster = Cluster(brokers=1, features=True)
    expected = {METADATA_VERSION: 30, "group.version": 1, "transaction.version": 2, ELR: 1}
    expected |= {"share.version": 1, "streams.version": 1}
    assert cluster.image.features == expected
    assert cluster.image.brokers[1].features == {**SUPPORTED_FEATURES, QUEUES: (0, 1)}


@pytest.mark.parametrize("number", [1, 2])
def test_what_commits_must_be_known_to_all(number: int) -> None:
    """As kafka-configs shows it for the defaults of all brokers, whatever the number is."""
    cluster = Cluster(brokers=0, features=True, min_insync_replicas=number)
    assert cluster.image.config(ResourceType.BROKER, "") == {"min.insync.replicas": str(number)}


@pytest.mark.parametrize(
    "request_type", [IncrementalAlterConfigsRequest, AlterConfigsRequest], ids=["incremental", "whole"]
)
def test_what_commits_stays_known_to_all(request_type: type) -> None:
    cluster = Cluster(brokers=0, features=True, min_insync_replicas=2)
    configs = []
    if request_type is IncrementalAlterConfigsRequest:
        configs = [IncrementalAlterConfigsRequest.AlterableConfig(name="min.insync.replicas", config_operation=1)]
    resource = request_type.AlterConfigsResource(resource_type=ResourceType.BROKER, resource_name="", configs=configs)
    responses = {
        IncrementalAlterConfigsRequest: IncrementalAlterConfigsResponse,
        AlterConfigsRequest: AlterConfigsResponse,
    }
    (response,) = cluster.do(request_type(resources=[resource]), responses[request_type]).responses
    assert response.error_code == ErrorCode.INVALID_CONFIG
    assert cluster.image.config(ResourceType.BROKER, "") == {"min.insync.replicas": "2"}


def test_min_insync_replicas_is_not_for_single_brokers() -> None:
    cluster = Cluster(brokers=2, features=True)
    change = IncrementalAlterConfigsRequest.AlterableConfig(name="min.insync.replicas", value="2")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    request = IncrementalAlterConfigsRequest(
        resources=[
            resource(resource_type=ResourceType.BROKER, resource_name=name, configs=[change]) for name in ("1", "")
        ]
    )
    responses = cluster.do(request, IncrementalAlterConfigsResponse).responses
    assert [response.error_code for response in responses] == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE]


def test_levels_go_down_and_up_again() -> None:
    cluster = Cluster(brokers=1, features=True)
    assert update(cluster, ELR, 0) == ErrorCode.INVALID_UPDATE_VERSION, "an upgrade goes up"
    assert update(cluster, ELR, 0, SAFE_DOWNGRADE, validate_only=True) == ErrorCode.NONE
    assert cluster.image.features[ELR] == 1
    assert update(cluster, ELR, 0, SAFE_DOWNGRADE) == ErrorCode.NONE
    assert ELR not in cluster.image.features
    assert update(cluster, ELR, 1, SAFE_DOWNGRADE) == ErrorCode.INVALID_UPDATE_VERSION
    assert update(cluster, ELR, 1) == ErrorCode.NONE
    assert cluster.image.features[ELR] == 1


def test_who_wants_eligible_replicas_has_to_agree_on_what_commits() -> None:
    cluster = Cluster(brokers=1, min_insync_replicas=2)
    change = IncrementalAlterConfigsRequest.AlterableConfig(name="min.insync.replicas", value="3")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=ResourceType.BROKER, resource_name="1", configs=[change]
    )
    cluster.do(IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse)
    assert cluster.image.config(ResourceType.BROKER, "1") == {"min.insync.replicas": "3"}
    assert update(cluster, ELR, 1) == ErrorCode.NONE
    assert cluster.image.configs == {(ResourceType.BROKER, ""): {"min.insync.replicas": "2"}}


@pytest.mark.parametrize(
    ("name", "level", "kind"),
    [
        (METADATA_VERSION, 29, SAFE_DOWNGRADE),
        ("kraft.version", 0, SAFE_DOWNGRADE),
        ("group.version", 2, UPGRADE),
        ("group.version", -1, UPGRADE),
        ("group.version", 1, 9),
        ("unheard.of", 1, UPGRADE),
    ],
)
def test_levels_that_cannot_be(name: str, level: int, kind: int) -> None:
    cluster = Cluster(brokers=1, features=True)
    before = cluster.image
    assert update(cluster, name, level, kind) == ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.image is before


def test_what_is_so_already_changes_nothing() -> None:
    cluster = Cluster(brokers=1, features=True)
    before = cluster.image
    for name, level in ((METADATA_VERSION, 30), ("kraft.version", 1), ("group.version", 1)):
        assert update(cluster, name, level) == ErrorCode.NONE
    assert cluster.image is before


def test_all_nodes_have_to_be_able() -> None:
    cluster = Cluster(brokers=0)
    registration = cluster.registration(1)
    registration.features = [feature for feature in registration.features if feature.name != ELR]
    cluster.do(registration, BrokerRegistrationResponse)
    assert update(cluster, "group.version", 1) == ErrorCode.NONE
    assert update(cluster, ELR, 1) == ErrorCode.INVALID_UPDATE_VERSION


def test_a_broker_that_cannot_do_what_the_cluster_uses_is_refused() -> None:
    cluster = Cluster(brokers=0, features=True)
    registration = cluster.registration(1)
    registration.features = [feature for feature in registration.features if feature.name != "group.version"]
    response = cluster.do(registration, BrokerRegistrationResponse)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert cluster.image.brokers == {}


def test_controllers_make_themselves_known() -> None:
    cluster = Cluster(brokers=0)
    request = ControllerRegistrationRequest(
        controller_id=7,
        incarnation_id=b"i" * 16,
        listeners=[ControllerRegistrationRequest.Listener(name="CONTROLLER", host="localhost", port=9093)],
        features=[
            ControllerRegistrationRequest.Feature(
                name="kraft.version", min_supported_version=0, max_supported_version=1
            )
        ],
    )
    cluster.do(request, ControllerRegistrationResponse)
    controller = cluster.image.controllers[7]
    assert controller.endpoints == (Endpoint("CONTROLLER", "localhost", 9093),)
    assert controller.features == {"kraft.version": (0, 1)}
    before = cluster.image
    cluster.do(request, ControllerRegistrationResponse)
    assert cluster.image is before, "news are written, nothing else"


def test_a_broker_is_let_go() -> None:
    cluster = Cluster(brokers=3, features=True)
    cluster.create(assigned("orders", [1, 2, 3]))
    assert cluster.do(UnregisterBrokerRequest(broker_id=1), UnregisterBrokerResponse).error_code == ErrorCode.NONE
    assert list(cluster.image.brokers) == [2, 3]
    partition = cluster.partition("orders")
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 2, 3), (2, 3), 2)
    again = cluster.do(UnregisterBrokerRequest(broker_id=1), UnregisterBrokerResponse)
    assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    cluster.register(1)
    assert cluster.partition("orders") == partition
