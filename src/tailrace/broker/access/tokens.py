"""Who may make delegation tokens for others, and see theirs (KIP-373). One's own need no right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.broker.access.judging import ask
from tailrace.broker.context import AnsweredError
from tailrace.broker.failures import refused_token
from tailrace.broker.handlers.admin.tokens import check_may_have_tokens
from tailrace.controller.security.tokens import owner_of
from tailrace.model.acls import REFUSALS, Kind, Operation

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services
    from tailrace.controller.image import DelegationToken
    from tailrace.wire.apis.security import CreateDelegationTokenRequest, DescribeDelegationTokenRequest


def judge_create_delegation_token(
    services: Services, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenRequest:
    # Whoever may have no token at all is told so first, as in Kafka.
    check_may_have_tokens(services, context, request)
    owner = owner_of(request, context.principal)
    if owner == context.principal or ask(services, context, Operation.CREATE_TOKENS, Kind.USER, str(owner)):
        return request
    raise AnsweredError(refused_token(REFUSALS[Kind.USER], owner=owner, requester=context.principal))


def judge_describe_delegation_token(
    _services: Services, _context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenRequest:
    """Each token is judged when it is its turn, by `may_describe`: there may be many."""
    return request


def may_describe(services: Services, context: RequestContext, token: DelegationToken) -> bool:
    """What may not be seen is left out without a word, and so is no denial."""
    may_see = ask(services, context, Operation.DESCRIBE, Kind.DELEGATION_TOKEN, token.id, is_logged=False)
    return may_see or ask(services, context, Operation.DESCRIBE_TOKENS, Kind.USER, str(token.owner), is_logged=False)
