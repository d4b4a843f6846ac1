"""Tokens that are good, and all the ways in which they are not."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import cache
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.broker.auth.bearer.checks import Expected, check_token
from tailrace.broker.auth.bearer.keys import KeySet, read_keys
from tailrace.broker.auth.conversations import Bearer, Doubt
from tailrace.model.security_settings import TOKEN_ALGORITHMS
from tests import issuer
from tests.issuer import AUDIENCE, ISSUER, key_set

NOW = int(time.time())
EXPECTED = Expected(TOKEN_ALGORITHMS, (AUDIENCE, "other"), ISSUER)


class SigningKey(issuer.SigningKey):
    now_s = NOW


def ours(algorithm: str = "RS256") -> SigningKey:
    return _made(algorithm)


@cache
def _made(algorithm: str) -> SigningKey:
    curves = {"ES384": ec.SECP384R1, "ES512": ec.SECP521R1}
    private = ec.generate_private_key(curves[algorithm]()) if algorithm in curves else None
    return SigningKey("first", algorithm, private)


@cache
def known(algorithm: str = "RS256") -> KeySet:
    return read_keys(key_set(ours(algorithm), SigningKey("second", "ES256")))


def check(token: str, expected: Expected = EXPECTED, keys: KeySet | None = None) -> Bearer | Doubt:
    return check_token(token, known() if keys is None else keys, expected, NOW * 1000)


def doubt(token: str, **more: Any) -> str:
    verdict = check(token, **more)
    assert isinstance(verdict, Doubt)
    assert token not in verdict.reason
    return verdict.reason


@pytest.mark.parametrize("algorithm", TOKEN_ALGORITHMS)
def test_a_good_token_names_its_user_and_its_end(algorithm: str):
    verdict = check(ours(algorithm).sign("alice"), keys=known(algorithm))
    assert isinstance(verdict, Bearer)
    assert verdict.user == "alice"
    assert 590_000 < verdict.life_ms <= 600_000


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": NOW - 31}, "has expired"),
        ({"exp": None}, "no claim exp"),
        ({"exp": "soon"}, "no claim exp"),
        ({"exp": True}, "no claim exp"),
        ({"exp": float("inf")}, "no time of this world"),
        ({"exp": float("nan")}, "no time of this world"),
        ({"exp": 10**400}, "no time of this world"),
        ({"iat": None}, "no claim iat"),
        ({"iat": NOW + 600}, "not valid yet"),
        ({"iat": NOW + 20, "exp": NOW + 10}, "ends before it begins"),
        ({"nbf": NOW + 600}, "not valid yet"),
        ({"nbf": "never"}, "no claim nbf"),
        ({"iss": "https://mallory.test"}, "not by sasl.oauthbearer.expected.issuer"),
        ({"iss": None}, "not by sasl.oauthbearer.expected.issuer"),
        ({"iss": [ISSUER]}, "not by sasl.oauthbearer.expected.issuer"),
        ({"aud": "somebody"}, "not for sasl.oauthbearer.expected.audience"),
        ({"aud": None}, "not for sasl.oauthbearer.expected.audience"),
        ({"aud": ["kafk", "afka"]}, "not for sasl.oauthbearer.expected.audience"),
        ({"aud": [[AUDIENCE]]}, "neither a text nor a list"),
        ({"aud": {AUDIENCE: 1}}, "neither a text nor a list"),
        ({"scope": 7}, "neither a text nor a list"),
        ({"scope": ["read", ""]}, "neither a text nor a list"),
        ({"sub": None}, "names no user"),
        ({"sub": " "}, "names no user"),
        ({"sub": 7}, "names no user"),
    ],
)
def test_claims_that_do_not_hold(claims: dict[str, Any], reason: str):
    left = {name: value for name, value in (_claims() | claims).items() if value is not None}
    token = jwt.api_jws.encode(json.dumps(left).encode(), ours().private, "RS256", headers={"kid": ours().key_id})
    assert reason in doubt(token)


@pytest.mark.parametrize(
    ("claims", "life_ms"),
    [
        ({"iat": NOW - 60, "exp": NOW - 5}, 25_000),  # What is left of the difference that clocks may have.
        ({"nbf": NOW + 20, "iat": NOW + 20}, 600_000),
        ({"aud": ["somebody", "other"]}, 600_000),
        ({"scope": "read write"}, 600_000),
        ({"scope": ["read", "write"]}, 600_000),
        ({"exp": NOW + 300.5}, 300_500),
    ],
)
def test_claims_that_just_hold(claims: dict[str, Any], life_ms: int):
    verdict = check(ours().sign(" alice ", **claims))
    assert isinstance(verdict, Bearer), verdict
    assert verdict.user == "alice"
    assert 0 < verdict.life_ms <= life_ms


def test_other_claims_may_name_the_user_and_nothing_need_be_expected():
    expected = Expected(TOKEN_ALGORITHMS, user_claim="email", scope_claim="scp")
    verdict = check(ours().sign(iss=None, aud=7, email="alice@example", scope=7, scp="all"), expected)
    assert isinstance(verdict, Bearer)
    assert verdict.user == "alice@example"


def _encode(part: object) -> str:
    return urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


def _claims() -> dict[str, Any]:
    return {"sub": "root", "iss": ISSUER, "aud": AUDIENCE, "iat": NOW, "exp": NOW + 600}


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", "", None, 7, ["none"]])
@pytest.mark.parametrize("signature", ["", "AAAA"])
def test_none_is_no_signature(name: object, signature: str):
    header = {"alg": name, "kid": "first"}
    assert "algorithm" in doubt(f"{_encode(header)}.{_encode(_claims())}.{signature}")


@pytest.mark.parametrize("digest", ["256", "384", "512"])
@pytest.mark.parametrize("form", ["pem", "der", "jwk"])
def test_a_public_key_is_no_secret_of_a_mac(digest: str, form: str):
    """Algorithm confusion: whoever knows the public key signs by it, and says that the algorithm is a MAC."""
    public = ours().private.public_key()
    secret = {
        "pem": lambda: public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "der": lambda: public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        "jwk": lambda: json.dumps(ours().public()).encode(),
    }[form]()
    signed = f"{_encode({'alg': f'HS{digest}', 'kid': 'first'})}.{_encode(_claims())}"
    mac = hmac.digest(secret, signed.encode(), f"sha{digest}")
    assert hashlib.new(f"sha{digest}").digest_size == len(mac)
    token = f"{signed}.{urlsafe_b64encode(mac).decode().rstrip('=')}"
    assert "algorithm" in doubt(token)
    # Nor would a set of keys that has a secret be believed.
    with_secret = {"kty": "oct", "kid": "first", "k": urlsafe_b64encode(secret).decode()}
    with pytest.raises(ValueError, match="no key for signatures"):
        read_keys(key_set(with_secret))


def test_a_forged_signature():
    mallory = SigningKey("first")
    assert "signature" in doubt(mallory.sign())
    head, body, signature = ours().sign("alice").split(".")
    other = _encode(_claims())
    for token in (f"{head}.{other}.{signature}", f"{head}.{body}.{signature[:-8]}", f"{head}.{body}."):
        assert re.search("signature|cannot be read", doubt(token))
    # Signed by the key of the token's own header.
    assert "signature" in doubt(mallory.sign(header={"jwk": mallory.public(), "jku": "https://mallory.test"}))


def test_a_key_is_used_as_its_owner_says():
    rs256_only = read_keys(key_set(ours().public(alg="RS256")))
    other = SigningKey("first", "PS256", ours().private)
    assert isinstance(check(ours().sign(), keys=rs256_only), Bearer)
    assert "not known" in doubt(other.sign(), keys=rs256_only)
    # A key of another kind under the same name.
    assert "not known" in doubt(ours("ES256").sign())
    assert "algorithm" in doubt(ours().sign(), expected=Expected(("ES256",)))


@pytest.mark.parametrize("key_id", ["third", "../../../etc/passwd", "first\0", "'; DROP TABLE keys; --", "a" * 1000])
def test_an_unknown_key_may_be_a_new_one(key_id: str):
    assert check(SigningKey(key_id, "RS256", ours().private).sign()) == Doubt(
        "it is signed by a key that is not known", is_key_unknown=True
    )


@pytest.mark.parametrize("key_id", ["a" * 1001, 7, ["first"], {}])
def test_what_is_no_name_of_a_key_asks_for_no_newer_ones(key_id: object):
    token = f"{_encode({'alg': 'RS256', 'kid': key_id})}.{_encode(_claims())}.AAAA"
    verdict = check(token)
    assert isinstance(verdict, Doubt)
    assert not verdict.is_key_unknown


def test_a_token_that_names_no_key_is_taken_if_one_alone_fits():
    unnamed = SigningKey(None, "RS256", ours().private)
    assert isinstance(check(unnamed.sign()), Bearer)
    both = read_keys(key_set(ours(), SigningKey("other")))
    assert "which of several" in doubt(unnamed.sign(), keys=both)


@pytest.mark.parametrize("more", [{"crit": ["exp"]}, {"crit": []}, {"b64": True}, {"b64": False, "crit": ["b64"]}])
def test_extensions_that_nobody_understands(more: dict[str, Any]):
    token = f"{_encode({'alg': 'RS256', 'kid': 'first'} | more)}.{_encode(_claims())}.AAAA"
    assert isinstance(check(token), Doubt)


@pytest.mark.parametrize(
    "token",
    [
        *("", ".", "..", "...", "a.b.c", "a.b.c.d.e", "e30.e30.", "W10.e30.AAAA", "bnVsbA.e30.AAAA"),
        "A" * 500_000,
        "A" * 250_000 + "." + "A" * 250_000 + ".AA",
        urlsafe_b64encode(b"[" * 300_000).decode() + ".e30.AAAA",
        urlsafe_b64encode(b'{"alg":' * 50_000).decode() + ".e30.AAAA",
    ],
    ids=lambda token: f"{token[:12]}-{len(token)}",
)
def test_what_is_no_token(token: str):
    began = time.process_time()
    assert isinstance(check(token), Doubt)
    assert time.process_time() - began < 2


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_change_of_a_good_token_is_good_or_breaks_anything(data: st.DataObject):
    good = ours().sign()
    token = list(good)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(token) - 1))
        token[place] = data.draw(st.sampled_from("-_.AZaz09="))
    changed = "".join(token)

    def meant(text: str) -> object:
        try:
            return [urlsafe_b64decode(part + "==") for part in text.split(".")]
        except ValueError:
            return None

    # The last character of a part may have bits that mean nothing; some versions of PyJWT refuse such a token.
    if isinstance(check(changed), Bearer):
        assert meant(changed) == meant(good)
    else:
        assert changed != good


def test_sets_of_keys():
    small = SigningKey("small", "RS256", rsa.generate_private_key(public_exponent=65537, key_size=1024))
    private = dict.fromkeys(("d", "p", "q", "dp", "dq", "qi"), "AQAB")
    odd: list[Any] = [
        small.public(),
        ours().public(use="enc"),
        ours().public(kid=7),
        ours().public(n=None),
        ours().public(n="!"),
        {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"},
        {"kty": ["RSA"]},
        {"kty": "EC", "crv": {}},
        {},
    ]
    keys = read_keys(key_set(ours().public(**private), *odd)).keys
    assert [key.key_id for key in keys] == ["first"]
    assert not hasattr(keys[0].public, "private_numbers")
    document = json.dumps({"keys": [7, None, [], ours().public()]}).encode()
    assert len(read_keys(document).keys) == 1


@pytest.mark.parametrize(
    "data", [b"", b"<html>", b"[]", b"{}", b'{"keys": {}}', b'{"keys": []}', b"[" * 100_000, b"\xff\xfe", b"null"]
)
def test_what_is_no_set_of_keys(data: bytes):
    with pytest.raises(ValueError, match=r"it is not|it has no key"):
        read_keys(data)
