"""The settings of a broker that say who may come in and how: TLS, SASL, and the bounds before a login.

A part of the table in model.config, in the same language. Most of these may also be written for one listener, as
`listener.name.<name>.<setting>`, and those of SASL for one mechanism of it, as
`listener.name.<name>.<mechanism>.<setting>`; the more special one wins. `model.listeners` looks them up.
"""

from __future__ import annotations

from tailrace.model.security import TLS_VERSIONS, ClientAuth, ScramMechanism, SecurityProtocol
from tailrace.model.settings import Config, Kind, Setting, boolean, integer, items, long, string

MECHANISMS = ("PLAIN", *(each.mechanism_name for each in ScramMechanism), "OAUTHBEARER")
# How a token may be signed. None of them is a MAC, for whose check a broker would have to know what signs.
TOKEN_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
STORE_TYPES = ("JKS", "PKCS12", "PEM")
_STORE_TYPE_DOC = (
    "JKS, PKCS12 or PEM, as Kafka has it. What the file is, its first bytes tell: PEM and PKCS12 are read, and a store "
    "that only Java reads is refused with the command that converts it."
)


def password(*, doc: str, dynamic: bool = False) -> str | None:
    row: str | None = Setting(Kind.PASSWORD, default=None, doc=doc, sensitive=True, dynamic=dynamic)  # type: ignore[assignment]
    return row


def parse_store_type(text: str) -> str:
    """Raises ValueError."""
    name = text.strip().upper()
    if name not in STORE_TYPES:
        raise ValueError(
            "PEM and PKCS12 are read: convert a store by: keytool -importkeystore -srckeystore STORE "
            f"-srcstoretype {text.strip()} -destkeystore STORE.p12 -deststoretype PKCS12"
        )
    return name


def _parse_mechanism(text: str) -> str:
    if text.upper() not in MECHANISMS:
        raise ValueError(f"Served are: {', '.join(MECHANISMS)}.")
    return text.upper()


def _parse_handler(text: str) -> str:
    """Kafka's own default takes tokens that nobody has signed."""
    if not text.endswith(".OAuthBearerValidatorCallbackHandler"):
        raise ValueError(
            "No class of Java is loaded here. Leave it out, or write "
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler for OAUTHBEARER: tokens "
            "without a signature are never taken."
        )
    return text


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
        default=None,
        dynamic=True,
        doc="File with the broker's certificate, those of the authorities between, and the key, as PEM or PKCS12.",
    )
    ssl_keystore_type: str = string(default="JKS", dynamic=True, convert=parse_store_type, doc=_STORE_TYPE_DOC)
    ssl_keystore_password: str | None = password(
        dynamic=True, doc="Of a PKCS12 file; of the key in a PEM file, if ssl.key.password is not set."
    )
    ssl_keystore_certificate_chain: str | None = password(
        dynamic=True, doc="The certificates as PEM, in place of a file."
    )
    ssl_keystore_key: str | None = password(dynamic=True, doc="The key as PEM (PKCS8), in place of a file.")
    ssl_key_password: str | None = password(dynamic=True, doc="Password of an encrypted key in PEM.")
    ssl_truststore_location: str | None = string(
        default=None,
        dynamic=True,
        doc="File with the certificates of those who are trusted, as PEM or PKCS12.",
    )
    ssl_truststore_type: str = string(default="JKS", dynamic=True, convert=parse_store_type, doc=_STORE_TYPE_DOC)
    ssl_truststore_password: str | None = password(dynamic=True, doc="Of a PKCS12 file.")
    ssl_truststore_certificates: str | None = password(dynamic=True, doc="The same as PEM, in place of a file.")
    ssl_crl_location: str | None = string(
        default=None,
        dynamic=True,
        ours=True,
        doc="File with the revocation lists of the authorities, as PEM (or one as DER). Whoever is on one of them is "
        "refused, and so is everybody whose authority has none there, or one that is out of date. The name is "
        "librdkafka's; nobody is asked online (OCSP).",
    )
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
    ssl_expiry_warning_days: int = integer(
        default=30,
        minimum=0,
        ours=True,
        doc="How long before the end of a certificate or a revocation list the log warns of it, once a day.",
    )
    ssl_allow_dn_changes: bool = boolean(
        default=False, doc="Whether a new certificate of this broker may have another subject."
    )
    ssl_allow_san_changes: bool = boolean(
        default=False, doc="Whether a new certificate of this broker may lack a name (SAN) that the old one has."
    )
    # ---- SASL
    sasl_enabled_mechanisms: tuple[str, ...] = items(
        default=(),
        ours=True,
        convert=_parse_mechanism,
        doc="Ways to log in that SASL listeners take: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. Kafka's "
        "default is GSSAPI, which is not served.",
    )
    sasl_jaas_config: str | None = password(
        doc="A login module with its options, for one listener and mechanism alone: "
        "listener.name.<name>.<mechanism>.sasl.jaas.config. PLAIN: user_<name>=password for each user, and username "
        "and password with which brokers call each other. OAUTHBEARER: ssl.truststore.location of those who issue "
        "tokens, if the machine does not trust them.",
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
    # ---- OAUTHBEARER: which tokens are taken
    sasl_server_callback_handler_class: str | None = string(
        default=None,
        ours=True,
        convert=_parse_handler,
        inert="No effect: signatures are checked whether it is set or not.",
        doc="Kafka's name of what checks tokens.",
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = string(
        default=None,
        doc="Where the public keys of those who issue tokens are, as a JSON Web Key Set: https:, file:, or http: if "
        "sasl.oauthbearer.allowed.urls names it.",
    )
    sasl_oauthbearer_allowed_urls: tuple[str, ...] = items(
        default=(),
        ours=True,
        doc="Addresses of http: that may be asked for keys and tokens, each in full: whoever is between can forge the "
        "answer. Kafka has this as a property of its JVM, for every kind of address.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = long(
        default=3_600_000, minimum=1000, ours=True, doc="How often the keys are read anew. Kafka has no least value."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = long(
        default=100, minimum=1, ours=True, doc="The first wait after keys could not be read; each is twice the last."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = long(
        default=10_000, minimum=1, ours=True, doc="The longest of these waits."
    )
    sasl_oauthbearer_jwks_endpoint_unknown_key_ms: int = long(
        default=10_000,
        minimum=1,
        ours=True,
        doc="Tokens that name a key which is not known make the keys be read anew, once in this time, whoever sends "
        "them. Kafka counts a minute for each name.",
    )
    sasl_oauthbearer_jwks_endpoint_timeout_ms: int = integer(
        default=5000, minimum=1, ours=True, doc="Time in which an answer with keys must be here as a whole."
    )
    sasl_oauthbearer_jwks_endpoint_max_bytes: int = integer(
        default=1024 * 1024, minimum=1, ours=True, doc="Largest answer with keys: a key has some hundred bytes."
    )
    sasl_oauthbearer_algorithms: tuple[str, ...] = items(
        default=TOKEN_ALGORITHMS, ours=True, choices=TOKEN_ALGORITHMS, doc="By which tokens may be signed."
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = items(
        default=(), doc="For whom a token must be made: one of these. If none is named, tokens for anybody are taken."
    )
    sasl_oauthbearer_expected_issuer: str | None = string(default=None, doc="By whom a token must be made.")
    sasl_oauthbearer_scope_claim_name: str = string(default="scope", doc="The claim that has the scope of a token.")
    sasl_oauthbearer_sub_claim_name: str = string(default="sub", doc="The claim that names the user.")
    sasl_oauthbearer_clock_skew_seconds: int = integer(
        default=30, minimum=0, ours=True, doc="How far the clocks of issuers may be off. Kafka takes numbers below 0."
    )
    # ---- OAUTHBEARER: from where nodes have theirs
    sasl_oauthbearer_token_endpoint_url: str | None = string(
        default=None, doc="Where nodes that log in to each other ask for a token: https:, or http: as above."
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = string(default=None, doc="As whom they ask.")
    sasl_oauthbearer_client_credentials_client_secret: str | None = password(doc="And by which secret.")
    sasl_oauthbearer_scope: str | None = string(default=None, doc="And for which scope.")
    sasl_login_read_timeout_ms: int | None = integer(
        default=None, minimum=1, ours=True, doc="How long they wait for it: 10000 if it is not set."
    )
    # ---- before a login
    connection_login_max_ms: int = integer(
        default=10_000,
        minimum=1,
        ours=True,
        doc="Time from the first packet to the end of the login; then the connection is closed. Kafka has no such "
        "limit but connections.max.idle.ms, and keeps whoever says nothing for ten minutes.",
    )
    # ---- delegation tokens
    delegation_token_secret_key: str | None = password(
        doc="What the passwords of delegation tokens are made with; the same on all nodes. Without it there are none."
    )
    delegation_token_max_lifetime_ms: int = long(
        default=7 * 24 * 3_600_000, minimum=1, doc="How long a token may be used in all, however often it is renewed."
    )
    delegation_token_expiry_time_ms: int = long(
        default=24 * 3_600_000, minimum=1, doc="How long a token may be used until it has to be renewed."
    )
    delegation_token_expiry_check_interval_ms: int = long(
        default=3_600_000,
        minimum=1,
        doc="How often the controller removes tokens that have expired. Nobody can log in by them even before that.",
    )
    delegation_tokens_max: int = integer(
        default=10_000,
        minimum=1,
        ours=True,
        doc="Tokens that there may be at a time: every node keeps them in memory, and whoever can log in may make "
        "some. Kafka has no such limit.",
    )


_OF_THE_NODE = ("ssl.handshakes.max", "ssl.files.check.interval.ms", "ssl.expiry.warning.days")
# What may be written for a single listener.
LISTENER_SETTINGS = frozenset(
    name
    for name in SecurityConfig.SETTINGS
    if name.startswith(("ssl.", "sasl.", "connections.", "max.connection.")) and name not in _OF_THE_NODE
)
# What may be changed while a broker runs, for the broker or one of its listeners: never for all brokers at once.
STORE_SETTINGS = frozenset(
    name for name, row in SecurityConfig.SETTINGS.items() if name.startswith("ssl.") and row.dynamic
)
