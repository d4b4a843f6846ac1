"""Who somebody is, and how a listener finds out.

A `Principal` is what a connection has proved of its client, and what ACLs, quotas and logs speak of. It is written as
`User:alice`. Whoever has proved nothing is `ANONYMOUS`. What TLS is made of is named here, and read by `real.tls`. Here
are only facts: nothing is decided, read or encrypted. No secret is part of a repr.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NamedTuple


class SecurityProtocol(StrEnum):
    """What is spoken on a listener before Kafka's requests, by Kafka's names."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        return self.value.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        return self.value.startswith("SASL_")


class Principal(NamedTuple):
    kind: str  # Of those who connect it is always User; ACLs of other kinds may be stored, and never fit.
    name: str
    is_by_token: bool = False  # It has logged in by a delegation token, and so may have nothing to do with others.

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")


def parse_principal(text: str) -> Principal:
    """`User:alice`; the name may hold colons. Raises ValueError."""
    kind, colon, name = text.partition(":")
    if not kind or not colon or not name:
        raise ValueError("Write a kind and a name, such as User:alice.")
    return Principal(kind, name)


class ScramMechanism(IntEnum):
    """By Kafka's numbers."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism_name(self) -> str:
        """As SaslHandshake has it."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """As hashlib has it."""
        return {1: "sha256", 2: "sha512"}[self.value]


TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


class ClientAuth(StrEnum):
    """Whether a listener asks clients for a certificate (ssl.client.auth)."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True)
class Store:
    """Certificates, a key or revocation lists: in a file, or written into the setting itself."""

    setting: str = field(compare=False)  # Where it is written; two that name the same file are the same.
    path: str | None = None
    text: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)  # Of a PKCS12 file.


@dataclass(frozen=True)
class TlsSettings:
    """Of either side."""

    authorities: Store | None = None  # None: those that the machine trusts
    certificates: Store | None = None  # a broker's own; a client's own for brokers that ask for one
    key: Store | None = None  # None: in the same file as the certificates
    key_password: str | None = field(default=None, repr=False)
    revoked: Store | None = None  # lists of the authorities; None: nobody looks
    is_host_checked: bool = True
    versions: tuple[str, ...] = TLS_VERSIONS
    # Only the side that listens uses this.
    client_auth: ClientAuth = ClientAuth.NONE
    cipher_suites: tuple[str, ...] = ()  # By Java's names; none: what OpenSSL takes for good.


class CertificateFacts(NamedTuple):
    """Of one certificate."""

    subject: str  # As Java writes it.
    names: frozenset[str]  # By which its owner may be called: DNS:host, IP:address and so on.
    begins_ms: int
    ends_ms: int


class Ending(NamedTuple):
    """Something that is good for a time."""

    what: str
    ends_ms: int
