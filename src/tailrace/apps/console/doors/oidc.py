"""Login by an issuer of OpenID Connect: the authorization code flow with PKCE (RFC 6749, 7636, 9207).

    /login/oidc            a browser is sent to the issuer, with a state and a challenge that fit its cookie
    /login/oidc/callback   it comes back with a code; the console exchanges it for tokens

The access token then is what the visitor shows to the cluster (OAUTHBEARER), and the cluster alone judges it. The
identity token comes straight from the issuer over TLS, which vouches for it (OpenID Connect Core, 3.1.3.7); only the
name on the page is taken from it. Codes, tokens and the client's secret are in no address of ours, log or message.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ports import Ports, WebQuestion, WebRefusalError
from tailrace.model.security import TlsSettings

# It comes with the way back from another site, which the cookie of a visit does not.
LOGIN_COOKIE = "tailrace_login"
_ANSWER_MAX_BYTES = 1 << 20
_TIMEOUT_MS = 10_000
# Logins that were begun and not ended: each is a few hundred bytes.
_BEGUN_MAX = 1000
_BEGUN_S = 600.0
_LIFETIME_S = 300.0


@dataclass(frozen=True)
class OidcOptions:
    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    scope: str = "openid profile"
    address: str = ""  # By which browsers reach this console; else as they have asked.
    tls: TlsSettings | None = None


@dataclass(frozen=True)
class Tokens:
    user: str
    access: str = field(repr=False)
    refresh: str = field(repr=False)
    lifetime_s: float


@dataclass(frozen=True)
class _Begun:
    nonce: str
    verifier: str
    cookie: str
    to: str
    callback: str
    ends_s: float


class Oidc:
    def __init__(self, options: OidcOptions, ports: Ports, *, now_s: Callable[[], float]) -> None:
        self.options = options
        self._ports = ports
        self._now_s = now_s
        self._metadata: dict[str, Any] | None = None
        self._begun: OrderedDict[str, _Begun] = OrderedDict()

    @property
    def name(self) -> str:
        return urlsplit(self.options.issuer).hostname or self.options.issuer

    async def begin(self, *, callback: str, to: str) -> tuple[str, str]:
        """Where to send the browser, and the cookie that it is to come back with. Raises KafkaError."""
        where = _address((await self._discover()).get("authorization_endpoint"), "authorization_endpoint")
        now_s = self._now_s()
        while self._begun and (len(self._begun) >= _BEGUN_MAX or next(iter(self._begun.values())).ends_s < now_s):
            self._begun.popitem(last=False)
        state, nonce, verifier, cookie = (secrets.token_urlsafe(32) for _ in range(4))
        self._begun[state] = _Begun(nonce, verifier, cookie, to, callback, now_s + _BEGUN_S)
        challenge = urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        asked = {
            "response_type": "code",
            "client_id": self.options.client_id,
            "redirect_uri": callback,
            "scope": self.options.scope,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return f"{where}{'&' if '?' in where else '?'}{urlencode(asked)}", cookie

    async def end(self, answer: Mapping[str, str], cookie: str) -> tuple[Tokens, str]:
        """The tokens, and the page that was wanted at first. Raises KafkaError."""
        begun = self._begun.pop(answer.get("state", ""), None)
        if begun is None or begun.ends_s < self._now_s() or not hmac.compare_digest(begun.cookie, cookie):
            raise _refused("this login was not begun in this browser, or long ago: begin again")
        if "error" in answer:
            raise _refused(f"{self.name} says no: {answer['error']} {answer.get('error_description', '')}".strip())
        # An issuer that names itself must be the one that was asked (RFC 9207).
        if answer.get("iss", self.options.issuer) != self.options.issuer:
            raise _refused("the answer is of another issuer")
        told = await self._exchange(
            {
                "grant_type": "authorization_code",
                "code": answer.get("code", ""),
                "redirect_uri": begun.callback,
                "code_verifier": begun.verifier,
            }
        )
        claims = _claims(str(told.get("id_token", "")))
        self._check(claims, begun.nonce)
        name = claims.get("preferred_username") or claims.get("email") or claims.get("sub")
        return _tokens(str(name), told, ""), begun.to

    async def renew(self, tokens: Tokens) -> Tokens:
        """Raises KafkaError."""
        told = await self._exchange({"grant_type": "refresh_token", "refresh_token": tokens.refresh})
        return _tokens(tokens.user, told, tokens.refresh)

    def _check(self, claims: Mapping[str, Any], nonce: str) -> None:
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        ends = claims.get("exp")
        if claims.get("iss") != self.options.issuer or self.options.client_id not in audiences:
            raise _refused("the identity token was made by another issuer, or for somebody else")
        if not hmac.compare_digest(str(claims.get("nonce", "")), nonce):
            raise _refused("the identity token belongs to another login")
        if not isinstance(ends, (int, float)) or ends < self._ports.clock.wall_ms() / 1000:
            raise _refused("the identity token has ended: do the clocks differ?")

    async def _discover(self) -> dict[str, Any]:
        if self._metadata is None:
            found = await self._ask(f"{self.options.issuer.rstrip('/')}/.well-known/openid-configuration")
            if found.get("issuer") != self.options.issuer:
                raise _refused(f"{self.options.issuer} calls itself {found.get('issuer')!r}: use that as --oidc-issuer")
            self._metadata = found
        return self._metadata

    async def _exchange(self, form: dict[str, str]) -> dict[str, Any]:
        where = _address((await self._discover()).get("token_endpoint"), "token_endpoint")
        options = self.options
        headers = {}
        if options.client_secret:
            login = f"{quote(options.client_id, safe='')}:{quote(options.client_secret, safe='')}"
            headers["Authorization"] = "Basic " + b64encode(login.encode()).decode()
        else:
            form["client_id"] = options.client_id
        return await self._ask(where, form, headers)

    async def _ask(
        self, url: str, form: dict[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        web = self._ports.web
        assert web is not None, "these ports have no web"
        question = WebQuestion(
            url,
            _TIMEOUT_MS,
            _ANSWER_MAX_BYTES,
            headers={"Accept": "application/json"} | dict(headers or {}),
            form=None if form is None else urlencode(form).encode(),
            tls=self.options.tls,
        )
        try:
            found = json.loads(await self._ports.background.run(lambda: web.ask(question)))
        except WebRefusalError as error:
            raise _refused(f"{self.name}: {error}") from None
        except OSError as error:
            raise KafkaError(
                ErrorCode.NETWORK_EXCEPTION, f"{self.name} cannot be reached: {error.strerror or error}"
            ) from None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise _refused(f"{self.name} does not answer with a JSON object")
        return found


def check_issuer(text: str) -> str:
    """Raises ValueError: codes and tokens go over TLS, but to this machine."""
    parts = urlsplit(text)
    is_here = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and is_here)):
        raise ValueError(f"{text!r} is not the https address of an issuer")
    return text


def _address(found: Any, name: str) -> str:
    try:
        return check_issuer(str(found))
    except ValueError:
        raise _refused(f"its {name} is no https address") from None


def _tokens(user: str, told: Mapping[str, Any], refresh: str) -> Tokens:
    access, lifetime = told.get("access_token"), told.get("expires_in", _LIFETIME_S)
    if not isinstance(access, str) or not access or not isinstance(lifetime, (int, float)):
        raise _refused("its answer has no access token")
    return Tokens(user, access, str(told.get("refresh_token") or refresh), float(lifetime))


def _claims(token: str) -> dict[str, Any]:
    try:
        middle = token.split(".")[1]
        found = json.loads(urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    except (ValueError, IndexError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _refused("its answer has no identity token: does --oidc-scope have `openid`?")
    return found


def _refused(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, reason)
