"""Commits that repeat an earlier one get, byte for byte, what they get the general way; and only such are taken."""

import asyncio
import errno
from typing import Any

import pytest

from tailrace.broker.serving.commits import taking
from tailrace.broker.serving.commits.forms import make_form
from tailrace.broker.serving.commits.taking import Commits
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import CONSUMER_OFFSETS_TOPIC
from tailrace.sim.clock import SimClock
from tailrace.wire.apis.groups import (
    FindCoordinatorRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.records import iterate_records
from tests.unit.broker.world import Peer, World, create_topic, delete_topic, running

SETTINGS = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1"}
SETTINGS |= {"offset.metadata.max.bytes": "20"}
METRICS = {"metrics.listeners": "HTTP://127.0.0.1:0"}
VERSIONS = range(2, 11)
# What a place is found by, as a client may have it in other fields too: partition 0, offset 7, leader epoch 6.
LOOKS_LIKE_A_PLACE = (bytes(11) + b"\x07" + bytes(3) + b"\x06").decode()


@pytest.fixture
def count_taken(monkeypatch) -> list[int]:
    """How many bytes of requests went the short way, turn by turn."""
    counts: list[int] = []
    take = Commits.take

    def counted(self, buffer, view, position, end):
        reached = take(self, buffer, view, position, end)
        counts.append(reached - position)
        return reached

    monkeypatch.setattr(Commits, "take", counted)
    return counts


def commit(
    topic_ids: dict[str, bytes],
    places: dict[tuple[str, int], tuple[int, int]],
    *,
    group: str = "g",
    metadata: str | None = "",
    **fields,
) -> OffsetCommitRequest:
    """Of offsets and leader epochs."""
    topics: dict[str, OffsetCommitRequest.OffsetCommitRequestTopic] = {}
    for (name, partition), (offset, epoch) in places.items():
        topic_id = topic_ids.get(name, b"\x01" * 16)
        topic = topics.setdefault(name, OffsetCommitRequest.OffsetCommitRequestTopic(name=name, topic_id=topic_id))
        topic.partitions.append(
            OffsetCommitRequest.OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=epoch,
                committed_metadata=metadata,
            )
        )
    return OffsetCommitRequest(group_id=group, topics=list(topics.values()), **fields)


async def prepared(world: World) -> tuple[Peer, dict[str, bytes]]:
    peer = await world.connect()
    ids = {name: await create_topic(peer, name, partitions=3) for name in ("a", "b")}
    assert (await peer.request(FindCoordinatorRequest(coordinator_keys=["g"]), 6)).coordinators[0].error_code == 0
    return peer, ids


def requests(ids: dict[str, bytes]) -> list[OffsetCommitRequest]:
    """Some that repeat, with everything in between that is not the same."""

    def one(number: int, **fields) -> OffsetCommitRequest:
        return commit(ids, {("a", 0): (number, number - 1)}, **fields)

    several = [("a", 0), ("b", 2), ("a", 2), ("b", 0)]
    return [
        *[one(number) for number in range(20)],
        *[commit(ids, dict.fromkeys(several, (number, 3))) for number in (7, 7, -1, (1 << 63) - 1)],
        *[one(number, group="h") for number in range(4)],
        *[one(number, metadata="here") for number in range(4)],
        *[one(number, metadata="hier") for number in range(4)],
        *[one(number, metadata="ü" * 2100) for number in range(3)],
        *[one(number, metadata="more than is allowed, and than fits") for number in range(3)],
        *[one(number, metadata=None) for number in range(3)],
        *[one(7, group=LOOKS_LIKE_A_PLACE) for _ in range(3)],
        *[one(7, group=LOOKS_LIKE_A_PLACE[:4] + "another one!") for _ in range(3)],
        *[commit(ids, {("a", 9): (number, 0)}) for number in range(3)],
        *[commit(ids, {("c", 0): (number, 0)}) for number in range(3)],
        *[commit(ids, {("a", 0): (number, 0), ("c", 0): (number, 0)}) for number in range(3)],
        *[one(number, generation_id_or_member_epoch=3, member_id="m") for number in range(4)],
        *[one(number, retention_time_ms=1_000) for number in range(4)],
        *[commit(ids, {}) for _ in range(3)],
        *[one(number) for number in range(20, 40)],
    ]


async def answers_to_all(version: int) -> tuple[list[bytes], list[bytes], Any]:
    async with running(SETTINGS | METRICS, clock=SimClock()) as world:
        peer, ids = await prepared(world)
        asked = requests(ids)
        for request in asked:
            peer.send(request, version)
        answers = [await peer.receive_frame() for _ in asked]
        log = world.broker.replicas.find(CONSUMER_OFFSETS_TOPIC, 0).log
        meters = world.broker.services.request_meters
        assert meters is not None
        times = meters.of(ApiKey.OFFSET_COMMIT, version).times
        counted = times.faultless, dict(times.errors), times.received_bytes, times.sent_bytes
        records = stored(world)
        assert len(records) == log.log_end_offset
        return answers, records, counted


def stored(world: World) -> list[bytes]:
    """Keys and values of all records, however they lie in batches."""
    log = world.broker.replicas.find(CONSUMER_OFFSETS_TOPIC, 0).log
    found: list[bytes] = []
    for position, header in log.active.headers():
        batch = memoryview(log.active.file.read(position, header.size_bytes))
        found += [
            bytes(each.key or b"") + bytes(each.value or b"")
            for each in iterate_records(batch, max_decompressed_bytes=0)
        ]
    return found


@pytest.mark.parametrize("version", VERSIONS)
async def test_both_ways_give_the_same_bytes(version, monkeypatch, count_taken):
    short, short_log, short_counted = await answers_to_all(version)
    assert (sum(count_taken) > 0) == (version >= 8)
    monkeypatch.setattr(Commits, "take", lambda self, buffer, view, position, end: position)
    general, general_log, general_counted = await answers_to_all(version)
    for number, (one, other) in enumerate(zip(short, general, strict=True)):
        assert one == other, f"answer {number}"
    assert short_log == general_log
    assert short_counted == general_counted


async def committed(peer: Peer, partition: int = 0, *, group: str = "g") -> int:
    topic = OffsetFetchRequest.OffsetFetchRequestTopics(name="a", partition_indexes=[partition])
    wanted = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=[topic])
    answer = await peer.request(OffsetFetchRequest(groups=[wanted]), 9)
    return int(answer.groups[0].topics[0].partitions[0].committed_offset)


async def errors(peer: Peer, request: OffsetCommitRequest, version: int = 9) -> list[int]:
    answer = await peer.request(request, version)
    return [each.error_code for topic in answer.topics for each in topic.partitions]


@pytest.mark.parametrize("version", [8, 9, 10])
async def test_each_partition_gets_its_own_offset(version, count_taken):
    async with running(SETTINGS) as world:
        peer, ids = await prepared(world)
        for number in range(5):
            places = {("a", partition): (10 * number + partition, number) for partition in (2, 0, 1)}
            assert await errors(peer, commit(ids, places), version) == [0, 0, 0]
        assert [bool(size) for size in count_taken] == [False, True, True, True, True]
        assert [await committed(peer, partition) for partition in range(3)] == [40, 41, 42]


@pytest.mark.parametrize("version", [9, 10])
async def test_a_topic_that_is_made_anew_is_another_one(version, count_taken):
    async with running(SETTINGS) as world:
        peer, ids = await prepared(world)
        for offset in range(3):
            assert await errors(peer, commit(ids, {("a", 0): (offset, 0)}), version) == [0]
        await delete_topic(peer, "a")
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await errors(peer, commit(ids, {("a", 0): (3, 0)}), version) == [unknown]
        await create_topic(peer, "a", partitions=1)
        # The same bytes: the old id in version 10, the new topic by its name before.
        expected = [unknown] if version >= 10 else [0]
        assert await errors(peer, commit(ids, {("a", 0): (4, 0)}), version) == expected
        assert await errors(peer, commit(ids, {("a", 2): (4, 0)}), version) == [unknown]
        assert count_taken[-2]
        topic = world.broker.image.topics["a"]
        stored_ids = [each[-16:] for each in stored(world)]
        assert (bytes(topic.id) in stored_ids) == (version < 10)


async def joined(peer: Peer, member_id: str = "") -> tuple[str, int]:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        member_id=member_id,
        protocols=[protocol],
    )
    answer = await peer.request(join, 3)
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"")
    await peer.request(
        SyncGroupRequest(
            group_id="g", generation_id=answer.generation_id, member_id=answer.member_id, assignments=[assignment]
        ),
        3,
    )
    return answer.member_id, answer.generation_id


async def test_a_member_of_an_earlier_generation_is_refused(count_taken):
    async with running(SETTINGS | {"group.initial.rebalance.delay.ms": "0"}) as world:
        peer, ids = await prepared(world)
        member_id, generation = await joined(peer)

        def of_member(offset: int) -> OffsetCommitRequest:
            return commit(ids, {("a", 0): (offset, 0)}, generation_id_or_member_epoch=generation, member_id=member_id)

        for offset in range(4):
            assert await errors(peer, of_member(offset)) == [0]
        assert (await joined(peer, member_id))[1] > generation
        assert await errors(peer, of_member(9)) == [ErrorCode.ILLEGAL_GENERATION]
        assert count_taken[-1]
        assert await committed(peer) == 3


async def test_a_commit_that_cannot_be_written_is_refused_and_forgotten(count_taken):
    async with running(SETTINGS) as world:
        peer, ids = await prepared(world)
        for offset in range(4):
            assert await errors(peer, commit(ids, {("a", 0): (offset, 0)})) == [0]
        log = world.broker.replicas.find(CONSUMER_OFFSETS_TOPIC, 0).log
        world.disk.fail("append", log.active.file.path, error=errno.ENOSPC, count=1)
        assert await errors(peer, commit(ids, {("a", 0): (5, 0)})) == [ErrorCode.NOT_COORDINATOR]
        while (found := await errors(peer, commit(ids, {("a", 0): (6, 0)}))) != [0]:
            assert found == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
            await asyncio.sleep(0.01)
        assert all(count_taken[1:])
        assert await committed(peer) == 6
        assert len(stored(world)) == 5


async def test_with_quotas_commits_go_the_general_way(count_taken):
    async with running(SETTINGS) as world:
        peer, ids = await prepared(world)
        world.broker.services.meters.number += 1
        for offset in range(4):
            assert await errors(peer, commit(ids, {("a", 0): (offset, 0)})) == [0]
        assert not any(count_taken)


async def test_requests_that_never_repeat_are_not_learned_for_ever(count_taken, monkeypatch):
    made: list[int] = []
    monkeypatch.setattr(taking, "make_form", lambda *asked: (made.append(1), make_form(*asked))[1])
    async with running(SETTINGS) as world:
        peer, ids = await prepared(world)
        for number in range(100, 200):
            assert await errors(peer, commit(ids, {("a", 0): (1, 0)}, group=f"g{number}")) == [0]
        assert len(made) == 16


async def test_bytes_that_the_decoder_passes_over_are_no_part_of_a_form(count_taken):
    async with running(SETTINGS) as world:
        peer, ids = await prepared(world)
        for offset in range(4):
            frame = peer.frame(commit(ids, {("a", 0): (offset, 0)}), 9)
            body = frame[4:-1] + b"\x01\x63\x02hi"  # An unknown tagged field.
            peer.writer.write(len(body).to_bytes(4, "big") + body)
            answer = await peer.receive()
            assert answer.topics[0].partitions[0].error_code == 0
        assert not any(count_taken)
        assert await committed(peer) == 3
