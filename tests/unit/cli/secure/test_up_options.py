"""What `tailrace up` says of security before it starts anything."""

import pytest

from tailrace.cli import main
from tailrace.cli.secure.setup import secure_cluster_settings, secure_settings


def test_a_name_is_for_a_certificate(capsys):
    assert main(["up", "--name", "queue.example"]) == 1
    assert "that --secure makes" in capsys.readouterr().err


@pytest.mark.parametrize("brokers", ["1", "3"])
def test_what_was_made_secure_is_not_opened(brokers, tmp_path, capsys):
    (tmp_path / "security").mkdir()
    (tmp_path / "security" / "authority.pem").touch()
    assert main(["up", "--data", str(tmp_path), "--brokers", brokers]) == 1
    assert "was made with --secure" in capsys.readouterr().err


def test_an_open_broker_says_so(capsys):
    # The port is judged after that, so that nothing starts.
    assert main(["up", "--host", "203.0.113.7", "--port", "1", "--set", "node.id=x"]) == 1
    assert "anyone who reaches 203.0.113.7 may do everything" in capsys.readouterr().err


def test_super_users_are_added_to_those_that_the_nodes_need():
    own = {"super.users": "User:root; User:admin", "log.retention.hours": "1", "ssl.keystore.location": "/mine.pem"}
    settings = secure_cluster_settings("/data", own)
    assert settings["super.users"] == "User:admin;User:root;User:CN=broker"
    assert settings["ssl.keystore.location"] == "/mine.pem"
    # Clients see the other certificate; the nodes know each other by their own.
    assert settings["listener.name.nodes.ssl.keystore.location"] == "/data/security/broker.pem"
    assert settings["listener.name.controller.ssl.client.auth"] == "required"
    assert secure_settings("/data", own)["super.users"] == "User:admin;User:root"
    assert secure_settings("/data", {})["super.users"] == "User:admin"


@pytest.mark.parametrize("name", ["listener.security.protocol.map", "inter.broker.listener.name"])
def test_listeners_of_a_secure_cluster_are_not_chosen_by_hand(name, tmp_path, capsys):
    words = ["up", "--secure", "--brokers", "3", "--data", str(tmp_path), "--set", f"{name}=x", "--port", "0"]
    assert main(words) == 1
    assert f"--set {name}: the nodes of a secure cluster need listeners as `up` chooses" in capsys.readouterr().err
