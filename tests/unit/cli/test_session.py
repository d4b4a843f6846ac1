"""--command-config: the settings of security, as Kafka's own tools take them."""

from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def list_topics(run: Run, tmp_path: Path) -> Run:
    """`topic list` with these lines as its settings."""

    def list_with(*lines: str) -> tuple[int, str, str]:
        path = tmp_path / "client.properties"
        path.write_text("\n".join(lines))
        return run("topic", "list", "--command-config", str(path))

    return list_with


def test_settings_that_are_not_of_security_are_told(list_topics: Run):
    code, _, errors = list_topics("security.protocol=PLAINTEXT", "request.timeout.ms=1")
    assert code == 0
    assert "request.timeout.ms in " in errors
    assert "is ignored" in errors
    assert "security.protocol" not in errors


def test_a_login_where_none_is_asked_for(list_topics: Run):
    code, _, errors = list_topics(
        "security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.username=alice", "sasl.password=hunter2"
    )
    assert code == 1
    assert "does not ask for SASL on this port" in errors
    assert "hunter2" not in errors


def test_tls_where_there_is_none(list_topics: Run):
    code, _, errors = list_topics("security.protocol=SSL")
    assert code == 1
    assert "hung up during the TLS handshake, as a port without TLS does" in errors


def test_certificates_that_are_not_there(list_topics: Run):
    code, _, errors = list_topics("security.protocol=SSL", "ssl.truststore.location=/no/such.pem")
    assert code == 1
    assert "/no/such.pem for configuration ssl.truststore.location" in errors


def test_a_setting_that_cannot_be(list_topics: Run):
    code, _, errors = list_topics("security.protocol=TLS")
    assert code == 2
    assert "client.properties: Invalid value TLS for configuration security.protocol" in errors


def test_a_file_that_is_not_there(run: Run):
    code, _, errors = run("topic", "list", "--command-config", "/no/such.properties")
    assert code == 2
    assert "cannot read /no/such.properties: No such file or directory" in errors
