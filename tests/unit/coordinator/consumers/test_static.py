"""Members with an instance id: they come back to what they had."""

import pytest

from tailrace.model.errors import ErrorCode, KafkaError
from tests.unit.coordinator.consumers.scene import ASSIGNMENT_MS, SESSION_MS, Scene, told
from tests.unit.coordinator.scene import run

EVERYTHING = {"t": {0, 1, 2, 3}}


def test_one_that_left_for_a_while_comes_back_under_a_new_member_id_without_a_rebalance():
    scene = Scene()
    scene.join("a", instance_id="i")
    left = scene.beat("a", -2, instance_id="i")
    assert (left.answer.member_id, left.answer.member_epoch) == ("a", -2)
    assert scene.has("a") == EVERYTHING
    back = scene.join("b", instance_id="i")
    assert (back.answer.member_id, back.answer.member_epoch, told(back)) == ("b", 2, EVERYTHING)
    assert set(scene.group.members) == {"b"}
    assert set(scene.group.targets) == {"b"}
    assert scene.group.static_members == {"i": "b"}
    assert (scene.group.epoch, len(scene.history)) == (2, 1)
    assert scene.group.topic_counts == {"t": 1}


def test_one_that_does_not_come_back_loses_its_place_with_its_session():
    scene = Scene()
    scene.join("a", instance_id="i")
    scene.beat("a", -2, instance_id="i")
    scene.pass_ms(SESSION_MS)
    assert scene.group.is_empty
    assert scene.group.static_members == {}
    assert scene.group.owners == {}


def test_one_that_comes_back_with_another_subscription_makes_a_rebalance():
    scene = Scene({"t": 2, "u": 2})
    scene.join("a", "t", instance_id="i")
    scene.beat("a", -2, instance_id="i")
    back = scene.join("b", "u", instance_id="i")
    scene.pass_ms(ASSIGNMENT_MS)
    assert (back.answer.member_epoch, told(back)) == (3, {"u": {0, 1}})
    assert scene.group.topic_counts == {"u": 1}


def test_the_instance_id_of_a_live_member_is_not_given_away():
    scene = Scene()
    scene.join("a", instance_id="i")
    with pytest.raises(KafkaError) as refused:
        scene.join("b", instance_id="i")
    assert refused.value.code is ErrorCode.UNRELEASED_INSTANCE_ID


def test_the_old_member_is_fenced():
    scene = Scene()
    scene.join("a", instance_id="i")
    scene.beat("a", -2, instance_id="i")
    scene.join("b", instance_id="i")
    assert scene.refusal("a", 2, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
    assert scene.refusal("a", -1, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
    assert scene.refusal("a", 2, instance_id="j") is ErrorCode.UNKNOWN_MEMBER_ID


def test_one_that_comes_back_with_a_wrong_expression_changes_nothing():
    scene = Scene()
    scene.join("a", instance_id="i")
    scene.beat("a", -2, instance_id="i")
    with pytest.raises(KafkaError):
        scene.join("b", instance_id="i", subscribed_topic_regex="[")
    assert set(scene.group.members) == {"a"}
    scene.pass_ms(SESSION_MS)
    assert scene.group.is_empty


def test_one_that_leaves_for_good_frees_its_instance_id():
    scene = Scene()
    scene.join("a", instance_id="i")
    scene.beat("a", -1, instance_id="i")
    assert scene.group.static_members == {}
    scene.pass_ms(ASSIGNMENT_MS)
    assert told(scene.join("b", instance_id="i")) == EVERYTHING


def test_its_rebalance_time_does_not_run_while_it_is_away():
    scene = Scene(group_consumer_session_timeout_ms=60_000)
    scene.join("a", instance_id="i", rebalance_timeout_ms=10_000)
    scene.join("b")
    scene.pass_ms(ASSIGNMENT_MS)
    scene.beat("a", 2, EVERYTHING, instance_id="i")
    scene.beat("a", -2, instance_id="i")
    scene.pass_ms(20_000)
    assert "a" in scene.group.members


def test_one_replaced_while_targets_are_computed_gets_what_was_meant_for_it():
    scene = Scene({"t": 4})
    scene.join("a", instance_id="i")
    scene.pass_ms(ASSIGNMENT_MS)
    scene.beat("a", -2, instance_id="i")
    # Targets are under way while it comes back.
    scene.work_is_held = True
    scene.join("b")
    steps = scene.machine.take_work(scene.call())
    assert steps is not None
    next(steps)
    scene.join("c", instance_id="i")
    scene.apply(run(steps))
    scene.work_is_held = False
    scene.work()
    scene.pass_ms(ASSIGNMENT_MS)
    given = [partition for target in scene.group.targets.values() for each in target.values() for partition in each]
    assert set(scene.group.targets) == {"b", "c"}
    assert sorted(given) == [0, 1, 2, 3]


def test_one_that_leaves_for_a_while_before_it_was_answered_stays_away():
    scene = Scene()
    scene.join("a")
    joining = scene.join("b", instance_id="i")
    assert joining.is_waiting
    scene.beat("b", -2, instance_id="i")
    assert joining.error is ErrorCode.UNKNOWN_MEMBER_ID
    scene.pass_ms(ASSIGNMENT_MS)
    assert (scene.group.members["b"].member_epoch, scene.has("b")) == (-2, {})
    back = scene.join("c", instance_id="i")
    assert back.error is ErrorCode.NONE
