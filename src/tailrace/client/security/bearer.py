"""Tokens for OAUTHBEARER from an endpoint that knows the client: the client credentials grant of RFC 6749, section 4.4,
as KIP-768 has it. Or, for trials, a claim that nobody signs.
"""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from dataclasses import dataclass, field
from urllib.parse import urlencode

from tailrace.client.security.settings import TokenSettings
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ports import Ports, WebQuestion, WebRefusalError

# A token is some kilobytes at most; an endpoint that sends more is not one.
_ANSWER_MAX_BYTES = 1024 * 1024
# What an answer without `expires_in` is good for.
_DEFAULT_LIFETIME_S = 300
_UNSECURED_LIFETIME_S = 3600


@dataclass(frozen=True)
class Token:
    text: str = field(repr=False)
    lifetime_ms: int


async def fetch_token(settings: TokenSettings, ports: Ports) -> Token:
    """Raises KafkaError, a retriable one if the endpoint cannot be reached now."""
    web = ports.web
    assert web is not None, "these ports have no web"
    form = {"grant_type": "client_credentials"} | ({"scope": settings.scope} if settings.scope else {})
    credentials = b64encode(f"{settings.client_id}:{settings.client_secret}".encode()).decode()
    question = WebQuestion(
        settings.endpoint_url,
        settings.timeout_ms,
        _ANSWER_MAX_BYTES,
        headers={"Authorization": f"Basic {credentials}", "Accept": "application/json"},
        form=urlencode(form).encode(),
        tls=settings.tls,
    )
    try:
        answer = json.loads(await ports.background.run(lambda: web.ask(question)))
        return Token(str(answer["access_token"]), int(answer.get("expires_in", _DEFAULT_LIFETIME_S)) * 1000)
    except WebRefusalError as error:
        raise _no_token(settings, f"{error}: check the client's id and secret") from None
    except OSError as error:
        cause = f"it cannot be reached: {error.strerror or error}"
        if isinstance(error, TimeoutError):
            cause = f"no answer within {settings.timeout_ms} ms (sasl.login.read.timeout.ms)"
        raise _no_token(settings, cause, is_passing=True) from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise _no_token(settings, "its answer is not JSON with an access_token") from None


def unsecured_token(settings: TokenSettings, now_ms: int) -> Token:
    """A claim without a signature: brokers take it only if they are set up for trials, and Tailrace's never do."""
    issued = now_ms // 1000
    claims: dict[str, str | int | list[str]] = {
        "sub": settings.unsecured_subject,
        "iat": issued,
        "exp": issued + _UNSECURED_LIFETIME_S,
    }
    if settings.scope:
        claims["scope"] = settings.scope.split()
    parts = [urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "none"}, claims)]
    return Token(f"{parts[0]}.{parts[1]}.", _UNSECURED_LIFETIME_S * 1000)


def _no_token(settings: TokenSettings, cause: str, *, is_passing: bool = False) -> KafkaError:
    code = ErrorCode.NETWORK_EXCEPTION if is_passing else ErrorCode.SASL_AUTHENTICATION_FAILED
    return KafkaError(code, f"no token from {settings.endpoint_url}: {cause}")
