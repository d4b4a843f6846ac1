"""A registry over a mirrored `_schemas`: it answers what the source has, and writes only once the topic is its own."""

import json
from pathlib import Path

import pytest

from tailrace.cli import main
from tailrace.testing import Broker
from tests.real.registry.asking import RegistryProcess, ask, avro, wait_until

QUICK = ("schema.registry.session.timeout.ms=6000", "schema.registry.heartbeat.interval.ms=300")


@pytest.mark.long
def test_a_registry_reads_a_mirror_and_writes_after_the_promote(tmp_path: Path):
    settings = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1000}
    with (
        Broker(settings, registry=True, start_timeout_s=120) as source,
        Broker(settings) as here,
    ):
        there = source.registry_url
        wait_until(lambda: ask(there, "POST", "/subjects/orders-value/versions", avro("a")).status == 200)
        words = ("--source", source.bootstrap, "--topics", "_schemas", "--set", "sync.interval.ms=200")
        words += ("--set", "promote.quiet.ms=500", "--bootstrap", here.bootstrap)
        assert main(["mirror", "create", "dc1", *words]) == 0
        wait_until(lambda: "_schemas" in json.dumps(here_topics(here)))
        with RegistryProcess(here.bootstrap, tmp_path / "registry.log", *QUICK) as registry:
            wait_until(lambda: ask(registry.url, "GET", "/subjects").content == ["orders-value"])
            refused = ask(registry.url, "POST", "/subjects/payments-value/versions", avro("b"))
            assert (refused.status, refused.content["error_code"]) == (422, 42205)
            assert "'dc1'" in refused.content["message"]
            assert ask(there, "POST", "/subjects/payments-value/versions", avro("b")).status == 200
            wait_until(lambda: "payments-value" in ask(registry.url, "GET", "/subjects").content)
            assert main(["mirror", "promote", "dc1", "--wait", "30", "--bootstrap", here.bootstrap]) == 0
            wait_until(lambda: ask(registry.url, "POST", "/subjects/late-value/versions", avro("c")).status == 200)
            closed = ask(there, "POST", "/subjects/late-value/versions", avro("d"))
            assert (closed.status, closed.content["error_code"]) == (422, 42205)


def here_topics(broker: Broker) -> list[str]:
    from confluent_kafka.admin import AdminClient

    return list(AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30).topics)
