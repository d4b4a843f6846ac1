"""From one generation to the next: who has to join again, who waits for whom, what runs out of time."""

import pytest

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.groups import SyncGroupRequest
from tests.unit.coordinator.classic.scene import (
    DELAY_MS,
    GROUP,
    RANGE,
    REBALANCE_MS,
    ROUNDROBIN,
    SESSION_MS,
    Scene,
    subscription,
)


def test_the_leader_brings_the_assignment_and_everybody_gets_its_part():
    scene = Scene()
    ids = [scene.new_member_id() for _ in range(3)]
    for each in ids:
        scene.join(each)
    scene.pass_ms(2 * DELAY_MS)
    follower = scene.sync(ids[1], 1)
    assert follower.is_waiting
    assert scene.heartbeat(ids[2], 1) is ErrorCode.NONE
    leader = scene.sync(ids[0], 1, {ids[0]: b"0", ids[1]: b"1"})
    assert scene.group.state == "Stable"
    assert (leader.answer.assignment, follower.answer.assignment) == (b"0", b"1")
    assert (leader.answer.protocol_type, leader.answer.protocol_name) == ("consumer", "range")
    # Whom the leader forgot has nothing to do.
    assert scene.sync(ids[2], 1).answer.assignment == b""
    # Whoever lost the answer asks again.
    assert scene.sync(ids[1], 1).answer.assignment == b"1"


def test_a_new_member_makes_the_others_join_again():
    scene = Scene()
    ids = scene.stable(2)
    newcomer = scene.new_member_id()
    assert scene.group.state == "Stable"
    joins = [scene.join(newcomer)]
    assert scene.heartbeat(ids[0], 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert scene.sync(ids[0], 1).error is ErrorCode.REBALANCE_IN_PROGRESS
    joins += [scene.join(each) for each in ids]
    assert [asked.answer.generation_id for asked in joins] == [2, 2, 2]
    assert {asked.answer.leader for asked in joins} == {ids[0]}
    assert scene.heartbeat(ids[0], 1) is ErrorCode.ILLEGAL_GENERATION
    scene.sync_all([*ids, newcomer])
    assert [each.cause for each in scene.history] == ["member joined", "member joined"]


def test_who_does_not_join_again_in_time_is_out():
    scene = Scene()
    ids = scene.stable(3)
    joins = [scene.join(ids[0]), scene.join(ids[1])]
    for _ in range(REBALANCE_MS // 5_000 - 1):
        scene.pass_ms(5_000)
        assert scene.heartbeat(ids[2], 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert joins[0].is_waiting
    scene.pass_ms(5_000)
    assert [asked.answer.generation_id for asked in joins] == [2, 2]
    assert list(scene.group.members) == ids[:2]
    assert scene.heartbeat(ids[2], 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_join_again_loses_the_lead():
    scene = Scene()
    ids = scene.stable(3)
    joins = [scene.join(each, ("range", subscription("t", "u"))) for each in ids[1:]]
    scene.pass_ms(REBALANCE_MS)
    assert joins[0].answer.leader == ids[1]
    assert [each.member_id for each in joins[0].answer.members] == ids[1:]
    assert joins[1].answer.members == []


def test_a_follower_that_joins_again_unchanged_goes_on_in_its_generation():
    scene = Scene()
    ids = scene.stable(2)
    asked = scene.join(ids[1])
    assert (asked.answer.generation_id, asked.answer.leader, asked.answer.members) == (1, ids[0], [])
    assert scene.group.state == "Stable"


def test_a_member_that_lost_the_answer_gets_it_again_while_the_group_completes():
    scene = Scene()
    ids = [scene.new_member_id() for _ in range(2)]
    for each in ids:
        scene.join(each)
    scene.pass_ms(2 * DELAY_MS)
    assert len(scene.join(ids[0]).answer.members) == 2
    assert scene.join(ids[1]).answer.members == []
    assert scene.group.state == "CompletingRebalance"
    waiting = scene.sync(ids[1], 1)
    again = scene.join(ids[0], ("range", subscription("u")))
    assert again.is_waiting
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert scene.group.state == "PreparingRebalance"


def test_the_leader_that_joins_again_unchanged_makes_everybody_rebalance():
    scene = Scene()
    ids = scene.stable(2)
    asked = scene.join(ids[0], reason="topic metadata changed")
    assert asked.is_waiting
    assert scene.group.state == "PreparingRebalance"
    assert scene.history[-1].cause == "member rejoined"
    assert scene.history[-1].detail == f"leader {ids[0]} joined again: topic metadata changed"


def test_changed_metadata_makes_everybody_rebalance():
    scene = Scene()
    ids = scene.stable(2)
    scene.join(ids[1], ("range", subscription("t", "u")))
    assert scene.group.state == "PreparingRebalance"
    assert scene.history[-1].detail == f"member {ids[1]} changed its metadata"


def test_a_rolling_change_from_one_protocol_to_another():
    scene = Scene()
    ids = scene.stable(2)
    sticky = ("cooperative-sticky", subscription("t", version=1))
    # First everybody learns the new one beside the old one ...
    for each in ids:
        scene.join(each, sticky, RANGE)
    other = scene.join(ids[1], sticky, RANGE)
    assert scene.group.protocol_name == "cooperative-sticky"
    assert not other.is_waiting
    scene.sync_all(ids)
    # ... then the old one goes.
    for each in ids:
        scene.join(each, sticky)
    scene.join(ids[1], sticky)
    assert scene.group.protocol_name == "cooperative-sticky"
    assert scene.join("", RANGE).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_without_heartbeats_is_dropped_and_the_history_says_so():
    scene = Scene()
    ids = scene.stable(2)
    scene.pass_ms(SESSION_MS - 1)
    assert scene.heartbeat(ids[0], 1) is ErrorCode.NONE
    scene.pass_ms(1)
    assert list(scene.group.members) == [ids[0]]
    assert scene.heartbeat(ids[0], 1) is ErrorCode.REBALANCE_IN_PROGRESS
    last = scene.history[-1]
    assert (last.cause, last.epoch, last.member_id, last.client_id) == ("member timed out", 1, ids[1], "app")
    assert last.detail == f"member {ids[1]} timed out after 10.0 s without a heartbeat"


def test_the_session_of_a_member_that_waits_for_us_does_not_run_out():
    scene = Scene()
    ids = scene.stable(2)
    waiting = scene.join(ids[0])
    for _ in range(5):
        scene.pass_ms(SESSION_MS - 1)
        scene.heartbeat(ids[1], 1)
    assert waiting.is_waiting
    assert list(scene.group.members) == ids
    # Its session begins anew with the answer.
    scene.join(ids[1])
    scene.pass_ms(SESSION_MS - 1)
    assert list(scene.group.members) == ids


def test_the_last_member_that_times_out_leaves_an_empty_group_that_is_stored():
    scene = Scene()
    scene.stable(1)
    written = len(scene.log)
    scene.pass_ms(SESSION_MS)
    assert (scene.group.state, scene.group.generation) == ("Empty", 2)
    assert len(scene.log) == written + 1
    stored = scene.group.stored
    assert stored is not None
    assert (stored.generation, stored.protocol, stored.leader, stored.members) == (2, None, None, [])
    assert stored.protocol_type == "consumer"
    assert stored.current_state_timestamp == scene.call().now_ms == scene.group.empty_since_ms


def test_who_never_asks_for_its_assignment_is_dropped():
    scene = Scene()
    ids = [scene.new_member_id() for _ in range(3)]
    for each in ids:
        scene.join(each)
    scene.pass_ms(2 * DELAY_MS)
    scene.sync(ids[0], 1, dict.fromkeys(ids, b"x"))
    assert not scene.sync(ids[1], 1).is_waiting
    for _ in range(REBALANCE_MS // 5_000):
        assert [scene.heartbeat(each, 1) for each in ids] == [ErrorCode.NONE] * 3
        scene.pass_ms(5_000)
    assert list(scene.group.members) == ids[:2]
    assert scene.group.state == "PreparingRebalance"
    assert scene.history[-1].detail == f"no SyncGroup came in time from {ids[2]}"


def test_nobody_is_dropped_if_all_have_asked_for_their_assignment():
    scene = Scene()
    ids = scene.stable(2)
    for _ in range(2 * REBALANCE_MS // 5_000):
        assert [scene.heartbeat(each, 1) for each in ids] == [ErrorCode.NONE] * 2
        scene.pass_ms(5_000)
    assert len(scene.history) == 1


def test_a_leader_that_dies_before_it_assigns_sends_the_others_back():
    scene = Scene()
    ids = [scene.new_member_id() for _ in range(2)]
    for each in ids:
        scene.join(each)
    scene.pass_ms(2 * DELAY_MS)
    waiting = scene.sync(ids[1], 1)
    scene.pass_ms(SESSION_MS)
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert scene.group.state == "PreparingRebalance"
    again = scene.join(ids[1])
    assert (again.answer.generation_id, again.answer.leader) == (2, ids[1])
    scene.sync_all([ids[1]])


def test_a_repeated_sync_ends_the_wait_of_the_first_one():
    scene = Scene()
    ids = [scene.new_member_id() for _ in range(2)]
    for each in ids:
        scene.join(each)
    scene.pass_ms(2 * DELAY_MS)
    first, second = scene.sync(ids[1], 1), scene.sync(ids[1], 1)
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    scene.sync(ids[0], 1, {ids[1]: b"1"})
    assert second.answer.assignment == b"1"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "roundrobin"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_id": "none"}, ErrorCode.UNKNOWN_MEMBER_ID),
        # Who speaks version 5 has to say what was agreed.
        ({"protocol_type": None}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": None}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({}, ErrorCode.NONE),
    ],
)
def test_a_sync_that_does_not_fit(fields, error):
    scene = Scene()
    (member,) = scene.stable(1)
    agreed = {"protocol_type": "consumer", "protocol_name": "range"}
    request = SyncGroupRequest(**{"group_id": GROUP, "generation_id": 1, "member_id": member, **agreed, **fields})
    assert scene.ask(request).error is error
    if None in fields.values():
        assert scene.ask(request, version=4).error is ErrorCode.NONE
    assert scene.group.state == "Stable"


def test_an_assignment_that_is_too_large_makes_everybody_join_again():
    scene = Scene()
    ids = [scene.new_member_id() for _ in range(2)]
    for each in ids:
        scene.join(each)
    scene.pass_ms(2 * DELAY_MS)
    written = len(scene.log)
    scene.refuses = True
    waiting = [scene.sync(ids[1], 1), scene.sync(ids[0], 1, {ids[1]: b"large"})]
    assert set(scene.refused) == set(waiting)
    assert (scene.group.state, len(scene.log)) == ("PreparingRebalance", written)
    assert scene.history[-1].cause == "record too large"
    scene.refuses = False
    assert scene.heartbeat(ids[1], 1) is ErrorCode.REBALANCE_IN_PROGRESS
    joins = [scene.join(each) for each in ids]
    assert [asked.answer.generation_id for asked in joins] == [2, 2]
    scene.sync_all(ids)


def test_heartbeats_of_strangers():
    scene = Scene()
    assert scene.heartbeat("anybody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    (member,) = scene.stable(1)
    assert scene.heartbeat("stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.heartbeat(member, 0) is ErrorCode.ILLEGAL_GENERATION
    scene.leave((member, None))
    assert scene.group.is_empty
    assert scene.heartbeat(member, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.sync(member, 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.join(member).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_empty_group_takes_members_of_another_protocol_type():
    scene = Scene()
    (member,) = scene.stable(1)
    scene.leave((member, None))
    worker = scene.join("", ("connect", b"url"), protocol_type="connect", version=3)
    scene.pass_ms(DELAY_MS)
    assert (worker.answer.generation_id, worker.answer.protocol_type) == (3, "connect")
    assert scene.join("", ROUNDROBIN).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
