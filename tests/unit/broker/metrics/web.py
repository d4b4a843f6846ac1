"""Asks a broker's metrics listener, with a client that others wrote or byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from tailrace.testing.metrics import Metrics

SETTINGS = {"metrics.listeners": "HTTP://127.0.0.1:0"}


def _ask(port: int, path: str, headers: dict[str, str]) -> tuple[HTTPResponse, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read().decode()
    finally:
        connection.close()


def port_of(broker: Any) -> int:
    port: int = broker.metrics.listeners[0].port
    return port


async def get(broker: Any, path: str, **headers: str) -> tuple[int, str]:
    answer, text = await asyncio.to_thread(_ask, port_of(broker), path, headers)
    return answer.status, text


async def scrape(broker: Any) -> Metrics:
    """Read strictly, in both formats."""
    status, text = await get(broker, "/metrics")
    assert status == 200, text
    check(parse_prometheus(text))
    status, open_text = await get(broker, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert status == 200
    check(parse_open_metrics(open_text))
    return Metrics(text)


def check(families: Iterable[Any]) -> None:
    """Each metric once, each with help, each series once."""
    names, series = set(), set()
    for family in families:
        assert family.name not in names, f"{family.name} is told twice"
        names.add(family.name)
        assert family.documentation, family.name
        assert family.type != "untyped", family.name
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in series, f"{key} is told twice"
            series.add(key)
    assert len(names) > 25
