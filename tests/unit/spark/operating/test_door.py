"""Metrics and health by HTTP, asked over real sockets: by a client of another make, by none, and by too many."""

import asyncio
import json
import urllib.request
from contextlib import suppress
from urllib.error import HTTPError

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tailrace.real.runs.status import RunStatus, State
from tailrace.spark.operating import door as doors
from tailrace.spark.operating.door import Door

ORDERS = RunStatus(
    "orders", "r1", State.RUNNING, "/cp", "/p.toml", "a -> b", "here", 1, "", 5.0, 6.0, rows=7, lag=3, lag_seconds=1.5
)
BROKEN = ORDERS._replace(name='pay"ments', state=State.FAILED, problem="no such column", lag=None, lag_seconds=None)


@pytest.fixture
async def url():
    door = Door(lambda: [ORDERS, BROKEN])
    yield await door.open("127.0.0.1", 0)
    door.close()


async def get(url, method="GET"):
    def ask():
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=10) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(ask)


async def test_metrics_are_what_prometheus_reads(url):
    _, text = await get(f"{url}/metrics")
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["tailrace_pipeline_rows_total", "orders"] == 7
    assert found["tailrace_pipeline_lag_seconds", "orders"] == 1.5
    assert ("tailrace_pipeline_lag_seconds", 'pay"ments') not in found, "what is not known is not told"
    assert found["tailrace_pipeline_state", "orders", "running"] == 1
    assert found["tailrace_pipeline_state", "failed", "orders"] == 0
    assert found["tailrace_pipeline_state", "failed", 'pay"ments'] == 1


async def test_health(url):
    assert await get(f"{url}/health/live") == (200, "alive\n")
    assert await get(f"{url}/health/ready") == (503, 'orders: running\npay"ments: failed (no such column)\n')
    assert await get(f"{url}/health/live", "HEAD") == (200, "")


async def test_what_else_is_there(url):
    status, text = await get(f"{url}/status")
    assert (status, [run["state"] for run in json.loads(text)]) == (200, ["running", "failed"])
    assert (await get(f"{url}/nothing"))[0] == 404
    assert (await get(f"{url}/metrics", "POST"))[0] == 405


async def test_who_holds_connections_shuts_nobody_out(url, monkeypatch):
    monkeypatch.setattr(doors, "PLACES_MAX", 5)
    host, port = url.removeprefix("http://").split(":")
    held = [await asyncio.open_connection(host, int(port)) for _ in range(8)]
    assert (await get(f"{url}/health/live"))[0] == 200
    for _, writer in held:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def test_a_request_without_end_is_cut(url):
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /metrics HTTP/1.1\r\n" + b"x" * 20_000)
    with suppress(OSError):
        assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
