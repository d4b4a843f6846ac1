"""Logins by a token at a whole broker: who comes in, for how long, and with which settings it starts at all."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.data import MetadataRequest, MetadataResponse
from tailrace.wire.apis.security import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.issuer import AUDIENCE, ISSUER, Issuer, SigningKey, key_set
from tests.unit.broker.auth.secured import secured
from tests.unit.broker.auth.test_doors import Raw, ask, say, wait_closed

KEY = SigningKey("first", "ES256")
JWKS = "sasl.oauthbearer.jwks.endpoint.url"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
EXPECTED = {
    "sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN",
    "sasl.oauthbearer.expected.audience": AUDIENCE,
    "sasl.oauthbearer.expected.issuer": ISSUER,
}


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer(KEY) as issuer:
        yield issuer


def by_web(issuer: Issuer, **more: str) -> dict[str, str]:
    return EXPECTED | {JWKS: issuer.keys_url, "sasl.oauthbearer.allowed.urls": issuer.keys_url} | more


def message(token: str) -> SaslAuthenticateRequest:
    return SaslAuthenticateRequest(auth_bytes=f"n,,\1auth=Bearer {token}\1\1".encode())


async def show(raw: Raw, token: str) -> Any:
    assert (await ask(raw, SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)).error_code == 0
    return await ask(raw, message(token), 2)


def token_settings(issuer: Issuer, user: str = "alice") -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": issuer.token_url,
        "sasl.oauthbearer.client.credentials.client.id": user,
        "sasl.oauthbearer.client.credentials.client.secret": issuer.secret,
    }


async def test_our_own_client_fetches_a_token_and_comes_in(issuer: Issuer):
    async with secured(**by_web(issuer)) as world:
        connection = await world.log_in("LOGIN", token_settings(issuer))
        await connection.call(MetadataRequest(topics=None), MetadataResponse)
        assert world.principals == ["User:alice"]


async def test_a_session_lasts_no_longer_than_the_token(issuer: Issuer):
    now = int(time.time())
    async with secured(**by_web(issuer, **{"connections.max.reauth.ms": "90000"})) as world:
        for exp, most_ms in ((now + 600, 90_000), (now + 60, 60_000)):
            raw = await world.call_raw("LOGIN")
            answer = await show(raw, KEY.sign(exp=exp))
            assert most_ms - 20_000 < answer.session_lifetime_ms <= most_ms
    async with secured(**by_web(issuer)) as world:
        raw = await world.call_raw("LOGIN")
        assert 500_000 < (await show(raw, KEY.sign())).session_lifetime_ms <= 600_000
        brief = await world.call_raw("LOGIN")
        assert (await show(brief, KEY.sign(exp=time.time() + 2.5))).error_code == 0
        assert (await ask(brief, MetadataRequest(topics=[]), 4)).controller_id == 1
        await asyncio.sleep(2.6)
        say(brief, MetadataRequest(topics=[]), 4)
        assert await wait_closed(brief) == b""


async def test_a_client_logs_in_again_by_its_next_token_and_requests_behind_that_wait(issuer: Issuer):
    async with secured(**by_web(issuer)) as world:
        raw = await world.call_raw("LOGIN")
        await show(raw, KEY.sign(exp=time.time() + 3))
        await asyncio.sleep(1.1)
        assert (await ask(raw, SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)).error_code == 0
        # While a helper thread looks at the token, the next request is here already.
        say(raw, message(KEY.sign()), 2)
        say(raw, MetadataRequest(topics=[]), 4)
        for _ in range(2):
            async with asyncio.timeout(5):
                size = int.from_bytes(await raw[0].readexactly(4), "big")
                assert await raw[0].readexactly(size)
        await asyncio.sleep(2.1)
        assert (await ask(raw, MetadataRequest(topics=[]), 4)).controller_id == 1
        # As somebody else: no.
        assert (await ask(raw, SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)).error_code == 0
        say(raw, message(KEY.sign("bob")), 2)
        assert await wait_closed(raw) == b""


async def test_a_bad_token_is_told_as_kafka_tells_it_and_the_log_says_why(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    token = KEY.sign(aud="somebody-else")
    async with secured(**by_web(issuer)) as world:
        raw = await world.call_raw("LOGIN")
        challenge = await show(raw, token)
        assert (challenge.error_code, challenge.auth_bytes) == (0, b'{"status":"invalid_token"}')
        refused = await ask(raw, SaslAuthenticateRequest(auth_bytes=b"\1"), 2)
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert refused.error_message == '{"status":"invalid_token"}'
        assert await wait_closed(raw) == b""
        assert world.principals == []
    told = "".join(str(vars(record)) for record in caplog.records)
    assert "not for sasl.oauthbearer.expected.audience" in told
    assert not [part for part in token.split(".") if part in told]


async def test_a_token_in_the_old_form_of_a_login(issuer: Issuer):
    async with secured(**by_web(issuer)) as world:
        raw = await world.call_raw("LOGIN")
        assert (await ask(raw, SaslHandshakeRequest(mechanism="OAUTHBEARER"), 0)).error_code == 0
        bare = message(KEY.sign()).auth_bytes
        raw[1].write(len(bare).to_bytes(4, "big") + bare)
        async with asyncio.timeout(5):
            assert await raw[0].readexactly(4) == bytes(4)
        assert (await ask(raw, MetadataRequest(topics=[]), 4)).controller_id == 1


async def test_a_new_key_needs_no_restart(issuer: Issuer):
    second = SigningKey("second", "ES256")
    async with secured(**by_web(issuer)) as world:
        await show(await world.call_raw("LOGIN"), KEY.sign())
        issuer.keys = (KEY, second)
        raw = await world.call_raw("LOGIN")
        assert (await show(raw, second.sign())).session_lifetime_ms > 0
        before = len(issuer.asked)
        for number in range(20):
            stranger = SigningKey(f"k{number}", "ES256", second.private)
            raw = await world.call_raw("LOGIN")
            assert (await show(raw, stranger.sign())).auth_bytes == b'{"status":"invalid_token"}'
        assert len(issuer.asked) == before


async def test_an_issuer_that_is_not_there_yet_keeps_nobody_from_starting(issuer: Issuer):
    issuer.pages["/keys"] = (503, {}, b"")
    more = {"sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "50"}
    more |= {"sasl.oauthbearer.jwks.endpoint.unknown.key.ms": "50"}
    async with secured(**by_web(issuer, **more)) as world:
        raw = await world.call_raw("LOGIN")
        assert (await show(raw, KEY.sign())).auth_bytes == b'{"status":"invalid_token"}'
        del issuer.pages["/keys"]
        async with asyncio.timeout(10):
            while True:
                await asyncio.sleep(0.1)
                raw = await world.call_raw("LOGIN")
                if not (await show(raw, KEY.sign())).auth_bytes:
                    break


async def test_a_slow_issuer_holds_up_no_login_beyond_its_deadline(issuer: Issuer):
    """Nor the loop: others come in meanwhile."""
    async with secured(**by_web(issuer), connection_login_max_ms="700") as world:
        await show(await world.call_raw("LOGIN"), KEY.sign())
        issuer.answers.clear()
        raw = await world.call_raw("LOGIN")
        assert (await ask(raw, SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)).error_code == 0
        say(raw, message(SigningKey("unknown", "ES256").sign()), 2)
        await world.log_in("LOGIN")
        assert await wait_closed(raw) == b""
        issuer.answers.set()


# --- settings


REFUSED = {
    "no address": ({}, r"oauthbearer\.sasl\.oauthbearer\.jwks\.endpoint\.url: OAUTHBEARER needs the keys"),
    "http": ({JWKS: "http://issuer.test/keys"}, "sasl.oauthbearer.allowed.urls"),
    "another http": (
        {JWKS: "http://issuer.test/keys", "sasl.oauthbearer.allowed.urls": "http://issuer.test/"},
        "sasl.oauthbearer.allowed.urls",
    ),
    "another scheme": ({JWKS: "ftp://issuer.test/keys"}, "Write an address such as https"),
    "no host": ({JWKS: "https:///keys"}, "Write an address such as https"),
    "no address at all": ({JWKS: "https://[/keys"}, "Write an address such as https"),
    "a password in it": ({JWKS: "https://me:hunter2@issuer.test/keys"}, "Write no user"),
    "no such file": ({JWKS: "file:///nowhere.json"}, "No keys can be read from there"),
    "none": ({"sasl.oauthbearer.algorithms": "RS256,none"}, "must be one of|none"),
    "a MAC": ({"sasl.oauthbearer.algorithms": "HS256"}, "HS256"),
    "Kafka's default": (
        {
            "listener.name.login.oauthbearer.sasl.server.callback.handler.class": "org.apache.kafka.common.security."
            "oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
        },
        "without a signature are never taken",
    ),
    "a bad login module": (
        {JWKS: "https://issuer.test/keys", "listener.name.login.oauthbearer.sasl.jaas.config": "hunter2"},
        "listener.name.login.oauthbearer.sasl.jaas.config",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_settings_that_keep_a_broker_from_starting(case: str):
    settings, reason = REFUSED[case]
    with pytest.raises(KafkaError, match=reason) as raised:
        async with secured(**(EXPECTED | settings)):
            pass
    assert raised.value.code is ErrorCode.INVALID_CONFIG
    assert "hunter2" not in raised.value.message


async def test_keys_from_a_file_by_a_listener_s_own_settings_and_kafka_s_handler():
    prefix = "listener.name.login.oauthbearer."
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    settings = EXPECTED | {
        "listener.name.both.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.sasl.enabled.mechanisms": "OAUTHBEARER",
        prefix + JWKS: "file:///issuer/the%20keys.json",
        prefix + "sasl.server.callback.handler.class": handler,
        prefix + "sasl.jaas.config": f"{MODULE} required;",
        prefix + "sasl.oauthbearer.sub.claim.name": "email",
    }
    del settings["sasl.enabled.mechanisms"]
    files = {"/issuer/the keys.json": key_set(KEY)}
    async with secured(files=files, **settings) as world:
        raw = await world.call_raw("LOGIN")
        assert (await show(raw, KEY.sign(email="alice@example"))).session_lifetime_ms > 0
        assert world.principals == ["User:alice@example"]
    with pytest.raises(KafkaError, match=r"more than sasl.oauthbearer.jwks.endpoint.max.bytes=10"):
        async with secured(files=files, **settings | {"sasl.oauthbearer.jwks.endpoint.max.bytes": "10"}):
            pass
