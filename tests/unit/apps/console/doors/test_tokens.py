"""Visits by tokens: exchanged before they end, ended where they cannot be."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.apps.console.doors.oidc import Tokens, check_issuer
from tailrace.apps.console.doors.visitors import Visitors
from tailrace.client.security.settings import Mechanism, SaslSettings, Security
from tailrace.model.errors import ErrorCode, KafkaError

SECURITY = Security(sasl=SaslSettings(Mechanism.SCRAM_SHA_512, username="charts", password="own"))
FIRST = Tokens("ann", "first", "again", 100.0)


class Door:
    def __init__(self, security):
        self.given = security.sasl.token.given
        self.is_closed = False

    async def refresh(self, _topics):
        return {}

    def close(self):
        self.is_closed = True


class World:
    def __init__(self, renewed=None):
        self.now_s = 0.0
        self.renewed = renewed
        self.asked = 0
        self.visitors = Visitors(Door(SECURITY), SECURITY, Door, now_s=lambda: self.now_s, renew=self.renew)

    async def renew(self, tokens):
        self.asked += 1
        await asyncio.sleep(0)
        if self.renewed is None:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "the issuer says no")
        return self.renewed


async def test_a_token_is_exchanged_once_before_it_ends():
    world = World(Tokens("ann", "second", "again", 100.0))
    cookie = await world.visitors.log_in_by(FIRST)
    visit = await world.visitors.find_fresh(cookie)
    assert (visit.cluster.given, visit.user, world.asked) == ("first", "ann", 0)
    world.now_s = 80.0
    visits = await asyncio.gather(*(world.visitors.find_fresh(cookie) for _ in range(5)))
    assert world.asked == 1
    assert all(each is visit for each in visits)
    assert visit.cluster.given == "second"
    world.now_s = 170.0
    assert world.visitors.find(cookie) is visit
    assert "first" not in repr(visit)
    assert "second" not in repr(visit)


async def test_a_visit_ends_with_a_token_that_cannot_be_exchanged():
    world = World()
    cookie = await world.visitors.log_in_by(FIRST)
    world.now_s = 80.0
    assert await world.visitors.find_fresh(cookie) is not None  # It is good for a while yet.
    world.now_s = 101.0
    assert await world.visitors.find_fresh(cookie) is None


async def test_who_logs_out_meanwhile_is_out():
    world = World(Tokens("ann", "second", "", 100.0))
    cookie = await world.visitors.log_in_by(FIRST)
    world.now_s = 80.0
    finding = asyncio.ensure_future(world.visitors.find_fresh(cookie))
    await asyncio.sleep(0)
    world.visitors.log_out(cookie)
    assert await finding is None
    assert world.visitors.find(cookie) is None


@pytest.mark.parametrize("text", ["http://issuer.example", "issuer.example", "", "ftp://localhost", "https://"])
def test_codes_and_tokens_go_over_tls_alone(text):
    with pytest.raises(ValueError, match="is not the https address"):
        check_issuer(text)
    assert check_issuer("http://localhost:8080") == "http://localhost:8080"
