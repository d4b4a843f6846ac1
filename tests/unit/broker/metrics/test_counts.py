"""Exact counts after a known load, by each way that a request can take."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.broker.metrics import requests
from tailrace.model.errors import ErrorCode
from tests.unit.broker.cluster_world import running_cluster, simulated
from tests.unit.broker.metrics.web import SETTINGS, scrape
from tests.unit.broker.test_measuring import SETTINGS as MEASURED
from tests.unit.broker.test_measuring import two_brokers
from tests.unit.broker.world import Peer, batch, create_topic, fetch, fetched, produce, produced, running

TOPICS = "kafka_server_brokertopicmetrics"
REQUESTS = "kafka_network_requestmetrics_requests_total"


async def send(peer: Peer, version: int, *, count: int = 1, acks: int = 1) -> int:
    """So many batches of two records; gives their bytes."""
    batches = [batch(b"first", b"%d" % number) for number in range(count)]
    for each in batches:
        peer.send(produce("t", each, acks=acks), version, expects_answer=acks != 0)
    if acks:
        for _ in batches:
            assert produced(await peer.receive()).error_code == ErrorCode.NONE
    return sum(map(len, batches))


@pytest.mark.parametrize(("version", "count"), [(6, 20), (9, 20), (9, 1)], ids=["general", "express", "one"])
async def test_what_is_produced(version: int, count: int):
    async with running(SETTINGS) as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        size_bytes = await send(peer, version, count=count)
        found = await scrape(world.broker)
        for labels in ({}, {"topic": "t"}):
            assert found.value(f"{TOPICS}_messagesin_total", **labels) == 2 * count
            assert found.value(f"{TOPICS}_bytesin_total", **labels) == size_bytes
            assert found.value(f"{TOPICS}_totalproducerequests_total", **labels) == count
        assert found.value("tailrace_partition_messages_in_total", topic="t", partition=0) == 2 * count
        assert found.value("tailrace_partition_bytes_in_total", topic="t", partition=0) == size_bytes
        assert found.value("kafka_log_log_logendoffset", topic="t", partition=0) == 2 * count
        assert found.value("kafka_log_log_size", topic="t", partition=0) == size_bytes
        assert found.value(REQUESTS, request="Produce", version=version) == count
        assert found.value("kafka_network_requestmetrics_errors_total", request="Produce", error="NONE") == count
        assert found.value("kafka_network_requestmetrics_requestbytes_count", request="Produce") == count


async def test_acks_0():
    async with running(SETTINGS) as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        await send(peer, 6, count=3, acks=0)
        await send(peer, 6)
        found = await scrape(world.broker)
        assert found.value(REQUESTS, request="Produce", version=6) == 4
        assert found.value(f"{TOPICS}_messagesin_total") == 8


async def test_api_versions_of_the_future_counts_in_the_version_of_its_answer():
    async with running(SETTINGS) as world:
        peer = await world.connect()
        future = b"\x00\x12\x00\x63\x00\x00\x00\x07\x00\x01x\x00"
        for number in (1, 2):
            peer.writer.write(len(future).to_bytes(4, "big") + future)
            assert (await peer.receive_frame())[:4] == b"\x00\x00\x00\x07"
            found = await scrape(world.broker)
            assert found.value(REQUESTS, request="ApiVersions", version=0) == number
        errors = "kafka_network_requestmetrics_errors_total"
        assert found.value(errors, request="ApiVersions", error="UNSUPPORTED_VERSION") == 2
        assert found.value("kafka_network_requestmetrics_requestbytes_sum", request="ApiVersions") == 2 * len(future)


async def test_times_of_the_express_lane_are_sampled_and_stand_for_all(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(requests, "TIMED_EACH_TICK", 1)
    async with running({**SETTINGS, "metrics.express.sample.every": "4"}) as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        for _ in range(17):  # One run each.
            await send(peer, 9)
        found = await scrape(world.broker)
        assert found.value(REQUESTS, request="Produce", version=9) == 17
        assert found.value("kafka_network_requestmetrics_totaltimems_count", request="Produce") == 17
        assert found.value("tailrace_request_duration_seconds_count", request="Produce") == 17
        assert found.value("tailrace_express_time_sample_every") == 4


async def test_times_of_other_requests_are_sampled_and_stand_for_all(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(requests, "TIMED_EACH_TICK", 2)
    taken: list[requests.Measurement] = []
    measure = requests.Meter.measure

    def note(meter: requests.Meter, measured: requests.Measurement) -> None:
        measure(meter, measured)
        taken.append(measured)

    monkeypatch.setattr(requests.Meter, "measure", note)
    async with running({**SETTINGS, "metrics.request.sample.every": "8"}) as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        taken.clear()
        for _ in range(60):
            await send(peer, 6)
        assert 2 <= len(taken) <= 30
        found = await scrape(world.broker)
        assert found.value(REQUESTS, request="Produce", version=6) == 60
        assert found.value("kafka_network_requestmetrics_totaltimems_count", request="Produce") == 60
        assert found.value("tailrace_request_duration_seconds_count", request="Produce") == 60
        assert found.value("kafka_network_requestmetrics_errors_total", request="Produce", error="NONE") == 60
        assert found.value("tailrace_request_time_sample_every") == 8


async def test_what_is_fetched_by_sendfile_and_as_a_small_answer():
    async with running(SETTINGS) as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        large = batch(bytes(300_000))
        await peer.request(produce("t", large), 6)
        answer = await peer.request(fetch("t", 0), 12)
        small = await send(peer, 6)
        answer_of_small = await peer.request(fetch("t", 1), 12)
        assert len(fetched(answer).records) == len(large)
        assert len(fetched(answer_of_small).records) == small
        found = await scrape(world.broker)
        for labels in ({}, {"topic": "t"}):
            assert found.value(f"{TOPICS}_bytesout_total", **labels) == len(large) + small
            assert found.value(f"{TOPICS}_totalfetchrequests_total", **labels) == 2
        assert found.value(f"{TOPICS}_replicationbytesout_total") == 0
        assert found.value("tailrace_response_bytes_total", request="Fetch") > len(large)


async def test_what_is_refused():
    async with running({**SETTINGS, "message.max.bytes": "1000"}) as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        large = batch(bytes(2000))
        answer = await peer.request(produce("t", large), 6)
        assert produced(answer).error_code == ErrorCode.MESSAGE_TOO_LARGE
        await peer.request(produce("missing", large), 6)
        found = await scrape(world.broker)
        assert found.value(f"{TOPICS}_bytesrejected_total", topic="t") == len(large)
        assert found.value(f"{TOPICS}_totalproducerequests_total", topic="t") == 1
        assert found.value(f"{TOPICS}_failedproducerequests_total", topic="t") == 0  # As Kafka counts.
        assert found.value(f"{TOPICS}_messagesin_total") == 0
        errors = "kafka_network_requestmetrics_errors_total"
        assert found.value(errors, request="Produce", error="MESSAGE_TOO_LARGE") == 1
        assert found.value(errors, request="Produce", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
        assert 'topic="missing"' not in found.text  # Whoever asks for what is not there makes no series.


@simulated
async def test_what_goes_to_followers():
    async with running_cluster("broker,controller", "broker", settings=MEASURED) as world:
        peer = await two_brokers(world)
        await asyncio.sleep(1)
        leader, follower = (world.nodes[node].broker.replicas.partitions["t", 0].traffic for node in (1, 2))
        size_bytes = world.nodes[1].broker.replicas.partitions["t", 0].log.size_bytes
        assert (leader.messages_in, leader.bytes_in) == (1, size_bytes)
        assert leader.replication_bytes_out == follower.replication_bytes_in == size_bytes
        assert (leader.bytes_out, follower.messages_in, follower.bytes_in) == (0, 0, 0)
        await peer.close()


async def test_a_topic_that_is_deleted_takes_its_series_and_leaves_the_sums():
    from tests.unit.broker.world import delete_topic

    async with running(SETTINGS) as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        size_bytes = await send(peer, 9, count=5)
        await delete_topic(peer, "t")
        found = await scrape(world.broker)
        assert 'topic="t"' not in found.text
        assert found.value(f"{TOPICS}_bytesin_total") == size_bytes
