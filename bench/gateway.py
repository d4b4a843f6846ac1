"""What a record costs the gateway: its processor time for records of 1 KB in requests of 100, by each way in.

`python -m bench.gateway [--requests 2000]`. A broker of this machine takes the records; one client with some
connections keeps the gateway busy. Processor time is that of the gateway alone, user and system, so that the figure
holds on a machine that does other things too: 20,000 records/s on one core are 50 microseconds a record.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from tailrace.testing import Broker

_RECORDS = 100
_VALUE = "x" * 1000
_CONNECTIONS = 4
_V3, _PLAIN = "v3/clusters/{cluster}/topics/bench/records", "topics/bench"
_WAYS = {
    "v3, STRING": (_V3, json.dumps({"value": {"type": "STRING", "data": _VALUE}}) * _RECORDS),
    "v3, JSON": (_V3, json.dumps({"value": {"type": "JSON", "data": {"text": _VALUE, "n": 1}}}) * _RECORDS),
    "plain, JSON": (_PLAIN, json.dumps([{"key": "k", "value": {"text": _VALUE, "n": 1}}] * _RECORDS)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="what a record costs the gateway")
    parser.add_argument("--requests", type=int, default=2000)
    count = parser.parse_args().requests
    with Broker() as broker:
        command = [sys.executable, "-m", "tailrace", "gateway", "--port", "0", "--bootstrap", broker.bootstrap]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                place = urlsplit(process.stdout.readline().removeprefix("gateway: ").strip())
                for name, (path, body) in _WAYS.items():
                    cost = _measure(process.pid, place.netloc, path, body.encode(), count)
                    print(f"{name}: {cost * 1e6:.1f} us of CPU a record, {1 / cost:,.0f} records/s on one core")
            finally:
                process.terminate()


def _measure(process_id: int, netloc: str, path: str, body: bytes, count: int) -> float:
    connection = HTTPConnection(netloc, timeout=60)
    connection.request("GET", "/v3/clusters")
    cluster = json.loads(connection.getresponse().read())["data"][0]["cluster_id"]
    connection.close()
    where = "/" + path.format(cluster=cluster)
    _send(netloc, where, body, count // 10)  # What is made once is made now.
    begun = _cpu_s(process_id)
    share = count // _CONNECTIONS
    threads = [threading.Thread(target=_send, args=(netloc, where, body, share)) for _ in range(_CONNECTIONS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return (_cpu_s(process_id) - begun) / (share * _CONNECTIONS * _RECORDS)


def _send(netloc: str, path: str, body: bytes, count: int) -> None:
    connection = HTTPConnection(netloc, timeout=60)
    for _ in range(count):
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        told = answer.read()
        assert answer.status == 200, told
        assert told.count(b'"offset":') == _RECORDS, told
    connection.close()


def _cpu_s(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
