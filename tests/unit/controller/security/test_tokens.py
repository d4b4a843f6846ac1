"""Delegation tokens as the controller decides on them. That codes are Kafka's is compared in tests/golden."""

from __future__ import annotations

import hmac
from typing import TypeVar

import pytest

from tailrace.controller.image import DelegationToken, MetadataImage
from tailrace.controller.replay import Replay
from tailrace.controller.security.token_keys import TokenKeys
from tailrace.controller.snapshot import records_of
from tailrace.controller.view import Asker
from tailrace.model.errors import ErrorCode
from tailrace.model.security import Principal, ScramMechanism
from tailrace.wire.apis.security import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from tailrace.wire.schema import Message
from tests.unit.controller.cluster import CLUSTER_ID, NOW_MS, Cluster

M = TypeVar("M", bound=Message)

KEY = "a key"
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))


class Tokens:
    """A controller with tokens, and a clock on the wall."""

    def __init__(self, **more: object) -> None:
        self.cluster = Cluster(brokers=0, **{"delegation_token_secret_key": KEY} | more)
        self.now_ms = NOW_MS

    def do(self, who: Principal, request: Message, response_type: type[M]) -> M:
        result = self.cluster.controller.op(request, self.now_ms, asker=Asker(who))
        self.cluster.replay(result.records)
        assert isinstance(result.response, response_type)
        return result.response

    def create(
        self, who: Principal = ALICE, *, renewers: tuple[Principal, ...] = (), max_ms: int = -1
    ) -> CreateDelegationTokenResponse:
        renewer = CreateDelegationTokenRequest.CreatableRenewers
        request = CreateDelegationTokenRequest(
            owner_principal_name=None,
            owner_principal_type=None,
            renewers=[renewer(principal_type=each.kind, principal_name=each.name) for each in renewers],
            max_lifetime_ms=max_ms,
        )
        return self.do(who, request, CreateDelegationTokenResponse)

    def renew(self, who: Principal, key: bytes, period_ms: int = -1) -> RenewDelegationTokenResponse:
        request = RenewDelegationTokenRequest(hmac=key, renew_period_ms=period_ms)
        return self.do(who, request, RenewDelegationTokenResponse)

    def expire(self, who: Principal, key: bytes, period_ms: int = -1) -> ExpireDelegationTokenResponse:
        request = ExpireDelegationTokenRequest(hmac=key, expiry_time_period_ms=period_ms)
        return self.do(who, request, ExpireDelegationTokenResponse)

    def sweep(self) -> None:
        """The controller looks for tokens that have expired."""
        controller, cluster = self.cluster.controller, self.cluster
        end_ms = cluster.monotonic_ms + 2 * HOUR_MS
        while (deadline_ms := controller.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            decision = controller.on_deadline(deadline_ms, self.now_ms)
            cluster.replay(decision.records if decision else [])
        cluster.monotonic_ms = end_ms

    @property
    def all(self) -> dict[str, DelegationToken]:
        return dict(self.cluster.image.delegation_tokens)


def test_a_token_is_made_renewed_and_ended():
    tokens = Tokens()
    made = tokens.create(renewers=(BOB,))
    assert made.error_code == 0
    assert bytes(made.hmac) == hmac.digest(KEY.encode(), made.token_id.encode(), "sha512")
    assert tokens.all[made.token_id] == DelegationToken(
        made.token_id, ALICE, ALICE, (BOB,), NOW_MS, NOW_MS + 7 * DAY_MS, NOW_MS + DAY_MS
    )
    tokens.now_ms += HOUR_MS
    assert tokens.renew(BOB, made.hmac).expiry_timestamp_ms == tokens.now_ms + DAY_MS
    assert tokens.all[made.token_id].expiry_ms == tokens.now_ms + DAY_MS
    assert tokens.renew(CAROL, made.hmac).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert tokens.expire(CAROL, made.hmac).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert tokens.expire(ALICE, made.hmac, 5).expiry_timestamp_ms == tokens.now_ms + 5
    tokens.now_ms += 6
    assert tokens.renew(ALICE, made.hmac).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert tokens.expire(ALICE, made.hmac, 5).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert tokens.expire(ALICE, made.hmac).error_code == 0
    assert tokens.all == {}
    assert tokens.renew(ALICE, made.hmac).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_without_a_key_there_are_none():
    tokens = Tokens(delegation_token_secret_key=None)
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert tokens.create().error_code == disabled
    assert tokens.renew(ALICE, b"x").error_code == disabled
    assert tokens.expire(ALICE, b"x").error_code == disabled


@pytest.mark.parametrize("period_ms", [2**63 - 1, 2**62])
def test_times_do_not_overflow(period_ms):
    tokens = Tokens(delegation_token_max_lifetime_ms=2**63 - 1, delegation_token_expiry_time_ms=2**63 - 1)
    made = tokens.create(max_ms=period_ms)
    assert made.max_timestamp_ms == min(NOW_MS + period_ms, 2**63 - 1)
    assert tokens.renew(ALICE, made.hmac, period_ms).expiry_timestamp_ms == made.max_timestamp_ms
    assert tokens.expire(ALICE, made.hmac, period_ms).expiry_timestamp_ms == made.max_timestamp_ms


def test_there_is_a_bound():
    tokens = Tokens(delegation_tokens_max=2)
    assert [tokens.create().error_code for _ in range(3)] == [0, 0, ErrorCode.POLICY_VIOLATION]
    assert len(tokens.all) == 2


def test_an_owner_that_is_no_user_is_refused():
    """Whoever logs in by a token is a User of that name."""
    tokens = Tokens()
    request = CreateDelegationTokenRequest(owner_principal_type="Group", owner_principal_name="admin")
    answer = tokens.do(ALICE, request, CreateDelegationTokenResponse)
    assert (answer.error_code, tokens.all) == (ErrorCode.INVALID_PRINCIPAL_TYPE, {})


def test_expired_tokens_are_removed_by_whichever_controller_is_active():
    tokens = Tokens(delegation_token_expiry_check_interval_ms=HOUR_MS)
    controller = tokens.cluster.controller
    short, long = tokens.create(max_ms=10), tokens.create()
    controller.deactivate()
    assert controller.next_deadline_ms() is None
    controller.activate(5000.0)
    assert controller.on_deadline(5000.0 + HOUR_MS - 1, NOW_MS + DAY_MS) is None
    decision = controller.on_deadline(5000.0 + HOUR_MS, NOW_MS + 11)
    assert decision is not None
    tokens.cluster.replay(decision.records)
    assert tokens.all.keys() == {long.token_id}
    assert tokens.renew(ALICE, short.hmac).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert not controller.on_deadline(5000.0 + 2 * HOUR_MS, NOW_MS + 12).records


def test_tokens_are_part_of_a_snapshot():
    tokens = Tokens()
    tokens.create(renewers=(BOB, CAROL))
    tokens.create(BOB)
    replay = Replay(MetadataImage(CLUSTER_ID))
    for offset, record in enumerate(record for group in records_of(tokens.cluster.image) for record in group):
        replay.replay_record(offset, record)
    assert replay.image().delegation_tokens == tokens.all


def test_all_nodes_ask_for_the_same_proof_and_nobody_can_tell_what_there_is():
    first, second = TokenKeys(KEY), TokenKeys(KEY)
    for mechanism in ScramMechanism:
        assert first.credential("some", mechanism) == second.credential("some", mechanism)
    assert first.credential("some", mechanism).salt != first.credential("other", mechanism).salt
    assert TokenKeys("another").credential("some", mechanism) != first.credential("some", mechanism)
