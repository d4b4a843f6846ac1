"""DescribeDelegationToken, and who may have to do with delegation tokens at all. Making, renewing and ending them is
the controller's to decide (controller.security.tokens).

Who has logged in by a token may have no other: else a token that was given away could be kept alive for ever. Nor may
who has not proved to be anybody.
"""

from __future__ import annotations

from asyncio import sleep
from typing import TYPE_CHECKING

from tailrace.broker.context import AnsweredError
from tailrace.broker.failures import refuse, refused_token
from tailrace.controller.security.token_keys import TokenKeys
from tailrace.controller.security.tokens import owner_of, people_of
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.security import ANONYMOUS, Principal
from tailrace.wire.apis.security import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenResponse,
)
from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services
    from tailrace.controller.image import DelegationToken

_Described = DescribeDelegationTokenResponse.DescribedDelegationToken
_Renewer = DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer
_NO_TIMESTAMP = -1
# Less than a millisecond's worth.
_TOKENS_PER_TURN = 100


def check_may_have_tokens(_services: Services, context: RequestContext, request: Message) -> Message:
    """Raises AnsweredError."""
    principal = context.principal
    if principal != ANONYMOUS and not principal.is_by_token:
        return request
    code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    answer: Message
    if isinstance(request, CreateDelegationTokenRequest):
        answer = refused_token(code, owner=owner_of(request, principal), requester=principal)
    else:
        answer = refuse(request, context.api_version, KafkaError(code, ""))
        if isinstance(answer, RenewDelegationTokenResponse | ExpireDelegationTokenResponse):
            answer.expiry_timestamp_ms = _NO_TIMESTAMP
    raise AnsweredError(answer)


async def handle_describe_delegation_token(
    services: Services, context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    secret_key = services.quorum.static_config.delegation_token_secret_key
    if not secret_key:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    keys = TokenKeys(secret_key)
    owners = request.owners
    wanted = None if owners is None else {Principal(each.principal_type, each.principal_name) for each in owners}
    response = DescribeDelegationTokenResponse()
    for number, token in enumerate(list(services.image.delegation_tokens.values()), start=1):
        is_wanted = wanted is None or not wanted.isdisjoint(people_of(token))
        if is_wanted and _may_see(services, context, token):
            response.tokens.append(_describe(token, keys))
        if number % _TOKENS_PER_TURN == 0:
            await sleep(0)
    return response


def _may_see(services: Services, context: RequestContext, token: DelegationToken) -> bool:
    if services.access is None or context.principal in people_of(token):
        return True
    from tailrace.broker.access.tokens import may_describe

    return may_describe(services, context, token)


def _describe(token: DelegationToken, keys: TokenKeys) -> _Described:
    return _Described(
        principal_type=token.owner.kind,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.kind,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issue_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.id,
        hmac=keys.hmac_of(token.id),
        renewers=[_Renewer(principal_type=each.kind, principal_name=each.name) for each in token.renewers],
    )
