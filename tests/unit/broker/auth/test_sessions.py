"""Logins that are good for a while only (KIP-368)."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.data import MetadataRequest, MetadataResponse
from tailrace.wire.apis.security import SaslAuthenticateRequest, SaslHandshakeRequest

from .secured import PASSWORD, client_settings, secured
from .test_doors import Raw, ask, say, wait_closed

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
