"""How a client proves who it is and whom it trusts: Kafka's `security.protocol`, `sasl.*` and `ssl.*`.

Owns the names, librdkafka's where Kafka has none, and what they mean together. Files are only named here; `real.tls`
reads them, on the machine that connects. Everything can be pickled, and no secret is part of a repr.
Every refusal is a KafkaError INVALID_CONFIG that names the setting, the reason and the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tailrace.client.security.jaas import JaasEntry, parse_jaas
from tailrace.model.errors import KafkaError
from tailrace.model.security import TLS_VERSIONS, Store, TlsSettings
from tailrace.model.security_settings import STORE_TYPES, parse_store_type
from tailrace.model.settings import invalid

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class Mechanism(StrEnum):
    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


@dataclass(frozen=True)
class TokenSettings:
    """Where a token for OAUTHBEARER comes from: an endpoint that knows the client's secret, or, for trials only, a
    claim that nobody signs. Or it is there already."""

    endpoint_url: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    timeout_ms: int = 10_000
    unsecured_subject: str = ""
    given: str = field(default="", repr=False)  # A token that somebody else has asked for; it is not renewed here.
    extensions: tuple[tuple[str, str], ...] = ()
    tls: TlsSettings | None = None  # Of the endpoint, where its authority is not one that the machine trusts.


@dataclass(frozen=True)
class SaslSettings:
    mechanism: Mechanism
    username: str = ""
    password: str = field(default="", repr=False)
    token: TokenSettings = TokenSettings()
    is_by_delegation_token: bool = False  # The username is its id, the password its HMAC in base64.


@dataclass(frozen=True)
class Security:
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None


PLAINTEXT = Security()

# Every setting that this file reads.
SECURITY_SETTINGS = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.jaas.config",
        "sasl.username",
        "sasl.password",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.scope",
        "sasl.login.read.timeout.ms",
        "ssl.truststore.location",
        "ssl.truststore.certificates",
        "ssl.truststore.type",
        "ssl.truststore.password",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.crl.location",
        "ssl.keystore.location",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.type",
        "ssl.keystore.password",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "ssl.enabled.protocols",
    }
)
# Those that hold a secret.
SECRET_SETTINGS = frozenset(
    name
    for name in SECURITY_SETTINGS
    if name.endswith(("password", "secret", "jaas.config", "keystore.key", "key.pem"))
)


def parse_security(settings: Mapping[str, str]) -> Security:
    """From all settings of a client; those that are not about security are left alone."""
    protocol = settings.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise invalid("security.protocol", protocol, f"It must be one of: {', '.join(_PROTOCOLS)}")
    return Security(
        tls=parse_tls(settings) if protocol.endswith("SSL") else None,
        sasl=_parse_sasl(settings) if protocol.startswith("SASL") else None,
    )


# --- TLS


def parse_tls(settings: Mapping[str, str]) -> TlsSettings:
    for name in ("ssl.keystore.type", "ssl.truststore.type"):
        _check_store_type(name, settings.get(name))
    authorities = _store(
        settings,
        files=("ssl.truststore.location", "ssl.ca.location"),
        texts=("ssl.truststore.certificates", "ssl.ca.pem"),
        opened_by="ssl.truststore.password",
    )
    certificates = _store(
        settings,
        files=("ssl.keystore.location", "ssl.certificate.location"),
        texts=("ssl.keystore.certificate.chain", "ssl.certificate.pem"),
        opened_by="ssl.keystore.password",
    )
    key = _store(settings, files=("ssl.key.location",), texts=("ssl.keystore.key", "ssl.key.pem"))
    if key is not None and certificates is None:
        raise invalid(key.setting, "(hidden)", "A key needs its certificate: set ssl.keystore.certificate.chain too")
    if certificates is not None and certificates.text is not None and key is None:
        raise invalid(certificates.setting, "(hidden)", "A certificate needs its key: set ssl.keystore.key too")
    return TlsSettings(
        authorities=authorities,
        certificates=certificates,
        key=key,
        key_password=settings.get("ssl.key.password") or settings.get("ssl.keystore.password"),
        revoked=_store(settings, files=("ssl.crl.location",)),
        is_host_checked=_is_host_checked(settings.get("ssl.endpoint.identification.algorithm", "https")),
        versions=_tls_versions(settings.get("ssl.enabled.protocols", ",".join(TLS_VERSIONS))),
    )


def _store(
    settings: Mapping[str, str], *, files: tuple[str, ...], texts: tuple[str, ...] = (), opened_by: str = ""
) -> Store | None:
    given = [name for name in (*files, *texts) if settings.get(name)]
    if not given:
        return None
    if len(given) > 1:
        raise invalid(given[1], "(hidden)", f"{given[0]} says the same thing: set one of the two")
    name = given[0]
    if name in files:
        return Store(name, path=settings[name], password=settings.get(opened_by))
    return Store(name, text=settings[name])


def _check_store_type(name: str, text: str | None) -> None:
    try:
        parse_store_type(text or STORE_TYPES[0])
    except ValueError as error:
        raise invalid(name, text, str(error)) from None


def _is_host_checked(algorithm: str) -> bool:
    match algorithm.strip().lower():
        case "https":
            return True
        case "" | "none":
            return False
    reason = "It must be https, or empty for brokers whose certificates do not have their names"
    raise invalid("ssl.endpoint.identification.algorithm", algorithm, reason)


def _tls_versions(text: str) -> tuple[str, ...]:
    versions = tuple(filter(None, (word.strip() for word in text.split(","))))
    if not versions or not set(versions) <= set(TLS_VERSIONS):
        raise invalid("ssl.enabled.protocols", text, f"It must be of: {', '.join(TLS_VERSIONS)}")
    return versions


# --- SASL


def _parse_sasl(settings: Mapping[str, str]) -> SaslSettings:
    mechanism = _mechanism(settings)
    jaas = settings.get("sasl.jaas.config")
    entry = parse_jaas(jaas) if jaas else None
    if entry is not None:
        _check_fits(entry, mechanism)
    options = {} if entry is None else entry.options
    if mechanism is Mechanism.OAUTHBEARER:
        return SaslSettings(mechanism, token=_parse_token(settings, options))
    is_by_token = options.get("tokenauth", "").lower() == "true"
    if is_by_token and mechanism is Mechanism.PLAIN:
        raise _bad_jaas("delegation tokens (tokenauth) need sasl.mechanism SCRAM-SHA-256 or SCRAM-SHA-512, not PLAIN")
    username = options.get("username") or settings.get("sasl.username")
    password = options.get("password") or settings.get("sasl.password")
    if not username or not password:
        raise _bad_jaas(
            f"{mechanism} needs a username and a password: set sasl.username and sasl.password, or sasl.jaas.config to "
            f'"org.apache.kafka.common.security.{_MODULES[mechanism]} required username=... password=...;"'
        )
    return SaslSettings(mechanism, username, password, is_by_delegation_token=is_by_token)


def _mechanism(settings: Mapping[str, str]) -> Mechanism:
    name = settings.get("sasl.mechanism") or settings.get("sasl.mechanisms")
    known = ", ".join(Mechanism)
    if not name:
        raise invalid("sasl.mechanism", name, f"Kafka's default, GSSAPI, is not supported. Set one of: {known}")
    try:
        return Mechanism(name.strip().upper())
    except ValueError:
        raise invalid("sasl.mechanism", name, f"Supported are: {known}") from None


# A login module's name below org.apache.kafka.common.security, where it is not shaded.
_MODULES = {
    Mechanism.PLAIN: "plain.PlainLoginModule",
    Mechanism.SCRAM_SHA_256: "scram.ScramLoginModule",
    Mechanism.SCRAM_SHA_512: "scram.ScramLoginModule",
    Mechanism.OAUTHBEARER: "oauthbearer.OAuthBearerLoginModule",
}


def _check_fits(entry: JaasEntry, mechanism: Mechanism) -> None:
    wanted = _MODULES[mechanism].rpartition(".")[2]
    found = entry.module.rpartition(".")[2]
    if found != wanted:
        raise _bad_jaas(f"its login module is {found}, but sasl.mechanism is {mechanism}, which takes {wanted}")


def _parse_token(settings: Mapping[str, str], options: Mapping[str, str]) -> TokenSettings:
    prefix = "extension_"
    timeout = settings.get("sasl.login.read.timeout.ms", "10000")
    if not timeout.isascii() or not timeout.isdigit() or int(timeout) == 0:
        raise invalid("sasl.login.read.timeout.ms", timeout, "Not a number of milliseconds above 0")
    credentials = "sasl.oauthbearer.client.credentials.client."
    token = TokenSettings(
        endpoint_url=settings.get("sasl.oauthbearer.token.endpoint.url", ""),
        client_id=settings.get(credentials + "id") or options.get("clientId", ""),
        client_secret=settings.get(credentials + "secret") or options.get("clientSecret", ""),
        scope=settings.get("sasl.oauthbearer.scope") or options.get("scope", ""),
        timeout_ms=int(timeout),
        unsecured_subject=options.get("unsecuredLoginStringClaim_sub", ""),
        extensions=tuple((k.removeprefix(prefix), v) for k, v in options.items() if k.startswith(prefix)),
        tls=parse_token_tls(options),
    )
    if token.unsecured_subject:
        return token
    if not token.endpoint_url.startswith(("http://", "https://")):
        reason = "OAUTHBEARER asks it for a token: set the https address of the endpoint"
        raise invalid("sasl.oauthbearer.token.endpoint.url", token.endpoint_url, reason)
    if not token.client_id or not token.client_secret:
        raise _bad_jaas(f"OAUTHBEARER needs clientId and clientSecret: set {credentials}id and {credentials}secret")
    return token


def parse_token_tls(options: Mapping[str, str]) -> TlsSettings | None:
    """Whom to trust as an issuer of tokens stands beside the login module, as in Kafka."""
    return parse_tls(options) if any(name.startswith("ssl.") for name in options) else None


def _bad_jaas(reason: str) -> KafkaError:
    return invalid("sasl.jaas.config", "(hidden)", reason)
