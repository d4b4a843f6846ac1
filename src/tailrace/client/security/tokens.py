"""Delegation tokens (KIP-48, KIP-373), as those who use them see them. Works with any Kafka; for others since 3.3."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import NamedTuple

from tailrace.client.connection import error_code
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.security import Principal
from tailrace.wire.apis.security import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

AS_THE_BROKER_SAYS = -1
AT_ONCE = -1
# What a broker refuses a request about tokens with, and what helps.
_REASONS = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "the cluster has no delegation tokens: set delegation.token.secret.key "
    "on all of its nodes",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "there is no such token",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "only its owner and its renewers may do that",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "only who has logged in by a credential of their own may have "
    "tokens: not anonymously, and not by a token",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "for another owner CREATE_TOKENS on that user is needed",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "the token has expired: create another one",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "owners and renewers have to be users",
    ErrorCode.POLICY_VIOLATION: "there are as many tokens as the cluster may have (delegation.tokens.max)",
}


class Token(NamedTuple):
    id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int
    hmac: bytes

    @property
    def password(self) -> str:
        return b64encode(self.hmac).decode()

    def __repr__(self) -> str:
        return f"<token {self.id} of {self.owner}>"


class TokenAdmin:
    """Each call raises KafkaError."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def create(
        self, *, owner: Principal | None = None, renewers: Sequence[Principal] = (), max_ms: int = AS_THE_BROKER_SAYS
    ) -> Token:
        """Without an owner one's own."""
        renewer = CreateDelegationTokenRequest.CreatableRenewers
        request = CreateDelegationTokenRequest(
            owner_principal_type=None if owner is None else owner.kind,
            owner_principal_name=None if owner is None else owner.name,
            renewers=[renewer(principal_type=each.kind, principal_name=each.name) for each in renewers],
            max_lifetime_ms=max_ms,
        )
        connection = await self._cluster.any_connection()
        made = await connection.call(request, CreateDelegationTokenResponse)
        _check(made.error_code)
        return Token(
            made.token_id,
            Principal(made.principal_type, made.principal_name),
            Principal(made.token_requester_principal_type, made.token_requester_principal_name),
            tuple(renewers),
            made.issue_timestamp_ms,
            made.expiry_timestamp_ms,
            made.max_timestamp_ms,
            made.hmac,
        )

    async def renew(self, hmac: bytes, period_ms: int = AS_THE_BROKER_SAYS) -> int:
        """When it expires now."""
        connection = await self._cluster.any_connection()
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        answer = await connection.call(request, RenewDelegationTokenResponse)
        _check(answer.error_code)
        return answer.expiry_timestamp_ms

    async def expire(self, hmac: bytes, period_ms: int = AT_ONCE) -> int:
        """When it expires now."""
        connection = await self._cluster.any_connection()
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        answer = await connection.call(request, ExpireDelegationTokenResponse)
        _check(answer.error_code)
        return answer.expiry_timestamp_ms

    async def tokens(self, owners: Sequence[Principal] | None = None) -> list[Token]:
        """Those that one may see: one's own, and those of others by a right."""
        owner = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
        asked = None if owners is None else [owner(principal_type=e.kind, principal_name=e.name) for e in owners]
        connection = await self._cluster.any_connection()
        answer = await connection.call(DescribeDelegationTokenRequest(owners=asked), DescribeDelegationTokenResponse)
        _check(answer.error_code)
        found = [
            Token(
                each.token_id,
                Principal(each.principal_type, each.principal_name),
                Principal(each.token_requester_principal_type, each.token_requester_principal_name),
                tuple(Principal(renewer.principal_type, renewer.principal_name) for renewer in each.renewers),
                each.issue_timestamp,
                each.expiry_timestamp,
                each.max_timestamp,
                each.hmac,
            )
            for each in answer.tokens
        ]
        return sorted(found, key=lambda token: (token.issue_ms, token.id))


def _check(number: int) -> None:
    code = error_code(number)
    if code is not ErrorCode.NONE:
        raise KafkaError(code, _REASONS.get(code, "the broker refuses it"))
