"""The way in by SASL: a handshake that names the mechanism, then the conversation, in SaslAuthenticate requests.

One `SaslLogin` serves all connections of a client. A token for OAUTHBEARER is kept until it is near its end.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

from tailrace.client.connection import Connection, error_code
from tailrace.client.security.mechanisms import Conversation, speak_oauthbearer, speak_plain, speak_scram
from tailrace.client.security.settings import Mechanism, SaslSettings
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ports import Ports
from tailrace.wire.apis.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from tailrace.client.security.bearer import Token

_HASHES = {Mechanism.SCRAM_SHA_256: "sha256", Mechanism.SCRAM_SHA_512: "sha512"}
# The share of a token's life in which it is used: the rest is for clocks that differ, as with Kafka's
# sasl.login.refresh.window.factor.
_TOKEN_LIFE_SHARE = 0.8


class SaslLogin:
    def __init__(self, settings: SaslSettings, ports: Ports) -> None:
        self._settings = settings
        self._ports = ports
        self._token: Token | None = None
        self._token_ends_ms = 0.0

    async def log_in(self, connection: Connection) -> int:
        """Raises KafkaError with what to correct. How long the session lasts in ms, 0 if for ever (KIP-368)."""
        await self._shake_hands(connection)
        conversation = await self._conversation()
        message = next(conversation)
        while True:  # Two rounds at most, whatever the broker says: every conversation ends by itself.
            answer = await connection.ask(SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse)
            if answer.error_code:
                raise self._refusal(connection, answer)
            try:
                message = conversation.send(answer.auth_bytes)
            except StopIteration:
                return answer.session_lifetime_ms

    @property
    def _mechanism(self) -> Mechanism:
        return self._settings.mechanism

    async def _shake_hands(self, connection: Connection) -> None:
        request = SaslHandshakeRequest(mechanism=self._mechanism.value)
        try:
            answer = await connection.ask(request, SaslHandshakeResponse)
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                raise _no_sasl(connection) from None
            raise
        match error_code(answer.error_code):
            case ErrorCode.NONE:
                return
            case ErrorCode.ILLEGAL_SASL_STATE:
                raise _no_sasl(connection)
            case code:
                enabled = ", ".join(answer.mechanisms) or "none"
                raise KafkaError(
                    code,
                    f"{connection.address} does not take {self._mechanism}: set sasl.mechanism to what it has "
                    f"enabled ({enabled})",
                )

    def _refusal(self, connection: Connection, answer: SaslAuthenticateResponse) -> KafkaError:
        kind = "token" if self._settings.is_by_delegation_token else "user"
        who = f"{kind} {self._settings.username!r}" if self._settings.username else "this client"
        return KafkaError(
            error_code(answer.error_code),
            f"{connection.address} does not let {who} in by {self._mechanism}: "
            f"{answer.error_message or 'it does not say why'}; check the username and the password, or the token",
        )

    async def _conversation(self) -> Conversation:
        settings = self._settings
        match settings.mechanism:
            case Mechanism.PLAIN:
                return speak_plain(settings.username, settings.password)
            case Mechanism.OAUTHBEARER:
                return speak_oauthbearer(await self._current_token(), settings.token.extensions)
            case _:
                nonce = b64encode(self._ports.random.uuid() + self._ports.random.uuid()).decode()
                name, password, is_by_token = settings.username, settings.password, settings.is_by_delegation_token
                return speak_scram(_HASHES[settings.mechanism], name, password, nonce, is_by_token=is_by_token)

    async def _current_token(self) -> str:
        if self._settings.token.given:
            return self._settings.token.given
        from tailrace.client.security.bearer import fetch_token, unsecured_token  # Few clients have tokens.

        now_ms = self._ports.clock.monotonic_ms()
        if self._token is None or now_ms >= self._token_ends_ms:
            token = self._settings.token
            if token.unsecured_subject:
                self._token = unsecured_token(token, self._ports.clock.wall_ms())
            else:
                self._token = await fetch_token(token, self._ports)
            self._token_ends_ms = now_ms + self._token.lifetime_ms * _TOKEN_LIFE_SHARE
        return self._token.text


def _no_sasl(connection: Connection) -> KafkaError:
    return KafkaError(
        ErrorCode.ILLEGAL_SASL_STATE,
        f"{connection.address} does not ask for SASL on this port: connect to a SASL listener, or set "
        "security.protocol to PLAINTEXT or SSL",
    )
