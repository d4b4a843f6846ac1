"""Kafka's security settings: what they mean together, and what is said of those that cannot be."""

import pickle

import pytest

from tailrace.client.security.jaas import parse_jaas
from tailrace.client.security.properties import parse_properties
from tailrace.client.security.settings import PLAINTEXT, Mechanism, Security, parse_security
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.security import Store, TlsSettings

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SECRETS = ("hunter2", "PRIVATE")


def test_nothing_set_is_plaintext():
    assert parse_security({}) == PLAINTEXT
    # What belongs to TLS has no effect without it, as in Kafka.
    assert parse_security({"ssl.truststore.location": "/ca.pem", "sasl.mechanism": "PLAIN"}) == PLAINTEXT


def test_tls_from_kafkas_names():
    security = parse_security(
        {
            "security.protocol": "ssl",
            "ssl.truststore.location": "/ca.pem",
            "ssl.truststore.type": "PEM",
            "ssl.keystore.location": "/client.pem",
            "ssl.key.password": "hunter2",
            "ssl.endpoint.identification.algorithm": "",
            "ssl.enabled.protocols": "TLSv1.3",
        }
    )
    assert security == Security(
        tls=TlsSettings(
            authorities=Store("ssl.truststore.location", path="/ca.pem"),
            certificates=Store("ssl.keystore.location", path="/client.pem"),
            key_password="hunter2",
            is_host_checked=False,
            versions=("TLSv1.3",),
        )
    )


def test_tls_from_texts_and_librdkafkas_names():
    texts = {"ssl.keystore.certificate.chain": "CHAIN", "ssl.keystore.key": "PRIVATE", "ssl.ca.location": "/ca.pem"}
    tls = parse_security({"security.protocol": "SSL"} | texts).tls
    assert tls is not None
    assert tls.certificates == Store("ssl.keystore.certificate.chain", text="CHAIN")
    assert tls.key == Store("ssl.keystore.key", text="PRIVATE")
    assert tls.authorities == Store("ssl.ca.location", path="/ca.pem")
    files = {"ssl.certificate.location": "/c.pem", "ssl.key.location": "/k.pem"}
    tls = parse_security({"security.protocol": "SSL"} | files).tls
    assert tls is not None
    assert (tls.certificates, tls.key) == (
        Store("ssl.certificate.location", path="/c.pem"),
        Store("ssl.key.location", path="/k.pem"),
    )
    assert tls.is_host_checked


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        (Mechanism.PLAIN, PLAIN_MODULE),
        (Mechanism.SCRAM_SHA_256, SCRAM_MODULE),
        (Mechanism.SCRAM_SHA_512, f"kafkashaded.{SCRAM_MODULE}"),
    ],
)
def test_user_and_password_from_jaas(mechanism: Mechanism, module: str):
    security = parse_security(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{module} required username="alice" password="hunter2";',
        }
    )
    assert security.tls is None
    assert security.sasl is not None
    assert (security.sasl.mechanism, security.sasl.username, security.sasl.password) == (mechanism, "alice", "hunter2")


def test_user_and_password_as_librdkafka_has_them():
    security = parse_security(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": "hunter2",
        }
    )
    assert security.tls == TlsSettings()
    assert security.sasl is not None
    assert (security.sasl.username, security.sasl.password) == ("alice", "hunter2")


def test_tokens():
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
        "sasl.jaas.config": f'{OAUTH_MODULE} required clientId="app" clientSecret="hunter2" scope="kafka" '
        'extension_logicalCluster="lkc-1";',
    }
    sasl = parse_security(settings).sasl
    assert sasl is not None
    assert (sasl.token.client_id, sasl.token.client_secret, sasl.token.scope) == ("app", "hunter2", "kafka")
    assert sasl.token.extensions == (("logicalCluster", "lkc-1"),)
    # The settings of KIP-1139, which need no JAAS, win.
    credentials = "sasl.oauthbearer.client.credentials.client."
    sasl = parse_security(settings | {credentials + "id": "other", credentials + "secret": "s"}).sasl
    assert sasl is not None
    assert (sasl.token.client_id, sasl.token.client_secret) == ("other", "s")


def test_secrets_are_pickled_but_never_shown():
    security = parse_security(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "hunter2",
            "ssl.keystore.certificate.chain": "CHAIN",
            "ssl.keystore.key": "PRIVATE",
            "ssl.key.password": "hunter2",
        }
    )
    assert pickle.loads(pickle.dumps(security)) == security
    assert "alice" in repr(security)
    assert not any(secret in repr(security) for secret in SECRETS)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"security.protocol": "TLS"}, "security.protocol: It must be one of: PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL"}, "GSSAPI, is not supported. Set one of: PLAIN"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "Supported are: PLAIN, SCRAM"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "set sasl.username and sasl.password"),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.jaas.config": f'{PLAIN_MODULE} required username="a" password="hunter2";',
            },
            "PlainLoginModule, but sasl.mechanism is SCRAM-SHA-256, which takes ScramLoginModule",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f'{PLAIN_MODULE} required username="a" password="hunter2" tokenauth="true";',
            },
            "delegation tokens",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": f'{OAUTH_MODULE} required clientId="a" clientSecret="hunter2";',
            },
            "sasl.oauthbearer.token.endpoint.url",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": "https://x/token",
            },
            "needs clientId and clientSecret",
        ),
        (
            {"security.protocol": "SSL", "ssl.ca.location": "a", "ssl.truststore.location": "b"},
            "ssl.truststore.location says the same",
        ),
        ({"security.protocol": "SSL", "ssl.keystore.key": "PRIVATE hunter2"}, "set ssl.keystore.certificate.chain too"),
        ({"security.protocol": "SSL", "ssl.keystore.certificate.chain": "x"}, "set ssl.keystore.key too"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "maybe"}, "It must be https, or empty"),
        ({"security.protocol": "SSL", "ssl.enabled.protocols": "SSLv3"}, r"It must be of: TLSv1\.2, TLSv1\.3"),
    ],
)
def test_what_cannot_be_is_refused_without_telling_secrets(settings: dict[str, str], reason: str):
    with pytest.raises(KafkaError, match=reason) as raised:
        parse_security(settings)
    assert raised.value.code is ErrorCode.INVALID_CONFIG
    assert not any(secret in raised.value.message for secret in SECRETS)


def test_jaas_is_read_as_java_reads_it():
    text = """
        com.example.LoginModule  Required
          username=alice
          password = "a \\"quoted\\" \\\\ ; = secret"
          other='single';
    """
    entry = parse_jaas(text)
    assert entry.module == "com.example.LoginModule"
    assert entry.options == {"username": "alice", "password": 'a "quoted" \\ ; = secret', "other": "single"}
    assert parse_jaas("m.M required;").options == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must start with a login module"),
        ('m.M username="a";', "must start with a login module"),
        ('m.M required username="a"', "must end with a semicolon"),
        ('m.M required username="a;', "never closed"),
        ('m.M required username="a", password="b";', "without commas"),
        ("m.M required username;", "without commas"),
    ],
)
def test_jaas_that_cannot_be_read(text: str, reason: str):
    with pytest.raises(KafkaError, match=reason):
        parse_jaas(text)


def test_properties_are_read_as_java_reads_them():
    text = (
        "# a comment\n! another\n\n"
        "security.protocol=SASL_SSL\n"
        "  sasl.mechanism : PLAIN\n"
        'sasl.jaas.config=a.B required \\\n    username="x" \\\n    password="y=z";\n'
        "blank value\n"
        "empty=\n"
        "key\\ with\\:signs=caf\\u00e9\\ttab\\\\\n"
        "twice=1\ntwice=2"
    )
    assert parse_properties(text) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": 'a.B required username="x" password="y=z";',
        "blank": "value",
        "empty": "",
        "key with:signs": "café\ttab\\",
        "twice": "2",
    }
