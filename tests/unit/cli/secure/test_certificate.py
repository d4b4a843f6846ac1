"""`tailrace certificate`, and what `up --secure` makes and makes anew."""

from __future__ import annotations

import json
import os
import ssl
import stat
from pathlib import Path

import pytest

from tailrace.cli import CommandError, main
from tailrace.client.security.properties import parse_properties
from tailrace.client.security.settings import Mechanism, parse_security
from tailrace.controller.security.credentials import derive_keys, salt_password
from tailrace.model.security import ClientAuth, ScramMechanism, Store, TlsSettings
from tailrace.real.tls.certificates import make_server_context, make_tls_context

pytest.importorskip("cryptography", reason="the extra `security` is not installed")

from tailrace.cli.secure.authority import read_facts
from tailrace.cli.secure.setup import admin_credential, prepare, secure_settings


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """In memory; gives the client's side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    there = server.wrap_bio(to_server, to_client, server_side=True)
    here = client.wrap_bio(to_client, to_server, server_hostname=host)
    done = 0
    for _ in range(10):
        for side in (here, there):
            try:
                side.do_handshake()
                done += 1
            except ssl.SSLWantReadError:
                pass
        if done >= 2:
            return here
    raise AssertionError("the handshake does not end")


def test_what_the_authority_signs_is_trusted(tmp_path: Path, capsys):
    folder = str(tmp_path / "tls")
    names = ["--name", "queue.example", "--name", "10.0.0.7"]
    assert main(["certificate", "create", "broker-1", "--folder", folder, *names, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["subject"], told["names"], told["days_left"]) == ("CN=broker-1", ["queue.example", "10.0.0.7"], 364)
    assert main(["certificate", "create", "alice", "--folder", folder]) == 0
    authority, own = Store("a", path=f"{folder}/authority.pem"), Store("b", path=f"{folder}/broker-1.pem")
    server = make_server_context(TlsSettings(authorities=authority, certificates=own, client_auth=ClientAuth.REQUIRED))
    client = make_tls_context(TlsSettings(authorities=authority, certificates=Store("c", path=f"{folder}/alice.pem")))
    for host in ("queue.example", "10.0.0.7"):
        assert shake_hands(server, client, host).getpeercert()
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client, "other.example")
    for name in ("authority.key", "broker-1.pem", "alice.pem"):
        assert stat.S_IMODE(os.stat(f"{folder}/{name}").st_mode) == 0o600


def test_a_certificate_is_renewed_with_its_names(tmp_path: Path, capsys):
    folder = str(tmp_path)
    main(["certificate", "create", "b", "--folder", folder, "--name", "queue.example"])
    before = (tmp_path / "b.pem").read_text()
    assert main(["certificate", "create", "b", "--folder", folder]) == 1
    assert "renew" in capsys.readouterr().err
    assert main(["certificate", "renew", "b", "--folder", folder]) == 0
    assert (tmp_path / "b.pem").read_text() != before
    assert read_facts(f"{folder}/b.pem").names == ("queue.example",)


@pytest.mark.parametrize("name", ["", "a/b", "authority"])
def test_names_that_no_file_can_have(tmp_path: Path, name):
    assert main(["certificate", "create", name, "--folder", str(tmp_path)]) == 1


def test_what_is_no_certificate_is_told(tmp_path: Path, capsys):
    (tmp_path / "x.pem").write_text("garbage")
    assert main(["certificate", "show", str(tmp_path / "x.pem")]) == 1
    assert "no certificate that can be read" in capsys.readouterr().err


def test_a_secure_broker_is_made_once(tmp_path: Path):
    folder = str(tmp_path / "data")
    prepare(folder, names=["queue.example"])
    settings = parse_properties((tmp_path / "data" / "client.properties").read_text())
    security = parse_security(settings)
    assert security.sasl is not None
    assert (security.sasl.mechanism, security.sasl.username) == (Mechanism.SCRAM_SHA_512, "admin")
    librdkafka = parse_properties((tmp_path / "data" / "librdkafka.conf").read_text())
    assert librdkafka["sasl.password"] == security.sasl.password
    credential = admin_credential(folder)
    salted = salt_password(ScramMechanism.SCRAM_SHA_512, security.sasl.password, credential.salt, credential.iterations)
    assert credential.stored_key == derive_keys(ScramMechanism.SCRAM_SHA_512, salted).stored_key
    for name in ("client.properties", "librdkafka.conf", "security/authority.key", "security/broker.pem"):
        assert stat.S_IMODE(os.stat(f"{folder}/{name}").st_mode) == 0o600
    certificate = Path(folder, "security", "broker.pem")
    before = certificate.read_text()
    assert set(read_facts(str(certificate)).names) == {"localhost", "127.0.0.1", "::1", "queue.example"}
    prepare(folder, names=["queue.example"])
    assert certificate.read_text() == before
    assert parse_properties((tmp_path / "data" / "client.properties").read_text()) == settings
    # Another name, or an old certificate.
    prepare(folder, names=["queue.example", "other.example"])
    assert "other.example" in read_facts(str(certificate)).names
    before = certificate.read_text()
    os.utime(certificate, (0, 0))
    prepare(folder, names=["queue.example"])
    assert certificate.read_text() != before
    assert secure_settings(folder, {})["super.users"] == "User:admin"


@pytest.mark.parametrize("evidence", ["meta.properties", "cluster.json"])
def test_what_was_made_without_security_is_left_alone(tmp_path: Path, evidence):
    (tmp_path / evidence).write_text("version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")
    with pytest.raises(CommandError, match="without --secure"):
        prepare(str(tmp_path), names=[])
    assert not (tmp_path / "security").exists()
