"""Logs in by tokens, good and bad ones of every kind and in messages of every form, and keeps what is told: codes, what
the other side says, whether it hangs up, and how long a session lasts in minutes.

To record what Apache Kafka answers, into kafka.json beside this file:

    PYTHONPATH=src python -m tests.golden.bearer.asking CLASS_PATH
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.data import MetadataRequest
from tailrace.wire.apis.security import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.issuer import AUDIENCE, ISSUER, SigningKey, key_set
from tests.unit.broker.world import Peer

RECORDED = Path(__file__).parent / "kafka.json"
PACKAGE = "org.apache.kafka.common.security.oauthbearer"
SETTINGS = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.expected.audience": AUDIENCE,
    "sasl.oauthbearer.expected.issuer": ISSUER,
    "connection.failed.authentication.delay.ms": "10",
}
Connect = Callable[[], Awaitable[Peer]]
_VERSIONS = (0, 1, 2)
_PATIENCE_SECONDS = 10.0
_HOUR_S = 3600
# To a challenge the client says this one byte.
_KVSEP = b"\1"


class Asking:
    def __init__(self, connect: Connect, key: SigningKey) -> None:
        self._connect = connect
        self._key = key
        self.answers: dict[str, Any] = {}

    async def ask_all(self) -> dict[str, Any]:
        for version in _VERSIONS:
            await self._say(f"a good token, v{version}", self._key.sign(), version=version)
            await self._say(f"a token of somebody else, v{version}", self._key.sign(iss="x"), version=version)
        for label, token in self._tokens().items():
            await self._say(label, token)
        good, bad = self._key.sign(), self._key.sign(aud="x")
        for label, message in _messages(good).items():
            await self._say(label, message=message)
        for label, said in (
            ("the byte", _KVSEP),
            ("nothing", b""),
            ("something else", b"xyz"),
            ("a token", first(good)),
        ):
            await self._say(f"after a challenge: {label}", bad, then=said)
        await self._ask_between(bad)
        return self.answers

    def _tokens(self) -> dict[str, str]:
        key, now = self._key, int(time.time())
        stranger, public = SigningKey("another"), SigningKey(key.key_id)
        head, claims, signature = key.sign().split(".")
        none = _part({"alg": "none"})
        other = _part({"sub": "mallory", "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 600})
        return {
            "for an hour": key.sign(exp=now + _HOUR_S),
            "a list of audiences": key.sign(aud=["else", AUDIENCE]),
            "another audience": key.sign(aud="else"),
            "no audience": key.sign(aud=None),
            "another issuer": key.sign(iss="https://elsewhere.test"),
            "no issuer": key.sign(iss=None),
            "no subject": key.sign(sub=None),
            "an empty subject": key.sign(sub=""),
            "a subject of blanks": key.sign(sub="  "),
            "no end": key.sign(exp=None),
            "expired": key.sign(iat=now - 900, exp=now - 300),
            "expired within the skew": key.sign(iat=now - 900, exp=now - 5),
            "not yet": key.sign(nbf=now + 600),
            "not yet within the skew": key.sign(nbf=now + 5),
            "no time of issue": key.sign(iat=None),
            "ends before it was issued": key.sign(iat=now + 20, exp=now + 10),
            "a scope": key.sign(scope="read write"),
            "scopes in a list": key.sign(scope=["read", "write"]),
            "an empty scope": key.sign(scope=""),
            "the key of a stranger": stranger.sign(),
            "the id of a key, another key": public.sign(),
            "no key id": SigningKey(None, private=key.private).sign(),
            "another kind of token": key.sign(header={"typ": "at+jwt"}),
            "a critical header": key.sign(header={"crit": ["x"], "x": 1}),
            "signed by nobody": f"{none}.{claims}.",
            "signed by nobody, with a signature": f"{none}.{claims}.{signature}",
            "other claims": f"{head}.{other}.{signature}",
            "two parts": f"{head}.{claims}",
            "four parts": f"{head}.{claims}.{signature}.{signature}",
            "no JSON": f"{head}.eHh4.{signature}",
            "a word": "token",
        }

    async def _say(
        self, label: str, token: str = "", *, message: bytes = b"", version: int = 2, then: bytes = _KVSEP
    ) -> None:
        peer = await self._shake()
        told: list[Any] = []
        for said in (message or first(token), then):
            told.append(await _told(peer, SaslAuthenticateRequest(auth_bytes=said), version))
            if told[-1] == "closed" or told[-1].get("error_code") or not told[-1].get("auth_bytes"):
                break
        if told[-1] != "closed" and not told[-1]["error_code"]:
            # Who is in may ask; after the last word of a login that failed nobody can.
            told.append(await _served(peer))
        self.answers[label] = told
        await peer.close()

    async def _ask_between(self, bad: str) -> None:
        """Something else, where the one byte is expected."""
        peer = await self._shake()
        told = [await _told(peer, SaslAuthenticateRequest(auth_bytes=first(bad)), 2)]
        self.answers["a request after a challenge"] = [*told, await _served(peer)]
        await peer.close()

    async def _shake(self) -> Peer:
        peer = await self._connect()
        answer = await peer.request(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        assert answer.error_code == 0
        return peer


def first(token: str, *, header: str = "n,,", scheme: str = "Bearer ", more: str = "", end: str = "\1\1") -> bytes:
    return f"{header}\1auth={scheme}{token}{more}{end}".encode()


def _messages(good: str) -> dict[str, bytes]:
    return {
        "one's own name": first(good, header="n,a=alice,"),
        "somebody else's name": first(good, header="n,a=bob,"),
        "a name that is escaped": first(good, header="n,a=ali=2Cce,"),
        "with channel binding": first(good, header="p=tls-unique,,"),
        "binding not used": first(good, header="y,,"),
        "no header": first(good, header=""),
        "half a header": first(good, header="n,"),
        "a scheme in small letters": first(good, scheme="bearer "),
        "a scheme in large letters": first(good, scheme="BEARER "),
        "another scheme": first(good, scheme="Basic "),
        "no scheme": first(good, scheme=""),
        "two blanks": first(good, scheme="Bearer  "),
        "a blank behind": first(good, more=" "),
        "extensions": first(good, more="\1traceId=7\1other=x y"),
        "an extension with digits in its name": first(good, more="\1trace7=7"),
        "an extension without a value": first(good, more="\1traceId="),
        "an extension of that name": first(good, more="\1auth=x"),
        "one mark at the end": first(good, end="\1"),
        "no mark at the end": first(good, end=""),
        "three marks at the end": first(good, end="\1\1\1"),
        "no token": first(""),
        "no pair at all": b"n,,\1\1",
        "another pair alone": b"n,,\1host=x\1\1",
        "a token alone": good.encode(),
        "a byte": _KVSEP,
        "no UTF-8": b"n,,\1auth=Bearer \xff\xfe\1\1",
    }


async def _told(peer: Peer, request: Any, version: int) -> Any:
    try:
        answer = await peer.request(request, version, patience_seconds=_PATIENCE_SECONDS)
    except (asyncio.IncompleteReadError, ConnectionError):
        return "closed"
    lifetime = {} if version == 0 else {"minutes": round(answer.session_lifetime_ms / 60_000)}
    return {"error_code": answer.error_code, "auth_bytes": bytes(answer.auth_bytes).decode(), **lifetime}


async def _served(peer: Peer) -> str:
    """Who is in is told that there is no such topic."""
    topics = [MetadataRequest.MetadataRequestTopic(name="none")]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    try:
        answer = await peer.request(request, 4, patience_seconds=_PATIENCE_SECONDS)
    except (asyncio.IncompleteReadError, ConnectionError):
        return "closed"
    return ErrorCode(answer.topics[0].error_code).name


def _part(claims: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()


# ---- recording


async def _record(class_path: str) -> dict[str, Any]:
    from tests.apache_kafka import ApacheKafka

    key = SigningKey("first")
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys.json"
        keys.write_bytes(key_set(key))
        os.environ["JDK_JAVA_OPTIONS"] = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file:{keys}"
        prefix = "listener.name.inside.oauthbearer."
        settings = SETTINGS | {
            f"{prefix}sasl.jaas.config": f"{PACKAGE}.OAuthBearerLoginModule required;",
            f"{prefix}sasl.server.callback.handler.class": f"{PACKAGE}.OAuthBearerValidatorCallbackHandler",
            "sasl.oauthbearer.jwks.endpoint.url": f"file:{keys}",
        }
        listeners = {"INSIDE": "SASL_PLAINTEXT"}
        with ApacheKafka(class_path, Path(folder), listeners=listeners, settings=settings) as kafka:
            host, _, port = kafka.addresses["INSIDE"].rpartition(":")

            async def connect() -> Peer:
                return Peer(*await asyncio.open_connection(host, int(port)))

            return await Asking(connect, key).ask_all()


if __name__ == "__main__":
    recorded = asyncio.run(_record(sys.argv[1]))
    lines = ",\n".join(f"{json.dumps(label)}: {json.dumps(answer)}" for label, answer in recorded.items())
    RECORDED.write_text("{\n" + lines + "\n}\n")
