"""A schema registry with many schemas: how soon it is ready and in how much memory, how fast it answers GET by id, and
how long registering takes.

`python -m bench.registry [--schemas 10000]`. Three brokers of this machine hold the topic, which is filled directly, in
the form in which a registry writes it. Beside times, which depend on what else the machine does, the processor time of
the registry is told.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.apps.registry.state.records import SchemaValue, schema_record
from tailrace.testing import Cluster

FIELDS = 50
STARTS = 3
CONNECTIONS = 4
GET_SECONDS = 5.0
REGISTERED = 100
TOPIC = "_schemas"


def main() -> None:
    parser = argparse.ArgumentParser(description="a schema registry with many schemas")
    parser.add_argument("--schemas", type=int, default=10_000)
    options = parser.parse_args()
    with Cluster(brokers=3, start_timeout_s=120) as cluster:
        fill(cluster.bootstrap, options.schemas)
        starts = []
        for _ in range(STARTS):
            with Registry(cluster.bootstrap) as registry:
                starts.append(registry.ready_s)
        print(f"ready with {options.schemas} schemas after {', '.join(f'{each:.2f}' for each in sorted(starts))} s")
        with Registry(cluster.bootstrap) as registry:
            print(f"{registry.memory_mb():.0f} MB, {registry.cpu_s():.2f} s of CPU since its start")
            asyncio.run(get_by_id(registry, options.schemas))
            for kind, text in (("AVRO", avro), ("PROTOBUF", protobuf)):
                register(registry, kind, text)


class Registry:
    """`tailrace registry` as a process."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.ready_s = 0.0
        self.url = ""

    def __enter__(self) -> "Registry":
        begun = time.monotonic()
        words = ["registry", "--bootstrap", self._bootstrap, "--port", "0"]
        self._process = subprocess.Popen([sys.executable, "-m", "tailrace", *words], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        self.ready_s = time.monotonic() - begun
        assert line.startswith("registry: "), line
        self.url = line.split()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def memory_mb(self) -> float:
        """The most that was resident."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def avro(number: int) -> str:
    fields = [{"name": f"field_{each}", "type": "string", "default": ""} for each in range(FIELDS)]
    return json.dumps({"type": "record", "name": f"Order{number}", "fields": fields}, separators=(",", ":"))


def protobuf(number: int) -> str:
    fields = "".join(f"  string field_{each} = {each + 1};\n" for each in range(FIELDS))
    return f'syntax = "proto3";\nmessage Order{number} {{\n{fields}}}\n'


def fill(bootstrap: str, count: int) -> None:
    topic = NewTopic(TOPIC, 1, 3, config={"cleanup.policy": "compact", "min.insync.replicas": "2"})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([topic])[TOPIC].result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": count + 1})
    for number in range(1, count + 1):
        record = schema_record(f"subject-{number}-value", 1, SchemaValue(number, "AVRO", avro(number)))
        producer.produce(TOPIC, key=record.key, value=record.value, partition=0)
    assert producer.flush(120) == 0


async def get_by_id(registry: Registry, count: int) -> None:
    """Each connection asks, waits for the answer, and asks again; a few hundred schemas in turn."""
    where = urlsplit(registry.url)
    times: list[float] = []
    before = registry.cpu_s()
    end = time.monotonic() + GET_SECONDS

    async def ask(first: int) -> None:
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        asked = first
        while (begun := time.monotonic()) < end:
            asked = (asked + CONNECTIONS) % min(count, 500)
            writer.write(f"GET /schemas/ids/{asked + 1} HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]))
            times.append(time.monotonic() - begun)
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(ask(first) for first in range(CONNECTIONS)))
    spent = (registry.cpu_s() - before) / len(times)
    p99 = statistics.quantiles(times, n=100)[98]
    print(
        f"{len(times) / GET_SECONDS:.0f} GET by id a second over {CONNECTIONS} connections, p99 {p99 * 1000:.1f} ms; "
        f"{spent * 1e6:.0f} us of CPU each, so {1 / spent:.0f} a second of one core"
    )


def register(registry: Registry, kind: str, text) -> None:
    where = urlsplit(registry.url)
    connection = HTTPConnection(where.hostname or "", where.port, timeout=60)
    times = []
    before = registry.cpu_s()
    for number in range(REGISTERED):
        body = json.dumps({"schema": text(1_000_000 + number), "schemaType": kind})
        headers = {"Content-Type": "application/json"}
        begun = time.monotonic()
        connection.request("POST", f"/subjects/new-{kind}-{number}/versions", body, headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
        times.append(time.monotonic() - begun)
    connection.close()
    spent = (registry.cpu_s() - before) / REGISTERED
    print(
        f"registering {kind} of {FIELDS} fields: p50 {statistics.median(times) * 1000:.1f} ms, "
        f"{spent * 1000:.1f} ms of CPU of the registry"
    )


if __name__ == "__main__":
    main()
