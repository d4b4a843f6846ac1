"""Callers that show a certificate: its subject is who they are. And callers that show a token."""

import ssl
import time
from pathlib import Path

import pytest

from tailrace.testing import Broker
from tests.certificates import Authority
from tests.issuer import AUDIENCE, ISSUER, Issuer, SigningKey

from .asking import RegistryProcess, ask, avro

pytestmark = pytest.mark.long


def test_a_certificate_is_a_login(tmp_path: Path):
    authority = Authority(tmp_path / "authority")
    server = authority.sign("registry", subject_alt_name="IP:127.0.0.1")
    alice = authority.sign("alice")
    config = tmp_path / "tls.properties"
    config.write_text(
        f"ssl.keystore.location={server.joined()}\nssl.truststore.location={authority.certificate}\n"
        "ssl.client.auth=requested\n"
    )
    options = ("--tls-config", str(config))
    with (
        Broker() as broker,
        RegistryProcess(broker.bootstrap, tmp_path / "log", "authentication=certificate", options=options) as registry,
    ):
        assert registry.url.startswith("https://")
        stranger = ssl.create_default_context(cafile=str(authority.certificate))
        known = ssl.create_default_context(cafile=str(authority.certificate))
        known.load_cert_chain(alice.certificate, alice.key)
        assert ask(registry.url, "GET", "/subjects", context=stranger).status == 401
        assert ask(registry.url, "POST", "/subjects/a/versions", avro("a"), context=known).content["id"] == 1
        assert ask(registry.url, "GET", "/subjects", context=known).content == ["a"]
        other = Authority(tmp_path / "other").sign("alice")
        forged = ssl.create_default_context(cafile=str(authority.certificate))
        forged.load_cert_chain(other.certificate, other.key)
        with pytest.raises(OSError):  # noqa: PT011 (TLS says it in several ways)
            ask(registry.url, "GET", "/subjects", context=forged)


def test_a_token_is_a_login(tmp_path: Path):
    """Brokers check it; the registry itself comes by a token of its own."""
    with Issuer(SigningKey("first"), lifetime_s=600) as issuer:
        settings = {
            "listeners": "TOKENS://127.0.0.1:0",
            "listener.security.protocol.map": "TOKENS:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": issuer.keys_url,
            "sasl.oauthbearer.allowed.urls": issuer.keys_url,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
        }
        config = tmp_path / "client.properties"
        config.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
            f"sasl.oauthbearer.token.endpoint.url={issuer.token_url}\n"
            "sasl.oauthbearer.client.credentials.client.id=registry\n"
            f"sasl.oauthbearer.client.credentials.client.secret={issuer.secret}\n"
        )
        config.chmod(0o600)
        options = ("--command-config", str(config))
        with (
            Broker(settings) as broker,
            RegistryProcess(broker.bootstrap, tmp_path / "log", options=options) as registry,
        ):
            good = issuer.keys[0].sign(exp=time.time() + 600, sub="alice")
            bad = SigningKey("first").sign(exp=time.time() + 600, sub="alice")

            def shown(token: str) -> dict[str, str]:
                return {"Authorization": f"Bearer {token}"}

            assert ask(registry.url, "GET", "/subjects").status == 401
            assert ask(registry.url, "GET", "/subjects", headers=shown(bad)).status == 401
            answer = ask(registry.url, "POST", "/subjects/a/versions", avro("a"), headers=shown(good))
            assert answer.content["id"] == 1
