"""What a broker asks in each SASL mechanism. Pure: a conversation is a generator that is sent what the client says, and
yields what to answer; first it yields nothing. What it cannot find out by itself it yields as a `Wait`, and is sent
the result. It ends with who the client is, or raises RefusalError, whose text goes to the client.

    PLAIN         RFC 4616
    OAUTHBEARER   RFC 7628, as Kafka has it: extensions are read over, and a refusal takes one round more
    SCRAM-SHA-*   RFC 5802 and 7677, without channel binding, as Kafka has it: names and passwords are taken as they
                  are, in UTF-8, and not prepared by SASLprep. With the extension tokenauth=true the name is the id of
                  a delegation token, and its HMAC in base64 the password (KIP-48)

Secrets are compared in constant time. Somebody who does not exist takes as many steps as somebody with a wrong
password, and is told the same. Nobody has logged in yet: a message is looked at once from its beginning to its end, and
one that is longer than any name and password not at all.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, NamedTuple

from tailrace.controller.image import ScramCredential
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.security import ScramMechanism


class Accepted(NamedTuple):
    user: str
    last: bytes = b""  # What the client is told with the good news.
    life_ms: int = 0  # How long what it has shown is good for; 0 for ever.
    is_by_token: bool = False


class Wait(NamedTuple):
    """In place of an answer."""

    begin: Callable[[], Awaitable[Any]]


class RefusalError(KafkaError):
    """Its message is for the client, its cause for the log: nothing that was sent is part of it."""

    def __init__(self, text: str, cause: str = "") -> None:
        super().__init__(ErrorCode.SASL_AUTHENTICATION_FAILED, text)
        self.cause = cause or text


class Bearer(NamedTuple):
    """Whom a good token names."""

    user: str
    life_ms: int  # Until the token ends, if that is still to come; else as long as clocks may be off. Above 0.


class Doubt(NamedTuple):
    """A token that is not good."""

    reason: str  # For the log.
    is_key_unknown: bool = False  # Newer keys might know more.


Conversation = Generator[bytes | Wait, Any, Accepted]
JudgeToken = Callable[[str], Awaitable[Bearer | Doubt]]

# Everybody has a credential; the flag says whether it is a real one.
FindCredential = Callable[[str], tuple[ScramCredential, bool]]


class TokenLogin(NamedTuple):
    make_credential: Callable[[], Awaitable[ScramCredential]]
    owner: str | None  # None if there is no such token, or no more.
    life_ms: int


FindToken = Callable[[str], TokenLogin]

_NOBODY = ""
_CHALLENGE = '{"status":"invalid_token"}'
_ANOTHER_ID = "Authentication failed: Client requested an authorization id that is different from"
_INVALID_CREDENTIALS = "Authentication failed during authentication due to invalid credentials with SASL mechanism"
# What sasl.server.max.receive.size lets through, Kafka's 512 KB, held the loop for a quarter of a second.
MESSAGE_MAX_BYTES = 16 * 1024
_MARKS_MAX = 100  # Of a message with a token, which may be longer: as many pairs as nobody has.
# The client's messages. Extensions are read over, as the RFC has it, but for tokenauth in the first of them. Nothing is
# ever given back (the second +): whatever is wrong is found in one pass.
_EXTENSIONS = r"(?:,(?!p=)[A-Za-z]++=[^,\0]*+)*+"
_CLIENT_FIRST = (
    r"(?P<header>n,(?:a=(?P<authorization>[^,\0]++))?,)"
    rf"(?P<bare>n=(?P<name>[^,\0]++),r=(?P<nonce>[!-+\--~]++)(?P<extensions>{_EXTENSIONS}))"
)
_CLIENT_FINAL = (
    rf"(?P<unproved>c=(?P<binding>[A-Za-z0-9+/=]++),r=(?P<nonce>[!-+\--~]++){_EXTENSIONS})"
    r",p=(?P<proof>[A-Za-z0-9+/=]++)"
)


def hear_plain(passwords: Mapping[str, str]) -> Conversation:
    message = yield b""
    if len(message) > MESSAGE_MAX_BYTES:
        raise RefusalError(f"Invalid SASL/PLAIN response: {len(message)} bytes, more than {MESSAGE_MAX_BYTES}")
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        raise RefusalError("Invalid SASL/PLAIN response: it is not UTF-8") from None
    if len(parts) != 3:
        raise RefusalError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
    authorization_id, user, password = parts
    if not user:
        raise RefusalError("Authentication failed: username not specified")
    if not password:
        raise RefusalError("Authentication failed: password not specified")
    expected = passwords.get(user)
    is_right = _are_equal(password, _NOBODY if expected is None else expected)
    if expected is None or not is_right:
        raise RefusalError("Authentication failed: Invalid username or password")
    if authorization_id and authorization_id != user:
        raise RefusalError(f"{_ANOTHER_ID} username")
    return Accepted(user)


def hear_scram(
    mechanism: ScramMechanism, find: FindCredential, nonce: str, find_token: FindToken | None = None
) -> Conversation:
    """`find` gives everybody a credential, and whether it is real; `nonce` is new each time, printable, without commas.
    A broker needs no password here, and no more than some hashes; but that of a token it makes itself."""
    name = mechanism.hash_name
    failure = f"{_INVALID_CREDENTIALS} {mechanism.mechanism_name}"
    first = _fields(_CLIENT_FIRST, (yield b""), failure)
    user = _unescape(first["name"], failure)
    if first["authorization"] and _unescape(first["authorization"], failure) != user:
        raise RefusalError(failure)
    token = None
    if _is_by_token(first["extensions"]):
        if find_token is None:
            raise RefusalError(failure)
        token = find_token(user)
        credential, is_real = (yield Wait(token.make_credential)), token.owner is not None
    else:
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
        raise RefusalError(failure)
    server_signature = hmac.digest(credential.server_key, spoken, name)
    last = b"v=" + b64encode(server_signature)
    if token is not None and token.owner is not None:
        return Accepted(token.owner, last, token.life_ms, is_by_token=True)
    return Accepted(user, last)


def _is_by_token(extensions: str) -> bool:
    given = dict(word.split("=", 1) for word in extensions.split(",") if word)
    return given.get("tokenauth", "").lower() == "true"


def hear_oauthbearer(judge: JudgeToken) -> Conversation:
    """`judge` may take as long as it likes."""
    authorization_id, token = _read_bearer((yield b""))
    verdict: Bearer | Doubt = yield Wait(lambda: judge(token))
    if isinstance(verdict, Doubt):
        # The client says one byte to that, and only then is the login over.
        yield _CHALLENGE.encode()
        raise RefusalError(_CHALLENGE, f"its token is refused: {verdict.reason}")
    if authorization_id and authorization_id != verdict.user:
        raise RefusalError(f"{_ANOTHER_ID} the token's principal name")
    return Accepted(verdict.user, life_ms=verdict.life_ms)


def _read_bearer(message: bytes) -> tuple[str, str]:
    """The authorization id, and the token."""
    failure = f"{_INVALID_CREDENTIALS} OAUTHBEARER"
    if message.count(b"\1") > _MARKS_MAX:
        raise RefusalError(failure)
    header, _, rest = _decode(message, failure).partition("\1")
    found = re.fullmatch(r"n,(?:a=([^,\0]+))?,", header)
    # Each pair is ended by one mark, and all of them by another.
    if found is None or not rest.endswith("\1\1"):
        raise RefusalError(failure)
    pairs = [pair.partition("=") for pair in rest.removesuffix("\1\1").split("\1")]
    if not all(re.fullmatch("[A-Za-z]+", key) and re.fullmatch(r"[!-~ \t\r\n]+", value) for key, _, value in pairs):
        raise RefusalError(failure)
    given = re.fullmatch(r"(?i:bearer) +([-_.A-Za-z0-9]+)", {key: value for key, _, value in pairs}.get("auth", ""))
    if given is None:
        raise RefusalError(failure)
    return _unescape(found[1] or "", failure), given[1]


def _fields(pattern: str, message: bytes, failure: str) -> dict[str, str]:
    found = re.fullmatch(pattern, _decode(message, failure)) if len(message) <= MESSAGE_MAX_BYTES else None
    if found is None:
        raise RefusalError(failure)
    return found.groupdict(default="")


def _decode(message: bytes, failure: str) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise RefusalError(failure) from None


def _unescape(name: str, failure: str) -> str:
    """A comma is =2C and an equals sign =3D in it; no other one is allowed."""
    if re.search("=(?!2C|3D)", name):
        raise RefusalError(failure)
    return name.replace("=2C", ",").replace("=3D", "=")


def _decode_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return b""


def _are_equal(given: str, expected: str) -> bool:
    """Of digests, so that not even the length of what is expected can be measured."""
    return hmac.compare_digest(hashlib.sha256(given.encode()).digest(), hashlib.sha256(expected.encode()).digest())
