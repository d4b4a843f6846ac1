"""Who may reach the console, and what it does with a request that is not a browser's."""

from __future__ import annotations

import http.client
import re
import time
from urllib.parse import quote, urlencode, urlsplit

import pytest
from confluent_kafka import Producer

from tailrace.testing import Broker

from .conftest import EVIL, console


def ask(address: str, path: str, *, method: str = "GET", body: str | None = None, **headers: str):
    where = urlsplit(address)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=20)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer, answer.read().decode()
    finally:
        connection.close()


def form(page: str, **fields: str) -> str:
    token = re.search(r'name="token" value="(\w+)"', page).group(1)
    return urlencode({"token": token, **fields})


FORM = "application/x-www-form-urlencoded"


def test_pages_let_no_foreign_code_in(address: str):
    answer, text = ask(address, "/brokers")
    policy = answer.getheader("Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=|\sstyle=|javascript:", text)
    cookie = answer.getheader("Set-Cookie").lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


def test_another_name_that_leads_here_is_refused(address: str):
    assert ask(address, "/", Host="rebound.example")[0].status == 400
    assert ask(address, "/", Host="localhost")[0].status == 200


@pytest.mark.parametrize("with_cookie", [False, True])
def test_a_form_from_elsewhere_is_not_taken(address: str, with_cookie: bool):
    answer, _ = ask(address, "/topics")
    headers = {"Cookie": answer.getheader("Set-Cookie").split(";")[0]} if with_cookie else {}
    body = urlencode({"name": "forged", "confirm": "yes", "token": "0" * 64})
    answer, text = ask(address, "/topics", method="POST", body=body, Content_Type=FORM, **headers)
    assert answer.status == 403
    assert "came from elsewhere" in text
    assert ask(address, "/topics/forged")[0].status == 404


def test_bad_input_is_told(address: str):
    answer, text = ask(address, "/topics")
    cookie = answer.getheader("Set-Cookie").split(";")[0]
    for fields, reason in (
        ({"name": "a/b"}, "a/b"),
        ({"name": "fine", "partitions": "many"}, "is no whole number"),
        ({"name": "fine", "settings": "retention.ms"}, "is not name=value"),
        ({"name": "fine", "settings": "no.such=1"}, "no.such"),
        ({"name": "orders"}, "exists"),
    ):
        body = form(text, **fields)
        answer, said = ask(address, "/topics", method="POST", body=body, Content_Type=FORM, Cookie=cookie)
        assert 400 <= answer.status < 600
        assert reason in said
    answer, _ = ask(address, "/topics", method="POST", body="x" * (3 << 20), Content_Type=FORM, Cookie=cookie)
    assert answer.status == 413
    for path in ("/topics/no-such", "/groups/no-such", "/brokers/99", "/topics/orders/messages/0/999999", "/nowhere"):
        assert ask(address, path)[0].status == 404
    for path in ("/topics/orders/messages?offset=x&start=offset", "/topics/orders/messages?start=time&time=noon"):
        assert "not understood" in ask(address, path)[1]


HUGE = "9" * 20
MISUNDERSTOOD = (
    f"start=time&time={HUGE}",
    f"start=offset&offset={HUGE}",
    f"partition={HUGE}",
    "start=offset&offset=-1",
    "filter=" + quote("(" * 5000),
    "filter=" + quote("not " * 3000 + 'key = "a"'),
    "filter=" + quote("value = " + "9" * 5000),
)


def test_what_no_number_can_be_is_told(address: str):
    """What does not fit into Kafka's fields too: it is the visitor's to mend, and no failure of console or cluster."""
    for asked in MISUNDERSTOOD:
        answer, text = ask(address, f"/topics/orders/messages?{asked}")
        assert (answer.status, "The filter is not understood" in text) == (200, True), asked
    # Before there were computers there were no records: this is the beginning.
    for first in ("0001-01-01", "1969-12-31T23:59:59"):
        assert "50 shown" in ask(address, f"/topics/orders/messages?start=time&time={first}")[1]
    for path in ("/topics/%00/messages", "/topics/%ff%fe", f"/brokers/{HUGE}", f"/topics/orders/messages/{HUGE}/0"):
        assert ask(address, path)[0].status in (400, 404), path
    assert ask(address, f"/topics/orders/messages/0/{HUGE}")[0].status == 404
    answer, text = ask(address, "/topics")
    cookie = answer.getheader("Set-Cookie").split(";")[0]
    for path, fields in (
        ("/topics", {"name": "n", "partitions": HUGE}),
        ("/topics", {"name": "n", "replicas": "70000"}),
        ("/topics/orders/partitions", {"count": HUGE}),
        ("/topics/orders/messages", {"value": "x", "partition": HUGE, "confirm": "yes"}),
        ("/groups/billing/reset", {"topic": "orders", "where": "time", "number": HUGE}),
        ("/groups/billing/reset", {"topic": "orders", "where": "time", "number": "-5"}),
    ):
        answer, said = ask(address, path, method="POST", body=form(text, **fields), Content_Type=FORM, Cookie=cookie)
        assert (answer.status, "is no whole number from 0 to" in said) == (400, True), (path, fields, said)


def test_a_download_is_what_produce_reads(address: str):
    answer, text = ask(address, "/topics/orders/messages/download?start=oldest&limit=3")
    assert answer.getheader("Content-Type").startswith("application/x-ndjson")
    assert len(text.splitlines()) == 3
    assert '"value": "{' in text
    assert '"value_base64": "/wA="' in text


def test_read_only_changes_nothing(broker: Broker):
    with console("--bootstrap", broker.bootstrap, "--read-only") as address:
        _, text = ask(address, "/topics/orders")
        assert "Delete the topic" not in text
        answer, said = ask(address, "/topics", method="POST", body="name=x", Content_Type=FORM)
        assert answer.status == 403
        assert "--read-only" in said


def test_where_the_cluster_wants_logins_so_does_the_console():
    """The admin's credential is the console's own: nobody sees anything by it."""
    with Broker(secure=True) as broker:
        broker.user("ann", acls=["describe topic:hers", "create topic:hers"])
        settings = f"{broker.data}/client.properties"
        password = broker.client_settings
        with console("--bootstrap", broker.bootstrap, "--command-config", settings) as address:
            answer, text = ask(address, "/topics")
            assert (answer.status, answer.getheader("Location")) == (303, "/login?to=/topics")
            for path in ("/", "/live", "/topics/x/messages/tail", "/access"):
                assert ask(address, path)[0].status in (303, 403)
            answer, text = ask(address, "/login")
            cookie = answer.getheader("Set-Cookie").split(";")[0]
            body = form(text, user="admin", password="guessed")
            answer, text = ask(address, "/login", method="POST", body=body, Content_Type=FORM, Cookie=cookie)
            assert answer.status == 403
            assert "guessed" not in text
            secret = password.confluent()["sasl.password"]
            body = form(text, user="admin", password=secret)
            answer, text = ask(address, "/login", method="POST", body=body, Content_Type=FORM, Cookie=cookie)
            assert answer.status == 303
            cookie = answer.getheader("Set-Cookie").split(";")[0]
            deadline = time.monotonic() + 20
            while (found := ask(address, "/", Cookie=cookie))[0].status != 200:
                assert time.monotonic() < deadline, found[1]
            assert "Log out admin" in found[1]
            assert secret not in found[1]


def post(address: str, path: str, cookie: str, page: str, **fields: str):
    body = form(page, **{name.replace("_", "-"): value for name, value in fields.items()})
    return ask(address, path, method="POST", body=body, Content_Type=FORM, Cookie=cookie)


def log_in(address: str, user: str, password: str) -> str:
    """The cookie of a visit."""
    answer, text = ask(address, "/login")
    cookie = answer.getheader("Set-Cookie").split(";")[0]
    answer, text = post(address, "/login", cookie, text, user=user, password=password)
    assert answer.status == 303, text
    return answer.getheader("Set-Cookie").split(";")[0]


def test_what_nodes_tell_is_for_those_who_may_see_it():
    """Connections and the audit log ask DESCRIBE on the cluster, segments DESCRIBE on the topic."""
    with Broker({"num.partitions": 1}, secure=True) as broker:
        hers = broker.user("ann", acls=["describe topic:orders", "create topic:orders"]).confluent()
        client = broker.client_settings.confluent()
        producer = Producer(client | {"client.id": f"shop {EVIL}"})
        producer.produce("orders", "x")
        assert producer.flush(20) == 0
        settings = ("--command-config", f"{broker.data}/client.properties", "--interval", "60")
        with console("--bootstrap", broker.bootstrap, *settings) as address:
            admin = log_in(address, "admin", client["sasl.password"])
            ann = log_in(address, "ann", hers["sasl.password"])
            _, page = ask(address, "/connections", Cookie=admin)
            assert "shop &lt;img" in page
            assert EVIL not in page
            assert re.search(r"User:ann</td><td[^>]*>tailrace-console", page)
            assert "No connection has this" in ask(address, "/connections?find=nobody", Cookie=admin)[1]
            _, page = ask(address, "/audit", Cookie=admin)
            assert re.search(r"User:admin.*AlterUserScramCredentials.*name=ann", page)
            assert hers["sasl.password"] not in page
            assert "CreateAcls" in ask(address, "/audit?find=createacls", Cookie=admin)[1]
            for path in ("/connections", "/audit"):
                answer, page = ask(address, path, Cookie=ann)
                assert (answer.status, "You may not do this" in page) == (403, True), path
            assert "fresh" not in (page := ask(address, "/topics", Cookie=admin)[1])
            assert post(address, "/topics", admin, page, name="fresh", confirm="yes")[0].status == 303
            assert "fresh" in ask(address, "/topics", Cookie=admin)[1], "a visitor does not see what they have done"
            assert "1 segment, " in ask(address, "/topics/orders/segments", Cookie=ann)[1]
            assert ask(address, "/topics/orders/segments?partition=x", Cookie=ann)[0].status == 404
            assert ask(address, "/topics/other/segments", Cookie=ann)[0].status in (403, 404)


MASKS = """\
[[mask]]
topics = "payments"
fields = ["value.card", "header.iban"]
"""


def test_what_is_masked_is_seen_by_who_may_alter_the_topic(tmp_path):
    (tmp_path / "masks.toml").write_text(MASKS)
    with Broker(secure=True) as broker:
        hers = broker.user("ann", acls=["read topic:payments"]).confluent()["sasl.password"]
        client = broker.client_settings.confluent()
        producer = Producer(client)
        for number in range(3):
            value = f'{{"card": "4111-{number}", "id": {number}}}'
            producer.produce("payments", value, headers=[("iban", f"DE{number}"), ("trace", "t")])
        producer.produce("wages", "7")
        producer.flush(20)
        settings = f"{broker.data}/client.properties"
        masks = ("--masks", str(tmp_path / "masks.toml"))
        with console("--bootstrap", broker.bootstrap, "--command-config", settings, *masks) as address:
            admin = log_in(address, "admin", client["sasl.password"])
            ann = log_in(address, "ann", hers)
            where = "/topics/payments/messages"
            guess = where + "?filter=" + quote('value.card = "4111-1"')
            assert "1 shown" in ask(address, guess, Cookie=admin)[1]
            assert "0 shown, 3 looked at" in ask(address, guess, Cookie=ann)[1]
            first = next(each for each in range(8) if ask(address, f"{where}/{each}/0", Cookie=ann)[0].status == 200)
            for path in (where, f"{where}?raw=1", f"{where}/{first}/0", f"{where}/download?start=oldest"):
                _, seen = ask(address, path, Cookie=admin)
                assert "4111-" in seen
                assert "DE" in seen
                _, seen = ask(address, path, Cookie=ann)
                assert not re.search("4111-|>DE|DE[0-9]", seen), path
                assert "***" in seen
            assert "Something of it is masked" in ask(address, f"{where}/{first}/0", Cookie=ann)[1]
            # Charts come by the console's own login, and show nobody more than they may see.
            assert 'href="/topics/wages"' in ask(address, "/", Cookie=admin)[1]
            for path in ("/", "/topics"):
                answer, seen = ask(address, path, Cookie=ann)
                assert answer.status == 200
                assert "payments" in seen
                assert "wages" not in seen
            assert "On all disks" not in ask(address, "/", Cookie=ann)[1]
            for path in ("/topics/wages", "/topics/wages/messages", "/alerts", "/balance", "/balance?plan=1"):
                assert ask(address, path, Cookie=ann)[0].status in ((200,) if path == "/alerts" else (403, 404)), path


def test_users_acls_and_quotas_are_changed_in_two_steps():
    with Broker(secure=True) as broker:
        settings = f"{broker.data}/client.properties"
        secret = broker.client_settings.confluent()["sasl.password"]
        with console("--bootstrap", broker.bootstrap, "--command-config", settings) as address:
            cookie = log_in(address, "admin", secret)
            _, page = ask(address, "/access", Cookie=cookie)

            user = {"name": "ann", "mechanism": "SCRAM-SHA-512"}
            answer, said = post(address, "/access/users", cookie, page, **user)
            assert "ann may log in by SCRAM-SHA-512 with this password." in said
            assert "The cluster was asked" not in said
            assert post(address, "/access/users", cookie, page, **user, confirm="yes")[0].status == 200  # No password.
            answer, said = post(address, "/access/users", cookie, page, **user, confirm="yes", secret="hers-alone")
            assert answer.status == 303, said
            assert "hers-alone" not in said
            anns = log_in(address, "ann", "hers-alone")

            acl = {"principal": "ann", "permission": "ALLOW", "operation": "DESCRIBE", "kind": "TOPIC"}
            acl |= {"resource": "hers", "pattern": "PREFIXED", "host": ""}
            _, said = post(address, "/access/acls", cookie, page, **acl)
            words = "User:ann may describe on every topic whose name begins with hers, from any address."
            assert words in said
            assert words not in ask(address, "/access", Cookie=cookie)[1]
            assert post(address, "/access/acls", cookie, page, **acl, confirm="yes")[0].status == 303
            _, said = ask(address, "/access", Cookie=cookie)
            assert "topic hers*" in said
            for wrong in ({"kind": "DOOR"}, {"principal": ""}, {"operation": "LOOK"}, {"resource": ""}):
                assert post(address, "/access/acls", cookie, page, **acl | wrong)[0].status == 400
            # She is no admin: the cluster says so, and the page shows why.
            _, own = ask(address, "/access", Cookie=anns)
            assert "is not allowed to User:ann" in own
            answer, said = post(address, "/access/acls", anns, own, **acl | {"kind": "CLUSTER"}, confirm="yes")
            assert answer.status in (403, 502), said
            assert post(address, "/access/acls/delete", cookie, page, **acl, confirm="yes")[0].status == 303
            assert "topic hers*" not in ask(address, "/access", Cookie=cookie)[1]

            quota = {"user": "ann", "key": "producer_byte_rate"}
            _, said = post(address, "/access/quotas", cookie, page, **quota, value="1000")
            assert "user ann has no producer_byte_rate now, and has 1000 from then on." in said
            assert post(address, "/access/quotas", cookie, page, **quota, value="0.5")[0].status == 400
            assert post(address, "/access/quotas", cookie, page, **quota, value="1000", confirm="yes")[0].status == 303
            _, said = post(address, "/access/quotas", cookie, page, **quota, value="")
            assert "has 1000 as producer_byte_rate now, and has none from then on." in said
            assert post(address, "/access/quotas", cookie, page, **quota, value="", confirm="yes")[0].status == 303
            assert "There are no quotas." in ask(address, "/access", Cookie=cookie)[1]

            answer, said = post(address, "/access/users/delete", cookie, page, name="ann", confirm="yes")
            assert "What you typed is not the name." in said
            assert post(address, "/access/users/delete", cookie, page, name="ann", confirm="ann")[0].status == 303
            answer, text = ask(address, "/login")
            answer, _ = post(address, "/login", cookie, text, user="ann", password="hers-alone")
            assert answer.status == 403
