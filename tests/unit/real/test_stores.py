"""Files of certificates in the forms that they come in."""

from __future__ import annotations

import os
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.security import CertificateFacts, ClientAuth, Store, TlsSettings
from tailrace.real.tls.certificates import TlsIdentity, check_terms, read_tls_identity
from tailrace.real.tls.facts import blocks_of, certificate_facts
from tailrace.real.tls.port import RealTls
from tests.forged import Forged, signed_with_sha1

PASSWORD = "store-secret"
ROOT = Forged("root", is_authority=True)
MIDDLE = Forged("middle", ROOT, is_authority=True)
BROKER = Forged("broker", MIDDLE, hosts=["localhost", "127.0.0.1"])


def trusted(folder: Path) -> Store:
    (folder / "root.pem").write_text(ROOT.pem())
    return Store("ssl.truststore.location", path=str(folder / "root.pem"))


def keytool(*arguments: str) -> None:
    subprocess.run(["keytool", *arguments], check=True, capture_output=True, timeout=120)


def own(folder: Path, form: str) -> dict[str, object]:
    location = "ssl.keystore.location"
    if form == "pkcs12":
        path = BROKER.store_pkcs12(folder / "own.p12", PASSWORD)
        return {"certificates": Store(location, path=path, password=PASSWORD)}
    if form == "pem":
        return {"certificates": Store(location, path=BROKER.store(folder / "own.pem"))}
    chain, key = BROKER.pem() + MIDDLE.pem(), BROKER.key_pem(PASSWORD)
    if form == "one line":
        chain, key = chain.replace("\n", " "), key.replace("\n", "\\n")
    texts = {"certificates": Store("ssl.keystore.certificate.chain", text=chain), "key_password": PASSWORD}
    return texts | {"key": Store("ssl.keystore.key", text=key)}


@pytest.mark.parametrize("form", ["pkcs12", "pem", "text", "one line"])
def test_a_certificate_in_every_form_is_the_same(form: str, tmp_path: Path):
    authorities = trusted(tmp_path)
    client = read_tls_identity(TlsSettings(authorities=authorities), listens=False)
    settings = TlsSettings(authorities=authorities, client_auth=ClientAuth.REQUIRED, **own(tmp_path, form))
    server = read_tls_identity(settings, listens=True)
    assert server.own == certificate_facts(blocks_of(BROKER.pem(), "CERTIFICATE")[0])
    assert {each.what for each in server.endings} == {
        f"the certificate of CN={x}" for x in ("broker", "middle", "root")
    }
    with pytest.raises(KafkaError, match="TLS failed"):
        check_terms(server, client, "localhost")
    mutual = TlsSettings(authorities=authorities, **own(tmp_path, form))
    check_terms(server, read_tls_identity(mutual, listens=False), "localhost")
    with pytest.raises(KafkaError, match="Hostname mismatch"):
        check_terms(server, read_tls_identity(mutual, listens=False), "elsewhere")


def test_facts_of_a_certificate():
    facts = certificate_facts(blocks_of(BROKER.pem(), "CERTIFICATE")[0])
    expected = BROKER.certificate
    assert facts == CertificateFacts(
        "CN=broker",
        frozenset({"DNS:localhost", "IP:127.0.0.1"}),
        int(expected.not_valid_before_utc.timestamp() * 1000),
        int(expected.not_valid_after_utc.timestamp() * 1000),
    )
    forever = Forged("late", days=(-1, 365 * 40))
    far = certificate_facts(blocks_of(forever.pem(), "CERTIFICATE")[0])
    assert far.ends_ms == int(forever.certificate.not_valid_after_utc.timestamp() * 1000)


@pytest.mark.parametrize(
    ("password", "told"), [("wrong", "or the password is wrong: see ssl.keystore.password"), (None, "which is missing")]
)
def test_a_store_with_another_password(password: str | None, told: str, tmp_path: Path):
    path = BROKER.store_pkcs12(tmp_path / "own.p12", PASSWORD)
    settings = TlsSettings(certificates=Store("ssl.keystore.location", path=path, password=password))
    with pytest.raises(KafkaError, match=told) as raised:
        read_tls_identity(settings, listens=True)
    assert raised.value.code is ErrorCode.INVALID_CONFIG
    assert "wrong" not in repr(settings)


def test_stores_that_java_makes(tmp_path: Path):
    """By its own tool: a PKCS12 truststore and keystore are read, and a JKS store is after the command that is told."""
    trusted(tmp_path)
    words = ("-storepass", PASSWORD, "-noprompt", "-file", str(tmp_path / "root.pem"), "-alias", "root", "-importcert")
    keytool(*words, "-keystore", str(tmp_path / "trust.p12"), "-storetype", "PKCS12")
    keytool(*words, "-keystore", str(tmp_path / "trust.jks"), "-storetype", "JKS")
    stores = {
        name: Store("ssl.truststore.location", path=str(tmp_path / name), password=PASSWORD)
        for name in ("trust.p12", "trust.jks", "trust.jks.p12")
    }
    mine = own(tmp_path, "pkcs12")
    server = read_tls_identity(TlsSettings(**mine), listens=True)
    check_terms(server, read_tls_identity(TlsSettings(authorities=stores["trust.p12"]), listens=False), "localhost")
    with pytest.raises(KafkaError, match=r"It is a Java key store \(JKS\). Convert it by: keytool") as raised:
        read_tls_identity(TlsSettings(authorities=stores["trust.jks"]), listens=False)
    command = raised.value.message.partition("Convert it by: keytool ")[2].split()
    keytool(*command, "-srcstorepass", PASSWORD, "-deststorepass", PASSWORD, "-noprompt")
    check_terms(server, read_tls_identity(TlsSettings(authorities=stores["trust.jks.p12"]), listens=False), "localhost")


def test_what_is_too_weak_is_told_with_its_remedy(tmp_path: Path):
    short = tmp_path / "short.pem"
    words = (
        "req",
        "-x509",
        "-newkey",
        "rsa:1024",
        "-nodes",
        "-subj",
        "/CN=short",
        "-keyout",
        short,
        "-out",
        f"{short}.c",
    )
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=60)
    short.write_text(short.read_text() + Path(f"{short}.c").read_text())
    old = signed_with_sha1("old", MIDDLE).store(tmp_path / "old.pem")
    for path, told in ((str(short), "take RSA of 2048 bits, or P-256"), (old, "was signed with SHA-1 or MD5")):
        with pytest.raises(KafkaError, match="Its certificate is too weak") as raised:
            read_tls_identity(TlsSettings(certificates=Store("ssl.keystore.location", path=path)), listens=True)
        assert told in raised.value.message


def test_a_client_signed_with_sha1_is_told_why(tmp_path: Path):
    """Somebody who has lowered the bar at home."""
    careless = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    careless.set_ciphers("DEFAULT:@SECLEVEL=0")
    careless.load_verify_locations(cadata=ROOT.pem())
    careless.load_cert_chain(signed_with_sha1("old", MIDDLE).store(tmp_path / "old.pem"))
    asking = TlsSettings(**own(tmp_path, "pem"), authorities=trusted(tmp_path), client_auth=ClientAuth.REQUIRED)
    server = read_tls_identity(asking, listens=True)
    with pytest.raises(
        KafkaError, match="the certificate is not trusted: it, or an authority above it, was signed with"
    ):
        check_terms(server, TlsIdentity(careless, None, ()), "localhost")


def test_what_is_the_same_for_several_listeners_is_read_once_until_its_files_change(tmp_path: Path):
    tls = RealTls()
    path, authorities = BROKER.store(tmp_path / "broker.pem"), trusted(tmp_path)

    def settings(name: str) -> TlsSettings:
        return TlsSettings(certificates=Store(name, path=path), authorities=authorities)

    first = tls.read_identity(settings("ssl.keystore.location"), listens=True)
    assert tls.read_identity(settings("listener.name.nodes.ssl.keystore.location"), listens=True) is first
    assert tls.read_identity(settings("ssl.keystore.location"), listens=False) is not first
    asking = replace(settings("ssl.keystore.location"), client_auth=ClientAuth.REQUIRED)
    assert tls.read_identity(asking, listens=True) is not first

    os.replace(Forged("renewed", ROOT).store(tmp_path / "new.pem"), path)
    second = tls.read_identity(settings("ssl.keystore.location"), listens=True)
    assert second.own is not None
    assert second.own.subject == "CN=renewed"
    # What cannot be read is told each time, by the name of whoever asks.
    (tmp_path / "broker.pem").write_text("nothing")
    for name in ("ssl.keystore.location", "listener.name.nodes.ssl.keystore.location"):
        with pytest.raises(KafkaError, match=name):
            tls.read_identity(settings(name), listens=True)
    BROKER.store(tmp_path / "broker.pem")
    assert tls.read_identity(settings("ssl.keystore.location"), listens=True).own == first.own
