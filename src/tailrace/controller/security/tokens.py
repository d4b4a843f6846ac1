"""Delegation tokens (KIP-48, KIP-373): made, renewed and ended, as records; who sees which.

A token lets whoever has it log in as its owner, without the owner's password, and for a while only. Its HMAC is its
password, and how requests name it. Who may ask at all, and for whom, is judged before (broker.handlers.admin.tokens,
broker.access.tokens). Codes, and the order in which they are found, are Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from tailrace.controller.image import DelegationToken
from tailrace.controller.snapshot import token_record
from tailrace.controller.view import Result, View
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import Uuid, uuid_text
from tailrace.model.security import Principal
from tailrace.wire.apis.security import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from tailrace.wire.apis.stored_records import RemoveDelegationTokenRecord
from tailrace.wire.schema import Message

USER = "User"
_LONG_MAX = 2**63 - 1
_NO_TIMESTAMP = -1
_Ended = TypeVar("_Ended", RenewDelegationTokenResponse, ExpireDelegationTokenResponse)


def owner_of(request: CreateDelegationTokenRequest, requester: Principal) -> Principal:
    """Whose a token is to be: another's only if a name is given."""
    if not request.owner_principal_name:
        return requester
    return Principal(request.owner_principal_type or "", request.owner_principal_name)


def create_delegation_token(view: View, request: CreateDelegationTokenRequest) -> Result:
    requester = view.asker.principal
    owner = owner_of(request, requester)
    response = CreateDelegationTokenResponse(
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
    )
    keys = view.token_keys
    if keys is None:
        return _refuse(response, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    # Whoever logs in by it becomes a User: an owner of another kind would become somebody else.
    if owner.kind != USER or any(renewer.principal_type != USER for renewer in request.renewers):
        response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = _NO_TIMESTAMP
        return _refuse(response, ErrorCode.INVALID_PRINCIPAL_TYPE)
    if len(view.image.delegation_tokens) >= view.static_config.delegation_tokens_max:
        return _refuse(response, ErrorCode.POLICY_VIOLATION)
    config = view.static_config
    lifetime_ms = config.delegation_token_max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    max_ms = _later(view.now_ms, lifetime_ms)
    token = DelegationToken(
        id=uuid_text(Uuid(view.random.uuid())),
        owner=owner,
        requester=requester,
        renewers=tuple(Principal(each.principal_type, each.principal_name) for each in request.renewers),
        issue_ms=view.now_ms,
        max_ms=max_ms,
        expiry_ms=min(max_ms, _later(view.now_ms, config.delegation_token_expiry_time_ms)),
    )
    response.issue_timestamp_ms, response.max_timestamp_ms = token.issue_ms, token.max_ms
    response.expiry_timestamp_ms = token.expiry_ms
    response.token_id, response.hmac = token.id, keys.hmac_of(token.id)
    return Result([token_record(token)], response)


def renew_delegation_token(view: View, request: RenewDelegationTokenRequest) -> Result:
    response = RenewDelegationTokenResponse()
    token = _find(view, request.hmac, response)
    if token is None:
        return Result((), response)
    if token.is_over(view.now_ms):
        return _refuse(response, ErrorCode.DELEGATION_TOKEN_EXPIRED)
    if not _may_change(token, view.asker.principal):
        return _refuse(response, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    period_ms = view.static_config.delegation_token_expiry_time_ms
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    return _set_expiry(view, token, period_ms, response)


def expire_delegation_token(view: View, request: ExpireDelegationTokenRequest) -> Result:
    response = ExpireDelegationTokenResponse()
    token = _find(view, request.hmac, response)
    if token is None:
        return Result((), response)
    if not _may_change(token, view.asker.principal):
        return _refuse(response, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    if request.expiry_time_period_ms < 0:
        response.expiry_timestamp_ms = view.now_ms
        return Result([RemoveDelegationTokenRecord(token_id=token.id)], response)
    if token.is_over(view.now_ms):
        return _refuse(response, ErrorCode.DELEGATION_TOKEN_EXPIRED)
    return _set_expiry(view, token, request.expiry_time_period_ms, response)


def decide_expired(view: View) -> list[Message]:
    """What takes away the tokens that nobody can use or renew any more."""
    tokens: Iterable[DelegationToken] = view.image.delegation_tokens.values()
    return [RemoveDelegationTokenRecord(token_id=token.id) for token in tokens if token.is_over(view.now_ms)]


def people_of(token: DelegationToken) -> tuple[Principal, ...]:
    """Who may see a token without any right, since they have to do with it."""
    return token.owner, token.requester, *token.renewers


def _may_change(token: DelegationToken, principal: Principal) -> bool:
    return principal == token.owner or principal in token.renewers


def _find(view: View, given: bytes, response: _Ended) -> DelegationToken | None:
    """If there is none the response says why."""
    if view.token_keys is None:
        response.error_code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        return None
    token = view.token_keys.find(view.image.delegation_tokens, given)
    if token is None:
        response.error_code = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    return token


def _set_expiry(view: View, token: DelegationToken, period_ms: int, response: _Ended) -> Result:
    response.expiry_timestamp_ms = min(token.max_ms, _later(view.now_ms, period_ms))
    return Result([token_record(token._replace(expiry_ms=response.expiry_timestamp_ms))], response)


def _refuse(response: CreateDelegationTokenResponse | _Ended, code: ErrorCode) -> Result:
    response.error_code = code
    return Result((), response)


def _later(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, _LONG_MAX)
