"""Clients whose certificates are not what they should be: refused, told in the log in words of settings, and in nobody
else's way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from tailrace.model.errors import KafkaError
from tailrace.wire.apis.data import MetadataRequest, MetadataResponse
from tests.forged import SERVER, Forged

from .secured import SecuredWorld, secured
from .test_doors import wait_closed

ROOT = Forged("root", is_authority=True)
BROKER = Forged("broker", ROOT, hosts=["127.0.0.1", "localhost"])
SHORT = Forged("short", ROOT, is_authority=True, path_length=0)
ALICE = Forged("alice", ROOT)
REVOKED = Forged("revoked", ROOT)


def deep(count: int) -> Forged:
    issuer = ROOT
    for number in range(count):
        issuer = Forged(f"authority-{number}", issuer, is_authority=True)
    return Forged("deep", issuer)


BAD: dict[str, tuple[Callable[[], Forged], str]] = {
    "expired": (lambda: Forged("late", ROOT, days=(-9, -1)), "it has expired: have it renewed"),
    "of the future": (lambda: Forged("early", ROOT, days=(1, 9)), "it is not valid yet: compare the clocks"),
    "self-signed": (
        lambda: Forged("self"),
        "it has signed itself: take one of an authority in ssl.truststore.location",
    ),
    "of a stranger": (
        lambda: Forged("theirs", Forged("stranger", is_authority=True)),
        "its authority is unknown: name that in ssl.truststore.location",
    ),
    "for servers": (lambda: Forged("server", ROOT, usage=[SERVER]), "its extended key usage lacks this side of TLS"),
    "revoked": (lambda: REVOKED, "it was revoked, says a list in ssl.crl.location"),
    "of no authority": (lambda: Forged("child", ALICE), "signed by a certificate that is no authority's"),
    "too far from its authority": (
        lambda: Forged("grandchild", Forged("between", SHORT, is_authority=True)),
        "more certificates between it and its authority than that allows",
    ),
    "endless": (lambda: deep(400), "excessive message size"),
}


def told_of(caplog: pytest.LogCaptureFixture, fact: str) -> list[str]:
    """What the log says under that name."""
    facts = (vars(each).get("facts", {}) for each in caplog.records)
    return [each[fact] for each in facts if fact in each]


async def enter(world: SecuredWorld, settings: dict[str, str]) -> None:
    connection = await world.log_in("TLS", settings)
    await connection.call(MetadataRequest(topics=None), MetadataResponse)


def client_of(store: str, trusted: Path) -> dict[str, str]:
    return {"security.protocol": "SSL", "ssl.truststore.location": str(trusted), "ssl.keystore.location": store}


def broker_settings(folder: Path, **more: str) -> dict[str, str]:
    trusted, lists = folder / "trusted.pem", folder / "lists.pem"
    trusted.write_text(ROOT.pem())
    lists.write_bytes(ROOT.revocations([REVOKED]))
    return {
        "ssl.keystore.location": BROKER.store(folder / "broker.pem"),
        "ssl.truststore.location": str(trusted),
        "ssl.crl.location": str(lists),
        "ssl.client.auth": "required",
        **more,
    }


@pytest.mark.parametrize("kind", BAD)
async def test_a_bad_certificate_is_refused_and_others_are_served(kind: str, tmp_path: Path, caplog):
    make, told = BAD[kind]
    settings = broker_settings(tmp_path)
    if kind in ("endless", "too far from its authority", "of no authority"):
        settings.pop("ssl.crl.location")  # Their authorities have no lists.
    trusted = tmp_path / "trusted.pem"
    alice = client_of(ALICE.store(tmp_path / "alice.pem"), trusted)
    bad = client_of(make().store(tmp_path / "bad.pem"), trusted)
    async with secured(**settings) as world:
        with pytest.raises(KafkaError):
            await enter(world, bad)
        await world.wait_nobody_at_the_door()
        causes = told_of(caplog, "cause")
        assert len(causes) == 1
        assert told in causes[0]
        await enter(world, alice)
        assert world.principals == ["User:CN=alice"]


@pytest.mark.parametrize("encoding", [Encoding.PEM, Encoding.DER])
async def test_a_list_that_is_not_there_or_out_of_date_lets_nobody_in(encoding: Encoding, tmp_path: Path, caplog):
    settings = broker_settings(tmp_path)
    lists, trusted = Path(settings["ssl.crl.location"]), tmp_path / "trusted.pem"
    alice = client_of(ALICE.store(tmp_path / "alice.pem"), trusted)
    lists.write_bytes(ROOT.revocations([], days=-1, encoding=encoding))
    async with secured(**settings) as world:
        with pytest.raises(KafkaError):
            await enter(world, alice)
        await world.wait_nobody_at_the_door()
        assert "out of date" in told_of(caplog, "cause")[0]
        assert "the revocation list of CN=root" in told_of(caplog, "what")
    caplog.clear()
    lists.write_bytes(Forged("stranger", is_authority=True).revocations([], encoding=encoding))
    async with secured(**settings) as world:
        with pytest.raises(KafkaError):
            await enter(world, alice)
        await world.wait_nobody_at_the_door()
        assert "no revocation list of the authority" in told_of(caplog, "cause")[0]


async def test_a_trusted_authority_below_another_needs_no_list_of_that_one(tmp_path: Path):
    settings = broker_settings(tmp_path)
    middle = Forged("middle", ROOT, is_authority=True)
    bob, eve = Forged("bob", middle), Forged("eve", middle)
    Path(settings["ssl.truststore.location"]).write_text(middle.pem())
    Path(settings["ssl.crl.location"]).write_bytes(middle.revocations([eve]))
    root = tmp_path / "root.pem"
    root.write_text(ROOT.pem())
    async with secured(**settings) as world:
        await enter(world, client_of(bob.store(tmp_path / "bob.pem"), root))
        with pytest.raises(KafkaError):
            await enter(world, client_of(eve.store(tmp_path / "eve.pem"), root))


@pytest.mark.parametrize("said", [b"\0\0\0\x1f\0\x12\0\4", b"GET / HTTP/1.1\r\n\r\n"])
async def test_another_language_is_answered_by_the_alert_of_kafka(said: bytes, caplog):
    async with secured() as world:
        raw = await world.call_raw("TLS")
        raw[1].write(said)
        assert await wait_closed(raw) == bytes.fromhex("15030300020250")
        (cause,) = told_of(caplog, "cause")
        assert ("security.protocol=SSL" in cause) == (said[:1] == b"\0")
        assert ("HTTP" in cause) == (said[:1] == b"G")
