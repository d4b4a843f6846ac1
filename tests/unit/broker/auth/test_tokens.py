"""Logins by delegation tokens, over real sockets."""

from __future__ import annotations

import asyncio
from base64 import b64encode

import pytest

from tailrace.client.connection import Connection
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.data import MetadataRequest, MetadataResponse
from tailrace.wire.apis.security import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

from .secured import SecuredWorld, secured

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
SETTINGS = {"delegation_token_secret_key": "a key", "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"}


def token_settings(token_id: str, hmac: bytes, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
    password = b64encode(hmac).decode()
    jaas = f'{MODULE} required username="{token_id}" password="{password}" tokenauth="true";'
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}


async def create(connection: Connection, max_ms: int = -1) -> CreateDelegationTokenResponse:
    request = CreateDelegationTokenRequest(owner_principal_type=None, owner_principal_name=None, max_lifetime_ms=max_ms)
    return await connection.call(request, CreateDelegationTokenResponse)


async def refused(world: SecuredWorld, settings: dict[str, str]) -> str:
    with pytest.raises(KafkaError) as caught:
        await world.log_in("LOGIN", settings)
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    return caught.value.message.replace(settings["sasl.jaas.config"].split('"')[1], "ID")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_who_has_a_token_comes_in_as_its_owner(mechanism):
    async with secured(**SETTINGS) as world:
        alice = await world.log_in("LOGIN")
        made = await create(alice)
        assert made.error_code == 0
        guest = await world.log_in("LOGIN", token_settings(made.token_id, made.hmac, mechanism))
        assert world.principals == ["User:alice", "User:alice"]
        await guest.call(MetadataRequest(topics=None), MetadataResponse)
        # By a token there is no way to another one, nor to the tokens that there are.
        assert (await create(guest)).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        told = await guest.call(DescribeDelegationTokenRequest(owners=None), DescribeDelegationTokenResponse)
        assert (told.error_code, told.tokens) == (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, [])
        # A user of the same mechanism has no session that ends.
        assert [type(each).__name__ for each in world.broker.acceptors[0].connections] == [
            "KafkaConnection",
            "SessionConnection",
        ]


async def test_a_token_that_is_not_there_reads_like_a_wrong_password():
    async with secured(**SETTINGS) as world:
        alice = await world.log_in("LOGIN")
        made, short = await create(alice), await create(alice, max_ms=1)
        await asyncio.sleep(0.01)
        wrong = await refused(world, token_settings(made.token_id, b"wrong"))
        assert wrong == await refused(world, token_settings("A" * 22, made.hmac))
        assert wrong == await refused(world, token_settings(short.token_id, short.hmac))
        expiry = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
        assert (await alice.call(expiry, ExpireDelegationTokenResponse)).error_code == 0
        assert wrong == await refused(world, token_settings(made.token_id, made.hmac))


async def test_a_session_ends_with_its_token():
    async with secured(**SETTINGS) as world:
        made = await create(await world.log_in("LOGIN"), max_ms=1500)
        guest = await world.log_in("LOGIN", token_settings(made.token_id, made.hmac))
        await guest.call(MetadataRequest(topics=None), MetadataResponse)
        await asyncio.sleep(1.7)
        with pytest.raises(KafkaError):
            await guest.call(MetadataRequest(topics=None), MetadataResponse)


async def test_a_login_by_the_same_token_goes_on_after_its_time():
    async with secured(**SETTINGS, connections_max_reauth_ms="1300") as world:
        made = await create(await world.log_in("LOGIN"))
        guest = await world.log_in("LOGIN", token_settings(made.token_id, made.hmac))
        for _ in range(20):
            await guest.call(MetadataRequest(topics=None), MetadataResponse)
            await asyncio.sleep(0.1)
        assert world.principals[-1] == "User:alice"


async def test_without_a_key_nobody_comes_in_by_a_token():
    async with secured(sasl_enabled_mechanisms=SETTINGS["sasl_enabled_mechanisms"]) as world:
        alice = await world.log_in("LOGIN")
        assert (await create(alice)).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        await refused(world, token_settings("A" * 22, b"x"))


async def test_who_is_nobody_has_no_tokens():
    async with secured(**SETTINGS) as world:
        answer = await create(await world.log_in("OPEN"))
        assert (answer.error_code, answer.principal_name) == (
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "ANONYMOUS",
        )


async def test_no_secret_is_told_by_settings_or_a_repr():
    async with secured(**SETTINGS) as world:
        assert "a key" not in repr(world.broker.quorum.static_config)
        made = await create(await world.log_in("LOGIN"))
        assert b64encode(made.hmac).decode() not in repr(world.broker.quorum.image.delegation_tokens)
