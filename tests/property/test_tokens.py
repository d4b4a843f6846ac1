"""What becomes of delegation tokens, against a model that knows four facts of each."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.controller.security.token_keys import TokenKeys
from tailrace.model.errors import ErrorCode
from tailrace.model.security import Principal
from tests.unit.controller.security.test_tokens import ALICE, BOB, CAROL, DAY_MS, HOUR_MS, KEY, Tokens


class Known(NamedTuple):
    owner: Principal
    renewers: tuple[Principal, ...]
    end_ms: int
    expiry_ms: int

    def is_over(self, now_ms: int) -> bool:
        return min(self.end_ms, self.expiry_ms) < now_ms


Model = dict[bytes, Known]

_WHO = st.sampled_from((ALICE, BOB, CAROL))
_PERIODS = st.sampled_from((-1, 0, 7, 90 * DAY_MS))
_STEPS = st.one_of(
    st.tuples(st.just("create"), _WHO, st.lists(_WHO, max_size=2, unique=True), st.sampled_from((-1, 10, 5 * DAY_MS))),
    st.tuples(st.sampled_from(("renew", "expire")), _WHO, st.integers(0, 5), _PERIODS),
    st.tuples(st.just("wait"), st.sampled_from((1, 6, 8, HOUR_MS, 8 * DAY_MS)), st.booleans(), st.none()),
)


@given(st.lists(_STEPS, max_size=20))
@settings(max_examples=100, deadline=None)
def test_what_becomes_of_tokens(steps: list[tuple[Any, ...]]) -> None:
    tokens, keys = Tokens(), TokenKeys(KEY)
    model: Model = {}
    made = [b"of nothing"]
    for step in steps:
        match step:
            case "create", who, renewers, max_ms:
                answer = tokens.create(who, renewers=tuple(renewers), max_ms=max_ms)
                end_ms = tokens.now_ms + (7 * DAY_MS if max_ms < 0 else max_ms)
                model[answer.hmac] = Known(who, tuple(renewers), end_ms, min(end_ms, tokens.now_ms + DAY_MS))
                made.append(answer.hmac)
            case "wait", passed_ms, is_swept, _:
                tokens.now_ms += passed_ms
                if is_swept:
                    tokens.sweep()
                    model = {key: each for key, each in model.items() if not each.is_over(tokens.now_ms)}
            case action, who, index, period_ms:
                key = made[index % len(made)]
                expected = _expect(model, action, who, key, period_ms=period_ms, now_ms=tokens.now_ms)
                answer = (tokens.renew if action == "renew" else tokens.expire)(who, key, period_ms)
                assert (answer.error_code, answer.expiry_timestamp_ms) == expected
        found = {keys.hmac_of(each.id): each for each in tokens.all.values()}
        assert {
            key: Known(each.owner, each.renewers, each.max_ms, each.expiry_ms) for key, each in found.items()
        } == model


def _expect(model: Model, action: str, who: Principal, key: bytes, *, period_ms: int, now_ms: int) -> tuple[int, int]:
    """The code, and when it expires; the model is changed."""
    known = model.get(key)
    if known is None:
        return ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0
    if action == "renew" and known.is_over(now_ms):
        return ErrorCode.DELEGATION_TOKEN_EXPIRED, 0
    if who not in (known.owner, *known.renewers):
        return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0
    if action == "expire" and period_ms < 0:
        del model[key]
        return 0, now_ms
    if known.is_over(now_ms):
        return ErrorCode.DELEGATION_TOKEN_EXPIRED, 0
    if action == "renew":
        period_ms = min(period_ms, DAY_MS) if period_ms > 0 else DAY_MS
    model[key] = known._replace(expiry_ms=min(known.end_ms, now_ms + period_ms))
    return 0, model[key].expiry_ms
