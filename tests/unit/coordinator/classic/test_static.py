"""Static members (KIP-345): they keep their place when they restart, and fence whoever had it before."""

import pytest

from tailrace.model.errors import ErrorCode
from tests.unit.coordinator.classic.scene import DELAY_MS, RANGE, REBALANCE_MS, ROUNDROBIN, SESSION_MS, Scene


def static_group(scene: Scene, *instances: str) -> list[str]:
    """Stable; the first one leads."""
    joins = [scene.join("", RANGE, ROUNDROBIN, group_instance_id=instance) for instance in instances]
    scene.pass_ms(2 * DELAY_MS)
    ids = [asked.answer.member_id for asked in joins]
    scene.sync_all(ids)
    return ids


def test_a_static_member_needs_no_second_join():
    scene = Scene()
    asked = scene.join(group_instance_id="i")
    scene.pass_ms(DELAY_MS)
    assert asked.answer.member_id.startswith("i-")
    assert [each.group_instance_id for each in asked.answer.members] == ["i"]


def test_a_static_member_that_restarts_keeps_its_assignment_without_a_rebalance():
    scene = Scene()
    ids = static_group(scene, "i", "j")
    asked = scene.join("", RANGE, ROUNDROBIN, group_instance_id="j")
    new_id = asked.answer.member_id
    assert new_id not in ids
    assert (asked.answer.generation_id, asked.answer.leader, asked.answer.members) == (1, ids[0], [])
    assert not asked.answer.skip_assignment
    assert scene.group.state == "Stable"
    assert scene.sync(new_id, 1, group_instance_id="j").answer.assignment == ids[1].encode()
    assert len(scene.history) == 1

    # The new id is stored, and the old client is fenced wherever it shows up.
    scene.fail_over()
    assert set(scene.group.members) == {ids[0], new_id}
    assert scene.heartbeat(ids[1], 1, "j") is ErrorCode.FENCED_INSTANCE_ID
    assert scene.heartbeat(ids[1], 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.sync(ids[1], 1, group_instance_id="j").error is ErrorCode.FENCED_INSTANCE_ID
    assert scene.join(ids[1], group_instance_id="j").error is ErrorCode.FENCED_INSTANCE_ID
    assert scene.leave((ids[1], "j")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert scene.heartbeat(new_id, 1, "j") is ErrorCode.NONE


def test_the_session_of_the_old_id_is_over_and_that_of_the_new_one_begins():
    scene = Scene()
    ids = static_group(scene, "i", "j")
    scene.pass_ms(SESSION_MS - 1)
    assert scene.heartbeat(ids[0], 1, "i") is ErrorCode.NONE
    new_id = scene.join("", RANGE, ROUNDROBIN, group_instance_id="j").answer.member_id
    scene.pass_ms(SESSION_MS - 1)
    assert set(scene.group.members) == {ids[0], new_id}
    scene.pass_ms(1)
    assert scene.history[-1].cause == "member timed out"


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_leader_that_restarts_does_not_assign(version):
    scene = Scene()
    ids = static_group(scene, "i", "j")
    asked = scene.join("", RANGE, ROUNDROBIN, group_instance_id="i", version=version)
    new_id = asked.answer.member_id
    assert scene.group.leader_id == new_id
    if version >= 9:
        # It leads, and watches for changes, but need not assign (KIP-814).
        assert (asked.answer.leader, asked.answer.skip_assignment) == (new_id, True)
        assert {each.member_id for each in asked.answer.members} == {new_id, ids[1]}
    else:
        # It must not take itself for the leader.
        assert (asked.answer.leader, asked.answer.skip_assignment, asked.answer.members) == (ids[0], False, [])
    assert scene.sync(new_id, 1, group_instance_id="i").answer.assignment == ids[0].encode()


def test_a_static_member_that_changes_the_choice_of_protocol_makes_everybody_rebalance():
    scene = Scene()
    ids = static_group(scene, "i", "j")
    asked = scene.join("", ROUNDROBIN, group_instance_id="j")
    assert asked.is_waiting
    assert scene.group.state == "PreparingRebalance"
    assert scene.history[-1].detail.startswith("instance j came back as member j-")
    scene.join(ids[0], RANGE, ROUNDROBIN, group_instance_id="i")
    assert (asked.answer.protocol_name, asked.answer.generation_id) == ("roundrobin", 2)


def test_a_static_member_that_restarts_while_the_group_completes_makes_it_rebalance():
    scene = Scene()
    joins = [scene.join(group_instance_id=instance) for instance in ("i", "j")]
    scene.pass_ms(2 * DELAY_MS)
    ids = [asked.answer.member_id for asked in joins]
    waiting = scene.sync(ids[1], 1, group_instance_id="j")
    asked = scene.join(group_instance_id="j")
    assert waiting.error is ErrorCode.FENCED_INSTANCE_ID
    assert asked.is_waiting
    leader = scene.join(ids[0], group_instance_id="i")
    assert asked.answer.generation_id == 2
    assert {each.member_id for each in leader.answer.members} == {ids[0], asked.answer.member_id}


def test_a_static_member_that_restarts_while_members_gather_takes_its_place():
    scene = Scene()
    ids = static_group(scene, "i", "j")
    first = scene.join(ids[0], RANGE, ROUNDROBIN, group_instance_id="i")
    again = scene.join("", RANGE, ROUNDROBIN, group_instance_id="i")
    assert (first.error, first.answer.member_id) == (ErrorCode.FENCED_INSTANCE_ID, ids[0])
    assert again.is_waiting
    scene.join(ids[1], RANGE, ROUNDROBIN, group_instance_id="j")
    assert again.answer.generation_id == 2
    assert again.answer.leader == again.answer.member_id


def test_the_rebalance_timeout_alone_does_not_remove_a_static_member():
    scene = Scene()
    fields = {"rebalance_timeout_ms": 7_000, "session_timeout_ms": 30_000}
    joins = [scene.join(group_instance_id=instance, **fields) for instance in ("i", "j")]
    scene.pass_ms(2 * DELAY_MS + 1_000)
    ids = [asked.answer.member_id for asked in joins]
    scene.sync_all(ids)
    waiting = scene.join(ids[1], ROUNDROBIN, RANGE, group_instance_id="j", **fields)
    scene.pass_ms(7_000)
    # The leader did not come, so that another one leads; it is still one of the members to assign to.
    assert waiting.answer.leader == ids[1]
    assert {each.member_id for each in waiting.answer.members} == set(ids)


def test_a_group_of_static_members_that_nobody_joins_again_waits_for_their_sessions():
    scene = Scene()
    fields = {"rebalance_timeout_ms": 7_000, "session_timeout_ms": 30_000}
    joins = [scene.join(group_instance_id=instance, **fields) for instance in ("i", "j")]
    scene.pass_ms(2 * DELAY_MS + 1_000)
    scene.sync_all([asked.answer.member_id for asked in joins])
    member = scene.join(version=3, **fields)
    scene.leave((next(reversed(scene.group.members)), None))
    assert member.error is ErrorCode.UNKNOWN_MEMBER_ID
    scene.pass_ms(2 * 7_000)
    assert (scene.group.state, len(scene.group.members)) == ("PreparingRebalance", 2)
    scene.pass_ms(30_000)
    assert scene.group.state == "Empty"


def test_a_new_id_that_cannot_be_stored_makes_everybody_join_again():
    scene = Scene()
    ids = static_group(scene, "i", "j")
    scene.refuses = True
    asked = scene.join("", RANGE, ROUNDROBIN, group_instance_id="j")
    scene.refuses = False
    assert scene.refused == [asked]
    assert scene.group.state == "PreparingRebalance"
    again = scene.join("", RANGE, ROUNDROBIN, group_instance_id="j")
    scene.join(ids[0], RANGE, ROUNDROBIN, group_instance_id="i")
    assert again.answer.generation_id == 2


def test_a_static_member_that_restarts_before_its_first_generation_may_wait_for_it():
    scene = Scene()
    (member,) = scene.stable(1)
    scene.join(group_instance_id="i")
    waiting = scene.join(group_instance_id="i")
    for _ in range(3):
        scene.pass_ms(SESSION_MS - 1)
        assert scene.heartbeat(member, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert waiting.is_waiting
    scene.join(member)
    assert waiting.answer.generation_id == 2


def test_two_groups_of_one_instance_id_do_not_meet():
    scene = Scene()
    scene.join(group_instance_id="i")
    other = scene.join(group_instance_id="i", group_id="other")
    scene.pass_ms(REBALANCE_MS)
    assert other.error is ErrorCode.NONE
