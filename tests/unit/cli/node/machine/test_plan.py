"""The plan of a cluster on one machine: ids, ports and settings that fit together, also after it has grown."""

import pytest

from tailrace.broker.cluster.roles import decide_roles
from tailrace.cli.node.machine.plan import (
    SETTINGS_OF_ONE_NODE,
    ClusterPlan,
    controller_count,
    decide_plan,
    parse_plan,
    plan_broker,
    plan_controllers,
)
from tailrace.cli.secure.setup import secure_cluster_settings
from tailrace.model.config import parse_broker_config
from tailrace.model.listeners import protocol_of, settings_of

CLUSTER_ID = "pmUXq7nqTtK6M3yHDKm5HA"


def plan_of(brokers: int, port: int = 9092) -> ClusterPlan:
    directory_ids = [f"directory-{index}" for index in range(controller_count(brokers))]
    return decide_plan(brokers, port=port, cluster_id=CLUSTER_ID, directory_ids=directory_ids)


def broker_of(plan: ClusterPlan, node_id: int, **common: str):
    return plan_broker(plan, node_id, "/data", common, host="0.0.0.0", advertised_host="queue.example")


def test_brokers_have_the_first_ports_and_controllers_those_above():
    plan = plan_of(3)
    assert [plan.broker_port(node_id) for node_id in plan.broker_ids] == [9092, 9093, 9094]
    assert [controller.port for controller in plan.controllers] == [9095, 9096, 9097]
    assert plan.bootstrap_controllers == "127.0.0.1:9095,127.0.0.1:9096,127.0.0.1:9097"


def test_added_brokers_take_ports_that_no_controller_has():
    plan = plan_of(3).with_broker(4).with_broker(5)
    ports = [plan.broker_port(node_id) for node_id in plan.broker_ids]
    assert ports == [9092, 9093, 9094, 9098, 9099]


def test_a_broker_keeps_its_port_when_another_goes():
    plan = plan_of(4)
    assert plan.without_broker(2).broker_port(4) == plan.broker_port(4)


@pytest.mark.parametrize("port", range(9085, 9100))
def test_no_two_nodes_share_a_port_when_the_first_port_changes(port: int):
    """The controllers stay where the voters' records say that they are."""
    plan = plan_of(3).with_port(port).with_broker(4)
    ports = [plan.broker_port(node_id) for node_id in plan.broker_ids]
    ports += [controller.port for controller in plan.controllers]
    assert len(set(ports)) == 7


@pytest.mark.parametrize(("brokers", "controllers"), [(2, 1), (3, 3), (5, 3)])
def test_three_controllers_from_three_brokers_on(brokers: int, controllers: int):
    assert len(plan_of(brokers).controllers) == controllers


def test_a_plan_reads_back():
    plan = plan_of(3).with_broker(4).without_broker(1)
    assert parse_plan(plan.to_json()) == plan


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cluster_id": "x", "port": "many"}'])
def test_a_damaged_plan_is_told(text: str):
    with pytest.raises((ValueError, KeyError, TypeError)):
        parse_plan(text)


def test_settings_of_a_replicated_cluster():
    config = parse_broker_config(broker_of(plan_of(3), 2).settings)
    assert (config.node_id, config.process_roles) == (2, ("broker",))
    assert config.advertised_listeners[0][1:] == ("queue.example", 9093)
    assert (config.default_replication_factor, config.min_insync_replicas) == (3, 2)
    assert (config.offsets_topic_replication_factor, config.transaction_state_log_min_isr) == (3, 2)
    assert config.controller_quorum_bootstrap_servers == ("127.0.0.1:9095", "127.0.0.1:9096", "127.0.0.1:9097")
    assert config.log_dirs == ("/data/broker-2",)


def test_settings_of_a_secure_cluster():
    common = secure_cluster_settings("/data", {})
    node = plan_broker(plan_of(3), 2, "/data", common, host="0.0.0.0", advertised_host="queue.example", is_secure=True)
    config = parse_broker_config(node.settings)
    assert config.listeners == (("SASL_SSL", "0.0.0.0", 9093), ("NODES", "127.0.0.1", 0))
    assert config.advertised_listeners[0] == ("SASL_SSL", "queue.example", 9093)
    names = ("SASL_SSL", "NODES", "CONTROLLER")
    assert [protocol_of(config, name).value for name in names] == ["SASL_SSL", "SSL", "SSL"]
    assert decide_roles(config).inter_broker_listener_name == "NODES"
    controller = parse_broker_config(plan_controllers(plan_of(3), "/data", common)[0].settings)
    assert settings_of(controller, "CONTROLLER")["ssl.client.auth"] == "required"


def test_settings_of_two_brokers_ask_for_one_replica():
    config = parse_broker_config(broker_of(plan_of(2), 1).settings)
    assert (config.default_replication_factor, config.min_insync_replicas) == (1, 1)


def test_settings_of_controllers():
    nodes = plan_controllers(plan_of(3), "/data", {})
    assert [node.name for node in nodes] == ["controller-1", "controller-2", "controller-3"]
    config = parse_broker_config(nodes[1].settings)
    assert (config.node_id, config.process_roles) == (1002, ("controller",))
    assert config.listeners[0] == ("CONTROLLER", "127.0.0.1", 9096)
    assert config.controller_listener_names == ("CONTROLLER",)


def test_the_users_settings_win_except_for_what_makes_a_node_itself():
    node = broker_of(plan_of(3), 1, **{"min.insync.replicas": "1", "node.id": "77"})
    assert node.settings["min.insync.replicas"] == "1"
    assert node.settings["node.id"] == "1"
    assert "node.id" in SETTINGS_OF_ONE_NODE
