"""Login by an issuer that we did not write, at another site, in a real browser: its token is the visitor's login."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tailrace.testing import Broker
from tests.issuer import AUDIENCE
from tests.nodes import free_ports

from .conftest import console
from .provider import CLIENT_ID, Provider, running
from .test_doors import ask

# The console's own login, by a password, is for charts alone.
OWN = """\
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="charts" password="own";
"""
LIFETIME_S = 32


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with running(Provider(lifetime_s=LIFETIME_S)) as found:
        yield found


@pytest.fixture(scope="module")
def address(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("oidc")
    (folder / "client.properties").write_text(OWN)
    (port,) = free_ports(1)
    keys = f"{provider.issuer}/keys"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = {
        "listeners": f"LOGIN://127.0.0.1:{port}",
        "listener.security.protocol.map": "LOGIN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN",
        "listener.name.login.plain.sasl.jaas.config": f'{module} required user_charts="own";',
        "sasl.oauthbearer.jwks.endpoint.url": keys,
        "sasl.oauthbearer.allowed.urls": keys,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": provider.issuer,
    }
    words = ("--command-config", str(folder / "client.properties"))
    words += ("--oidc-issuer", provider.issuer, "--oidc-client-id", CLIENT_ID)
    with Broker(settings), console("--bootstrap", f"127.0.0.1:{port}", *words) as found:
        provider.client.redirects = [f"{found}/login/oidc/callback"]
        yield found


@pytest.fixture
def page(browser) -> Iterator[Page]:
    page = browser.new_page()
    page.set_default_timeout(20_000)
    yield page
    page.close()


def test_a_visitor_comes_in_by_the_issuer_and_stays_when_the_token_ends(address: str, provider: Provider, page: Page):
    page.goto(f"{address}/topics?by=size")
    page.get_by_role("link", name="Log in by localhost").click()
    expect(page.get_by_role("button", name="Log out alice")).to_be_visible()
    assert page.url == f"{address}/topics"
    assert "token" not in page.url
    assert not provider.codes
    # A token that is near its end is exchanged, and nobody notices.
    before = provider.asked.count("/token")
    deadline = time.monotonic() + 60
    while provider.asked.count("/token") == before:
        assert time.monotonic() < deadline
        page.goto(f"{address}/groups")
        expect(page.get_by_role("button", name="Log out alice")).to_be_visible()
        page.wait_for_timeout(300)
    page.goto(f"{address}/topics")
    page.get_by_role("button", name="Log out alice").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()


def test_who_comes_back_without_having_left_is_not_let_in(address: str, provider: Provider):
    answer, _ = ask(address, "/login/oidc?to=//evil.example")
    assert answer.status == 303
    where = answer.getheader("Location")
    assert where.startswith(f"{provider.issuer}/authorize?")
    assert "code_challenge_method=S256" in where
    cookie = answer.getheader("Set-Cookie").split(";")[0]
    assert "samesite=lax" in answer.getheader("Set-Cookie").lower()
    state = where.partition("state=")[2].partition("&")[0]
    for path, sent in (
        (f"state={state}&code=x", ""),  # Another browser, and with it the state is used up.
        (f"state={state}&code=x", cookie),
        ("state=guessed&code=x", cookie),
        ("", cookie),
    ):
        answer, text = ask(address, f"/login/oidc/callback?{path}", Cookie=sent)
        assert answer.status == 403
        assert "was not begun in this browser" in text


def test_refusals_are_told(address: str, provider: Provider):
    def begin() -> tuple[str, str]:
        answer, _ = ask(address, "/login/oidc")
        where = answer.getheader("Location")
        return where.partition("state=")[2].partition("&")[0], answer.getheader("Set-Cookie").split(";")[0]

    for answer, reason in (
        ("error=access_denied&error_description=%3Cb%3Eno", "access_denied &lt;b&gt;no"),
        ("code=never-given", "it answers 400"),
        ("code=x&iss=https://other.example", "of another issuer"),
    ):
        state, cookie = begin()
        found, text = ask(address, f"/login/oidc/callback?state={state}&{answer}", Cookie=cookie)
        assert found.status == 403
        assert reason in text


def test_an_answer_that_belongs_to_another_login_is_refused(address: str, provider: Provider, page: Page):
    provider.nonce = "of another login"
    try:
        page.goto(f"{address}/login/oidc")
        expect(page.get_by_role("alert")).to_contain_text("belongs to another login")
    finally:
        provider.nonce = None
