"""Topics come, go and grow; regular expressions stand for the topics that there are."""

import pytest

from tailrace.coordinator.consumers.records import member_record, regex_tombstone
from tailrace.coordinator.history import Cause
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.record_envelopes import encode_coordinator_key, encode_coordinator_value
from tests.unit.coordinator.consumers.scene import ASSIGNMENT_MS, Scene, named, told
from tests.unit.coordinator.scene import Asked, Written, run

BATCH_MS = 1_000


def test_partitions_that_are_added_reach_members_with_their_next_heartbeat():
    scene = Scene({"t": 2})
    scene.join("a")
    scene.pass_ms(ASSIGNMENT_MS)
    scene.set_topics({"t": 3})
    assert scene.history[-1].cause is Cause.PARTITIONS_CHANGED
    assert scene.history[-1].detail == "topic t has 3 partitions now"
    asked = scene.beat("a", 2)
    assert (asked.answer.member_epoch, told(asked)) == (3, {"t": {0, 1, 2}})


def test_a_topic_that_is_deleted_is_taken_from_members():
    scene = Scene({"t": 2, "u": 1})
    scene.join("a", "t", "u")
    scene.pass_ms(ASSIGNMENT_MS)
    scene.set_topics({"u": 1})
    assert scene.history[-1].detail == "topic t was deleted"
    assert told(scene.beat("a", 2, {"t": {0, 1}, "u": {0}})) == {"u": {0}}
    assert scene.beat("a", 2, {"u": {0}}).answer.member_epoch == 3


def test_a_topic_that_is_created_reaches_who_waits_for_it():
    scene = Scene({})
    asked = scene.join("a", "t")
    assert (asked.answer.member_epoch, told(asked)) == (2, {})
    scene.pass_ms(ASSIGNMENT_MS)
    scene.set_topics({"t": 1, "other": 1})
    assert scene.history[-1].detail == "topic t was created"
    assert told(scene.beat("a", 2)) == {"t": {0}}


def test_other_topics_and_other_leaders_make_no_rebalance():
    scene = Scene({"t": 2})
    scene.join("a")
    scene.set_topics({"t": 2, "other": 5})
    scene.set_topics({"t": 2})
    assert scene.group.epoch == 2


def test_replicas_in_another_rack_make_a_rebalance():
    scene = Scene({"t": 2})
    scene.set_topics({"t": 2}, racks=["x", "y"])
    scene.join("a")
    scene.set_topics({"t": 2}, racks=["x", "y"])
    assert scene.group.epoch == 2
    scene.set_topics({"t": 2}, racks=["x", "z"])
    assert scene.group.epoch == 3
    assert scene.history[-1].detail == "replicas are in other racks now"


def test_what_changed_before_a_coordinator_was_loaded_is_seen():
    scene = Scene({"t": 2})
    scene.join("a")
    scene.pass_ms(ASSIGNMENT_MS)
    scene.image = Scene({"t": 4}).image
    scene.fail_over()
    assert told(scene.beat("a", 2)) == {"t": {0, 1, 2, 3}}


def test_a_member_that_subscribes_by_an_expression_gets_its_topics_with_the_first_answer():
    scene = Scene({"orders-1": 1, "orders-2": 1, "orders": 1, "my-orders-1": 1})
    asked = scene.join("a", subscribed_topic_regex="orders-.*")
    assert told(asked) == {"orders-1": {0}, "orders-2": {0}}
    assert [(each.cause, each.member_id, each.epoch) for each in scene.history] == [(Cause.MEMBER_JOINED, "a", 2)]
    assert scene.group.is_subscribed_to("orders-1")
    assert not scene.group.is_subscribed_to("orders")


def test_what_a_member_may_not_describe_is_left_out(monkeypatch):
    """A new coordinator does not know what members may know of until it hears of one."""
    monkeypatch.setattr(Asked, "may_describe", staticmethod(lambda name: name != "orders-2"))
    scene = Scene({"orders-1": 1, "orders-2": 1}, authorizer_class_name="one")
    asked = scene.join("a", subscribed_topic_regex="orders-.*")
    assert told(asked) == {"orders-1": {0}}
    scene.fail_over()
    scene.set_topics({"orders-1": 1, "orders-2": 1, "orders-3": 1})
    scene.pass_ms(5_000)
    assert not scene.group.is_subscribed_to("orders-3")
    scene.beat("a", 2)
    scene.pass_ms(5_000)
    assert [scene.group.is_subscribed_to(f"orders-{number}") for number in (1, 2, 3)] == [True, False, True]


def test_names_and_an_expression_together():
    scene = Scene({"t": 1, "orders-1": 1})
    asked = scene.join("a", "t", subscribed_topic_regex="orders-.*")
    assert told(asked) == {"t": {0}, "orders-1": {0}}


def test_an_expression_that_matches_nothing_is_answered_too():
    scene = Scene({"t": 1})
    asked = scene.join("a", subscribed_topic_regex="x.*")
    assert (asked.answer.member_epoch, told(asked)) == (1, {})


def test_an_expression_that_another_member_has_needs_no_resolution():
    scene = Scene({"t-1": 2, "t-2": 2})
    scene.join("a", subscribed_topic_regex="t.*")
    scene.pass_ms(ASSIGNMENT_MS)
    asked = scene.join("b", subscribed_topic_regex="t.*")
    assert scene.group.regex_counts == {"t.*": 2}
    assert asked.answer.member_epoch == scene.group.epoch
    assert sum(len(target) for target in scene.group.targets["b"].values()) == 2


def test_a_new_topic_reaches_those_whose_expression_it_matches():
    scene = Scene({"t-1": 1})
    scene.join("a", subscribed_topic_regex="t.*")
    epoch = scene.group.epoch
    scene.pass_ms(ASSIGNMENT_MS)
    scene.set_topics({"t-1": 1, "t-2": 1})
    scene.set_topics({"t-1": 1, "t-2": 1, "t-3": 1})
    scene.pass_ms(BATCH_MS - 1)
    assert scene.group.epoch == epoch
    scene.pass_ms(1)
    assert scene.group.epoch == epoch + 1
    assert scene.history[-1].detail == "expressions match 3 topics"
    assert told(scene.beat("a", epoch)) == {"t-1": {0}, "t-2": {0}, "t-3": {0}}


def test_the_last_user_of_an_expression_takes_it_along():
    scene = Scene({"t-1": 1, "u": 1})
    scene.join("a", subscribed_topic_regex="t.*")
    scene.join("b", subscribed_topic_regex="t.*")
    scene.pass_ms(ASSIGNMENT_MS)
    scene.beat("b", -1)
    assert set(scene.group.regexes) == {"t.*"}
    scene.pass_ms(ASSIGNMENT_MS)
    epoch = scene.group.members["a"].member_epoch
    asked = scene.beat("a", epoch, {"t-1": {0}}, subscribed_topic_regex="", subscribed_topic_names=["u"])
    scene.pass_ms(ASSIGNMENT_MS)
    assert scene.group.regexes == {}
    assert scene.group.topic_counts == {"u": 1}
    assert told(asked) == {}
    assert told(scene.beat("a", asked.answer.member_epoch, {})) == {"u": {0}}


def test_a_member_may_change_its_expression():
    scene = Scene({"t-1": 1, "u-1": 1})
    scene.join("a", subscribed_topic_regex="t.*")
    scene.pass_ms(ASSIGNMENT_MS)
    epoch = scene.group.members["a"].member_epoch
    asked = scene.beat("a", epoch, {"t-1": {0}}, subscribed_topic_regex="u.*")
    scene.pass_ms(ASSIGNMENT_MS)
    assert told(asked) == {}
    assert told(scene.beat("a", asked.answer.member_epoch, {})) == {"u-1": {0}}
    assert set(scene.group.regexes) == {"u.*"}


@pytest.mark.parametrize("regex", ["[", "(?=x)", r"\1", "x" * 10_001, "((a{100}){100}){100}"])
def test_an_expression_that_cannot_be_is_refused(regex):
    scene = Scene()
    with pytest.raises(KafkaError) as refused:
        scene.join("a", subscribed_topic_regex=regex)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert scene.machine.state.groups == {}


def test_expressions_are_resolved_in_steps_and_anew_after_a_failover():
    scene = Scene({f"t-{number}": 1 for number in range(1_000)})
    scene.work_is_held = True
    asked = scene.join("a", subscribed_topic_regex="t-.*")
    steps = scene.machine.take_work(scene.call())
    assert steps is not None
    taken = sum(1 for _ in zip(range(5), steps, strict=False))
    assert taken == 5
    assert asked.is_waiting
    scene.work_is_held = False
    scene.fail_over()
    assert set(scene.group.regexes["t-.*"].topics) == set(scene.image.topics)
    assert len(scene.group.targets["a"]) == 1_000


def test_a_member_that_leaves_while_its_expression_is_resolved():
    scene = Scene({"t": 1})
    scene.work_is_held = True
    scene.join("a", subscribed_topic_regex="t.*")
    steps = scene.machine.take_work(scene.call())
    assert steps is not None
    scene.beat("a", -1)
    scene.apply(run(steps))
    assert scene.group.regexes == {}
    assert scene.group.topic_counts == {}


def test_expressions_that_fill_more_than_a_batch_together_are_stored_in_parts_and_too_large_ones_match_nothing():
    names = {f"{letter}-{number:012}": 1 for letter in "tu" for number in range(40)}
    scene = Scene(names, message_max_bytes=2_000, group_consumer_assignment_interval_ms=0)
    scene.join("a", subscribed_topic_regex="t-.*")
    scene.join("b", subscribed_topic_regex="u-.*")
    assert [len(resolved.topics) for resolved in scene.group.regexes.values()] == [40, 40]
    scene.fail_over()
    assert [len(resolved.topics) for resolved in scene.group.regexes.values()] == [40, 40]
    scene.join("c", subscribed_topic_regex="[tu]-.*")
    assert len(scene.group.regexes["[tu]-.*"].topics) == 0
    assert scene.group.members["c"].member_epoch > 0


def refresh_batches(scene: Scene) -> list[int]:
    """Sizes of what the computations that are due write."""
    sizes = []
    while (steps := scene.machine.take_work(scene.call())) is not None:
        before = len(scene.log)
        scene.apply(run(steps))
        sizes.append(sum(len(key) + len(value or b"") for key, value, _ in scene.log[before:]))
    return sizes


def test_groups_with_long_names_that_a_topic_matters_to_fit_into_batches():
    scene = Scene({"t": 2}, message_max_bytes=100_000)
    names = [f"{number:02}" + "x" * 20_000 for number in range(12)]
    for name in names:
        scene.join("a", group_id=name)
    scene.work_is_held = True
    scene.set_topics({"t": 3})
    assert max(refresh_batches(scene)) < 90_000
    groups = scene.machine.state.groups
    assert {groups[name].epoch for name in names} == {3}  # type: ignore[attr-defined]


def test_long_expressions_that_match_nothing_fit_into_batches():
    scene = Scene({"t": 2}, message_max_bytes=40_000)
    scene.work_is_held = True
    for number in range(12):
        scene.join(f"m{number}", subscribed_topic_regex=f"none{number}" + "x?" * 1_000, group_id="g")
    sizes = refresh_batches(scene)
    assert max(sizes) < 20_000
    scene.work_is_held = False
    scene.work()
    assert len(scene.group.regexes) == 12


def test_a_stored_expression_that_is_not_understood_matches_nothing():
    scene = Scene({"t": 2})
    scene.join("a", subscribed_topic_regex="t.*")
    # As another version may have stored it, which allowed more.
    member = scene.group.members["a"]._replace(subscribed_topic_regex="t(?!never)")
    for key, value, _ in (member_record("g", member), regex_tombstone("g", "t.*")):
        scene.machine.replay(key, value)
        encoded = None if value is None else encode_coordinator_value(value, None)
        scene.log.append(Written(encode_coordinator_key(key), encoded, None))
    scene.fail_over()
    assert scene.group.regexes["t(?!never)"].topics == frozenset()
    assert not scene.group.is_resolving
    joined = scene.join("b", "t")
    scene.pass_ms(ASSIGNMENT_MS)
    assert joined.error is ErrorCode.NONE
    assert named(scene.group.targets["b"]) == {"t": {0, 1}}
