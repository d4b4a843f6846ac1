"""How members join, are told their partitions, stay and leave."""

import pytest

from tailrace.coordinator.history import Cause
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.groups import ConsumerGroupHeartbeatRequest
from tests.unit.coordinator.consumers.scene import (
    ASSIGNMENT_MS,
    GROUP,
    HEARTBEAT_MS,
    REBALANCE_MS,
    SESSION_MS,
    Scene,
    told,
)


def test_the_first_member_gets_everything_with_the_answer_to_its_first_heartbeat():
    scene = Scene()
    asked = scene.join("a")
    assert (asked.error, asked.answer.member_id, asked.answer.member_epoch) == (ErrorCode.NONE, "a", 2)
    assert asked.answer.heartbeat_interval_ms == HEARTBEAT_MS
    assert told(asked) == {"t": {0, 1, 2, 3}}
    assert (scene.group.epoch, scene.group.assignment_epoch, scene.group.state_name) == (2, 2, "Stable")


def test_a_heartbeat_with_nothing_new_writes_nothing_and_repeats_no_assignment():
    scene = Scene()
    scene.join("a")
    written = len(scene.log)
    asked = scene.beat("a", 2)
    assert (asked.error, asked.answer.member_epoch, asked.answer.assignment) == (ErrorCode.NONE, 2, None)
    assert len(scene.log) == written


def test_a_full_heartbeat_is_told_its_assignment_again():
    scene = Scene()
    scene.join("a")
    asked = scene.beat("a", 2, {"t": {0, 1, 2, 3}}, rebalance_timeout_ms=REBALANCE_MS, subscribed_topic_names=["t"])
    assert told(asked) == {"t": {0, 1, 2, 3}}


def test_a_second_member_waits_for_the_next_assignment_and_gets_what_the_first_has_given_up():
    scene = Scene()
    scene.join("a")
    second = scene.join("b")
    assert second.is_waiting
    scene.pass_ms(ASSIGNMENT_MS)
    # Its partitions are still those of the first one.
    assert (second.answer.member_epoch, told(second)) == (3, {})
    assert scene.group.state_name == "Reconciling"

    first = scene.beat("a", 2, {"t": {0, 1, 2, 3}})
    kept = told(first)["t"]
    assert first.answer.member_epoch == 2
    assert len(kept) == 2
    assert scene.beat("b", 3, {}).answer.assignment is None

    first = scene.beat("a", 2, {"t": kept})
    assert first.answer.member_epoch == 3
    second = scene.beat("b", 3, {})
    assert told(second) == {"t": {0, 1, 2, 3} - kept}
    assert scene.group.state_name == "Stable"


def test_members_that_join_within_an_interval_are_one_assignment():
    scene = Scene({"t": 100})
    scene.join("first")
    joins = [scene.join(f"m{number}") for number in range(9)]
    assert all(asked.is_waiting for asked in joins)
    assert scene.group.epoch == 11
    assert scene.group.assignment_epoch == 2
    scene.pass_ms(ASSIGNMENT_MS)
    assert {asked.answer.member_epoch for asked in joins} == {11}
    assert scene.group.assignment_epoch == 11


def test_an_interval_longer_than_a_heartbeats_is_not_waited_for():
    scene = Scene(group_consumer_assignment_interval_ms=HEARTBEAT_MS + 1)
    scene.join("a")
    asked = scene.join("b")
    assert (asked.answer.member_epoch, told(asked)) == (2, {})
    scene.pass_ms(HEARTBEAT_MS + 1)
    assert scene.group.assignment_epoch == 3
    # Without a heartbeat in between the first one has not given anything up.
    assert scene.beat("b", 2, {}).answer.member_epoch == 3


def test_an_answer_waits_for_half_of_an_interval_at_most():
    """librdkafka would not hear one that comes after a whole one."""
    scene = Scene(group_consumer_assignment_interval_ms=HEARTBEAT_MS // 2)
    scene.join("a")
    scene.pass_ms(1)
    scene.work_is_held = True
    asked = scene.join("b")
    scene.pass_ms(HEARTBEAT_MS // 2 - 1)
    assert asked.is_waiting
    scene.pass_ms(1)
    assert (asked.answer.member_epoch, told(asked)) == (2, {})


def test_a_member_that_asks_again_while_it_waits_is_answered_twice():
    scene = Scene()
    scene.join("a")
    lost = scene.join("b")
    again = scene.join("b")
    assert lost.answer.member_id == "b"
    scene.pass_ms(ASSIGNMENT_MS)
    assert again.answer.member_epoch == 3


def test_a_member_that_leaves_while_it_waits_is_told_that_it_is_out():
    scene = Scene()
    scene.join("a")
    waiting = scene.join("b")
    scene.beat("b", -1)
    assert waiting.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_leaves_gives_its_partitions_back_at_once():
    scene = Scene()
    scene.join("a")
    scene.pass_ms(ASSIGNMENT_MS)
    scene.join("b")
    kept = told(scene.beat("a", 2, {"t": {0, 1, 2, 3}}))["t"]
    scene.beat("a", 2, {"t": kept})
    scene.beat("b", 3, {})
    scene.pass_ms(ASSIGNMENT_MS)
    left = scene.beat("a", -1)
    assert (left.answer.member_id, left.answer.member_epoch) == ("a", -1)
    assert "a" not in scene.group.members
    assert told(scene.beat("b", 3, {"t": {0, 1, 2, 3} - kept})) == {"t": {0, 1, 2, 3}}
    assert [each.cause for each in scene.history] == [Cause.MEMBER_JOINED, Cause.MEMBER_JOINED, Cause.MEMBER_LEFT]


def test_the_last_member_that_leaves_leaves_an_empty_group():
    scene = Scene()
    scene.join("a")
    scene.beat("a", -1)
    assert (scene.group.state_name, scene.group.is_empty, scene.group.epoch) == ("Empty", True, 3)
    assert scene.group.owners == {}
    assert scene.group.topic_counts == {}
    assert scene.join("b").is_waiting
    scene.pass_ms(ASSIGNMENT_MS)
    assert scene.has("b") == {"t": {0, 1, 2, 3}}


def test_a_silent_member_is_out_after_its_session():
    scene = Scene()
    scene.join("a")
    scene.pass_ms(SESSION_MS - 1)
    assert "a" in scene.group.members
    scene.beat("a", 2)
    scene.pass_ms(SESSION_MS - 1)
    assert "a" in scene.group.members
    scene.pass_ms(1)
    assert scene.group.is_empty
    assert scene.history[-1].cause is Cause.MEMBER_TIMED_OUT
    assert "after 45.0 s without a heartbeat" in scene.history[-1].detail
    assert scene.refusal("a", 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_keeps_what_it_must_give_up_is_out_after_its_rebalance_time():
    scene = Scene(group_consumer_session_timeout_ms=60_000)
    scene.join("a", rebalance_timeout_ms=20_000)
    scene.join("b")
    scene.pass_ms(ASSIGNMENT_MS)
    everything = {"t": {0, 1, 2, 3}}
    scene.beat("a", 2, everything)
    for _ in range(3):
        scene.pass_ms(5_000)
        assert scene.refusal("a", 2, everything) is ErrorCode.NONE
    scene.pass_ms(5_000)
    assert "a" not in scene.group.members
    assert "within 20.0 s" in scene.history[-1].detail
    assert told(scene.beat("b", 3, {})) == everything


def test_a_member_whose_answer_was_lost_may_come_with_the_epoch_before():
    scene = Scene()
    scene.join("a")
    scene.join("b")
    scene.pass_ms(ASSIGNMENT_MS)
    kept = told(scene.beat("a", 2, {"t": {0, 1, 2, 3}}))["t"]
    scene.beat("a", 2, {"t": kept})
    assert scene.group.members["a"].member_epoch == 3
    assert scene.beat("a", 2, {"t": kept}).answer.member_epoch == 3
    assert scene.refusal("a", 2, {"t": {0, 1, 2, 3}}) is ErrorCode.FENCED_MEMBER_EPOCH
    assert scene.refusal("a", 2) is ErrorCode.FENCED_MEMBER_EPOCH
    assert scene.refusal("a", 4) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_missed_what_it_has_to_give_up_is_told_again_over_its_next_connection():
    scene = Scene()
    scene.join("a")
    scene.beat("a", 2, {"t": {0, 1, 2, 3}})
    scene.join("b")
    scene.pass_ms(ASSIGNMENT_MS)
    # The client waits no longer, and closes the connection: this answer it does not read.
    kept = told(scene.beat("a", 2))
    assert scene.beat("a", 2).answer.assignment is None, "as in Kafka, it is not repeated to who has heard it"
    scene.peer = "127.0.0.1:50001"
    assert told(scene.beat("a", 2)) == kept
    assert scene.beat("a", 2).answer.assignment is None
    assert scene.beat("a", 2, kept).answer.member_epoch == 3
    scene.peer = "127.0.0.1:50002"
    assert scene.beat("a", 3).answer.assignment is None, "it has said that it has it"


def test_a_member_that_missed_what_it_has_got_is_told_again_over_its_next_connection():
    scene = Scene()
    scene.join("a")
    scene.join("b")
    scene.pass_ms(ASSIGNMENT_MS)
    kept = told(scene.beat("a", 2, {"t": {0, 1, 2, 3}}))
    scene.beat("a", 2, kept)
    got = told(scene.beat("b", 3))
    assert got == {"t": {0, 1, 2, 3} - kept["t"]}
    scene.peer = "127.0.0.1:50001"
    assert told(scene.beat("b", 3)) == got


def test_who_says_what_it_has_over_another_connection_has_missed_nothing():
    scene = Scene()
    got = told(scene.join("a"))
    scene.peer = "127.0.0.1:50001"
    assert scene.beat("a", 2, got).answer.assignment is None
    assert not scene.group.unconfirmed


def test_nothing_is_kept_of_what_a_member_was_told_when_it_has_gone():
    scene = Scene()
    scene.join("a")
    assert list(scene.group.unconfirmed) == ["a"]
    scene.beat("a", -1)
    assert not scene.group.unconfirmed


def test_a_member_may_join_again_and_keeps_what_it_has():
    scene = Scene()
    scene.join("a")
    asked = scene.join("a")
    assert (asked.answer.member_epoch, told(asked)) == (2, {"t": {0, 1, 2, 3}})
    assert scene.group.epoch == 2


def test_a_changed_subscription_takes_effect_with_its_answer():
    scene = Scene({"t": 2, "u": 2})
    scene.join("a", "t")
    scene.pass_ms(ASSIGNMENT_MS)
    asked = scene.beat("a", 2, {"t": {0, 1}}, subscribed_topic_names=["u"])
    assert (asked.answer.member_epoch, told(asked)) == (2, {})
    assert scene.history[-1].cause is Cause.SUBSCRIPTION_CHANGED
    asked = scene.beat("a", 2, {})
    assert (asked.answer.member_epoch, told(asked)) == (3, {"u": {0, 1}})
    assert scene.group.topic_counts == {"u": 1}


def test_a_topic_that_is_no_longer_subscribed_goes_before_there_are_new_targets():
    scene = Scene({"t": 2, "u": 2}, group_consumer_assignment_interval_ms=HEARTBEAT_MS + 1)
    scene.join("a", "t", "u")
    asked = scene.beat("a", 2, {"t": {0, 1}, "u": {0, 1}}, subscribed_topic_names=["u"])
    assert (asked.answer.member_epoch, told(asked)) == (2, {"u": {0, 1}})


def test_a_version_0_member_gets_its_id_from_the_broker():
    scene = Scene()
    asked = scene.join("", version=0)
    assert asked.answer.member_id
    assert asked.answer.member_id in scene.group.members
    with pytest.raises(KafkaError) as refused:
        scene.join("", version=1)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_the_assignor_that_most_members_ask_for_is_used():
    scene = Scene({"t": 4, "u": 4})
    scene.join("a", "t", "u", server_assignor="range")
    scene.join("b", "t", "u", server_assignor="range")
    scene.pass_ms(ASSIGNMENT_MS)
    assert scene.group.preferred_assignor() == "range"
    targets = [sorted(map(sorted, target.values())) for target in scene.group.targets.values()]
    assert sorted(targets) == [[[0, 1], [0, 1]], [[2, 3], [2, 3]]]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_what_is_refused(fields, code):
    scene = Scene()
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="a",
        member_epoch=0,
        rebalance_timeout_ms=REBALANCE_MS,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    for name, value in fields.items():
        setattr(request, name, value)
    with pytest.raises(KafkaError) as refused:
        scene.ask(request)
    assert refused.value.code is code
    assert scene.machine.state.groups == {}
    assert scene.log == []


def test_unknown_members_are_told_so():
    scene = Scene()
    scene.join("a")
    assert scene.refusal("b", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.refusal("b", -1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_no_more_members():
    scene = Scene(group_consumer_max_size=1)
    scene.join("a")
    with pytest.raises(KafkaError) as refused:
        scene.join("b")
    assert refused.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert scene.refusal("a", 2) is ErrorCode.NONE


def test_a_new_coordinator_gives_every_member_a_session():
    scene = Scene()
    scene.join("a")
    scene.pass_ms(SESSION_MS - 1)
    scene.fail_over()
    scene.pass_ms(SESSION_MS - 1)
    assert scene.refusal("a", 2) is ErrorCode.NONE
    scene.fail_over()
    scene.pass_ms(SESSION_MS)
    assert scene.group.is_empty


def test_a_new_coordinator_computes_what_the_last_one_did_not_get_to():
    scene = Scene()
    scene.join("a")
    scene.join("b")
    assert scene.group.assignment_epoch == 2
    scene.fail_over()
    scene.pass_ms(ASSIGNMENT_MS)
    assert scene.group.assignment_epoch == 3
