"""Who may look: cookies, tokens, bounds."""

from __future__ import annotations

from tailrace.apps.console.doors.visitors import Visitors, new_cookie, watcher_security
from tailrace.client.security.settings import PLAINTEXT, Mechanism, SaslSettings, Security, TokenSettings


class Door:
    """Clusters that let everyone in, and remember who was there."""

    def __init__(self, security):
        self.security = security
        self.is_closed = False

    async def refresh(self, topics):
        return {}

    def close(self):
        self.is_closed = True


def visitors(security=PLAINTEXT, *, now_s=lambda: 0.0):
    opened = []

    def open_cluster(found):
        opened.append(Door(found))
        return opened[-1]

    return Visitors(Door(security), security, open_cluster, now_s=now_s), opened


SASL = Security(sasl=SaslSettings(Mechanism.SCRAM_SHA_512, username="charts", password="secret"))


def test_without_logins_everyone_is_a_visitor():
    found, _ = visitors()
    assert not found.must_log_in
    assert found.find(None).user is None


async def test_each_visitor_has_a_connection_of_their_own():
    found, opened = visitors(SASL)
    assert found.find(None) is None
    assert found.find(new_cookie()) is None
    cookie = await found.log_in("ann", "hers")
    assert found.find(cookie).user == "ann"
    assert (opened[0].security.sasl.username, opened[0].security.sasl.password) == ("ann", "hers")
    assert "hers" not in repr(found.find(cookie))
    found.log_out(cookie)
    assert opened[0].is_closed
    assert found.find(cookie) is None


async def test_visits_end_and_are_bounded():
    now = [0.0]
    found, opened = visitors(SASL, now_s=lambda: now[0])
    first = await found.log_in("ann", "hers")
    now[0] = 9 * 3600
    assert found.find(first) is None
    for number in range(250):
        now[0] += 1
        await found.log_in(f"user-{number}", "theirs")
    assert sum(not door.is_closed for door in opened) == 200


def test_tokens_follow_from_cookies():
    found, _ = visitors()
    cookie, other = new_cookie(), new_cookie()
    assert found.is_token_good(cookie, found.token(cookie))
    assert not found.is_token_good(other, found.token(cookie))
    assert not found.is_token_good(None, found.token(""))
    assert not found.is_token_good("", found.token(""))
    # Another console has another key.
    assert not visitors()[0].is_token_good(cookie, found.token(cookie))


def test_the_console_lends_no_rights_that_it_does_not_have():
    assert watcher_security(PLAINTEXT) == PLAINTEXT
    assert watcher_security(SASL) == SASL
    assert watcher_security(Security(sasl=SaslSettings(Mechanism.SCRAM_SHA_512))) is None
    bearer = Security(sasl=SaslSettings(Mechanism.OAUTHBEARER, token=TokenSettings(endpoint_url="https://login")))
    assert watcher_security(bearer) == bearer
