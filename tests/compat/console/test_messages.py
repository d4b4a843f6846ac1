"""What can be learned of a message, and done with it: its transaction, its copies, sending it again, however large."""

from __future__ import annotations

import html
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.testing import Broker

from .conftest import EVIL, console
from .test_doors import FORM, ask, form


def post(address: str, path: str, page: str, **fields: str):
    """As a browser does it: with the cookie and the token of a page."""
    answer, text = ask(address, page)
    cookie = answer.getheader("Set-Cookie").split(";")[0]
    return ask(address, path, method="POST", body=form(text, **fields), Content_Type=FORM, Cookie=cookie)


def create(broker: Broker, *names: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for created in admin.create_topics([NewTopic(name, 2, 1, config=configs) for name in names]).values():
        created.result(20)


def test_a_message_says_what_became_of_its_transaction(address: str, broker: Broker):
    create(broker, "moved")
    settings = {"bootstrap.servers": broker.bootstrap}
    Producer(settings).produce("moved", "plain", partition=1)
    producers = []
    for name in ("committed", "aborted", "open"):
        producer = Producer(settings | {"transactional.id": name, "linger.ms": 0})
        producers.append(producer)
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("moved", name, partition=0)
        producer.flush(30)
    producers[0].commit_transaction(30)
    producers[1].abort_transaction(30)
    plain = Producer(settings)
    plain.produce("moved", "plain", partition=1)
    plain.flush(30)
    _, page = ask(address, "/topics/moved/messages")
    states = dict(
        re.findall(r'<pre class="text">(\w+)</pre><p class="none">(?:<span[^>]*>\W*)?(\w+) transaction', page)
    )
    assert states == {"committed": "committed", "aborted": "aborted", "open": "open"}
    for offset, said in ((0, "<td>committed</td>"), (1, "✕ aborted"), (2, "◌ open: not decided yet")):
        assert said in ask(address, f"/topics/moved/messages/0/{offset}")[1]
    assert "<td>none</td>" in ask(address, "/topics/moved/messages/1/0")[1]
    _, page = ask(address, "/topics/moved/messages?committed=1")
    assert re.findall(r'<pre class="text">(\w+)</pre>', page) == ["plain", "committed"]
    assert "Open for" in ask(address, "/transactions")[1]
    producers[2].abort_transaction(30)


def test_a_message_is_sent_again_as_it_is(address: str, broker: Broker):
    """Its bytes too, which no form could carry; changed, it keeps its headers."""
    create(broker, "from-here", "to-there")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    headers = [("trace", b"t-1"), ("bytes", b"\xff\x00"), ("none", None)]
    producer.produce("from-here", b"\xff\x01", key=b"\x00\xfe", headers=headers, partition=0)
    producer.produce("from-here", "text", key="k", headers=[("trace", "t-2"), (EVIL, EVIL)], partition=0)
    assert producer.flush(30) == 0
    page = "/topics/from-here/messages/0/0"
    answer, said = post(address, f"{page}/again", page, to="to-there", partition="1")
    assert answer.status == 200
    assert "is written to topic to-there, partition 1." in said
    assert post(address, f"{page}/again", page, to="to-there", partition="1", confirm="yes")[0].status == 303
    answer, said = post(address, "/topics/from-here/messages/0/9/again", page, confirm="yes")
    assert (answer.status, "not there any more" in said) == (404, True)
    assert post(address, f"{page}/again", page, to="no-such-topic", confirm="yes")[0].status == 404
    _, text = ask(address, "/topics/from-here/messages/0/1")
    kept = html.unescape(re.search(r'<textarea name="headers" rows="2">(.*?)</textarea>', text, re.DOTALL).group(1))
    assert kept == f"trace=t-2\n{EVIL}={EVIL}"
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "look", "auto.offset.reset": "earliest"})
    consumer.subscribe(["to-there"])
    (found,) = consumer.consume(1, 30)
    consumer.close()
    assert (found.key(), found.value(), found.partition()) == (b"\x00\xfe", b"\xff\x01", 1)
    assert found.headers() == headers


def test_what_a_page_shows_is_had_elsewhere(address: str, broker: Broker):
    """The command and the program that stand there do it, whatever the names are."""
    create(broker, "copied")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(3):
        producer.produce("copied", f"value-{number}", partition=0)
    assert producer.flush(30) == 0
    _, page = ask(address, "/topics/copied/messages/0/1")
    found = dict(re.findall(r'<pre class="whole" id="(command|program)"[^>]*>(.*?)</pre>', page, re.DOTALL))
    command = html.unescape(found["command"]).replace("tailrace", f"{sys.executable} -m tailrace", 1)
    for words in (["sh", "-c", command], [sys.executable, "-c", html.unescape(found["program"])]):
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
        assert ("value-1" in done.stdout, "value-2" in done.stdout) == (True, False), done
    evil = "/topics/copied/messages?partition=0&start=offset&offset=" + "1%3B%20touch%20/tmp/x&filter=x"
    assert "--from &#39;1; touch /tmp/x&#39;" in ask(address, evil)[1]


LARGE = 100 << 20


@pytest.mark.long
def test_a_hundred_megabytes_show_their_first_kilobyte():
    """One record of 100 MB of JSON, and small ones around it: every page is small and soon there, a filter looks into
    what it has memory for, and the console has let go of it afterwards."""
    settings = {"message.max.bytes": 2 * LARGE, "socket.request.max.bytes": 2 * LARGE, "num.partitions": 1}
    with Broker(settings) as broker, console("--bootstrap", broker.bootstrap) as address:
        create(broker, "large", **{"max.message.bytes": str(2 * LARGE)})
        producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 1_000_000_000})
        value = b'{"id": 1, "rest": [' + b"1," * (LARGE // 2) + b"1]}"
        for each in (b'{"id": 0}', value, b'{"id": 2}'):
            producer.produce("large", each, partition=0)
            assert producer.flush(120) == 0
        del value
        for path in ("?start=oldest", "", "/0/1", "?start=oldest&filter=value.id+%3D+2"):
            began = time.monotonic()
            answer, text = ask(address, f"/topics/large/messages{path}")
            print(
                f"{path or 'newest'}: {len(text)} bytes, {time.monotonic() - began:.1f} s, {memory_mb(address):.0f} MB"
            )
            assert answer.status == 200
            assert len(text) < (3_000_000 if path == "/0/1" else 30_000)
            if "filter" in path:
                assert "&#34;id&#34;: 2" in text
                assert "1 records were too large for the filter" in text
            elif path != "/0/1":
                assert "The first part of 104.9 MB" in text
        for _ in range(3):
            ask(address, "/topics/large/messages?start=oldest&filter=value.id+%3D+1")
        assert "All well" in ask(address, "/")[1]
        assert memory_mb(address) < 120 + 250


def memory_mb(address: str) -> float:
    """Of the console that listens there."""
    port = int(address.rpartition(":")[2])
    done = subprocess.run(["ss", "-ltnpH", f"sport = :{port}"], capture_output=True, text=True, check=True)
    pid = re.search(r"pid=(\d+)", done.stdout).group(1)
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024
