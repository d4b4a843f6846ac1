"""When targets are computed, and how they are stored."""

from tailrace.wire.apis.stored_records import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from tests.unit.coordinator.consumers.scene import ASSIGNMENT_MS, GROUP, Scene, told
from tests.unit.coordinator.scene import run


def test_targets_that_fill_more_than_a_batch_are_stored_in_parts():
    scene = Scene({"t": 400}, message_max_bytes=4_000)
    scene.join("first")
    joins = [scene.join(f"m{number:02}") for number in range(20)]
    scene.work_is_held = True
    scene.pass_ms(ASSIGNMENT_MS)
    parts = []
    while (steps := scene.machine.take_work(scene.call())) is not None:
        before = len(scene.log)
        scene.apply(run(steps))
        parts.append(len(scene.log) - before)
    assert len(parts) > 2
    assert scene.group.assignment_epoch == scene.group.epoch
    scene.work_is_held = False
    scene.work()
    assert all(asked.answer.member_epoch == scene.group.epoch for asked in joins)
    planned = [partition for target in scene.group.targets.values() for each in target.values() for partition in each]
    assert sorted(planned) == list(range(400))


def test_members_that_leave_while_targets_are_stored_get_none():
    scene = Scene({"t": 400}, message_max_bytes=4_000)
    scene.join("first")
    for number in range(20):
        scene.join(f"m{number:02}")
    scene.work_is_held = True
    scene.pass_ms(ASSIGNMENT_MS)
    steps = scene.machine.take_work(scene.call())
    assert steps is not None
    scene.apply(run(steps))
    for number in range(20):
        scene.beat(f"m{number:02}", -1)
    scene.work_is_held = False
    scene.work()
    scene.pass_ms(ASSIGNMENT_MS)
    assert set(scene.group.targets) == {"first"}
    assert scene.group.assignment_epoch == scene.group.epoch


def test_only_what_changed_is_stored_and_the_epoch_last():
    scene = Scene({"t": 4})
    scene.join("a")
    scene.pass_ms(ASSIGNMENT_MS)
    before = len(scene.log)
    scene.set_topics({"t": 5})
    keys = [key[:2] for key, *_ in scene.log[before:]]
    types = [int.from_bytes(key) for key in keys]
    target, epoch = (
        ConsumerGroupTargetAssignmentMemberKey.record_type,
        ConsumerGroupTargetAssignmentMetadataKey.record_type,
    )
    assert types == [3, target, epoch]


def test_a_member_that_joins_while_targets_are_computed_waits_for_the_next_ones():
    scene = Scene({"t": 4})
    scene.work_is_held = True
    first = scene.join("a")
    steps = scene.machine.take_work(scene.call())
    assert steps is not None
    next(steps)
    second = scene.join("b")
    scene.apply(run(steps))
    scene.pass_ms(0)
    assert told(first) == {"t": {0, 1, 2, 3}}
    assert second.is_waiting
    scene.work_is_held = False
    scene.work()
    scene.pass_ms(ASSIGNMENT_MS)
    assert second.answer.member_epoch == 3


def test_an_answer_is_not_put_off_for_longer_than_a_heartbeats_interval():
    scene = Scene({"t": 4})
    scene.join("a")
    scene.work_is_held = True
    asked = scene.join("b")
    scene.pass_ms(5_000)
    assert (asked.answer.member_epoch, told(asked)) == (2, {})


def test_the_interval_may_be_set_for_a_group():
    scene = Scene({"t": 4}, group_consumer_assignment_interval_ms=0)
    scene.join("a")
    assert scene.join("b").answer.member_epoch == 3
    assert scene.join("c").answer.member_epoch == 4


def test_a_plan_that_a_newer_one_has_overtaken_is_given_up():
    scene = Scene({"t": 20}, message_max_bytes=4_000)
    for number in range(20):
        scene.join(f"m{number:02}", "t", "u")
    scene.pass_ms(ASSIGNMENT_MS)
    before = dict(scene.group.targets)
    scene.pass_ms(ASSIGNMENT_MS)
    scene.work_is_held = True
    scene.set_topics({"t": 20, "u": 4_000})
    for _ in range(2):  # The metadata are compared, and the first of many parts is stored.
        steps = scene.machine.take_work(scene.call())
        assert steps is not None
        scene.apply(run(steps))
    assert ("consumer.storing", GROUP) in scene.machine.state.work
    scene.set_topics({"t": 20})
    epochs = []
    while (steps := scene.machine.take_work(scene.call())) is not None:
        scene.apply(run(steps))
        epochs.append(scene.group.assignment_epoch)
    assert epochs == sorted(epochs), "targets of an older epoch never follow those of a newer one"
    assert scene.group.targets == before
