"""IncrementalAlterConfigs and AlterConfigs, resource by resource."""

import pytest

from tailrace.controller.configs import Operation
from tailrace.controller.effective import broker_config, group_config, topic_config
from tailrace.controller.image import ResourceType
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.admin import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.unit.controller.cluster import Cluster, topic

Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
Change = IncrementalAlterConfigsRequest.AlterableConfig
Error = tuple[int, str | None]


def changed(resource_type: int, name: str, *changes: tuple[str, int, str | None]) -> Resource:
    configs = [Change(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    return Resource(resource_type=resource_type, resource_name=name, configs=configs)


def incremental(cluster: Cluster, *resources: Resource, validate_only: bool = False) -> list[Error]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    responses = cluster.do(request, IncrementalAlterConfigsResponse).responses
    assert [(each.resource_type, each.resource_name) for each in responses] == [
        (each.resource_type, each.resource_name) for each in resources
    ]
    return [(each.error_code, each.error_message) for each in responses]


def legacy(cluster: Cluster, resource_type: int, name: str, **values: str | None) -> Error:
    resource = AlterConfigsRequest.AlterConfigsResource
    configs = [
        AlterConfigsRequest.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in values.items()
    ]
    request = AlterConfigsRequest(
        resources=[resource(resource_type=resource_type, resource_name=name, configs=configs)]
    )
    (response,) = cluster.do(request, AlterConfigsResponse).responses
    return response.error_code, response.error_message


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.create(topic("orders", retention_ms="5", cleanup_policy="compact"))
    return cluster


OK = (ErrorCode.NONE, None)


def test_set_and_delete(cluster: Cluster) -> None:
    changes = changed(
        ResourceType.TOPIC,
        "orders",
        ("retention.ms", Operation.DELETE, None),
        ("retention.bytes", Operation.SET, "7"),
        ("segment.ms", Operation.DELETE, None),
    )
    assert incremental(cluster, changes) == [OK]
    assert cluster.image.config(ResourceType.TOPIC, "orders") == {"cleanup.policy": "compact", "retention.bytes": "7"}
    config = topic_config(cluster.config, cluster.image, "orders")
    assert (config.retention_ms, config.retention_bytes) == (604_800_000, 7)


def test_append_and_subtract_start_from_what_holds(cluster: Cluster) -> None:
    cluster.create(topic("plain"))
    append = ("cleanup.policy", Operation.APPEND, "compact")
    assert incremental(cluster, changed(ResourceType.TOPIC, "plain", append)) == [OK]
    assert cluster.image.config(ResourceType.TOPIC, "plain") == {"cleanup.policy": "delete,compact"}
    assert incremental(cluster, changed(ResourceType.TOPIC, "plain", append)) == [OK]
    assert cluster.image.config(ResourceType.TOPIC, "plain") == {"cleanup.policy": "delete,compact"}
    subtract = ("cleanup.policy", Operation.SUBTRACT, "delete")
    assert incremental(cluster, changed(ResourceType.TOPIC, "plain", subtract)) == [OK]
    assert cluster.image.config(ResourceType.TOPIC, "plain") == {"cleanup.policy": "compact"}


def test_validate_only_changes_nothing(cluster: Cluster) -> None:
    before = cluster.image
    good = changed(ResourceType.TOPIC, "orders", ("retention.ms", Operation.SET, "6"))
    bad = changed(ResourceType.BROKER, "1", ("node.id", Operation.SET, "6"))
    (first, _), (second, _) = incremental(cluster, good, bad, validate_only=True)
    assert (first, second) == (ErrorCode.NONE, ErrorCode.INVALID_REQUEST)
    assert cluster.image is before


def test_what_does_not_change_is_not_written(cluster: Cluster) -> None:
    count = len(cluster.records)
    assert incremental(cluster, changed(ResourceType.TOPIC, "orders", ("retention.ms", Operation.SET, "5"))) == [OK]
    assert legacy(cluster, ResourceType.TOPIC, "orders", retention_ms="5", cleanup_policy="compact") == OK
    assert len(cluster.records) == count


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ((("nope", Operation.SET, "1"),), ErrorCode.INVALID_CONFIG, "Unknown topic config name: nope"),
        ((("retention.ms", Operation.SET, "x"),), ErrorCode.INVALID_CONFIG, "Not a number of type LONG"),
        ((("retention.ms", Operation.SET, "-2"),), ErrorCode.INVALID_CONFIG, "Value must be at least -1"),
        (
            (("retention.ms", Operation.APPEND, "1"),),
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        ((("nope", Operation.SUBTRACT, "1"),), ErrorCode.INVALID_CONFIG, "Can't SUBTRACT to key nope"),
        ((("retention.ms", 9, "1"),), ErrorCode.INVALID_REQUEST, "Unknown operations type 9"),
        (
            (("retention.ms", Operation.SET, None),),
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms",
        ),
        (
            (("retention.ms", Operation.SET, "1"), ("retention.ms", Operation.SET, "2")),
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        (
            (("min.compaction.lag.ms", Operation.SET, "9"), ("max.compaction.lag.ms", Operation.SET, "8")),
            ErrorCode.INVALID_CONFIG,
            "min.compaction.lag.ms (9) > max.compaction.lag.ms (8)",
        ),
    ],
)
def test_topic_settings_that_are_refused(
    cluster: Cluster, changes: tuple[tuple[str, int, str | None], ...], code: ErrorCode, message: str
) -> None:
    before = cluster.image
    good = ("segment.ms", Operation.SET, "1000")
    ((error_code, error_message),) = incremental(cluster, changed(ResourceType.TOPIC, "orders", good, *changes))
    assert error_code == code
    assert message in (error_message or "")
    assert cluster.image is before, "a resource changes as a whole or not at all"


@pytest.mark.parametrize(
    ("resource_type", "name", "code", "message"),
    [
        (ResourceType.TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'none' does not exist."),
        (ResourceType.TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION, "contains one or more characters"),
        (ResourceType.TOPIC, "", ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."),
        (ResourceType.BROKER, "one", ErrorCode.INVALID_REQUEST, "Node id must be an integer, but it is: one"),
        (ResourceType.BROKER, "2", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1, but received 2"),
        (ResourceType.BROKER, "9" * 5000, ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1"),
        (ResourceType.BROKER_LOGGER, "1", ErrorCode.INVALID_REQUEST, "Unknown resource type 8"),
        (99, "x", ErrorCode.INVALID_REQUEST, "Unknown resource type 99"),
    ],
)
def test_resources_that_are_refused(
    cluster: Cluster, resource_type: int, name: str, code: ErrorCode, message: str
) -> None:
    ((error_code, error_message),) = incremental(cluster, changed(resource_type, name))
    assert error_code == code
    assert message in (error_message or "")


def test_a_resource_given_twice_is_changed_never(cluster: Cluster) -> None:
    change = changed(ResourceType.TOPIC, "orders", ("retention.ms", Operation.SET, "6"))
    error = (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    assert incremental(cluster, change, change) == [error, error]


@pytest.mark.parametrize(
    ("name", "value", "code", "message"),
    [
        ("node.id", "2", ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamically: [node.id]"),
        ("create.topic.policy.class.name", "x", ErrorCode.INVALID_CONFIG, "classes of Java cannot be loaded"),
        ("max.connections", "-1", ErrorCode.INVALID_REQUEST, "Value must be at least 0"),
        ("log.retention.ms", "soon", ErrorCode.INVALID_REQUEST, "Not a number of type LONG"),
    ],
)
def test_broker_settings_that_are_refused(
    cluster: Cluster, name: str, value: str, code: ErrorCode, message: str
) -> None:
    for broker in ("", "1"):
        change = changed(ResourceType.BROKER, broker, (name, Operation.SET, value))
        ((error_code, error_message),) = incremental(cluster, change)
        assert error_code == code
        assert message in (error_message or "")


@pytest.mark.parametrize("broker", ["", "1"])
def test_names_that_mean_nothing_to_a_broker_are_kept(cluster: Cluster, broker: str) -> None:
    change = changed(
        ResourceType.BROKER, broker, ("cleanup.policy", Operation.SET, "x"), ("my.plugin", Operation.SET, "1")
    )
    assert incremental(cluster, change) == [(ErrorCode.NONE, None)]
    assert cluster.image.config(ResourceType.BROKER, broker) == {"cleanup.policy": "x", "my.plugin": "1"}
    assert incremental(cluster, changed(ResourceType.BROKER, broker, ("my.plugin", Operation.DELETE, None))) == [
        (ErrorCode.NONE, None)
    ]
    assert cluster.image.config(ResourceType.BROKER, broker) == {"cleanup.policy": "x"}


def test_broker_settings_hold_for_one_before_all(cluster: Cluster) -> None:
    everyone = changed(
        ResourceType.BROKER,
        "",
        ("max.connections", Operation.SET, "10"),
        ("log.retention.ms", Operation.SET, "11"),
    )
    one = changed(ResourceType.BROKER, "1", ("max.connections", Operation.SET, "12"))
    assert incremental(cluster, everyone, one) == [OK, OK]
    config = broker_config(cluster.config, cluster.image)
    assert config.max_connections == 12
    cluster.create(topic("plain"))
    assert topic_config(config, cluster.image, "plain").retention_ms == 11
    assert topic_config(config, cluster.image, "orders").retention_ms == 5


def test_topics_are_checked_against_the_dynamic_defaults(cluster: Cluster) -> None:
    lag = changed(ResourceType.BROKER, "", ("log.cleaner.max.compaction.lag.ms", Operation.SET, "10"))
    assert incremental(cluster, lag) == [OK]
    (result,) = cluster.create(topic("late", min_compaction_lag_ms="11")).topics
    assert result.error_code == ErrorCode.INVALID_CONFIG


def test_alter_configs_replaces_all_settings(cluster: Cluster) -> None:
    assert legacy(cluster, ResourceType.TOPIC, "orders", retention_bytes="9") == OK
    assert cluster.image.config(ResourceType.TOPIC, "orders") == {"retention.bytes": "9"}
    assert legacy(cluster, ResourceType.TOPIC, "orders") == OK
    assert (ResourceType.TOPIC, "orders") not in cluster.image.configs


def test_alter_configs_is_checked_too(cluster: Cluster) -> None:
    before = cluster.image
    assert legacy(cluster, ResourceType.TOPIC, "orders", retention_ms="x")[0] == ErrorCode.INVALID_CONFIG
    assert legacy(cluster, ResourceType.TOPIC, "orders", retention_ms=None)[0] == ErrorCode.INVALID_REQUEST
    assert legacy(cluster, ResourceType.BROKER, "1", node_id="4")[0] == ErrorCode.INVALID_REQUEST
    assert cluster.image is before


def test_settings_of_a_group(cluster: Cluster) -> None:
    session = changed(ResourceType.GROUP, "g", ("consumer.session.timeout.ms", Operation.SET, "50000"))
    assert incremental(cluster, session) == [OK]
    assert group_config(cluster.config, cluster.image, "g").consumer_session_timeout_ms == 50_000
    assert group_config(cluster.config, cluster.image, "h") is cluster.config.group_defaults
    unset = changed(ResourceType.GROUP, "g", ("consumer.session.timeout.ms", Operation.DELETE, None))
    assert incremental(cluster, unset) == [OK]
    assert cluster.image.config(ResourceType.GROUP, "g") == {}


def test_a_setting_of_a_group_stays_within_the_brokers_bounds_when_they_change(cluster: Cluster) -> None:
    session = changed(ResourceType.GROUP, "g", ("consumer.session.timeout.ms", Operation.SET, "60000"))
    assert incremental(cluster, session) == [OK]
    config = cluster.config.replace(group_consumer_max_session_timeout_ms=55_000)
    assert group_config(config, cluster.image, "g").consumer_session_timeout_ms == 55_000
    every = changed(ResourceType.BROKER, "", ("group.consumer.assignment.interval.ms", Operation.SET, "99000"))
    assert incremental(cluster, every) == [OK]
    broker = broker_config(cluster.config, cluster.image)
    assert group_config(broker, cluster.image, "h").consumer_assignment_interval_ms == 15_000


@pytest.mark.parametrize(
    ("name", "settings", "code", "message"),
    [
        ("", {"consumer.session.timeout.ms": "50000"}, ErrorCode.INVALID_REQUEST, "Default group resources"),
        ("g", {"retention.ms": "5"}, ErrorCode.INVALID_CONFIG, "Unknown group config name"),
        ("g", {"consumer.session.timeout.ms": "44999"}, ErrorCode.INVALID_CONFIG, "group.consumer.min.session.timeout"),
        ("g", {"consumer.session.timeout.ms": "60001"}, ErrorCode.INVALID_CONFIG, "group.consumer.max.session.timeout"),
        ("g", {"consumer.heartbeat.interval.ms": "4999"}, ErrorCode.INVALID_CONFIG, "group.consumer.min.heartbeat"),
        ("g", {"consumer.assignment.interval.ms": "15001"}, ErrorCode.INVALID_CONFIG, "group.consumer.max.assignment"),
        ("g", {"consumer.assignment.interval.ms": "x"}, ErrorCode.INVALID_CONFIG, "Not a number"),
    ],
)
def test_what_a_group_cannot_be_given(
    cluster: Cluster, name: str, settings: dict[str, str], code: ErrorCode, message: str
) -> None:
    before = cluster.image
    changes = [(key, Operation.SET, value) for key, value in settings.items()]
    ((error_code, error_message),) = incremental(cluster, changed(ResourceType.GROUP, name, *changes))
    assert error_code == code
    assert message in (error_message or "")
    assert cluster.image is before
