"""Who somebody is, and how a listener finds out.

A `Principal` is what a connection has proved of its client, and what ACLs, quotas and logs speak of. It is written as
`User:alice`. Whoever has proved nothing is `ANONYMOUS`. Here are only facts: nothing is decided, read or encrypted.
"""

from __future__ import annotations

from enum import StrEnum
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

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")


def parse_principal(text: str) -> Principal:
    """`User:alice`; the name may hold colons. Raises ValueError."""
    kind, colon, name = text.partition(":")
    if not kind or not colon or not name:
        raise ValueError("Write a kind and a name, such as User:alice.")
    return Principal(kind, name)
