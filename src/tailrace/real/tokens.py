"""Tokens for OAUTHBEARER from an endpoint that knows the client: the client credentials grant of RFC 6749, section 4.4,
as KIP-768 has it. One HTTP request, in a thread, since it blocks.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from tailrace.client.security.login import Token
from tailrace.client.security.settings import TokenSettings
from tailrace.model.errors import ErrorCode, KafkaError

# A token is some kilobytes at most; an endpoint that sends more is not one.
_ANSWER_MAX_BYTES = 1024 * 1024
# What an answer without `expires_in` is good for.
_DEFAULT_LIFETIME_S = 300


async def fetch_token(settings: TokenSettings) -> Token:
    """Raises KafkaError, a retriable one if the endpoint cannot be reached now."""
    return await asyncio.to_thread(_fetch, settings)


def _fetch(settings: TokenSettings) -> Token:
    form = {"grant_type": "client_credentials"} | ({"scope": settings.scope} if settings.scope else {})
    credentials = b64encode(f"{settings.client_id}:{settings.client_secret}".encode()).decode()
    request = Request(  # noqa: S310 - the settings allow http and https alone
        settings.endpoint_url,
        data=urlencode(form).encode(),
        headers={"Authorization": f"Basic {credentials}", "Accept": "application/json"},
    )
    try:
        with urlopen(request, timeout=settings.timeout_ms / 1000) as response:  # noqa: S310
            answer = json.loads(response.read(_ANSWER_MAX_BYTES))
        return Token(str(answer["access_token"]), int(answer.get("expires_in", _DEFAULT_LIFETIME_S)) * 1000)
    except HTTPError as error:
        error.close()
        raise _no_token(settings, f"it answers {error.code} {error.reason}: check the client's id and secret") from None
    except URLError as error:
        raise _no_token(settings, f"it cannot be reached: {error.reason}", is_passing=True) from None
    except TimeoutError:
        cause = f"no answer within {settings.timeout_ms} ms (sasl.login.read.timeout.ms)"
        raise _no_token(settings, cause, is_passing=True) from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise _no_token(settings, "its answer is not JSON with an access_token") from None


def _no_token(settings: TokenSettings, cause: str, *, is_passing: bool = False) -> KafkaError:
    code = ErrorCode.NETWORK_EXCEPTION if is_passing else ErrorCode.SASL_AUTHENTICATION_FAILED
    return KafkaError(code, f"no token from {settings.endpoint_url}: {cause}")
