"""Whether a token (JWT, RFC 7519) is good: who signed it, for whom, by whom, from when until when.

Pure, but takes up to some milliseconds: a helper thread runs it. The algorithm is one that the settings allow, and the
key one that is of that algorithm's kind; neither follows from the token alone, so that a public key cannot be used as
the secret of a MAC, and `none` is no signature. A doubt never quotes what was sent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tailrace.broker.auth.bearer.keys import KeySet
from tailrace.broker.auth.conversations import Bearer, Doubt

# As in Kafka: longer names are not of keys.
_KEY_ID_MAX_CHARACTERS = 1000
# Beyond any year that a clock knows.
_TIME_MAX_S = 2.0**53


@dataclass(frozen=True)
class Expected:
    """All of it settings."""

    algorithms: tuple[str, ...]
    audiences: tuple[str, ...] = ()
    issuer: str | None = None
    scope_claim: str = "scope"
    user_claim: str = "sub"
    skew_s: int = 30


class _DoubtError(Exception):
    def __init__(self, reason: str, *, is_key_unknown: bool = False) -> None:
        super().__init__(reason)
        self.doubt = Doubt(reason, is_key_unknown)


def check_token(token: str, keys: KeySet, expected: Expected, now_ms: int) -> Bearer | Doubt:
    try:
        return _check_claims(_check_signature(token, keys, expected), expected, now_ms / 1000)
    except _DoubtError as error:
        return error.doubt


def _check_signature(token: str, keys: KeySet, expected: Expected) -> bytes:
    """What was signed."""
    from jwt import PyJWS
    from jwt.exceptions import InvalidSignatureError, PyJWTError

    if token.count(".") != 2:
        raise _DoubtError("it is not a signed JWT, of three parts")
    jws = PyJWS(algorithms=list(expected.algorithms))
    try:
        header = jws.get_unverified_header(token)
    except (PyJWTError, ValueError):
        raise _DoubtError("it cannot be read") from None
    algorithm, key_id = header.get("alg"), header.get("kid")
    if algorithm not in expected.algorithms:
        raise _DoubtError("it is not signed by an algorithm of sasl.oauthbearer.algorithms")
    if "crit" in header or "b64" in header:
        raise _DoubtError("its header asks for an extension that nobody here understands")
    if key_id is not None and (not isinstance(key_id, str) or len(key_id) > _KEY_ID_MAX_CHARACTERS):
        raise _DoubtError("the name of its key is not one")
    found = keys.find(key_id, algorithm)
    if not found:
        raise _DoubtError("it is signed by a key that is not known", is_key_unknown=True)
    if len(found) > 1:
        raise _DoubtError("it does not say which of several keys has signed it")
    try:
        payload: bytes = jws.decode_complete(token, found[0].public, algorithms=[algorithm])["payload"]
        return payload
    except InvalidSignatureError:
        raise _DoubtError("its signature is not that of the key that it names") from None
    except (PyJWTError, ValueError):
        raise _DoubtError("it cannot be read") from None


def _check_claims(payload: bytes, expected: Expected, now_s: float) -> Bearer:
    try:
        claims = json.loads(payload)
    except (ValueError, RecursionError):
        claims = None
    if not isinstance(claims, dict):
        raise _DoubtError("its claims are not JSON")
    ends_s, issued_s = _time(claims, "exp"), _time(claims, "iat")
    begins_s = _time(claims, "nbf") if "nbf" in claims else issued_s
    if now_s >= ends_s + expected.skew_s:
        raise _DoubtError("it has expired")
    if max(begins_s, issued_s) > now_s + expected.skew_s:
        raise _DoubtError("it is not valid yet: compare the clocks")
    if ends_s < max(begins_s, issued_s):
        raise _DoubtError("it ends before it begins")
    if expected.issuer is not None and claims.get("iss") != expected.issuer:
        raise _DoubtError("it is not by sasl.oauthbearer.expected.issuer")
    if expected.audiences and not set(expected.audiences) & _texts(claims, "aud"):
        raise _DoubtError("it is not for sasl.oauthbearer.expected.audience")
    if expected.scope_claim in claims:
        _texts(claims, expected.scope_claim)
    user = claims.get(expected.user_claim)
    if not isinstance(user, str) or not user.strip():
        raise _DoubtError("it names no user: see sasl.oauthbearer.sub.claim.name")
    left_s = ends_s - now_s if ends_s > now_s else ends_s + expected.skew_s - now_s
    return Bearer(user.strip(), max(1, int(left_s * 1000)))


def _time(claims: dict[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _DoubtError(f"it has no claim {name}, or none that is a time")
    if not -_TIME_MAX_S < value < _TIME_MAX_S:
        raise _DoubtError(f"its claim {name} is no time of this world")
    return value


def _texts(claims: dict[str, Any], name: str) -> set[str]:
    """One text, or a list of them."""
    value = claims.get(name, [])
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) and text.strip() for text in texts):
        raise _DoubtError("its audience or its scope is neither a text nor a list of texts")
    return set(texts)
