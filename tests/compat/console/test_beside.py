"""`tailrace up --console-port`: a console beside the brokers, which lives and ends with them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from .conftest import EVIL
from .test_doors import ask

FIELDS = [{"name": "id", "type": "int"}, {"name": "customer", "type": "string"}]
NOTE = {"name": "note", "type": "string", "default": ""}
FIRST = json.dumps({"type": "record", "name": "Order", "fields": FIELDS})
SECOND = json.dumps({"type": "record", "name": "Order", "fields": [*FIELDS, NOTE]})


def children(process_id: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == process_id:
                found.append(int(entry.name))
    return found


def wait(condition, timeout_s: float = 30.0):
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come to be in time"
        time.sleep(0.05)
    return found


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_it_is_kept_alive_and_ends_with_the_brokers(ending):
    command = [sys.executable, "-m", "tailrace", "up", "--port", "0", "--console-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            told = []
            while not told or not told[-1].startswith("console: "):
                told.append(process.stdout.readline())
                assert told[-1], told
            assert any(line.startswith("ready: ") for line in told), told
            assert "All well" in ask(told[-1].removeprefix("console: ").strip(), "/")[1]
            (keeper,) = children(process.pid)
            (console,) = children(keeper)
            os.kill(console, signal.SIGKILL)
            again = process.stdout.readline()
            assert again.startswith("console: ")
            assert "All well" in ask(again.removeprefix("console: ").strip(), "/")[1]
            (console,) = children(keeper)
            process.send_signal(ending)
            process.wait(30)
            wait(lambda: not any(Path(f"/proc/{each}/exe").exists() for each in (keeper, console)))
        finally:
            process.kill()


@pytest.mark.long
def test_registry_and_alerts_are_joined_to_the_console():
    """By `up` itself: the console opens what Confluent's serializer writes, and shows what the alerts know."""
    command = [sys.executable, "-m", "tailrace", "up", "--port", "0", "--registry-port", "0", "--console-port", "0"]
    with subprocess.Popen([*command, "--alerts"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as up:
        timer = threading.Timer(120, up.kill)
        timer.start()
        try:
            told: dict[str, str] = {}
            while told.keys() != {"ready", "registry", "console"}:
                name, _, where = up.stdout.readline().strip().partition(": ")
                assert where, told
                told[name] = where
            for schema, order in ((FIRST, {"id": 1, "customer": EVIL}), (SECOND, {"id": 2, "customer": "ann"})):
                with SchemaRegistryClient({"url": told["registry"]}) as client:
                    context = SerializationContext("orders", MessageField.VALUE)
                    value = AvroSerializer(client, schema)(order, context)
                producer = Producer({"bootstrap.servers": told["ready"]})
                producer.produce("orders", value)
                assert producer.flush(30) == 0
                del producer
            address = told["console"]
            assert "orders-value" in ask(address, "/schemas")[1]
            _, page = ask(address, "/topics/orders/messages")
            assert "&#34;customer&#34;: &#34;ann&#34;" in page
            assert EVIL not in page
            assert "/schema-ids/2" in page
            _, page = ask(address, "/topics/orders/messages?filter=" + quote('value.customer = "ann"'))
            assert "1 shown, 2 looked at" in page
            _, page = ask(address, "/topics/orders/messages?raw=1")
            assert "/schema-ids/" not in page
            assert "00 00 00 00 01" in page
            _, lines = ask(address, "/topics/orders/messages/download?start=oldest")
            assert '"value": "\\u0000\\u0000\\u0000\\u0000\\u0002' in lines
            assert ask(address, "/schema-ids/1")[0].getheader("Location") == "/schemas/orders-value?version=1"
            answer, page = ask(address, "/schemas/orders-value")
            assert answer.status == 200, page
            assert "What is different from version 1" in page
            assert '<span class="added">+      &#34;name&#34;: &#34;note&#34;,</span>' in page
            assert "● backward compatible" in page
            for path, status in (
                ("/schemas/none", 404),
                ("/schema-ids/99", 404),
                ("/schemas/orders-value?version=x", 400),
            ):
                assert ask(address, path)[0].status == status
            # By the second reading of the nodes at the latest, ten seconds after the first.
            wait(lambda: re.search(r"<td>\d+ at [A-Z]+", ask(address, "/alerts")[1]))
            assert "UnderReplicated" in ask(address, "/alerts")[1]
        finally:
            timer.cancel()
            up.terminate()
            up.wait(30)


def test_what_is_wrong_is_said_before_anything_starts():
    command = [sys.executable, "-m", "tailrace", "up", "--port", "0", "--console-port", "70000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "--console-port 70000: a port is a number" in done.stderr
