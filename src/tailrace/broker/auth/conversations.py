"""What a broker asks in each SASL mechanism. Pure: a conversation is a generator that is sent what the client says, and
yields what to answer; first it yields nothing. It ends with who the client is, or raises KafkaError
SASL_AUTHENTICATION_FAILED, whose text goes to the client.

    PLAIN   RFC 4616

Secrets are compared in constant time. Somebody who does not exist takes as many steps as somebody with a wrong
password, and is told the same.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Generator, Mapping
from typing import NamedTuple

from tailrace.model.errors import ErrorCode, KafkaError


class Accepted(NamedTuple):
    user: str
    last: bytes = b""  # What the client is told with the good news.


Conversation = Generator[bytes, bytes, Accepted]

_NOBODY = ""


def hear_plain(passwords: Mapping[str, str]) -> Conversation:
    message = yield b""
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        raise refusal("Invalid SASL/PLAIN response: it is not UTF-8") from None
    if len(parts) != 3:
        raise refusal(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
    authorization_id, user, password = parts
    if not user:
        raise refusal("Authentication failed: username not specified")
    if not password:
        raise refusal("Authentication failed: password not specified")
    expected = passwords.get(user)
    is_right = _are_equal(password, _NOBODY if expected is None else expected)
    if expected is None or not is_right:
        raise refusal("Authentication failed: Invalid username or password")
    if authorization_id and authorization_id != user:
        raise refusal("Authentication failed: Client requested an authorization id that is different from username")
    return Accepted(user)


def _are_equal(given: str, expected: str) -> bool:
    """Of digests, so that not even the length of what is expected can be measured."""
    return hmac.compare_digest(hashlib.sha256(given.encode()).digest(), hashlib.sha256(expected.encode()).digest())


def refusal(text: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, text)
