"""Asks a broker about delegation tokens, in every version, and keeps of the answers what can be compared: codes, whose
a token is, who sees it, how long it lives in minutes, and whether its HMAC follows from the key.

To record what Apache Kafka answers, into kafka.json beside this file:

    PYTHONPATH=src python -m tests.golden.tokens.asking CLASS_PATH
"""

from __future__ import annotations

import asyncio
import hmac
import json
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tailrace.client.security.mechanisms import speak_scram
from tailrace.model.acls import Kind, Operation, PatternType, Permission
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.security import (
    CreateAclsRequest,
    CreateDelegationTokenRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.unit.broker.world import Peer

RECORDED = Path(__file__).parent / "kafka.json"
SECRET_KEY = "a key that all nodes have"
USERS = ("alice", "bob", "carol")
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required " + " ".join(
    f'user_{name}="{name}-secret"' for name in USERS
)
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:node",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.inside.plain.sasl.jaas.config": f"{JAAS};",
    "listener.name.inside.scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule "
    "required;",
    "listener.name.inside.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule "
    "required;",
    "connection.failed.authentication.delay.ms": "10",
}
ENABLED = {"delegation.token.secret.key": SECRET_KEY}

Connect = Callable[[str], Awaitable[Peer]]
_CREATIONS, _CHANGES, _DESCRIPTIONS = (1, 2, 3), (1, 2), (1, 2, 3)
_TRIES = 200
_PAUSE_SECONDS = 0.05
_MINUTE_MS = 60_000
_DAY_MS = 86_400_000
_LONG_MAX = 2**63 - 1
_NAMES = ("principal_type", "principal_name", "token_requester_principal_type", "token_requester_principal_name")


class Asking:
    """`connect` takes the name of a listener, PLAINTEXT or INSIDE."""

    def __init__(self, connect: Connect) -> None:
        self._connect_to = connect
        self._opened: list[Peer] = []
        self._root: Peer
        self._peers: dict[str, Peer] = {}
        self.answers: dict[str, Any] = {}
        self._began_ms = int(time.time() * 1000)
        self._names: dict[str, str] = {}  # Tokens, by their ids, in the order in which they were made.

    async def _connect(self, listener: str) -> Peer:
        peer = await self._connect_to(listener)
        self._opened.append(peer)
        return peer

    async def close(self) -> None:
        for peer in self._opened:
            peer.writer.close()
            with suppress(ConnectionError):
                await peer.writer.wait_closed()

    async def ask_all(self) -> dict[str, Any]:
        self._root = await self._connect("PLAINTEXT")
        self._peers = {"nobody": self._root} | {name: await self._log_in_plain(name) for name in USERS}
        await self._ask_as_nobody()
        await self._create_own()
        await self._create_for_others()
        token = await self._made("alice", renewers=("bob",))
        others = await self._made_for_bob()
        await self._change(token, others)
        await self._look(token)
        await self._log_in(token)
        await self._end(token)
        return self.answers

    async def ask_disabled(self) -> dict[str, Any]:
        self._root = await self._connect("PLAINTEXT")
        self._peers = {"nobody": self._root, "alice": await self._log_in_plain("alice")}
        for who in self._peers:
            await self._ask(f"disabled: create as {who}", who, creation(), _CREATIONS)
            await self._ask(f"disabled: renew as {who}", who, RenewDelegationTokenRequest(hmac=b"x"), _CHANGES)
            await self._ask(f"disabled: expire as {who}", who, ExpireDelegationTokenRequest(hmac=b"x"), _CHANGES)
            await self._ask(f"disabled: describe as {who}", who, description(), _DESCRIPTIONS)
        return self.answers

    # ---- the story

    async def _ask_as_nobody(self) -> None:
        await self._ask("create as nobody", "nobody", creation(), _CREATIONS)
        await self._ask("create for alice as nobody", "nobody", creation(owner="alice"), (3,))
        await self._ask("renew as nobody", "nobody", RenewDelegationTokenRequest(hmac=b"x"), _CHANGES)
        await self._ask("expire as nobody", "nobody", ExpireDelegationTokenRequest(hmac=b"x"), _CHANGES)
        await self._ask("describe as nobody", "nobody", description(), _DESCRIPTIONS)

    async def _create_own(self) -> None:
        await self._ask("create", "alice", creation(), _CREATIONS)
        await self._ask("create with renewers", "alice", creation(renewers=("bob", "carol")), _CREATIONS)
        for life_ms in (0, 3_600_000, 90 * _DAY_MS, _LONG_MAX):
            await self._ask(f"create for {life_ms} ms", "alice", creation(max_lifetime_ms=life_ms), _CREATIONS)
        group = CreateDelegationTokenRequest.CreatableRenewers(principal_type="Group", principal_name="g")
        await self._ask("create with a group as renewer", "alice", creation(group=group), _CREATIONS)
        await self._ask("create with an empty owner", "alice", creation(owner=""), (3,))
        await self._ask("create for oneself by name", "alice", creation(owner="alice"), (3,))

    async def _create_for_others(self) -> None:
        for label, acls in _rights(Operation.CREATE_TOKENS, Kind.USER, "User:bob"):
            await self._set_acls(*acls)
            await self._ask(f"create for bob, {label}", "alice", creation(owner="bob"), (3,))
        await self._set_acls()

    async def _made(self, who: str, **options: Any) -> bytes:
        answer = await self._peers[who].request(creation(**options), 3)
        assert answer.error_code == 0, answer.error_code
        self._name(answer.token_id)
        await self._until_seen(who, answer.token_id)
        return bytes(answer.hmac)

    async def _made_for_bob(self) -> bytes:
        """By alice: she has asked for it, and it is not hers."""
        await self._set_acls(_allow(Operation.CREATE_TOKENS, Kind.USER, "User:bob"))
        token = await self._made("alice", owner="bob")
        await self._set_acls()
        return token

    async def _change(self, token: bytes, others: bytes) -> None:
        renew, expire = RenewDelegationTokenRequest, ExpireDelegationTokenRequest
        await self._ask("renew what there is not", "alice", renew(hmac=b"nothing", renew_period_ms=-1), _CHANGES)
        await self._ask(
            "expire what there is not", "alice", expire(hmac=b"nothing", expiry_time_period_ms=-1), _CHANGES
        )
        for who in USERS:
            await self._ask(f"renew as {who}", who, renew(hmac=token, renew_period_ms=-1), _CHANGES)
            await self._ask(f"renew bob's as {who}", who, renew(hmac=others, renew_period_ms=-1), _CHANGES)
            soon = expire(hmac=token, expiry_time_period_ms=6 * 3_600_000)
            await self._ask(f"expire as {who}", who, soon, _CHANGES)
        for period_ms in (0, 3_600_000, 90 * _DAY_MS):
            await self._ask(
                f"renew for {period_ms} ms", "alice", renew(hmac=token, renew_period_ms=period_ms), _CHANGES
            )
        for period_ms in (3_600_000, 90 * _DAY_MS, _LONG_MAX):
            late = expire(hmac=token, expiry_time_period_ms=period_ms)
            await self._ask(f"expire after {period_ms} ms", "alice", late, _CHANGES)
        over = await self._made("alice", max_lifetime_ms=1)
        await asyncio.sleep(_PAUSE_SECONDS)
        for who in ("carol", "alice"):
            await self._ask(f"renew what is over as {who}", who, renew(hmac=over, renew_period_ms=-1), _CHANGES)
            late = expire(hmac=over, expiry_time_period_ms=1000)
            await self._ask(f"expire what is over as {who}", who, late, _CHANGES)
        await self._ask("end what is over", "alice", expire(hmac=over, expiry_time_period_ms=-1), (2,))

    async def _look(self, token: bytes) -> None:
        for who in USERS:
            await self._ask(f"describe as {who}", who, description(), _DESCRIPTIONS)
            await self._ask(f"describe nobody's as {who}", who, description(()), _DESCRIPTIONS)
            for owner in USERS:
                await self._ask(f"describe {owner}'s as {who}", who, description((owner,)), _DESCRIPTIONS)
        of_alice = await self._peers["alice"].request(description(("alice",)), 3)
        token_id = next(each.token_id for each in of_alice.tokens if bytes(each.hmac) == token)
        for operation, kind, name in (
            (Operation.DESCRIBE, Kind.DELEGATION_TOKEN, token_id),
            (Operation.DESCRIBE_TOKENS, Kind.USER, "User:bob"),
        ):
            for label, acls in _rights(operation, kind, name):
                await self._set_acls(*(acl | {"principal": "User:carol"} for acl in acls))
                await self._ask(f"describe as carol by {operation.name}, {label}", "carol", description(), (3,))
        await self._set_acls()

    async def _log_in(self, token: bytes) -> None:
        of_alice = await self._peers["alice"].request(description(("alice",)), 3)
        token_id = next(each.token_id for each in of_alice.tokens if bytes(each.hmac) == token)
        password = b64encode(token).decode()
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            for version in (0, 1, 2):
                peer, told = await self._log_in_scram(mechanism, version, token_id, password)
                self.answers[f"log in by {mechanism}, v{version}"] = told
        self._peers["token"] = peer
        await self._ask("create as token", "token", creation(), _CREATIONS)
        await self._ask("create for bob as token", "token", creation(owner="bob"), (3,))
        await self._ask("renew as token", "token", RenewDelegationTokenRequest(hmac=token), _CHANGES)
        await self._ask("expire as token", "token", ExpireDelegationTokenRequest(hmac=token), _CHANGES)
        await self._ask("describe as token", "token", description(), _DESCRIPTIONS)
        for label, name, secret, is_by_token in (
            ("a wrong password", token_id, "wrong", True),
            ("no such token", "AAAAAAAAAAAAAAAAAAAAAA", password, True),
            ("a user by token", "alice", "alice-secret", True),
            ("a token as user", token_id, password, False),
        ):
            _, told = await self._log_in_scram("SCRAM-SHA-256", 2, name, secret, is_by_token=is_by_token)
            self.answers[f"log in with {label}"] = told

    async def _end(self, token: bytes) -> None:
        at_once = ExpireDelegationTokenRequest(hmac=token, expiry_time_period_ms=-1)
        await self._ask("end as carol", "carol", at_once, (2,))
        await self._ask("end as renewer", "bob", at_once, (2,))
        await self._ask("end again", "alice", at_once, (2,))

    # ---- asking

    async def _ask(self, label: str, who: str, request: Any, versions: tuple[int, ...]) -> None:
        for version in versions:
            answer = await self._peers[who].request(request, version)
            self.answers[f"{label}, v{version}"] = self._told(answer, version)
            if isinstance(request, CreateDelegationTokenRequest) and not answer.error_code:
                await self._until_seen(who, answer.token_id)
            elif not answer.error_code and not isinstance(request, DescribeDelegationTokenRequest):
                await asyncio.sleep(_PAUSE_SECONDS)  # Until the broker has heard of it.

    def _told(self, answer: Any, version: int) -> dict[str, Any]:
        told: dict[str, Any] = {"error_code": answer.error_code} if hasattr(answer, "error_code") else {}
        told |= {name: getattr(answer, name) for name in _NAMES[: 4 if version >= 3 else 2] if hasattr(answer, name)}
        for field in answer.fields:
            if "timestamp" in field.name:
                told[field.name] = self._minutes(getattr(answer, field.name))
        if getattr(answer, "token_id", ""):
            told["token"] = self._name(answer.token_id)
            told["has_hmac"] = bytes(answer.hmac) == hmac.digest(
                SECRET_KEY.encode(), answer.token_id.encode(), "sha512"
            )
        if hasattr(answer, "tokens"):
            told["tokens"] = sorted((self._line(each, version) for each in answer.tokens), key=_number)
        return told

    def _line(self, token: Any, version: int) -> str:
        told = self._told(token, version)
        renewers = [f"{each.principal_type}:{each.principal_name}" for each in token.renewers]
        return " | ".join(str(each) for each in (told.pop("token"), *told.values(), *renewers))

    def _name(self, token_id: str) -> str:
        return self._names.setdefault(token_id, str(len(self._names) + 1))

    def _minutes(self, timestamp_ms: int) -> int | str:
        if timestamp_ms in (-1, 0, _LONG_MAX):
            return timestamp_ms
        # A story takes less than a few minutes, and what is compared are hours.
        return f"{round((timestamp_ms - self._began_ms) / _MINUTE_MS / 30) * 30} minutes"

    async def _until_seen(self, who: str, token_id: str) -> None:
        """By the broker that is asked: who made it sees it."""
        for _ in range(_TRIES):
            answer = await self._peers[who].request(description(), 3)
            if token_id in {each.token_id for each in answer.tokens}:
                return
            await asyncio.sleep(_PAUSE_SECONDS)
        raise AssertionError("a token that was made is not seen")

    async def _log_in_plain(self, name: str) -> Peer:
        peer = await self._connect("INSIDE")
        await peer.request(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        answer = await peer.request(SaslAuthenticateRequest(auth_bytes=f"\0{name}\0{name}-secret".encode()), 2)
        assert answer.error_code == ErrorCode.NONE, answer.error_message
        return peer

    async def _log_in_scram(
        self, mechanism: str, version: int, name: str, password: str, *, is_by_token: bool = True
    ) -> tuple[Peer, dict[str, Any]]:
        peer = await self._connect("INSIDE")
        await peer.request(SaslHandshakeRequest(mechanism=mechanism), 1)
        hash_name = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        conversation = speak_scram(hash_name, name, password, "nonce-of-a-client", is_by_token=is_by_token)
        message = next(conversation)
        while True:
            answer = await peer.request(SaslAuthenticateRequest(auth_bytes=message), version)
            if answer.error_code:
                return peer, {"error_code": answer.error_code, "error_message": answer.error_message}
            try:
                message = conversation.send(answer.auth_bytes)
            except StopIteration:
                half_hours = round(answer.session_lifetime_ms / _MINUTE_MS / 30)
                return peer, {"error_code": 0, "half_hours": half_hours}

    async def _set_acls(self, *acls: dict[str, Any]) -> None:
        everything: dict[str, Any] = {
            "resource_type_filter": 1,
            "resource_name_filter": None,
            "pattern_type_filter": 1,
            "principal_filter": None,
            "host_filter": None,
            "operation": 1,
            "permission_type": 1,
        }
        await self._root.request(DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**everything)]), 3)
        if acls:
            creations = [CreateAclsRequest.AclCreation(**acl) for acl in acls]
            answer = await self._root.request(CreateAclsRequest(creations=creations), 3)
            assert not any(each.error_code for each in answer.results), answer.results
        for _ in range(_TRIES):
            answer = await self._root.request(DescribeAclsRequest(**everything), 3)
            if sum(len(resource.acls) for resource in answer.resources) == len(acls):
                return
            await asyncio.sleep(_PAUSE_SECONDS)
        raise AssertionError("the ACLs are not in force")


def creation(
    *,
    owner: str | None = None,
    renewers: tuple[str, ...] = (),
    group: Any = None,
    max_lifetime_ms: int = -1,
) -> CreateDelegationTokenRequest:
    renewer = CreateDelegationTokenRequest.CreatableRenewers
    named = [renewer(principal_type="User", principal_name=name) for name in renewers]
    return CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else "User",
        owner_principal_name=owner,
        renewers=named if group is None else [group],
        max_lifetime_ms=max_lifetime_ms,
    )


def description(owners: tuple[str, ...] | None = None) -> DescribeDelegationTokenRequest:
    owner = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
    if owners is None:
        return DescribeDelegationTokenRequest(owners=None)
    return DescribeDelegationTokenRequest(owners=[owner(principal_type="User", principal_name=e) for e in owners])


def _allow(operation: Operation, kind: Kind, name: str, **more: Any) -> dict[str, Any]:
    return {
        "resource_type": int(kind),
        "resource_name": name,
        "resource_pattern_type": int(PatternType.LITERAL),
        "principal": "User:alice",
        "host": "*",
        "operation": int(operation),
        "permission_type": int(Permission.ALLOW),
    } | more


def _rights(operation: Operation, kind: Kind, name: str) -> list[tuple[str, list[dict[str, Any]]]]:
    allowed = _allow(operation, kind, name)
    return [
        ("nothing", []),
        ("allowed", [allowed]),
        ("denied", [allowed, allowed | {"permission_type": int(Permission.DENY)}]),
        ("by prefix", [allowed | {"resource_name": name[:6], "resource_pattern_type": int(PatternType.PREFIXED)}]),
        ("by wildcard", [allowed | {"resource_name": "*"}]),
        ("by all operations", [allowed | {"operation": int(Operation.ALL)}]),
        ("for another", [allowed | {"resource_name": "User:dave"}]),
    ]


def _number(line: str) -> int:
    return int(line.partition(" ")[0])


# ---- recording


async def _record(class_path: str, *, is_enabled: bool) -> dict[str, Any]:
    from tests.apache_kafka import ApacheKafka

    # Kafka asks of the listener of controllers what it asks of the client's: whoever comes by a plain one is nobody.
    node = (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="node" password="n" user_node="n";'
    )
    settings = SETTINGS | (ENABLED if is_enabled else {})
    settings |= {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": node,
    }

    with (
        tempfile.TemporaryDirectory() as folder,
        ApacheKafka(class_path, Path(folder), listeners={"INSIDE": "SASL_PLAINTEXT"}, settings=settings) as kafka,
    ):

        async def connect(listener: str) -> Peer:
            host, _, port = kafka.addresses[listener].rpartition(":")
            return Peer(*await asyncio.open_connection(host, int(port)))

        asking = Asking(connect)
        try:
            return await (asking.ask_all() if is_enabled else asking.ask_disabled())
        finally:
            await asking.close()


if __name__ == "__main__":
    recorded = asyncio.run(_record(sys.argv[1], is_enabled=True))
    recorded |= asyncio.run(_record(sys.argv[1], is_enabled=False))
    lines = ",\n".join(f"{json.dumps(label)}: {json.dumps(answer)}" for label, answer in recorded.items())
    RECORDED.write_text("{\n" + lines + "\n}\n")
