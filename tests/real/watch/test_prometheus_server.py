"""A real Prometheus takes targets, rules and the queries of the dashboard, of a cluster that loses a broker."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer

from tailrace.apps.alerts.defaults import DEFAULT_RULES
from tailrace.apps.alerts.prometheus import grafana_dashboard, prometheus_rules
from tailrace.testing import Cluster
from tests.nodes import free_ports
from tests.parts import need_program

from .watching import create, targets_in, write

pytestmark = pytest.mark.long

DEADLINE_S = 120.0
CONFIG = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: tailrace
    file_sd_configs: [{{files: [{targets}], refresh_interval: 1s}}]
  - job_name: other
    static_configs: [{{targets: ["127.0.0.1:{nobody}"]}}]
"""


class Prometheus:
    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"

    def ask(self, path: str, **words: str) -> Any:
        with urlopen(f"{self._url}/{path}?{urlencode(words)}", timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, query: str) -> list[Any]:
        return self.ask("query", query=query)["result"]  # type: ignore[no-any-return]

    def up(self) -> dict[str, str]:
        return {each["metric"]["instance"]: each["value"][1] for each in self.query('up{job="tailrace"}')}

    def firing(self) -> dict[str, dict[str, Any]]:
        return {each["labels"]["alertname"]: each for each in self.ask("alerts")["alerts"] if each["state"] == "firing"}


@contextmanager
def watching(folder: Path, targets: str) -> Iterator[Prometheus]:
    port, nobody = free_ports(2)
    rules, config = folder / "rules.yml", folder / "prometheus.yml"
    rules.write_text(prometheus_rules(DEFAULT_RULES, job="tailrace"))
    config.write_text(CONFIG.format(rules=rules, targets=targets, nobody=nobody))
    command = [need_program("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stderr=log)
        try:
            found = Prometheus(port)
            wait(lambda: is_there(found))
            yield found
        finally:
            process.kill()
            process.wait()


def is_there(prometheus: Prometheus) -> bool:
    try:
        return bool(prometheus.up())
    except (URLError, OSError):
        return False


def wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be in time"
        time.sleep(0.3)


def read(bootstrap: str, topic: str) -> None:
    """A little of it: the group then has stopped, and lags."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    wait(lambda: consumer.poll(1.0))
    consumer.commit(asynchronous=False)
    consumer.close()


def test_a_cluster_that_loses_a_broker(tmp_path: Path) -> None:
    settings = {"metrics.lag.interval.ms": "500", "offsets.topic.num.partitions": "1"}
    with Cluster(settings, brokers=3, log_level="warning") as cluster:
        create(cluster.bootstrap, "orders", [1, 2, 3], [2, 3, 1])
        with watching(tmp_path, targets_in(cluster.data)) as prometheus:
            wait(lambda: list(prometheus.up().values()) == ["1"] * 6)
            assert all(each["health"] == "ok" for group in prometheus.ask("rules")["groups"] for each in group["rules"])
            write(cluster.bootstrap, "orders", 500)
            read(cluster.bootstrap, "orders")
            for panel in json.loads(grafana_dashboard())["panels"]:
                for target in panel["targets"]:
                    wait(lambda: prometheus.query(target["expr"].replace("$job", "tailrace")))  # noqa: B023
            assert prometheus.ask("label/job/values", **{"match[]": "tailrace_build_info"}) == ["tailrace"]
            assert prometheus.firing() == {}
            lost = cluster.metrics_url(3).removeprefix("http://")
            cluster.kill(3)
            wait(lambda: {"NodeDown", "UnderReplicated"} <= prometheus.firing().keys())
            told = [each for each in prometheus.ask("alerts")["alerts"] if each["labels"]["alertname"] == "NodeDown"]
            assert [each["labels"]["instance"] for each in told] == [lost], "the other job is none of ours"
            assert told[0]["annotations"]["runbook_url"].endswith("docs/runbook.md#nodedown")
            cluster.start(3)
            wait(lambda: prometheus.firing().keys() == {"GroupStopped"})
            assert list(prometheus.up().values()) == ["1"] * 6
