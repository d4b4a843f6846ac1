"""What a node tells of itself to people: who is connected, what its logs are made of, who asked for changes."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.data import ApiVersionsRequest
from tailrace.wire.apis.own import DescribeAuditRequest, DescribeConnectionsRequest, DescribeSegmentsRequest
from tailrace.wire.records import build_batch
from tests.unit.broker.world import create_topic, produce, produced, running


async def test_who_is_connected_is_told_with_what_they_say_of_themselves():
    async with running() as world:
        peer, silent = await world.connect(), await world.connect()
        await peer.request(ApiVersionsRequest(client_software_name="probe", client_software_version="1.2"), 4)
        told = await peer.request(DescribeConnectionsRequest(), 0)
        assert told.total_count == 2
        first, second = told.connections
        assert (first.client_id, first.software, first.principal) == ("peer", "probe 1.2", "User:ANONYMOUS")
        assert (first.listener, first.peer.split(":")[0], first.connected_at_ms > 0) == ("PLAINTEXT", "127.0.0.1", True)
        assert (second.client_id, second.software, second.connected_at_ms) == ("", "", -1)
        assert [each.peer for each in (await peer.request(DescribeConnectionsRequest(skip=1), 0)).connections] == [
            second.peer
        ]
        await silent.close()
        while (await peer.request(DescribeConnectionsRequest(), 0)).total_count == 2:
            await asyncio.sleep(0.01)


async def test_what_clients_said_is_forgotten_when_they_are_gone():
    async with running() as world:
        roster = world.broker.services.roster
        peer = await world.connect()
        await peer.request(ApiVersionsRequest(client_software_name="probe", client_software_version="1"), 4)
        (kept,) = roster._said.items()
        for number in range(5000):
            roster.note(f"10.0.0.1:{number}", kept[1])
        assert len(roster._said) <= 2002
        assert kept[0] in roster._said


async def test_segments_are_told_with_what_they_hold():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "orders", partitions=1, segment_bytes="1048576")
        for _ in range(5):
            batch = build_batch([(0, 0, None, b"x" * 300_000, ())])
            assert not produced(await peer.request(produce("orders", batch), 9)).error_code
        asked = DescribeSegmentsRequest.Topic(
            name="orders", partitions=[DescribeSegmentsRequest.Partition(partition_index=each) for each in (0, 7)]
        )
        (topic,) = (await peer.request(DescribeSegmentsRequest(topics=[asked]), 0)).topics
        found, missing = topic.partitions
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [(each.base_offset, each.end_offset) for each in found.segments] == [(0, 3), (3, 5)]
        assert (found.total_count, found.log_start_offset) == (2, 0)
        assert all(each.size_bytes > 600_000 and not each.is_damaged for each in found.segments)
        asked.partitions = [DescribeSegmentsRequest.Partition(partition_index=0, skip=1)]
        (topic,) = (await peer.request(DescribeSegmentsRequest(topics=[asked]), 0)).topics
        assert [each.base_offset for each in topic.partitions[0].segments] == [3]


async def test_changes_are_told_newest_first_and_bounded(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "tailrace.audit")
    async with running({"audit.log.kept.lines": "3"}) as world:
        peer = await world.connect()
        for number in range(5):
            await create_topic(peer, f"topic-{number}")
        lines = (await peer.request(DescribeAuditRequest(), 0)).lines
        assert [each.what.partition("name=")[2].split(",")[0] for each in lines] == ["topic-4", "topic-3", "topic-2"]
        assert (lines[0].api, lines[0].result, lines[0].host) == ("CreateTopics", "NONE", "127.0.0.1")
        assert len((await peer.request(DescribeAuditRequest(skip=2), 0)).lines) == 1
