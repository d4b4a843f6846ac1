"""The console's pages of a streams group: its kind, its members and their tasks."""

from __future__ import annotations

import asyncio
import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.client.groups.coordinator import Coordinator
from tailrace.client.metadata import parse_bootstrap
from tailrace.real.cluster import open_cluster
from tailrace.testing import Broker
from tailrace.wire.apis.groups import StreamsGroupHeartbeatRequest as Heartbeat
from tailrace.wire.apis.groups import StreamsGroupHeartbeatResponse

from .conftest import console
from .test_doors import ask
from .test_tier import cells

DEADLINE_S = 30.0
NOTHING = "\N{EN DASH}"
QUICK = {"group.streams.initial.rebalance.delay.ms": 0, "group.streams.assignment.interval.ms": 0}


async def join(bootstrap: str, member: str) -> None:
    """As an application does that counts what is in the topic; until it has its tasks."""
    cluster = open_cluster(parse_bootstrap(bootstrap))
    coordinator = Coordinator(cluster, "counting")
    counted = Heartbeat.Subtopology(subtopology_id="0", source_topics=["lines"])
    asked = Heartbeat(
        group_id="counting",
        member_id=member,
        rebalance_timeout_ms=30_000,
        process_id="process-of-" + member,
        topology=Heartbeat.Topology(subtopologies=[counted]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    deadline = time.monotonic() + DEADLINE_S
    try:
        while True:
            answer = await cluster.with_retries(
                lambda: coordinator.call(asked, StreamsGroupHeartbeatResponse), timeout_ms=10_000
            )
            assert not answer.error_code, answer.error_message
            if any(task.partitions for task in answer.active_tasks or ()):
                return
            assert time.monotonic() < deadline, "no task was assigned"
            await asyncio.sleep(0.1)
    finally:
        coordinator.close()
        cluster.close()


def test_members_and_tasks_are_shown():
    with Broker(settings={name: str(value) for name, value in QUICK.items()}) as broker:
        client = {"bootstrap.servers": broker.bootstrap}
        admin = AdminClient(client)
        admin.create_topics([NewTopic("lines", 2, 1)])["lines"].result(DEADLINE_S)
        producer = Producer(client)
        producer.produce("lines", b"one line", partition=0)
        assert producer.flush(DEADLINE_S) == 0
        asyncio.run(join(broker.bootstrap, "ann"))
        with console("--bootstrap", broker.bootstrap) as address:
            assert cells(ask(address, "/groups")[1], "counting")[1] == "streams"
            page = ask(address, "/groups/counting")[1]
            member, _, _, host, _, has, _ = cells(page, "ann")
            assert (member, host, has) == ("ann", "127.0.0.1", "2")
            tasks = page[page.index('id="tasks"') :]
            assert cells(tasks, "ann") == ["ann", "process-of-ann", "0_0 0_1", NOTHING]
            assert cells(tasks, "lines-0")[1:4] == [NOTHING, "1", NOTHING]
            assert f"<dt>Lag</dt><dd>{NOTHING}</dd>" in page, "nothing was committed: nobody knows how far it is"
            assert "member ann joined, 1 now" in page
