"""Who a caller of an app says it is: `Authorization` in the words of SASL, and the certificate of a connection.

    Basic     username and password, by the mechanism that the app itself uses (SCRAM-SHA-512 if that is a token's)
    Bearer    a token for OAUTHBEARER, as it is

Nothing here says whether it is true: brokers do.
"""

from __future__ import annotations

import json
from base64 import b64decode, urlsafe_b64decode
from typing import NamedTuple

from tailrace.client.security.settings import Mechanism, SaslSettings, TokenSettings

# Where the protocol puts the subject of the certificate that a connection has shown.
CERTIFICATE = "tailrace.certificate"
CREDENTIAL_MAX = 64 * 1024


class Credential(NamedTuple):
    sasl: SaslSettings
    principal: str


def read_credential(scheme: str, text: str, own: SaslSettings | None) -> Credential:
    """`own` is the login of the app itself. Raises ValueError for what is no credential."""
    if not text or len(text) > CREDENTIAL_MAX:
        raise ValueError("the credential is empty or too long")
    if scheme == "bearer":
        subject = _subject_of(text)
        return Credential(SaslSettings(Mechanism.OAUTHBEARER, token=TokenSettings(given=text)), f"User:{subject}")
    username, colon, password = b64decode(text, validate=True).decode().partition(":")
    if not username or not colon or not password:
        raise ValueError("Basic needs a username and a password")
    mechanism = Mechanism.SCRAM_SHA_512 if own is None or own.mechanism is Mechanism.OAUTHBEARER else own.mechanism
    return Credential(SaslSettings(mechanism, username, password), f"User:{username}")


def _subject_of(token: str) -> str:
    """Of a token that brokers are about to check."""
    parts = token.split(".")
    if len(parts) != 3:
        raise ValueError("a token has three parts")
    try:
        claims = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except RecursionError:
        raise ValueError("a token's claims are nested too deeply") from None
    subject = claims.get("sub") if isinstance(claims, dict) else None
    if not isinstance(subject, str) or not subject:
        raise ValueError("a token names its subject")
    return subject
