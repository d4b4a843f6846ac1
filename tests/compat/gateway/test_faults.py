"""A broker that is killed amid a stream of records: each is answered, and the answers are true."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import urlsplit

from tailrace.testing import Broker

from .conftest import Gateway, running_gateway
from .test_readers import Events, fill
from .test_rest import records_of

COUNT = 400


def test_every_record_is_answered_when_the_broker_is_killed(tmp_path):
    """It is away for some receipts, and then for longer than a record is tried: what was said to be written is there,
    once, and what was said not to be is not."""
    with (
        Broker({"num.partitions": 1}, data=tmp_path / "data") as broker,
        running_gateway(broker.bootstrap, "--set", "delivery.timeout.ms=3000") as gateway,
    ):
        topic = gateway.create("killed")
        place = urlsplit(gateway.url)
        connection = HTTPConnection(place.hostname or "", place.port, timeout=120)
        connection.connect()
        begun, killed = threading.Event(), threading.Event()

        def records():
            for number in range(COUNT):
                if number == COUNT // 2:
                    begun.set()
                    assert killed.wait(60)
                yield json.dumps({"value": {"type": "STRING", "data": str(number)}}).encode()

        def write() -> None:
            path = f"/v3/clusters/{gateway.cluster_id}/topics/{topic}/records"
            connection.request("POST", path, records(), {"Content-Type": "application/json"}, encode_chunked=True)

        writing = threading.Thread(target=write)
        writing.start()
        assert begun.wait(60)
        broker.kill()
        killed.set()
        answer = HTTPResponse(connection.sock)
        answer.begin()
        receipts = [json.loads(line) for line in answer.read().splitlines() if line]
        writing.join(60)
        connection.close()
        assert len(receipts) == COUNT
        written = {number for number, each in enumerate(receipts) if each["error_code"] == 200}
        unknown = {number for number, each in enumerate(receipts) if each.get("outcome") == "unknown"}
        refused = {number for number, each in enumerate(receipts) if each.get("outcome") == "not_written"}
        assert len(written) + len(unknown) + len(refused) == COUNT
        assert refused, "nothing was refused while there was no broker"
        broker.restart()
        status, (last,) = gateway.receipts(topic, '{"value": {"type": "STRING", "data": "last"}}')
        assert (status, last["error_code"]) == (200, 200), last
        found = records_of(broker, topic, last["offset"] + 1)
        values = [each.value().decode() for each in found]
        numbers = [int(each) for each in values if each != "last"]
        assert len(set(numbers)) == len(numbers)
        assert written <= set(numbers) <= written | unknown
        assert all(values[receipts[number]["offset"]] == str(number) for number in written)


def test_a_reader_goes_on_at_another_gateway_when_its_own_is_killed(broker: Broker):
    """With nothing but the id of its last event: no record is missing, and none comes twice."""
    command = [sys.executable, "-m", "tailrace", "gateway", "--port", "0", "--bootstrap", broker.bootstrap]
    with (
        running_gateway(broker.bootstrap) as other,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed,
    ):
        try:
            assert killed.stdout is not None
            first = Gateway(killed.stdout.readline().removeprefix("gateway: ").strip(), killed.pid, other.cluster_id)
            topic = other.create("outlives", 3)
            fill(other, topic, range(600))
            path = f"/topics/{topic}/events?from=earliest"
            reader = Events(first, path)
            seen = [each["value"] for each in reader.read(250)]
            os.kill(killed.pid, signal.SIGKILL)
            killed.wait(30)
            last_id = reader.last_id
            reader.close()
            again = Events(other, path, last_id=last_id)
            seen += [each["value"] for each in again.read(350)]
            assert sorted(seen) == list(range(600))
            fill(other, topic, range(600, 610))
            assert sorted(each["value"] for each in again.read(10)) == list(range(600, 610))
            again.close()
        finally:
            killed.kill()
