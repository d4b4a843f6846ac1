"""The request log: of some clients, of one request in so many, of slow ones; changed while a broker runs."""

import logging
from typing import Any

import pytest

from tailrace.controller.image import ResourceType
from tailrace.wire.apis.admin import IncrementalAlterConfigsRequest
from tailrace.wire.apis.data import MetadataRequest
from tests.unit.broker.world import Peer, batch, create_topic, fetch, produce, running


def _lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.facts for record in caplog.records if record.name == "tailrace.requests"]  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tailrace.requests")


async def _set(peer: Peer, **settings: str) -> None:
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=key.replace("_", "."), value=value)
        for key, value in settings.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=ResourceType.BROKER, resource_name="", configs=configs
    )
    answer = await peer.request(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert [each.error_code for each in answer.responses] == [0]


async def test_nothing_is_written_unless_it_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as world:
        peer = await world.connect()
        await peer.request(MetadataRequest(), 12)
        assert _lines(caplog) == []


async def test_all_requests_of_a_client_and_of_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as world:
        ann, bob = await world.connect(), await world.connect()
        ann.client_id, bob.client_id = "ann", "bob"
        await create_topic(bob, "orders")
        # Small produces have a short way, once they are known: they are seen as well.
        for _ in range(5):
            await ann.request(produce("orders", batch(b"x")), 9)
        await _set(bob, request_log_client_ids="ann")
        for _ in range(5):
            await ann.request(produce("orders", batch(b"x")), 9)
            await bob.request(MetadataRequest(), 12)
        await ann.request(produce("nothing", batch(b"x")), 9)
        lines = _lines(caplog)
        assert [(line["api"], line["client"]) for line in lines] == [("Produce", "ann")] * 6
        assert (lines[0]["errors"], str(lines[0]["principal"])) == ("NONE", "User:ANONYMOUS")
        assert lines[5]["errors"] == "UNKNOWN_TOPIC_OR_PARTITION x1"
        assert lines[0]["received_bytes"] > 0
        assert lines[0]["total_ms"] >= lines[0]["handling_ms"]
        await _set(bob, request_log_client_ids="")
        await ann.request(produce("orders", batch(b"x")), 9)
        assert len(_lines(caplog)) == 6


async def test_one_request_in_so_many(caplog: pytest.LogCaptureFixture) -> None:
    async with running({"request.log.sample.every": "5"}) as world:
        peer = await world.connect()
        for _ in range(20):
            await peer.request(MetadataRequest(), 12)
        assert len(_lines(caplog)) == 4


async def test_what_takes_long_and_only_that(caplog: pytest.LogCaptureFixture) -> None:
    async with running({"request.log.slow.ms": "100"}) as world:
        peer = await world.connect()
        topic_id = await create_topic(peer, "orders")
        caplog.clear()
        await peer.request(fetch("orders", 0, topic_id=topic_id, max_wait_ms=150, min_bytes=1), 13)
        assert [line["api"] for line in _lines(caplog)] == ["Fetch"]
        assert _lines(caplog)[0]["parked_ms"] > 100


async def test_a_flood_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    settings = {"request.log.sample.every": "1", "request.log.max.lines.per.second": "2"}
    async with running(settings) as world:
        peer = await world.connect()
        for _ in range(50):
            await peer.request(MetadataRequest(), 12)
        assert 2 <= len([line for line in _lines(caplog) if "api" in line]) < 45
