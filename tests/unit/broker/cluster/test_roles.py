"""What a node is by its settings."""

from tailrace.broker.cluster.roles import decide_roles
from tailrace.model.config import parse_broker_config


def roles(**settings: str):
    values = {"node.id": "1", "log.dirs": "data"} | {name.replace("_", "."): text for name, text in settings.items()}
    return decide_roles(parse_broker_config(values))


def test_a_node_without_peers_has_both_roles():
    alone = roles(listeners="A://127.0.0.1:1,B://127.0.0.1:2")
    assert alone.is_alone
    assert alone.is_broker
    assert alone.is_controller
    assert [each.listener_name for each in alone.client_listeners] == ["A", "B"]
    assert alone.controller_listeners == ()
    assert alone.inter_broker_listener_name == "A"


def test_a_listener_serves_clients_or_the_quorum():
    both = roles(
        listeners="CONTROLLER://127.0.0.1:1,CLIENTS://127.0.0.1:2,REPLICAS://127.0.0.1:3",
        controller_listener_names="CONTROLLER",
        inter_broker_listener_name="REPLICAS",
    )
    assert not both.is_alone
    assert [each.listener_name for each in both.client_listeners] == ["CLIENTS", "REPLICAS"]
    assert [each.listener_name for each in both.controller_listeners] == ["CONTROLLER"]
    assert both.inter_broker_listener_name == "REPLICAS"
    assert [both.serves_clients(each) for each in (*both.client_listeners, *both.controller_listeners)] == [
        True,
        True,
        False,
    ]


def test_a_dedicated_controller_serves_no_clients():
    controller = roles(
        process_roles="controller", listeners="CONTROLLER://127.0.0.1:1", controller_listener_names="CONTROLLER"
    )
    assert (controller.is_broker, controller.is_controller, controller.is_alone) == (False, True, False)
    assert controller.client_listeners == ()


def test_a_dedicated_broker_is_never_alone():
    broker = roles(
        process_roles="broker",
        listeners="PLAINTEXT://127.0.0.1:1",
        controller_listener_names="CONTROLLER",
        controller_quorum_bootstrap_servers="127.0.0.1:9",
    )
    assert (broker.is_broker, broker.is_controller, broker.is_alone) == (True, False, False)
    assert broker.controller_listeners == ()
