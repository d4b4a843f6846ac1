"""A set of public keys, as those who issue tokens publish it (JWKS, RFC 7517).

Only what can check a signature is taken from it: public members of keys of RSA, of three curves and of Ed25519. What is
of another kind, for encryption, or too small is passed over, as the RFC has it. A secret key for a MAC is never taken.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

# By how a token says that it is signed: which kind of key that needs.
_FAMILIES = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    "ES256": "P-256",
    "ES384": "P-384",
    "ES512": "P-521",
    "EdDSA": "Ed25519",
}
_ALGORITHMS = {"RSA": "RS256", "P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA"}
_PUBLIC_MEMBERS = {"RSA": ("kty", "n", "e"), "EC": ("kty", "crv", "x", "y"), "OKP": ("kty", "crv", "x")}
# Smaller ones can be broken. A larger one would take a millisecond and more for each token.
_RSA_BITS = range(2048, 8193)


@dataclass(frozen=True)
class PublicKey:
    key_id: str | None
    family: str
    algorithm: str | None  # The only one that it is for, if it says so.
    public: Any = field(repr=False)  # As `cryptography` has it.


@dataclass(frozen=True)
class KeySet:
    keys: tuple[PublicKey, ...] = ()

    def find(self, key_id: str | None, algorithm: str) -> list[PublicKey]:
        """Those that may have signed a token with this header. A token that names no key may be of any that fits."""
        family = _FAMILIES[algorithm]
        return [
            key
            for key in self.keys
            if key.family == family and key.algorithm in (None, algorithm) and key_id in (None, key.key_id)
        ]


def read_keys(data: bytes) -> KeySet:
    """Raises ValueError."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(document, dict) or not isinstance(document.get("keys"), list):
        raise ValueError('it is not a JSON Web Key Set: an object with a list "keys" is expected')
    keys = tuple(key for each in document["keys"] if (key := _read_key(each)) is not None)
    if not keys:
        raise ValueError("it has no key for signatures (RSA of 2048 bits or more, P-256, P-384, P-521, Ed25519)")
    return KeySet(keys)


def _read_key(given: object) -> PublicKey | None:
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    if not isinstance(given, dict) or given.get("use", "sig") != "sig":
        return None
    kind, key_id, algorithm = given.get("kty"), given.get("kid"), given.get("alg")
    family = kind if kind == "RSA" else given.get("crv")
    if not all(isinstance(text, str | None) for text in (kind, family, key_id, algorithm)):
        return None
    if kind not in _PUBLIC_MEMBERS or family not in _ALGORITHMS:
        return None
    members = {name: given.get(name) for name in _PUBLIC_MEMBERS[kind]}
    if not all(isinstance(text, str) for text in members.values()):
        return None
    try:
        public = PyJWK(members, algorithm=_ALGORITHMS[family]).key
    except (PyJWTError, ValueError):
        return None
    if family == "RSA" and public.key_size not in _RSA_BITS:
        return None
    return PublicKey(key_id, family, algorithm, public)
