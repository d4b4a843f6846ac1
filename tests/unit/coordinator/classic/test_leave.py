"""Members that leave, or are removed."""

import pytest

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.groups import LeaveGroupRequest
from tests.unit.coordinator.classic.scene import DELAY_MS, GROUP, Scene


def test_who_leaves_a_stable_group_makes_the_others_rebalance():
    scene = Scene()
    ids = scene.stable(3)
    assert scene.leave((ids[0], None)) == [ErrorCode.NONE]
    assert scene.group.state == "PreparingRebalance"
    assert scene.group.leader_id == ids[1]
    assert (scene.history[-1].cause, scene.history[-1].detail) == ("member left", f"member {ids[0]} left: closed")
    joins = [scene.join(each) for each in ids[1:]]
    assert [asked.answer.generation_id for asked in joins] == [2, 2]


def test_the_last_one_to_leave_empties_the_group():
    scene = Scene()
    ids = scene.stable(2)
    assert scene.leave((ids[0], None), (ids[1], None)) == [ErrorCode.NONE] * 2
    assert (scene.group.state, scene.group.generation, scene.group.leader_id) == ("Empty", 2, None)
    assert scene.machine.next_deadline_ms() is None


def test_who_was_waited_for_and_leaves_lets_the_others_go_on():
    scene = Scene()
    ids = scene.stable(2)
    waiting = scene.join(ids[0])
    assert waiting.is_waiting
    scene.leave((ids[1], None))
    assert waiting.answer.generation_id == 2


def test_a_member_that_leaves_while_its_join_waits_is_told_so():
    scene = Scene()
    ids = scene.stable(2)
    waiting = scene.join(ids[0])
    assert scene.leave((ids[0], None)) == [ErrorCode.NONE]
    assert waiting.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.group.joining_count == 0
    assert scene.group.state == "PreparingRebalance"


def test_a_member_that_leaves_while_its_sync_waits_is_told_so():
    scene = Scene()
    ids = [scene.new_member_id() for _ in range(2)]
    for each in ids:
        scene.join(each)
    scene.pass_ms(2 * DELAY_MS)
    waiting = scene.sync(ids[1], 1)
    scene.leave((ids[1], None))
    assert waiting.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.group.state == "PreparingRebalance"


def test_a_pending_id_that_leaves_lets_the_others_go_on():
    scene = Scene()
    (member,) = scene.stable(1)
    pending = scene.new_member_id()
    waiting = scene.join(member)
    assert waiting.is_waiting
    assert scene.leave((pending, None)) == [ErrorCode.NONE]
    assert waiting.answer.generation_id == 2


def test_a_group_whose_members_leave_during_the_initial_delay_is_empty_after_it():
    scene = Scene()
    member = scene.new_member_id()
    scene.join(member)
    scene.leave((member, None))
    assert scene.group.state == "PreparingRebalance"
    scene.pass_ms(DELAY_MS)
    assert (scene.group.state, scene.group.generation) == ("Empty", 1)


def test_each_of_several_members_stands_or_falls_alone():
    scene = Scene()
    static = scene.join(group_instance_id="i")
    scene.pass_ms(DELAY_MS)
    member = static.answer.member_id
    scene.sync_all([member])
    assert scene.leave(("unknown", None), ("", "j"), ("", None), ("stale", "i")) == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    ]
    assert scene.group.state == "Stable"
    assert scene.leave(("", "i"), (member, "i")) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert scene.group.is_empty
    assert scene.history[-1].cause == "member removed"
    assert scene.history[-1].detail == "instance i was removed by an administrator: closed"


@pytest.mark.parametrize("version", [0, 2])
def test_an_old_client_leaves_alone(version):
    scene = Scene()
    (member,) = scene.stable(1)
    request = LeaveGroupRequest(group_id=GROUP, member_id=member)
    assert scene.ask(request, version).error is ErrorCode.NONE
    assert scene.group.is_empty
    assert scene.ask(request, version).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_nobody_leaves_a_group_that_does_not_exist():
    scene = Scene()
    assert scene.leave(("m", None), ("", "i")) == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert not scene.machine.state.groups
