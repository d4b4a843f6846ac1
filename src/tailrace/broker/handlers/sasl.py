"""SaslHandshake and SaslAuthenticate from a connection that may speak already: its listener has no SASL, or it has
logged in. Those of a login never come here: `broker.auth` takes them before the connection has a dispatcher.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services

_NOT_NOW = "SaslAuthenticate request received after successful authentication, or on a listener without SASL"


def handle_sasl_handshake(
    _services: Services, _context: RequestContext, _request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def handle_sasl_authenticate(
    _services: Services, _context: RequestContext, _request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_NOT_NOW)
