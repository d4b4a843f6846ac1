"""Which security settings hold for a listener."""

import pytest

from tailrace.model.config import parse_broker_config
from tailrace.model.errors import KafkaError
from tailrace.model.listeners import is_secured, protocol_of, settings_of
from tailrace.model.security import SecurityProtocol

TWO = {
    "node.id": "1",
    "listeners": "In-side://h:1,OUTSIDE://h:2",
    "listener.security.protocol.map": "IN-SIDE:SSL,OUTSIDE:SASL_SSL",
}


def test_names_are_free_and_the_map_says_what_they_mean():
    config = parse_broker_config(TWO)
    assert protocol_of(config, "IN-SIDE") is SecurityProtocol.SSL
    assert protocol_of(config, "OUTSIDE") is SecurityProtocol.SASL_SSL
    assert is_secured(config)


def test_without_a_map_a_name_is_its_protocol_and_other_names_are_plaintext():
    config = parse_broker_config({"node.id": "1", "listeners": "SASL_SSL://h:1,MINE://h:2"})
    assert protocol_of(config, "SASL_SSL") is SecurityProtocol.SASL_SSL
    assert protocol_of(config, "MINE") is SecurityProtocol.PLAINTEXT
    assert not is_secured(parse_broker_config({"node.id": "1", "listeners": "MINE://h:2"}))


def test_a_controller_that_is_only_called_counts_too():
    settings = {
        "node.id": "1",
        "process.roles": "broker",
        "controller.listener.names": "CTL",
        "controller.quorum.bootstrap.servers": "h:3",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CTL:SSL",
    }
    assert is_secured(parse_broker_config(settings))


def test_the_more_special_setting_wins():
    config = parse_broker_config(
        {
            **TWO,
            "ssl.client.auth": "requested",
            "sasl.jaas.config": "never read",
            "listener.name.outside.ssl.client.auth": "required",
            "listener.name.outside.sasl.server.max.receive.size": "1000",
            "listener.name.outside.plain.sasl.server.max.receive.size": "2000",
            "listener.name.outside.plain.sasl.jaas.config": "read",
        }
    )
    assert settings_of(config, "IN-SIDE")["ssl.client.auth"] == "requested"
    outside = settings_of(config, "OUTSIDE")
    assert (outside["ssl.client.auth"], outside["sasl.server.max.receive.size"]) == ("required", "1000")
    assert "sasl.jaas.config" not in outside
    plain = settings_of(config, "OUTSIDE", "PLAIN")
    assert (plain["sasl.jaas.config"], plain["sasl.server.max.receive.size"]) == ("read", "2000")
    assert "sasl.jaas.config" not in settings_of(config, "IN-SIDE", "PLAIN")


def test_no_secret_is_told():
    secrets = {
        "ssl.key.password": "hunter1",
        "ssl.keystore.key": "hunter2",
        "listener.name.outside.plain.sasl.jaas.config": "hunter3",
        "listener.name.in-side.ssl.keystore.key": "hunter4",
    }
    assert "hunter" not in repr(parse_broker_config(TWO | secrets))
    for name in ("listener.name.outside.ssl.unknown", "listener.name.gone.ssl.key.password"):
        with pytest.raises(KafkaError) as caught:
            parse_broker_config({**TWO, name: "hunter5"})
        assert "hunter" not in caught.value.message
        assert name in caught.value.message


def test_how_brokers_call_each_other_is_said_once():
    both = {**TWO, "inter.broker.listener.name": "OUTSIDE", "security.inter.broker.protocol": "SSL"}
    with pytest.raises(KafkaError, match="set one of the two"):
        parse_broker_config(both)
    with pytest.raises(KafkaError, match="No listener has it"):
        parse_broker_config({**TWO, "security.inter.broker.protocol": "PLAINTEXT"})


def test_settings_of_a_listener_that_only_other_nodes_have():
    """A controller may be given the file of the brokers; what nobody has is a mistake."""
    mapped = TWO | {"listener.security.protocol.map": TWO["listener.security.protocol.map"] + ",ELSEWHERE:SSL"}
    parse_broker_config({**mapped, "listener.name.elsewhere.ssl.client.auth": "required"})
    with pytest.raises(KafkaError, match="There is no listener ELSEWHERE"):
        parse_broker_config({**TWO, "listener.name.elsewhere.ssl.client.auth": "required"})
