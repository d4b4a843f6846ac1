"""Principals as text, and what the protocols of listeners ask for."""

import pytest

from tailrace.model.security import ANONYMOUS, Principal, SecurityProtocol, parse_principal


def test_a_principal_reads_as_it_is_written():
    for text in ("User:alice", "User:CN=alice,OU=eng", "User:a:b", "Group:staff"):
        assert str(parse_principal(text)) == text
    assert parse_principal("User:ANONYMOUS") == ANONYMOUS
    assert parse_principal("User:a:b") == Principal("User", "a:b")


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice", ":"])
def test_what_is_no_principal(text):
    with pytest.raises(ValueError, match="User:alice"):
        parse_principal(text)


def test_what_a_protocol_asks_for():
    told = {each.value: (each.has_tls, each.has_sasl) for each in SecurityProtocol}
    assert told == {
        "PLAINTEXT": (False, False),
        "SSL": (True, False),
        "SASL_PLAINTEXT": (False, True),
        "SASL_SSL": (True, True),
    }
