"""Principals as Envelopes carry them."""

import pytest

from tailrace.model.errors import ProtocolError
from tailrace.model.security import ANONYMOUS, Principal
from tailrace.wire.principals import decode_principal, encode_principal


def test_the_bytes_are_those_of_kafka():
    assert encode_principal(ANONYMOUS) == b"\0\0" + b"\x05User" + b"\x0aANONYMOUS" + b"\0" + b"\0"


def test_what_was_written_is_read():
    for principal in (
        ANONYMOUS,
        Principal("User", "CN=ä,O=b"),
        Principal("User", "x" * 5000),
        Principal("User", "a", is_by_token=True),
    ):
        assert decode_principal(encode_principal(principal)) == principal


def test_whoever_logged_in_by_a_token_is_read_too():
    assert decode_principal(b"\0\0\x05User\x06alice\x01\0") == Principal("User", "alice", is_by_token=True)


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\0\0", b"\0\1\x05User\x06alice\0\0", b"\0\0\x05User\x06al", b"\0\0\x01\x06alice\0\0"]
)
def test_what_is_no_principal(data):
    with pytest.raises(ProtocolError):
        decode_principal(data)
