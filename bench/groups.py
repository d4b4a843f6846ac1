"""Groups: how fast many members settle, how many commits a core takes, how soon a million offsets are back."""

import asyncio
import os
import statistics
import time

from confluent_kafka.admin import AdminClient, NewTopic

from bench import librdkafka
from bench.blaster import BROKER_CORE, answered_in_turns_per_second, answered_per_second
from bench.coordinator import Connection, commit_request
from bench.measures import KILOBYTE, MEGABYTE, Figure, Plan
from bench.members import ClassicMember, ConsumerMember, Member, wait_settled
from bench.subject import Subject, running
from tailrace.testing import Broker

_DEADLINE_S = 120.0
_CROWD, _CROWD_PARTITIONS = 1_000, 1_000
_TEAM, _TEAM_PARTITIONS = 100, 1_000
_COMMITTERS = 100
_OFFSETS = 1_000_000
_OFFSETS_PER_GROUP = 1_000
_CONSUMED = 1_000_000
# Members ask often, so that what is measured is the broker's work and not their patience.
_SETTINGS = {
    "group.initial.rebalance.delay.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.max.size": 2_000,
}


def groups(plan: Plan) -> list[Figure]:
    figures = []
    for kind, name in ((ClassicMember, "classic"), (ConsumerMember, "consumer")):
        figures += asyncio.run(_settling(kind, name))
    with running() as subject:
        figures += _commits(subject, plan)
        figures += _consumption(subject, plan)
    return figures + _return()


async def _settling(kind: type[Member], name: str) -> list[Figure]:
    with Broker(_SETTINGS, log_level="warning") as broker:
        _create_topic(broker.bootstrap, "many", _CROWD_PARTITIONS)
        crowd_s = await _settle(kind, broker.port, "crowd", _CROWD, _CROWD_PARTITIONS)
        team_s = await _settle(kind, broker.port, "team", _TEAM, _TEAM_PARTITIONS, then_one_more=True)
    label = f"{name} group"
    return [
        Figure(f"{label}: {_CROWD:,} members join and settle", crowd_s, "s", None, None, "", lower_is_better=True),
        Figure(
            f"{label}: one more member, {_TEAM} over {_TEAM_PARTITIONS:,} partitions",
            team_s,
            "s",
            None,
            None,
            "",
            lower_is_better=True,
        ),
    ]


async def _settle(
    kind: type[Member], port: int, group: str, count: int, partitions: int, *, then_one_more: bool = False
) -> float:
    """Seconds from the first join, or from that of one more, until all have settled."""
    members = [kind(port, group, "many", partitions) for _ in range(count)]
    with Connection(port) as first:
        first.find_coordinator(group)
    started = time.perf_counter()
    for member in members:
        member.start()
    await wait_settled(members, partitions, _DEADLINE_S)
    if then_one_more:
        started = time.perf_counter()
        members.append(kind(port, group, "many", partitions))
        members[-1].start()
        await wait_settled(members, partitions, _DEADLINE_S)
    elapsed = time.perf_counter() - started
    await asyncio.gather(*(member.stop() for member in members))
    return elapsed


def _commits(subject: Subject, plan: Plan) -> list[Figure]:
    """Commits of one offset, each a request, on one core of broker: pipelined, and by many clients that wait for each.
    Those cost more than the broker does, so it is its own time that counts."""
    topic = subject.create_topic("committed", warm=False)
    with Connection(subject.port) as connection:
        connection.find_coordinator("bench")
        request = commit_request("bench", topic, 0, 1)
        response_bytes = len(connection.ask_raw(request))
    if len(os.sched_getaffinity(0)) > 1:
        subject.pin({BROKER_CORE})

    rate = plan.median(lambda: answered_per_second(subject.port, request, response_bytes, plan.seconds))

    def by_many() -> float:
        before_s = subject.cpu_s()
        rate = answered_in_turns_per_second(
            subject.port, request, response_bytes, plan.seconds, connections=_COMMITTERS
        )
        return rate * plan.seconds / (subject.cpu_s() - before_s)

    rate_by_many = plan.median(by_many)
    subject.pin(os.sched_getaffinity(0))
    return [
        Figure(
            f"OffsetCommit of one offset, {_COMMITTERS} connections, per CPU second",
            rate_by_many,
            "commits/s",
            20_000,
            None,
            "",
        ),
        Figure(
            "OffsetCommit of one offset, pipelined, per core",
            rate,
            "commits/s",
            20_000,
            None,
            "",
        ),
    ]


def _consumption(subject: Subject, plan: Plan) -> list[Figure]:
    """1 KB records out of the page cache to librdkafka, in a group that commits, beside the same without one. They take
    turns: a run lasts a second, and a machine's speed changes more from one to the next than a group costs."""
    topic = subject.create_topic("consumed", warm=False)
    count, _ = librdkafka.produced_per_second(
        topic,
        KILOBYTE,
        min(plan.seconds, _CONSUMED / 1_000_000),
        bootstrap_servers=subject.bootstrap,
        acks=1,
        batch_size=256 << 10,
    )
    servers = {"bootstrap_servers": subject.bootstrap}
    rates: dict[str, list[float]] = {"": [], "classic": [], "consumer": []}
    for number in range(plan.rounds):
        rates[""].append(
            librdkafka.consumed_per_second(topic, count, **servers, group_id="bench", enable_auto_commit="false")
        )
        for protocol in ("classic", "consumer"):
            group = {"group_id": f"{protocol}-{number}", "group_protocol": protocol}
            rates[protocol].append(librdkafka.consumed_in_group_per_second(topic, count, **servers, **group))
    subject.delete_topic(topic)
    plain = statistics.median(rates.pop(""))
    return [
        Figure(
            f"consume in a {protocol} group by librdkafka, 1 KB, committing",
            statistics.median(measured) / 1_000,
            "MB/s",
            1_000,
            plain / 1_000,
            "without a group",
        )
        for protocol, measured in rates.items()
    ]


def _return() -> list[Figure]:
    """A broker with a million committed offsets is killed; how long after its start every group has an answer."""
    with Broker(log_level="warning") as broker:
        _create_topic(broker.bootstrap, "stored", _OFFSETS_PER_GROUP)
        names = [f"group-{index}" for index in range(_OFFSETS // _OFFSETS_PER_GROUP)]
        with Connection(broker.port) as connection:
            for name in names:
                connection.find_coordinator(name)
                connection.commit(name, "stored", _OFFSETS_PER_GROUP)
        broker.kill()
        broker.start()
        started = time.perf_counter()
        with Connection(broker.port) as connection:
            for name in names:
                connection.wait_committed(name, "stored", _OFFSETS_PER_GROUP)
        elapsed = time.perf_counter() - started
        with open(f"/proc/{broker.process_id}/statm") as file:
            resident_bytes = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return [
        Figure("1 M offsets: from start to every group answered", elapsed, "s", None, None, "", lower_is_better=True),
        Figure("1 M offsets: memory", resident_bytes / MEGABYTE, "MB", None, None, "", lower_is_better=True),
    ]


def _create_topic(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (created,) = admin.create_topics([NewTopic(name, partitions, 1)]).values()
    created.result(_DEADLINE_S)
