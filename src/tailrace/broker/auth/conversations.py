"""What a broker asks in each SASL mechanism. Pure: a conversation is a generator that is sent what the client says, and
yields what to answer; first it yields nothing. It ends with who the client is, or raises KafkaError
SASL_AUTHENTICATION_FAILED, whose text goes to the client.

    PLAIN         RFC 4616
    SCRAM-SHA-*   RFC 5802 and 7677, without channel binding, as Kafka has it: names and passwords are taken as they
                  are, in UTF-8, and not prepared by SASLprep

Secrets are compared in constant time. Somebody who does not exist takes as many steps as somebody with a wrong
password, and is told the same.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Generator, Mapping
from typing import NamedTuple

from tailrace.controller.image import ScramCredential
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.security import ScramMechanism


class Accepted(NamedTuple):
    user: str
    last: bytes = b""  # What the client is told with the good news.


Conversation = Generator[bytes, bytes, Accepted]

# Everybody has a credential; the flag says whether it is a real one.
FindCredential = Callable[[str], tuple[ScramCredential, bool]]

_NOBODY = ""
_INVALID_CREDENTIALS = "Authentication failed during authentication due to invalid credentials with SASL mechanism"
# The client's messages. Extensions are read over, as the RFC has it; but one of them asks for a login by a delegation
# token, which is none of a user's.
_EXTENSIONS = r"(?:,(?!tokenauth=)[A-Za-z]+=[^,\0]*)*"
_CLIENT_FIRST = (
    r"(?P<header>n,(?:a=(?P<authorization>[^,\0]+))?,)"
    rf"(?P<bare>n=(?P<name>[^,\0]+),r=(?P<nonce>[!-+\--~]+){_EXTENSIONS})"
)
_CLIENT_FINAL = (
    rf"(?P<unproved>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[!-+\--~]+){_EXTENSIONS}),p=(?P<proof>[A-Za-z0-9+/=]+)"
)


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


def hear_scram(mechanism: ScramMechanism, find: FindCredential, nonce: str) -> Conversation:
    """`find` gives everybody a credential, and whether it is real; `nonce` is new each time, printable, without commas.
    A broker needs no password here, and no more than some hashes."""
    name = mechanism.hash_name
    failure = f"{_INVALID_CREDENTIALS} {mechanism.mechanism_name}"
    first = _fields(_CLIENT_FIRST, (yield b""), failure)
    user = _unescape(first["name"], failure)
    if first["authorization"] and _unescape(first["authorization"], failure) != user:
        raise refusal(failure)
    credential, is_real = find(user)
    both_nonces = first["nonce"] + nonce
    server_first = f"r={both_nonces},s={b64encode(credential.salt).decode()},i={credential.iterations}"

    final = _fields(_CLIENT_FINAL, (yield server_first.encode()), failure)
    spoken = f"{first['bare']},{server_first},{final['unproved']}".encode()
    signature = hmac.digest(credential.stored_key, spoken, name)
    proof = _decode_base64(final["proof"])
    has_length = len(proof) == len(signature)
    client_key = bytes(mine ^ theirs for mine, theirs in zip(proof, signature, strict=False))
    is_proved = hmac.compare_digest(hashlib.new(name, client_key).digest(), credential.stored_key)
    is_bound = _decode_base64(final["binding"]) == first["header"].encode()
    is_answer = hmac.compare_digest(final["nonce"], both_nonces)
    # All of it is looked at, whatever is wrong.
    if not (is_real & is_proved & has_length & is_bound & is_answer):
        raise refusal(failure)
    server_signature = hmac.digest(credential.server_key, spoken, name)
    return Accepted(user, b"v=" + b64encode(server_signature))


def _fields(pattern: str, message: bytes, failure: str) -> dict[str, str]:
    try:
        found = re.fullmatch(pattern, message.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise refusal(failure)
    return found.groupdict(default="")


def _unescape(name: str, failure: str) -> str:
    """A comma is =2C and an equals sign =3D in it; no other one is allowed."""
    if re.search("=(?!2C|3D)", name):
        raise refusal(failure)
    return name.replace("=2C", ",").replace("=3D", "=")


def _decode_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return b""


def _are_equal(given: str, expected: str) -> bool:
    """Of digests, so that not even the length of what is expected can be measured."""
    return hmac.compare_digest(hashlib.sha256(given.encode()).digest(), hashlib.sha256(expected.encode()).digest())


def refusal(text: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, text)
