"""Fetch sessions (KIP-227), as a table of requests and what becomes of them."""

import pytest

from tailrace.broker.sessions import FetchKey, FetchSessions
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId
from tailrace.replica.isr import NEVER_MS
from tailrace.sim.clock import SimClock
from tailrace.sim.random import SimRandom
from tailrace.wire.apis.data import FetchRequest, FetchResponse
from tests.unit.broker.world import batch, create_topic, fetch, produce, running
from tests.unit.replica.replicas import led_by, make_partition

VERSION = 12
NODE = NodeId(2)


def make_sessions(slots_max: int = 10, partitions_max: int = 1000) -> tuple[FetchSessions, SimClock]:
    clock = SimClock()
    return FetchSessions(clock, SimRandom(1), slots_max=slots_max, partitions_max=partitions_max), clock


def request(session_id: int, epoch: int, partitions: dict[int, int], forgotten: tuple[int, ...] = ()) -> FetchRequest:
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchRequest.FetchTopic(
                topic="t",
                partitions=[
                    FetchRequest.FetchPartition(partition=index, fetch_offset=offset)
                    for index, offset in partitions.items()
                ],
            )
        ]
        if partitions
        else [],
        forgotten_topics_data=[FetchRequest.ForgottenTopic(topic="t", partitions=list(forgotten))] if forgotten else [],
    )


def answers_of(plan, **fields):
    return [
        (key, FetchResponse.PartitionData(partition_index=key.partition, records=b"", **fields))
        for key, _ in plan.partitions()
    ]


def open_session(sessions: FetchSessions, partitions: dict[int, int]) -> int:
    plan = sessions.plan(request(0, 0, partitions), VERSION)
    session_id, _ = plan.settle(answers_of(plan, high_watermark=0, log_start_offset=0))
    assert session_id != 0
    return session_id


def test_a_sessionless_fetch_is_remembered_by_nobody():
    sessions, _ = make_sessions()
    plan = sessions.plan(request(0, -1, {0: 5}), VERSION)
    answers = answers_of(plan)
    assert plan.settle(answers) == (0, answers)
    assert len(sessions) == 0


def test_an_incremental_fetch_reads_all_partitions_of_the_session():
    sessions, _ = make_sessions()
    session_id = open_session(sessions, {0: 5, 1: 6})
    plan = sessions.plan(request(session_id, 1, {1: 7}), VERSION)
    assert [(key.partition, asked.fetch_offset) for key, asked in plan.partitions()] == [(0, 5), (1, 7)]
    plan = sessions.plan(request(session_id, 2, {2: 1}, forgotten=(0,)), VERSION)
    assert [(key.partition, asked.fetch_offset) for key, asked in plan.partitions()] == [(1, 7), (2, 1)]


def test_only_news_is_answered():
    sessions, _ = make_sessions()
    session_id = open_session(sessions, {0: 0, 1: 0, 2: 0})
    plan = sessions.plan(request(session_id, 1, {}), VERSION)
    answers = answers_of(plan, high_watermark=0, log_start_offset=0)
    answers[1][1].high_watermark = 4
    answers[2][1].records = b"some"
    _, news = plan.settle(answers)
    assert [key.partition for key, _ in news] == [1, 2]
    plan = sessions.plan(request(session_id, 2, {}), VERSION)
    # The one that had records is read last now.
    assert [key.partition for key, _ in plan.partitions()] == [0, 1, 2]
    answers = answers_of(plan, high_watermark=0, log_start_offset=0)
    answers[0][1].error_code = 3
    assert [key.partition for key, _ in plan.settle(answers)[1]] == [0, 1]


def test_where_to_read_instead_is_told_every_time():
    sessions, _ = make_sessions()
    session_id = open_session(sessions, {0: 0})
    for epoch in (1, 2):
        plan = sessions.plan(request(session_id, epoch, {}), VERSION)
        _, news = plan.settle(answers_of(plan, high_watermark=0, log_start_offset=0, preferred_read_replica=2))
        assert [answer.preferred_read_replica for _, answer in news] == [2]


def test_a_busy_partition_goes_to_the_end():
    sessions, _ = make_sessions()
    session_id = open_session(sessions, {0: 0, 1: 0})
    plan = sessions.plan(request(session_id, 1, {}), VERSION)
    answers = answers_of(plan, high_watermark=0, log_start_offset=0)
    answers[0][1].records = b"some"
    plan.settle(answers)
    plan = sessions.plan(request(session_id, 2, {}), VERSION)
    assert [key.partition for key, _ in plan.partitions()] == [1, 0]


def test_the_end_of_an_error_is_news():
    sessions, _ = make_sessions()
    session_id = open_session(sessions, {0: 0})
    for epoch, code, expected in [(1, 6, 1), (2, 0, 1), (3, 0, 0)]:
        plan = sessions.plan(request(session_id, epoch, {}), VERSION)
        _, news = plan.settle(answers_of(plan, high_watermark=0, log_start_offset=0, error_code=code))
        assert len(news) == expected


def test_a_high_watermark_is_told_again_after_a_divergence():
    """The follower that was told where to cut has taken nothing else of that answer."""
    sessions, _ = make_sessions()
    session_id = open_session(sessions, {0: 9})
    for epoch, diverging_epoch, expected in [(1, 3, 1), (2, -1, 1), (3, -1, 0)]:
        plan = sessions.plan(request(session_id, epoch, {}), VERSION)
        answers = answers_of(plan, high_watermark=7, log_start_offset=0)
        answers[0][1].diverging_epoch.epoch = diverging_epoch
        assert len(plan.settle(answers)[1]) == expected


@pytest.mark.parametrize(
    ("session_id", "epoch", "version", "code"),
    [
        (12345, 1, VERSION, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (None, 2, VERSION, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (None, 1, 13, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_sessions_that_are_out_of_step(session_id, epoch, version, code):
    sessions, _ = make_sessions()
    known = open_session(sessions, {0: 0})
    with pytest.raises(KafkaError) as raised:
        sessions.plan(request(session_id or known, epoch, {}), version)
    assert raised.value.code == code


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_fetch_ends_the_session_that_it_names(epoch):
    sessions, _ = make_sessions()
    known = open_session(sessions, {0: 0})
    sessions.plan(request(known, epoch, {}), VERSION)
    assert len(sessions) == 0


def test_a_session_without_partitions_ends():
    sessions, _ = make_sessions()
    known = open_session(sessions, {0: 0})
    plan = sessions.plan(request(known, 1, {}, forgotten=(0,)), VERSION)
    assert plan.partitions() == []
    assert plan.settle([])[0] == 0
    assert len(sessions) == 0


def test_the_epoch_wraps_to_1():
    sessions, _ = make_sessions()
    known = open_session(sessions, {0: 0})
    sessions._sessions[known].epoch = 0x7FFFFFFF
    sessions.plan(request(known, 0x7FFFFFFF, {}), VERSION)
    sessions.plan(request(known, 1, {}), VERSION)


def test_sessions_are_bounded_and_the_longest_idle_makes_room():
    sessions, clock = make_sessions(slots_max=2)
    first, second = open_session(sessions, {0: 0}), open_session(sessions, {0: 0})
    plan = sessions.plan(request(0, 0, {0: 0}), VERSION)
    assert plan.settle(answers_of(plan))[0] == 0  # No room: the client goes on with full fetches.
    clock.advance_ms(100_000)
    sessions.plan(request(first, 1, {}), VERSION)
    clock.advance_ms(30_000)
    third = open_session(sessions, {0: 0})
    assert set(sessions._sessions) == {first, third}
    assert second not in sessions._sessions


def test_a_consumers_session_makes_room_for_a_follower():
    sessions, _ = make_sessions(slots_max=2)
    first, second = open_session(sessions, {0: 0}), open_session(sessions, {0: 0})
    sessions.plan(request(first, 1, {}), VERSION)
    plan = sessions.plan(request(0, 0, {0: 0}), VERSION, follower_id=NODE)
    follower, _ = plan.settle(answers_of(plan))
    assert follower != 0
    with pytest.raises(KafkaError, match=str(second)):
        sessions.plan(request(second, 1, {}), VERSION)
    sessions.plan(request(first, 2, {}), VERSION)
    assert len(sessions) == 2
    for _ in range(2):
        # Neither does another follower put the first one out, nor a consumer.
        plan = sessions.plan(request(0, 0, {0: 0}), VERSION, follower_id=NodeId(3))
        plan.settle(answers_of(plan))
    plan = sessions.plan(request(0, 0, {0: 0}), VERSION)
    assert plan.settle(answers_of(plan))[0] == 0
    sessions.plan(request(follower, 1, {}), VERSION)


def test_partitions_of_consumers_make_room_for_those_of_a_follower():
    sessions, _ = make_sessions(partitions_max=6)
    consumer = open_session(sessions, dict.fromkeys(range(4), 0))
    plan = sessions.plan(request(0, 0, {0: 0, 1: 0}), VERSION, follower_id=NODE)
    follower, _ = plan.settle(answers_of(plan))
    sessions.plan(request(follower, 1, {2: 0}), VERSION)
    with pytest.raises(KafkaError):
        sessions.plan(request(consumer, 1, {}), VERSION)
    too_many = sessions.plan(request(0, 0, dict.fromkeys(range(7), 0)), VERSION, follower_id=NODE)
    assert too_many.settle(answers_of(too_many))[0] == 0
    with pytest.raises(KafkaError):
        sessions.plan(request(follower, 2, dict.fromkeys(range(7), 0)), VERSION)
    assert len(sessions) == 0


def test_keys_by_id_and_by_name_differ():
    assert FetchKey("t", bytes(16), 0) != FetchKey("", b"x" * 16, 0)


async def test_a_session_over_the_wire():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t", partitions=2)
        both = fetch("t", 0, session_epoch=0)
        both.topics[0].partitions.append(FetchRequest.FetchPartition(partition=1, partition_max_bytes=1000))
        response = await peer.request(both, 11)
        assert len(response.responses[0].partitions) == 2
        session_id = response.session_id
        await peer.request(produce("t", batch(b"a"), partition=1), 9)
        again = FetchRequest(session_id=session_id, session_epoch=1, min_bytes=1)
        response = await peer.request(again, 11)
        assert response.session_id == session_id
        assert [each.partition_index for each in response.responses[0].partitions] == [1]
        again.session_epoch = 7
        response = await peer.request(again, 11)
        assert (response.error_code, response.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
        again.session_id = 42
        assert (await peer.request(again, 11)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def read_all(plan) -> list[int]:
    """Reads what is due as a follower at the log end would; which partitions that were."""
    indexes = [key.partition for key, _ in plan.partitions()]
    answers = answers_of(plan, high_watermark=0, log_start_offset=0)
    for key, _ in answers:
        plan.note_read(key)
    plan.settle(answers)
    return indexes


async def test_of_a_followers_session_only_what_has_news_is_read():
    sessions, _ = make_sessions()
    partitions = [make_partition(), make_partition()]
    first = sessions.plan(request(0, 0, {0: 5, 1: 7}), VERSION, follower_id=NodeId(2))
    for key, _ in first.partitions():
        first.watch_over(key, partitions[key.partition])
    session_id, _ = first.settle(answers_of(first, high_watermark=0, log_start_offset=0))

    def plan(epoch: int, changed: dict[int, int], forgotten: tuple[int, ...] = ()):
        return sessions.plan(request(session_id, epoch, changed, forgotten), VERSION, follower_id=NodeId(2))

    # What was not marked as read, for want of room in the answer, is read again.
    assert read_all(plan(1, {})) == [0, 1]
    assert read_all(plan(2, {})) == []
    assert read_all(plan(3, {1: 8})) == [1]
    parked = plan(4, {})
    told = []
    parked.watch.wake = lambda: told.append(1)
    partitions[1].readers.tell()  # The high watermark alone ends no wait, but goes with the next answer.
    assert told == []
    partitions[0].replica_readers.tell()
    assert told == [1]
    assert read_all(parked) == [1, 0]
    assert not partitions[0].replica_readers
    assert parked.count == 2


async def test_a_followers_session_leaves_nothing_behind():
    sessions, _ = make_sessions()
    partitions = [make_partition(), make_partition()]
    first = sessions.plan(request(0, 0, {0: 5, 1: 7}), VERSION, follower_id=NodeId(2))
    for key, _ in first.partitions():
        first.watch_over(key, partitions[key.partition])
    session_id, _ = first.settle(answers_of(first, high_watermark=0, log_start_offset=0))
    assert partitions[0].replica_readers
    assert partitions[0].readers
    sessions.plan(request(session_id, 1, {}, (0,)), VERSION, follower_id=NodeId(2))
    assert not partitions[0].replica_readers
    assert not partitions[0].readers
    assert partitions[1].replica_readers
    sessions.plan(request(session_id, 0, {1: 7}), VERSION, follower_id=NodeId(2))
    assert not partitions[1].replica_readers
    assert not partitions[1].readers


def follower_of(partition):
    """That of a session with node 2."""
    partition.follow_image(led_by(NodeId(1), epoch=1, isr=(NodeId(1), NodeId(2)), replicas=(NodeId(1), NodeId(2))))
    return partition.followers[NodeId(2)]


def begun_by_follower(sessions: FetchSessions, partitions: list, session_id: int = 0) -> int:
    """A session of node 2 with all partitions, each read once."""
    plan = sessions.plan(request(session_id, 0, dict.fromkeys(range(len(partitions)), 0)), VERSION, follower_id=NODE)
    for key, _ in plan.partitions():
        plan.watch_over(key, partitions[key.partition])
        partitions[key.partition].followers[NODE].note_proof(plan.watch.proof)
    return plan.settle(answers_of(plan))[0]


def test_a_fetch_of_a_session_proves_when_the_one_before_was_looked_at():
    sessions, clock = make_sessions()
    partitions = [make_partition(), make_partition()]
    followers = [follower_of(each) for each in partitions]
    clock.advance_ms(100)
    session_id = begun_by_follower(sessions, partitions)
    assert [each.followed_ms for each in followers] == [NEVER_MS] * 2
    # However long it was on its way, or lay in a buffer.
    clock.advance_ms(60_000)
    sessions.plan(request(session_id, 1, {}), VERSION, follower_id=NODE)
    assert [each.followed_ms for each in followers] == [100.0] * 2
    clock.advance_ms(500)
    sessions.plan(request(session_id, 2, {}), VERSION, follower_id=NODE)
    assert [each.followed_ms for each in followers] == [60_100.0] * 2


def test_a_partition_that_is_dropped_is_proven_no_more():
    sessions, clock = make_sessions()
    partitions = [make_partition(), make_partition(), make_partition(flush_messages=1)]
    followers = [follower_of(each) for each in partitions]
    session_id = begun_by_follower(sessions, partitions)
    clock.advance_ms(100)
    sessions.plan(request(session_id, 1, {}), VERSION, follower_id=NODE)
    assert [each.followed_ms for each in followers] == [0.0] * 3
    sessions.plan(request(session_id, 2, {}, forgotten=(0, 2)), VERSION, follower_id=NODE)
    assert followers[0].followed_ms == NEVER_MS
    assert followers[2].followed_ms == 0.0, "where records are synced first it drops out for each sync"
    clock.advance_ms(100)
    sessions.plan(request(session_id, 3, {}), VERSION, follower_id=NODE)
    assert [each.followed_ms for each in followers] == [NEVER_MS, 100.0, 0.0]


def test_a_new_session_of_the_same_follower_keeps_what_it_names():
    sessions, clock = make_sessions()
    partitions = [make_partition(), make_partition()]
    followers = [follower_of(each) for each in partitions]
    session_id = begun_by_follower(sessions, partitions)
    clock.advance_ms(100)
    sessions.plan(request(session_id, 1, {}), VERSION, follower_id=NODE)
    begun_by_follower(sessions, partitions[:1], session_id)
    assert [each.followed_ms for each in followers] == [0.0, NEVER_MS]


def test_a_session_that_is_ended_proves_nothing_more():
    sessions, clock = make_sessions()
    partitions = [make_partition()]
    follower = follower_of(partitions[0])
    session_id = begun_by_follower(sessions, partitions)
    clock.advance_ms(100)
    sessions.plan(request(session_id, 1, {}), VERSION, follower_id=NODE)
    assert follower.followed_ms == 0.0
    sessions.plan(request(session_id, -1, {}), VERSION, follower_id=NODE)
    assert follower.followed_ms == NEVER_MS
