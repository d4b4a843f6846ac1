"""Logins that are good for a while only (KIP-368)."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.broker.serving.express import Express
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.data import MetadataRequest, MetadataResponse, ProduceRequest
from tailrace.wire.apis.security import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.unit.broker.world import batch, produce, produced

from .secured import PASSWORD, client_settings, secured
from .test_doors import Raw, ask, create_topic, say, wait_closed

ALICE = f"\0alice\0{PASSWORD}".encode()


async def log_in(raw: Raw, token: bytes = ALICE, version: int = 1) -> int:
    """How long it is good for."""
    assert (await ask(raw, SaslHandshakeRequest(mechanism="PLAIN"), 1)).error_code == 0
    answer = await ask(raw, SaslAuthenticateRequest(auth_bytes=token), version)
    assert answer.error_code == 0
    return answer.session_lifetime_ms if version else 0


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_session_ends_and_takes_its_connection_along(version):
    async with secured(connections_max_reauth_ms="400") as world:
        raw = await world.call_raw("LOGIN")
        assert await log_in(raw, version=version) == (400 if version else 0)
        assert (await ask(raw, MetadataRequest(topics=[]), 4)).controller_id == 1
        await asyncio.sleep(0.5)
        say(raw, MetadataRequest(topics=[]), 4)
        assert await wait_closed(raw) == b""
        assert world.principals == []


async def test_our_own_client_logs_in_again_and_goes_on():
    async with secured(connections_max_reauth_ms="1300") as world:
        for listener in ("LOGIN", "BOTH"):
            connection = await world.log_in(listener)
            for _ in range(20):
                await connection.call(MetadataRequest(topics=None), MetadataResponse)
                await asyncio.sleep(0.1)
        assert world.principals == ["User:alice", "User:alice"]


async def test_a_login_again_needs_a_second_the_same_user_and_the_same_mechanism():
    async with secured(connections_max_reauth_ms="60000", sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256") as world:
        raw = await world.call_raw("LOGIN")
        await log_in(raw)
        early = await ask(raw, SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert early.error_code == ErrorCode.ILLEGAL_SASL_STATE
        raws = [await world.call_raw("LOGIN") for _ in range(5)]
        for each in raws:
            await log_in(each)
        await asyncio.sleep(1.1)
        assert await log_in(raw) == 60000
        assert (await ask(raw, MetadataRequest(topics=[]), 4)).controller_id == 1
        other_user, wrong, other_mechanism, old_form, between = raws
        await ask(other_user, SaslHandshakeRequest(mechanism="PLAIN"), 1)
        say(other_user, SaslAuthenticateRequest(auth_bytes=b"\0bob\0b"), 1)
        await ask(wrong, SaslHandshakeRequest(mechanism="PLAIN"), 1)
        refused = await ask(wrong, SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 1)
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        say(other_mechanism, SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
        say(old_form, SaslHandshakeRequest(mechanism="PLAIN"), 0)
        await ask(between, SaslHandshakeRequest(mechanism="PLAIN"), 1)
        say(between, MetadataRequest(topics=[]), 4)
        for each in raws:
            assert await wait_closed(each) == b""
        assert world.principals == ["User:alice"]


async def test_a_mechanism_may_have_a_time_of_its_own():
    setting = {"listener.name.login.plain.connections.max.reauth.ms": "7000"}
    async with secured(**setting) as world:
        raw = await world.call_raw("LOGIN")
        assert await log_in(raw) == 7000
        await world.log_in("BOTH")
        with pytest.raises(KafkaError):
            await world.log_in("BOTH", client_settings("BOTH") | {"sasl.password": "wrong"})


def produces() -> ProduceRequest:
    return produce("orders", batch(b"value"))


async def test_small_produces_are_short_while_the_session_lasts(monkeypatch):
    taken = []
    take = Express.take

    def counted(self, buffer, view, position, end):
        reached = take(self, buffer, view, position, end)
        taken.append(reached > position)
        return reached

    monkeypatch.setattr(Express, "take", counted)
    async with secured(connections_max_reauth_ms="1500") as world:
        await create_topic(await world.log_in("OPEN"), "orders")
        raw, late = [await world.call_raw("LOGIN") for _ in range(2)]
        for each in (raw, late):
            await log_in(each)
            assert produced(await ask(each, produces(), 8)).error_code == 0
        assert taken.count(True) == 2
        await asyncio.sleep(1.1)
        assert await log_in(raw) == 1500
        await asyncio.sleep(0.5)
        assert produced(await ask(raw, produces(), 8)).base_offset == 2
        assert taken.count(True) == 3
        say(late, produces(), 8)
        assert await wait_closed(late) == b""
        assert taken.count(True) == 3


async def test_a_produce_amid_a_login_is_none_in_the_same_turn_either():
    async with secured(connections_max_reauth_ms="60000") as world:
        await create_topic(await world.log_in("OPEN"), "orders")
        raw = await world.call_raw("LOGIN")
        await log_in(raw)
        await ask(raw, produces(), 8)
        await asyncio.sleep(1.1)
        say(raw, SaslHandshakeRequest(mechanism="PLAIN"), 1)
        say(raw, produces(), 8)
        await wait_closed(raw)
        assert world.broker.replicas.partitions["orders", 0].log.log_end_offset == 1


async def test_the_bound_of_a_login_holds_within_a_session_too():
    bound = {"sasl.server.max.receive.size": "1000"}
    async with secured(connections_max_reauth_ms="60000", **bound) as world:
        raws = [await world.call_raw("LOGIN") for _ in range(2)]
        for raw in raws:
            await log_in(raw)
        await asyncio.sleep(1.1)
        say(raws[0], SaslHandshakeRequest(mechanism="P" * 2000), 1)
        await ask(raws[1], SaslHandshakeRequest(mechanism="PLAIN"), 1)
        say(raws[1], SaslAuthenticateRequest(auth_bytes=bytes(2000)), 1)
        for raw in raws:
            assert await wait_closed(raw) == b""
        assert world.principals == []
