"""Somebody at the door of a secured listener who may say anything: the steps of a login as they should be, by somebody
with or without a password, and whatever is wrong with them, drawn from a generator.

Drives nothing by itself: `speak` gives the next request, without its size, and is told the answer to the one before.
`has_proved` says whether what was said last is what somebody with the password would have said there: nobody else may
ever be let in.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection, Generator
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

from tailrace.client.security.mechanisms import speak_oauthbearer, speak_scram
from tailrace.model.errors import KafkaError, ProtocolError
from tailrace.wire.apis import request_type
from tailrace.wire.apis.data import ApiVersionsRequest
from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.apis.security import SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest
from tailrace.wire.frame import decode_response, encode_request
from tailrace.wire.schema import Message

USER, PASSWORD = "alice", "a-secret-of-alice"
MECHANISMS = {"PLAIN": "", "SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
BEARER, TOKEN = "OAUTHBEARER", "a.good.token"
# What is answered before a login, and with which codes.
CODES = {ApiKey.API_VERSIONS: {0, 35, 42}, ApiKey.SASL_HANDSHAKE: {0, 33, 34}, ApiKey.SASL_AUTHENTICATE: {0, 34, 58}}
_VECTORS = Path(__file__).parent / "golden" / "wire" / "vectors.jsonl.gz"


class Asked(NamedTuple):
    """As which request a frame would be taken; key None where it is none."""

    key: int | None
    version: int
    correlation_id: int


class Talker:
    def __init__(
        self, random: Random, *, is_honest: bool = False, mechanisms: Collection[str] = tuple(MECHANISMS)
    ) -> None:
        self.has_proved = False
        self.is_bare = False  # After SaslHandshake version 0 messages come without a header.
        self.said: list[bytes] = []
        self._random = random
        self._is_honest = is_honest
        self._knows_password = is_honest or random.random() < 0.5
        self._mechanism = random.choice(list(mechanisms))
        self._user = (
            USER if self._knows_password or random.random() < 0.5 else random.choice(["bob", "", "a,b", "é" * 9])
        )
        self._proof: bytes | None = None  # What would prove it now.
        self._steps = self._begin()

    def speak(self, heard: bytes | None) -> bytes:
        """`heard` with its header, without its size; None at first, and where there was none."""
        due = self._due(heard)
        said = due if self._is_honest or self._random.random() < 0.75 else self._something_else(due)
        # What is damaged may still hold all that proves who it is, with another correlation id for example.
        self.has_proved = self._proof is not None and self._proof in said
        self.said.append(said)
        return said

    def read(self, said: bytes, answer: bytes) -> None:
        """Raises AssertionError for an answer that no API before a login gives."""
        if self.is_bare:
            return
        asked = read_asked(said)
        assert asked.key in CODES, f"API {asked.key} is answered before a login"
        version = asked.version
        if asked.key == ApiKey.API_VERSIONS and version not in ApiVersionsRequest.versions:
            version = 0
        correlation_id, message = decode_response(asked.key, version, answer)
        assert correlation_id == asked.correlation_id
        assert message.error_code in CODES[ApiKey(asked.key)], message  # type: ignore[attr-defined]

    # ---- as it should be

    def _due(self, heard: bytes | None) -> bytes:
        try:
            return next(self._steps) if heard is None else self._steps.send(heard)
        except (StopIteration, KafkaError, ProtocolError):
            # Whatever the broker says to that.
            self._steps = self._begin()
            return next(self._steps)

    def _begin(self) -> Generator[bytes, bytes, None]:
        pick, self._proof = self._random, None
        if pick.random() < 0.5:
            versions = ApiVersionsRequest(client_software_name="a", client_software_version="1")
            yield self._request(versions, pick.randrange(5))
        version = 1 if self._is_honest else pick.randrange(2)
        yield self._request(SaslHandshakeRequest(mechanism=self._mechanism), version)
        self.is_bare = version == 0
        conversation, heard = self._converse(), b""
        while True:
            message = conversation.send(heard or None)  # type: ignore[arg-type] # The first is none.
            request = self._request(SaslAuthenticateRequest(auth_bytes=message), pick.randrange(3))
            answer = yield message if self.is_bare else request
            heard = answer if self.is_bare else _auth_bytes(answer, request)

    def _converse(self) -> Generator[bytes, bytes, None]:
        password = PASSWORD if self._knows_password else "wrong"
        if self._mechanism == BEARER:
            message = next(speak_oauthbearer(TOKEN if self._knows_password else "not.a.token", []))
            self._proof = message if self._knows_password else None
            yield message
            self._proof = None
            yield b"\1"
            return
        hash_name = MECHANISMS[self._mechanism]
        if not hash_name:
            message = f"\0{self._user}\0{password}".encode()
            self._proof = message if self._knows_password else None
            yield message
            return
        client = speak_scram(hash_name, self._user, password, f"{self._random.getrandbits(64):x}")
        first = next(client)
        final = client.send((yield first))
        self._proof = final if self._knows_password and first in b"".join(self.said[-1:]) else None
        yield final

    # ---- and otherwise

    def _something_else(self, due: bytes) -> bytes:
        pick = self._random
        match pick.randrange(9):
            case 0:
                return pick.randbytes(pick.randrange(200))
            case 1:
                return due[: pick.randrange(len(due) + 1)]
            case 2:
                return due + pick.randbytes(pick.randrange(1, 20))
            case 3:
                return pick.choice(self.said) if self.said else b""
            case 4:
                return pick.choice(requests_of_others())
            case 5:
                return self._request(SaslAuthenticateRequest(auth_bytes=_tampered(pick)), pick.randrange(4))
            case 6:
                mechanism = pick.choice([*MECHANISMS, "GSSAPI", "", "plain", "x" * 9000])
                return self._request(SaslHandshakeRequest(mechanism=mechanism), pick.randrange(2))
            case 7:
                return _tampered(pick)
            case _:
                damaged = bytearray(due)
                for _ in range(pick.randrange(1, 4)):
                    if damaged:
                        damaged[pick.randrange(len(damaged))] ^= 1 << pick.randrange(8)
                return bytes(damaged)

    def _request(self, request: Message, version: int) -> bytes:
        known = min(version, max(request.versions))
        client_id = self._random.choice([None, "", "a client", "é" * 50])
        parts = encode_request(request.api_key, known, self._random.randrange(1 << 31), client_id, request)
        frame = bytearray(b"".join(bytes(part) for part in parts)[4:])
        frame[2:4] = version.to_bytes(2, "big")
        return bytes(frame)


def read_asked(said: bytes) -> Asked:
    if len(said) < 8:
        return Asked(None, 0, 0)
    key = int.from_bytes(said[:2], "big", signed=True)
    version = int.from_bytes(said[2:4], "big", signed=True)
    return Asked(key, version, int.from_bytes(said[4:8], "big", signed=True))


def _auth_bytes(answer: bytes, request: bytes) -> bytes:
    asked = read_asked(request)
    assert asked.key is not None, "it was made here"
    _, message = decode_response(asked.key, asked.version, answer)
    assert isinstance(message, SaslAuthenticateResponse)
    if message.error_code:
        raise ProtocolError("refused")
    return message.auth_bytes


def _tampered(pick: Random) -> bytes:
    """Messages of SCRAM and PLAIN that were never made by a client that means well."""
    return pick.choice(
        [
            b"",
            b"\0" * pick.randrange(600),
            b"\0alice\0",
            b"alice\0\0" + PASSWORD.encode(),
            f"\0alice\0{PASSWORD}\0".encode(),
            b"n,,n=alice,r=abc,tokenauth=true",
            b"y,,n=alice,r=abc",
            b"p=tls-server-end-point,,n=alice,r=abc",
            b"n,a=root,n=alice,r=abc",
            b"n,,m=must,n=alice,r=abc",
            b"n,,n=alice,r=" + b"x" * pick.randrange(20_000),
            b"n,,n=" + b"=2C" * pick.randrange(6000) + b",r=abc",
            b"n,,n=alice,r=abc" + b",a=" * pick.randrange(5000),
            b"n,,n=alice,r=abc" + b",p=AA==" * pick.randrange(2000),
            b"c=biws,r=abc,p=" + b"A" * pick.randrange(20_000),
            b"c=eSws,r=abc,p=AAAA",
            b"c=biws,r=,p=AAAA",
            b"\xff\xfe" * pick.randrange(1, 300),
            b"n,,\1auth=Bearer not.a.token\1" + b"a=b\1" * pick.randrange(5000) + b"\1",
            b"n,a=root,\1auth=Bearer " + TOKEN.encode() + b"\1\1",
            b"n,,\1auth=Bearer " + b"x" * pick.randrange(100_000) + b"\1\1",
        ]
    )


@cache
def requests_of_others() -> list[bytes]:
    """One of each API, as Kafka's own code encodes it: none of them may be taken."""
    newest: dict[str, tuple[int, bytes]] = {}
    for line in gzip.decompress(_VECTORS.read_bytes()).splitlines():
        name, version, data, _ = json.loads(line)
        if name.endswith("Request") and len(data) < 10_000:
            newest[name] = version, bytes.fromhex(data)
    made = []
    for key in ApiKey:
        if not key.is_own and key not in CODES and request_type(key).__name__ in newest:
            version, body = newest[request_type(key).__name__]
            flexible = request_type(key).flexible
            tags = b"\0" if flexible and version >= flexible.start else b""
            made.append(int(key).to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff" + tags + body)
    return made
