"""An issuer of OpenID Connect by Authlib, which we did not write: the code flow with PKCE, refreshed tokens, and access
tokens that a broker can check by its keys. Who comes is `alice`, and agrees.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import grants
from authlib.oauth2.rfc6749.models import AuthorizationCodeMixin, ClientMixin, TokenMixin
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core import OpenIDCode, UserInfo
from flask import Flask, jsonify, request
from werkzeug.serving import WSGIRequestHandler, make_server

from tests.issuer import AUDIENCE, SigningKey

CLIENT_ID = "console"
# Not one of a cookie's own site: the console is at 127.0.0.1.
HOST = "localhost"


class Client(ClientMixin):
    def __init__(self) -> None:
        self.redirects: list[str] = []

    def get_client_id(self):
        return CLIENT_ID

    def get_default_redirect_uri(self):
        return None

    def get_allowed_scope(self, scope):
        return scope

    def check_redirect_uri(self, redirect_uri):
        return redirect_uri in self.redirects

    def check_endpoint_auth_method(self, method, endpoint):
        return method == "none"

    def check_response_type(self, response_type):
        return response_type == "code"

    def check_grant_type(self, grant_type):
        return grant_type in ("authorization_code", "refresh_token")


class Code(AuthorizationCodeMixin):
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def get_redirect_uri(self):
        return self.redirect_uri

    def get_scope(self):
        return self.scope

    def get_nonce(self):
        return self.nonce

    def get_auth_time(self):
        return int(time.time())

    def get_acr(self):
        return None

    def get_amr(self):
        return None


class Token(TokenMixin):
    def get_scope(self):
        return "openid profile"

    def check_client(self, client):
        return client.get_client_id() == CLIENT_ID


class Provider:
    def __init__(self, *, lifetime_s: int = 300) -> None:
        self.key = SigningKey("first")
        self.client = Client()
        self.lifetime_s = lifetime_s
        self.asked: list[str] = []
        self.codes: dict[str, Code] = {}
        self.refreshing: set[str] = set()
        self.issuer = ""
        self.nonce: str | None = None  # In the place of the one that was asked for.
        self.app = self._app()

    def _app(self) -> Flask:
        app, provider = Flask("issuer"), self
        app.config["OAUTH2_REFRESH_TOKEN_GENERATOR"] = True
        app.secret_key = "of tests"

        def save_token(token, _request):
            provider.refreshing.add(token["refresh_token"])

        server = AuthorizationServer(app, query_client=lambda _id: provider.client, save_token=save_token)
        server.register_token_generator("default", self._tokens)

        class CodeGrant(grants.AuthorizationCodeGrant):
            TOKEN_ENDPOINT_AUTH_METHODS = ("none",)

            def save_authorization_code(self, code, request):
                asked = request.payload.data
                provider.codes[code] = Code(
                    code=code,
                    redirect_uri=request.payload.redirect_uri,
                    scope=request.payload.scope,
                    nonce=provider.nonce or asked.get("nonce"),
                    code_challenge=asked.get("code_challenge"),
                    code_challenge_method=asked.get("code_challenge_method"),
                )

            def query_authorization_code(self, code, client):
                return provider.codes.get(code)

            def delete_authorization_code(self, authorization_code):
                del provider.codes[authorization_code.code]

            def authenticate_user(self, authorization_code):
                return "alice"

        class Identity(OpenIDCode):
            def exists_nonce(self, nonce, request):
                return False

            def resolve_client_private_key(self, client):
                return _jwk(provider.key.private)

            def get_client_algorithm(self, client):
                return "RS256"

            def get_client_claims(self, client):
                return {"iss": provider.issuer}

            def generate_user_info(self, user, scope):
                return UserInfo(sub=user, preferred_username=user)

        class Refresh(grants.RefreshTokenGrant):
            TOKEN_ENDPOINT_AUTH_METHODS = ("none",)
            INCLUDE_NEW_REFRESH_TOKEN = True

            def authenticate_refresh_token(self, refresh_token):
                return Token() if refresh_token in provider.refreshing else None

            def authenticate_user(self, refresh_token):
                return "alice"

            def revoke_old_credential(self, refresh_token):
                pass

        server.register_grant(CodeGrant, [CodeChallenge(required=True), Identity(require_nonce=True)])
        server.register_grant(Refresh)

        @app.before_request
        def note():
            provider.asked.append(request.path)

        @app.get("/.well-known/openid-configuration")
        def metadata():
            names = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/keys"}
            return jsonify({"issuer": self.issuer} | {name: self.issuer + path for name, path in names.items()})

        @app.get("/keys")
        def keys():
            return jsonify({"keys": [self.key.public()]})

        @app.get("/authorize")
        def authorize():
            grant = server.get_consent_grant(end_user="alice")
            return server.create_authorization_response(grant_user="alice", grant=grant)

        @app.post("/token")
        def token():
            return server.create_token_response()

        return app

    def _tokens(self, grant_type, client, user=None, scope=None, **_more):
        now = time.time()
        access = self.key.sign("alice", iss=self.issuer, aud=AUDIENCE, exp=now + self.lifetime_s, jti=str(now))
        refresh = f"refresh-{len(self.refreshing)}"
        told = {"access_token": access, "token_type": "Bearer", "expires_in": self.lifetime_s}
        return told | {"refresh_token": refresh, "scope": scope or "openid profile"}


def _jwk(private: Any) -> Any:
    from cryptography.hazmat.primitives import serialization as form
    from joserfc.jwk import RSAKey

    pem = private.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    return RSAKey.import_key(pem)


class _Quiet(WSGIRequestHandler):
    def log(self, *_words: object) -> None:
        pass


@contextmanager
def running(provider: Provider) -> Iterator[Provider]:
    server = make_server(HOST, 0, provider.app, threaded=True, request_handler=_Quiet)
    provider.issuer = f"http://{HOST}:{server.port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
