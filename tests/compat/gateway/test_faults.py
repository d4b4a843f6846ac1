"""A broker that is killed amid a stream of records: each is answered, and the answers are true."""

from __future__ import annotations

import json
import threading
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import urlsplit

from tailrace.testing import Broker

from .conftest import running_gateway
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
