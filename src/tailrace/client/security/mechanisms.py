"""What a client says in each SASL mechanism. Pure: a conversation is a generator that yields what to send and is sent
what the broker answers; it ends when this side has nothing more to say, and raises when the broker is not to be
trusted.

    PLAIN         RFC 4616     OAUTHBEARER   RFC 7628, Kafka's KIP-255 and KIP-342 (extensions)
    SCRAM-SHA-*   RFC 5802 and 7677, without channel binding, as Kafka has it: names and passwords are taken as they
                  are, in UTF-8, and not prepared by SASLprep
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Generator, Iterable

from tailrace.model.errors import ErrorCode, KafkaError

Conversation = Generator[bytes, bytes, None]

_NO_CHANNEL_BINDING = "n,,"
# Kafka's brokers take no fewer: a broker that asks for fewer wants to make the password easy to guess.
_ITERATIONS_MIN = 4096
# A second or so of one core: whoever asks for more wants to keep this client busy.
_ITERATIONS_MAX = 2_000_000


def speak_plain(username: str, password: str) -> Conversation:
    yield f"\0{username}\0{password}".encode()


def speak_oauthbearer(token: str, extensions: Iterable[tuple[str, str]] = ()) -> Conversation:
    fields = (f"{name}={value}" for name, value in (("auth", f"Bearer {token}"), *extensions))
    refusal = yield "\1".join((_NO_CHANNEL_BINDING, *fields, "\1")).encode()
    if refusal:
        # The broker fails the login only after this byte, by an error code of its own.
        yield b"\1"
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"the broker refuses the token: {_text(refusal)}")


def speak_scram(hash_name: str, username: str, password: str, nonce: str, *, is_by_token: bool = False) -> Conversation:
    """`hash_name` as hashlib has it; `nonce` is new each time, printable and without commas. By a delegation token the
    name is its id and the password its HMAC in base64 (KIP-48)."""
    name = username.replace("=", "=3D").replace(",", "=2C")
    client_first = f"n={name},r={nonce}" + (",tokenauth=true" if is_by_token else "")
    server_first = _text((yield (_NO_CHANNEL_BINDING + client_first).encode()))
    combined_nonce, salt, iterations = _read_server_first(server_first, nonce)

    client_final = f"c={b64encode(_NO_CHANNEL_BINDING.encode()).decode()},r={combined_nonce}"
    spoken = f"{client_first},{server_first},{client_final}".encode()
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    signature = hmac.digest(hashlib.new(hash_name, client_key).digest(), spoken, hash_name)
    proof = bytes(mine ^ theirs for mine, theirs in zip(client_key, signature, strict=True))
    server_final = _text((yield f"{client_final},p={b64encode(proof).decode()}".encode()))

    server_key = hmac.digest(salted, b"Server Key", hash_name)
    expected = b64encode(hmac.digest(server_key, spoken, hash_name)).decode()
    if server_final.startswith("e="):
        raise _distrust(f"it refuses the proof: {server_final[2:]}")
    if not hmac.compare_digest(server_final.partition(",")[0].encode(), f"v={expected}".encode()):
        raise _distrust("it does not know the password itself, so it is not the broker that it claims to be")


def _read_server_first(message: str, nonce: str) -> tuple[str, bytes, int]:
    """The nonce of both sides, the salt and the number of iterations."""
    if message.startswith("e="):
        raise _distrust(f"it refuses the user: {message[2:]}")
    fields = dict(word.split("=", 1) for word in message.split(",") if "=" in word)
    try:
        combined_nonce, salt, iterations = fields["r"], b64decode(fields["s"], validate=True), int(fields["i"])
    except (KeyError, ValueError):
        raise _distrust("its challenge is not one of SCRAM") from None
    if "m" in fields:
        raise _distrust("it demands an extension of SCRAM that nobody has defined")
    if not combined_nonce.startswith(nonce) or len(combined_nonce) == len(nonce):
        raise _distrust("its challenge is not an answer to ours, but perhaps to an earlier one")
    if not _ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
        raise _distrust(f"it asks for {iterations} iterations, not {_ITERATIONS_MIN} to {_ITERATIONS_MAX}")
    return combined_nonce, salt, iterations


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise _distrust("its challenge is not text") from None


def _distrust(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"the broker cannot be trusted: {reason}")
