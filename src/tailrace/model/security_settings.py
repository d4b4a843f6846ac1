"""The settings of a broker that say who may come in and how: TLS, SASL, and the bounds before a login.

A part of the table in model.config, in the same language. Most of these may also be written for one listener, as
`listener.name.<name>.<setting>`, and those of SASL for one mechanism of it, as
`listener.name.<name>.<mechanism>.<setting>`; the more special one wins. `model.listeners` looks them up.
"""

from __future__ import annotations

from tailrace.model.security import TLS_VERSIONS, ClientAuth, ScramMechanism, SecurityProtocol
from tailrace.model.settings import Config, Kind, Setting, boolean, integer, items, long, string

MECHANISMS = ("PLAIN", *(each.mechanism_name for each in ScramMechanism))
_PEM_ALONE = (
    "PEM is all that is read: convert a store by: keytool -importkeystore -srckeystore STORE -destkeystore STORE.p12 "
    "-deststoretype PKCS12 && openssl pkcs12 -in STORE.p12 -out STORE.pem -nodes"
)


def password(*, doc: str) -> str | None:
    row: str | None = Setting(Kind.PASSWORD, default=None, doc=doc, sensitive=True)  # type: ignore[assignment]
    return row


def _parse_store_type(text: str) -> str:
    if text.strip().upper() != "PEM":
        raise ValueError(_PEM_ALONE)
    return "PEM"


def _parse_mechanism(text: str) -> str:
    if text.upper() not in MECHANISMS:
        raise ValueError(f"Served are: {', '.join(MECHANISMS)}.")
    return text.upper()


def _refuse_alone(_text: str) -> str:
    raise ValueError("Write listener.name.<name>.<setting>, such as listener.name.external.ssl.client.auth.")


class SecurityConfig(Config, scope="broker"):
    # ---- which listener has which protocol
    listener_security_protocol_map: str = string(
        default="SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        ours=True,
        doc="NAME:PROTOCOL of each listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. Kafka's default has no other "
        "names; here a listener that is not in the default is PLAINTEXT.",
    )
    security_inter_broker_protocol: str = string(
        default="PLAINTEXT",
        choices=tuple(SecurityProtocol),
        doc="Brokers call each other by the first listener with this protocol, if it is set and "
        "inter.broker.listener.name is not.",
    )
    max_connection_creation_rate: int = integer(
        default=2**31 - 1,
        minimum=0,
        dynamic=True,
        doc="New connections a second; whoever comes faster waits. That of a listener holds beside it.",
    )
    listener_settings: tuple[tuple[str, str], ...] = items(
        default=(),
        internal=True,
        ours=True,
        sensitive=True,
        convert=_refuse_alone,
        doc="What was written for single listeners, by name and text.",
    )
    # ---- TLS
    ssl_keystore_location: str | None = string(
        default=None, doc="File with the broker's certificate, those of the authorities between, and the key, as PEM."
    )
    ssl_keystore_type: str = string(
        default="PEM", ours=True, convert=_parse_store_type, doc="PEM. Kafka's default is JKS, which only Java reads."
    )
    ssl_keystore_password: str | None = password(doc="Used for the key, if ssl.key.password is not set.")
    ssl_keystore_certificate_chain: str | None = password(doc="The certificates as PEM, in place of a file.")
    ssl_keystore_key: str | None = password(doc="The key as PEM (PKCS8), in place of a file.")
    ssl_key_password: str | None = password(doc="Password of an encrypted key.")
    ssl_truststore_location: str | None = string(
        default=None, doc="File with the certificates of those who are trusted, as PEM."
    )
    ssl_truststore_type: str = string(
        default="PEM", ours=True, convert=_parse_store_type, doc="PEM. Kafka's default is JKS, which only Java reads."
    )
    ssl_truststore_certificates: str | None = password(doc="The same as PEM, in place of a file.")
    ssl_client_auth: str = string(
        default="none",
        choices=tuple(ClientAuth),
        doc="Whether clients must show a certificate (required), may (requested) or are not asked.",
    )
    ssl_enabled_protocols: tuple[str, ...] = items(
        default=TLS_VERSIONS, ours=True, choices=TLS_VERSIONS, doc="Versions of TLS. Older ones are not served."
    )
    ssl_cipher_suites: tuple[str, ...] = items(
        default=(),
        doc="Suites by Java's names; none: what OpenSSL takes for good. Of TLS 1.3 all three have to be named, or "
        "none, which leaves TLS 1.2.",
    )
    ssl_endpoint_identification_algorithm: str = string(
        default="https", doc="Whether a broker checks the names in the certificates of those that it calls; or empty."
    )
    ssl_principal_mapping_rules: str = string(
        default="DEFAULT",
        doc="From the subject of a client's certificate to the name of its principal: RULE:pattern/replacement/[LU] "
        "or DEFAULT, parted by commas; the first that fits counts, and whoever fits none is refused.",
    )
    ssl_handshakes_max: int = integer(
        default=4,
        minimum=1,
        ours=True,
        doc="Steps of TLS handshakes under way at once, in helper threads. Each takes about half a millisecond; there "
        "are twelve such threads, and disks need them too.",
    )
    ssl_files_check_interval_ms: int = long(
        default=10_000,
        minimum=0,
        ours=True,
        doc="How often the files of certificates are looked at; they are read again once they have changed. 0 for "
        "never. Kafka reads them again when their settings are set again.",
    )
    # ---- SASL
    sasl_enabled_mechanisms: tuple[str, ...] = items(
        default=(),
        ours=True,
        convert=_parse_mechanism,
        doc="Ways to log in that SASL listeners take: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512. Kafka's default is GSSAPI, "
        "which is not served.",
    )
    sasl_jaas_config: str | None = password(
        doc="A login module with its options, for one listener and mechanism alone: "
        "listener.name.<name>.<mechanism>.sasl.jaas.config. PLAIN: user_<name>=password for each user, and username "
        "and password with which brokers call each other.",
    )
    sasl_mechanism_inter_broker_protocol: str | None = string(
        default=None,
        ours=True,
        convert=_parse_mechanism,
        doc="How brokers log in to each other, where their listener has SASL. Kafka's default is GSSAPI.",
    )
    sasl_mechanism_controller_protocol: str | None = string(
        default=None,
        ours=True,
        convert=_parse_mechanism,
        doc="How nodes log in to controllers, where their listener has SASL. Kafka's default is GSSAPI.",
    )
    sasl_server_max_receive_size: int = integer(
        default=524288, doc="Largest request taken before the login; a larger size closes the connection."
    )
    connection_failed_authentication_delay_ms: int = integer(
        default=100, minimum=0, doc="How long the answer to a failed login is held back."
    )
    connections_max_reauth_ms: int = long(
        default=0,
        minimum=0,
        ours=True,
        doc="How long a login by SASL is good for; 0 for ever. Before the end a client logs in again on its connection "
        "(KIP-368); what comes later closes it. Kafka takes numbers below 0, and means 0. Requests of such a "
        "connection take a longer way.",
    )
    connection_login_max_ms: int = integer(
        default=10_000,
        minimum=1,
        ours=True,
        doc="Time from the first packet to the end of the login; then the connection is closed. Kafka has no such "
        "limit but connections.max.idle.ms, and keeps whoever says nothing for ten minutes.",
    )
    # ---- what Kafka has, and does nothing here
    ssl_allow_dn_changes: bool = boolean(
        default=False, inert="No effect: a new certificate may differ in both.", doc="Whether a subject may change."
    )
    ssl_allow_san_changes: bool = boolean(
        default=False, inert="No effect: a new certificate may differ in both.", doc="Whether names may change."
    )


_OF_THE_NODE = ("ssl.handshakes.max", "ssl.files.check.interval.ms")
# What may be written for a single listener.
LISTENER_SETTINGS = frozenset(
    name
    for name in SecurityConfig.SETTINGS
    if name.startswith(("ssl.", "sasl.", "connections.", "max.connection.")) and name not in _OF_THE_NODE
)
