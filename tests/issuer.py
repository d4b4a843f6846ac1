"""Somebody who issues tokens: keys, a set of them as it is published, tokens signed by them, and a small server for
both. What it signs is what the test says, right or wrong.
"""

from __future__ import annotations

import http.server
import json
import ssl
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tests.certificates import Identity

AUDIENCE = "kafka"
ISSUER = "https://issuer.test"


class SigningKey:
    now_s: int | None = None  # Its clock stands still, if it says so.

    def __init__(self, key_id: str | None, algorithm: str = "RS256", private: Any = None) -> None:
        self.key_id = key_id
        self.algorithm = algorithm
        self.private = private or _MAKERS[algorithm[:2]]()

    def public(self, **more: Any) -> dict[str, Any]:
        """As it is published."""
        kind = {"R": RSAAlgorithm, "P": RSAAlgorithm, "E": ECAlgorithm}[self.algorithm[0]]
        if self.algorithm == "EdDSA":
            kind = OKPAlgorithm
        named = {} if self.key_id is None else {"kid": self.key_id}
        return json.loads(kind.to_jwk(self.private.public_key())) | {"use": "sig"} | named | more

    def sign(self, user: str = "alice", *, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """A good token, but for what is said. A claim that is None is left out."""
        now = self.now_s or int(time.time())
        all_claims: dict[str, Any] = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 600}
        all_claims = {name: value for name, value in (all_claims | claims).items() if value is not None}
        named = {} if self.key_id is None else {"kid": self.key_id}
        return jwt.encode(all_claims, self.private, self.algorithm, headers=named | (header or {}))


_MAKERS = {
    "RS": lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "PS": lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "ES": lambda: ec.generate_private_key(ec.SECP256R1()),
    "Ed": ed25519.Ed25519PrivateKey.generate,
}


def key_set(*keys: SigningKey | dict[str, Any]) -> bytes:
    return json.dumps({"keys": [key if isinstance(key, dict) else key.public() for key in keys]}).encode()


class Issuer:
    """Keys at /keys, tokens at /token for any client whose secret is `secret`, as the user that it says it is. Other
    paths are what a test puts into `pages`: status, headers and body."""

    def __init__(self, *keys: SigningKey, lifetime_s: int = 600, tls: Identity | None = None) -> None:
        self.keys = keys or (SigningKey("first"),)
        self.asked: list[str] = []
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.secret = "the-secret-of-a-client"
        self.lifetime_s = lifetime_s
        self.answers = threading.Event()  # Whoever asks waits for it.
        self.answers.set()
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                status, headers, body = issuer.pages.get(self.path, (404, {}, b""))
                if self.path == "/keys" and status == 404:
                    status, body = 200, key_set(*issuer.keys)
                self.answer(status, headers, body)

            def do_POST(self) -> None:
                issuer.asked.append(self.path)
                self.rfile.read(int(self.headers["Content-Length"]))
                user = issuer.who(self.headers.get("Authorization", ""))
                if user is None:
                    self.answer(401, {}, b"{}")
                    return
                now = int(time.time())
                token = issuer.keys[0].sign(user, exp=now + issuer.lifetime_s)
                told = {"access_token": token, "token_type": "Bearer", "expires_in": issuer.lifetime_s}
                self.answer(200, {"Content-Type": "application/json"}, json.dumps(told).encode())

            def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
                issuer.answers.wait()
                self.send_response(status)
                for name, text in ({"Content-Length": str(len(body))} | headers).items():
                    self.send_header(name, text)
                self.end_headers()
                self.wfile.write(body)

            def handle(self) -> None:
                with suppress(OSError):  # A client that does not trust us.
                    super().handle()

            def log_message(self, *_words: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self.address = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_port}"
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls.certificate, tls.key)
            # Each handshake in the thread of its connection.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )

    @property
    def keys_url(self) -> str:
        return f"{self.address}/keys"

    @property
    def token_url(self) -> str:
        return f"{self.address}/token"

    def who(self, authorization: str) -> str | None:
        from base64 import b64decode

        user, _, secret = b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        return user if secret == self.secret else None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
