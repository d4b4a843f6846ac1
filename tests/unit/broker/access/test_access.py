"""The decisions of a node, their log, and the declarations in the catalogue."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, NamedTuple

import pytest

from tailrace.broker.access.access import Access, host_text
from tailrace.broker.access.audit import AuditLog
from tailrace.broker.access.judging import steps_for
from tailrace.catalogue import CATALOGUE
from tailrace.columns import OPEN, Need, Served
from tailrace.controller.image import METADATA_VERSION, MetadataImage
from tailrace.controller.security.authorizer import Authorizer
from tailrace.model.acls import Acl, Kind, Operation
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import Uuid
from tailrace.model.security import Principal
from tailrace.wire import apis
from tailrace.wire.apis.keys import ApiKey
from tests.unit.broker.access.secured_world import allow

ALICE = Principal("User", "alice")
ROOT = Principal("User", "root")


class Asker(NamedTuple):
    principal: Principal = ALICE
    peer: str = "10.0.0.1:4711"


class Node:
    def __init__(self, *acls: Acl, features: bool = True, lines_max: int = 3, interval_ms: int = 20) -> None:
        self.features = {METADATA_VERSION: 30} if features else {}
        self.image: MetadataImage
        self.set(*acls)
        self.access = Access(
            Authorizer(["User:root"], allows_without_acl=False),
            self,
            AuditLog(interval_ms=interval_ms, lines_max=lines_max),
            cache_max_entries=100,
        )

    def set(self, *acls: Acl) -> None:
        ids = {Uuid(number.to_bytes(16, "big")): acl for number, acl in enumerate(acls)}
        self.image = MetadataImage("c", acls=ids, features=self.features)

    def may(self, asker: Asker = Asker(), name: str = "t", **rest: Any) -> bool:  # noqa: B008 - it is a constant
        return self.access.may(asker, Operation.READ, Kind.TOPIC, name, **rest)


async def test_what_is_granted_is_so_for_one_principal_at_one_peer_until_the_acls_change() -> None:
    node = Node(allow(Operation.READ, Kind.TOPIC, "t", host="10.0.0.1"))
    for _ in range(2):
        assert node.may()
        assert not node.may(name="u")
        assert not node.may(Asker(ROOT._replace(name="bob")))
        assert not node.may(Asker(peer="10.0.0.2:4711"))
        assert not node.access.may(Asker(), Operation.WRITE, Kind.TOPIC, "t")
    for port in range(300):
        assert node.may(Asker(peer=f"10.0.0.1:{port}"))
    assert len(node.access._granted) <= 100
    node.set()
    assert not node.may()


async def test_a_decision_holds_until_the_acls_change() -> None:
    node = Node(allow(Operation.READ, Kind.TOPIC, "t"))
    assert node.may()
    assert len(node.access._decided) == 1
    node.set()
    assert not node.access.may_on_any(Asker(), Operation.READ, Kind.TOPIC)
    assert not node.may()
    assert len(node.access._decided) == 1


async def test_until_there_is_metadata_super_users_pass_and_others_are_not_refused() -> None:
    node = Node(features=False)
    assert node.may(Asker(ROOT))
    with pytest.raises(KafkaError) as held_back:
        node.may()
    assert held_back.value.code is ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize(
    ("peer", "text"),
    [
        ("127.0.0.1:80", "127.0.0.1"),
        ("[::1]:80", "0:0:0:0:0:0:0:1"),
        ("[2001:db8::a:0:1%eth0]:80", "2001:db8:0:0:0:a:0:1"),
        ("[::ffff:10.0.0.1]:80", "10.0.0.1"),
        ("::1:0", "0:0:0:0:0:0:0:1"),
    ],
)
def test_hosts_are_written_as_java_writes_them(peer: str, text: str) -> None:
    assert host_text(peer) == text


async def test_denials_are_folded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tailrace.authorizer")
    node = Node()
    for name in ("a", "a", "a", "b", "c", "d", "e"):
        node.may(name=name, api_key=ApiKey.FETCH)
    node.may(name="quiet", is_logged=False)
    await asyncio.sleep(0.05)
    lines = [(record.message, record.facts.get("resource")) for record in caplog.records]  # type: ignore[attr-defined]
    assert lines == [
        ("denied", "TOPIC:a"),
        ("denied", "TOPIC:b"),
        ("denied", "TOPIC:c"),
        ("denied again", "TOPIC:a"),
        ("more was denied than is written", None),
    ]
    first, again, more = caplog.records[0].facts, caplog.records[3].facts, caplog.records[4].facts  # type: ignore[attr-defined]
    assert first == {
        "principal": ALICE,
        "host": "10.0.0.1",
        "operation": "READ",
        "resource": "TOPIC:a",
        "api": "Fetch",
        "rule": "no ACL allows it",
    }
    assert (again["times"], more["denials"]) == (2, 2)
    caplog.clear()
    node.may(name="a")
    assert [record.message for record in caplog.records] == ["denied"]


async def test_what_is_allowed_is_told_to_those_who_debug(caplog: pytest.LogCaptureFixture) -> None:
    rule = allow(Operation.READ, Kind.TOPIC, "t")
    node = Node(rule)
    caplog.set_level(logging.INFO, "tailrace.authorizer")
    node.may()
    assert not caplog.records
    caplog.set_level(logging.DEBUG, "tailrace.authorizer")
    node.set(rule)
    node.may()
    node.may()
    record, _again = caplog.records
    assert (record.message, record.facts["rule"]) == ("allowed", str(rule))  # type: ignore[attr-defined]


# ---- what the catalogue says


def test_no_api_is_served_without_saying_what_it_asks() -> None:
    with pytest.raises(TypeError, match="asks"):
        Served(0, 1, "metadata.metadata")  # type: ignore[call-arg]
    served = {
        (api.key.name, place): each
        for api in CATALOGUE.values()
        for place, each in (("clients", api.for_clients), ("controllers", api.for_controllers))
        if each is not None
    }
    is_open = {name for name, each in served.items() if each.asks is OPEN}
    of_logins = ("API_VERSIONS", "SASL_HANDSHAKE", "SASL_AUTHENTICATE")
    by_secret = ("RENEW_DELEGATION_TOKEN", "EXPIRE_DELEGATION_TOKEN")  # Whoever can name a token has it.
    assert is_open == {
        *((name, place) for name in (*of_logins, *by_secret) for place in ("clients", "controllers")),
        ("DESCRIBE_CLUSTER", "clients"),
        # Clients tell of themselves: Kafka asks for no right.
        ("GET_TELEMETRY_SUBSCRIPTIONS", "clients"),
        ("PUSH_TELEMETRY", "clients"),
    }
    assert all(each.asks for name, each in served.items() if name not in is_open)


def test_what_is_asked_can_be_asked() -> None:
    """Judges exist, and needs name fields that requests have."""
    for api in CATALOGUE.values():
        for served in (api.for_clients, api.for_controllers):
            if served is None:
                continue
            assert len(steps_for(served.asks)) == len(served.asks)
            for need in served.asks:
                if isinstance(need, Need) and need.names:
                    assert _has(apis.request_type(api.key), need.names), (api.key, need.names)


def _has(message: Any, names: str) -> bool:
    array, _, field = names.removesuffix("[]").partition(".")
    found = next((each for each in message.fields if each.name == array), None)
    if found is None or not field:
        return found is not None
    return found.struct is not None and any(each.name == field for each in found.struct.fields)
