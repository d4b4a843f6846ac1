"""Certificates as Java and the command of Apache Kafka see them: names of principals, new stores of a broker."""

from __future__ import annotations

import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type

from tailrace.real.tls.subjects import subject_of
from tailrace.testing import Broker
from tests.forged import Forged
from tests.nodes import free_ports

from .clients import DEADLINE_S

pytestmark = pytest.mark.long

SEED = 17
CONFIGS = "kafka.admin.ConfigCommand"
SECRET = "store-secret"
OIDS = (
    *("2.5.4.3", "2.5.4.6", "2.5.4.7", "2.5.4.8", "2.5.4.9", "2.5.4.10", "2.5.4.11"),
    *("0.9.2342.19200300.100.1.25", "0.9.2342.19200300.100.1.1"),
    # Without a keyword in RFC 2253, though Java has one for some of them elsewhere.
    *("2.5.4.4", "2.5.4.5", "2.5.4.12", "2.5.4.42", "1.2.840.113549.1.9.1", "1.3.6.1.4.1.99999.1", "2.999.3"),
)
TEXTS = (
    *("alice", "two words", " blank before", "blank after ", "  ", " ", "#hash", "a#b", "a,b", "a+b", 'say "hi"'),
    *(
        "back\\slash",
        "<x>",
        "a;b",
        "a=b",
        "new\nline",
        "return\r",
        "\rreturn",
        "tab\there",
        "\ttab",
        "Zoë",
        "日本",
        "e\u0301",
    ),
    *("a  b", "=", ",", "\\", "nul\0", "\x01", "\x7f", "\U0001f600", "*", "a/b", "User:x", "C=DE", "ends\\ "),
)
KINDS = (_ASN1Type.UTF8String, _ASN1Type.IA5String, _ASN1Type.T61String)


def random_name(random: Random) -> x509.Name:
    parts = []
    for _ in range(random.randint(1, 4)):
        kinds = random.sample(OIDS, random.choice((1, 1, 1, 2, 3)))
        parts.append(x509.RelativeDistinguishedName([attribute(random, kind) for kind in kinds]))
    return x509.Name(parts)


def attribute(random: Random, oid: str) -> x509.NameAttribute:
    text = random.choice(TEXTS)
    kind = random.choice(KINDS) if text.isascii() else _ASN1Type.UTF8String
    if text.isalnum() and text.isascii():
        kind = _ASN1Type.PrintableString
    return x509.NameAttribute(x509.ObjectIdentifier(oid), text, _type=kind, _validate=False)


def signed(name: x509.Name) -> bytes:
    own = Forged("x").certificate
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(own.subject).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(own.not_valid_before_utc)
    return builder.not_valid_after(own.not_valid_after_utc).sign(key, SHA256()).public_bytes(Encoding.DER)


@pytest.mark.filterwarnings("ignore:Attribute.s length")
def test_subjects_read_as_java_writes_them(compile_java: Callable[..., list[str]], tmp_path: Path):
    random = Random(SEED)
    certificates = [signed(random_name(random)) for _ in range(300)]
    paths = []
    for number, each in enumerate(certificates):
        paths.append(tmp_path / f"{number}.der")
        paths[-1].write_bytes(each)
    done = subprocess.run([*compile_java("Subjects"), *paths], capture_output=True, text=True, timeout=60, check=True)
    theirs = [bytes.fromhex(line).decode() for line in done.stdout.splitlines()]
    assert [subject_of(each) for each in certificates] == theirs


def test_new_stores_by_the_command_of_kafka(kafka_tool: Callable[..., str], tmp_path: Path):
    root = Forged("root", is_authority=True)
    old, new = (Forged("broker", root, hosts=["127.0.0.1"]) for _ in range(2))
    (tmp_path / "root.pem").write_text(root.pem())
    secured, plain = free_ports(2)
    settings = {
        "listeners": f"SECURED://127.0.0.1:{secured},OPEN://127.0.0.1:{plain}",
        "listener.security.protocol.map": "SECURED:SSL,OPEN:PLAINTEXT",
        "ssl.keystore.location": old.store(tmp_path / "old.pem"),
        "ssl.truststore.location": str(tmp_path / "root.pem"),
    }
    prefix = "listener.name.secured.ssl.keystore"
    of_broker = ("--bootstrap-server", f"127.0.0.1:{plain}", "--entity-type", "brokers", "--entity-name", "1")
    with Broker(settings):
        bad = Forged("another", root, hosts=["127.0.0.1"]).store(tmp_path / "bad.pem")
        told = kafka_tool(CONFIGS, *of_broker, "--alter", "--add-config", f"{prefix}.location={bad}", fails=True)
        assert "InvalidRequestException" in told
        assert "ssl.allow.dn.changes" in told
        assert served(secured) == old.pem()
        store = new.store_pkcs12(tmp_path / "new.p12", SECRET)
        change = f"{prefix}.location={store},{prefix}.password={SECRET},{prefix}.type=PKCS12"
        assert "Completed updating config" in kafka_tool(CONFIGS, *of_broker, "--alter", "--add-config", change)
        deadline = time.monotonic() + DEADLINE_S
        while served(secured) != new.pem():
            assert time.monotonic() < deadline, "the new certificate is not taken up"
            time.sleep(0.05)
        described = kafka_tool(CONFIGS, *of_broker, "--describe")
        assert f"{prefix}.location={store} sensitive=false" in described
        assert f"{prefix}.password=null sensitive=true" in described
        assert SECRET not in described
        kafka_tool(
            CONFIGS, *of_broker, "--alter", "--delete-config", f"{prefix}.location,{prefix}.password,{prefix}.type"
        )
        while served(secured) != old.pem():
            assert time.monotonic() < deadline, "the old certificate does not come back"
            time.sleep(0.05)


def served(port: int) -> str:
    return ssl.get_server_certificate(("127.0.0.1", port))
