"""The last member of the consumer protocol goes: the group is a classic one again."""

import pytest

from tailrace.coordinator.history import Cause
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.stored_records import GROUP_RECORDS, GroupMetadataKey, GroupMetadataValue
from tailrace.wire.record_envelopes import decode_coordinator_record
from tests.unit.coordinator.consumers.scene import SESSION_MS as CONSUMER_SESSION_MS
from tests.unit.coordinator.migration.scene import (
    BEAT_MS,
    REBALANCE_MS,
    SESSION_MS,
    ClassicClient,
    ConsumerClient,
    Scene,
    check_owners,
    read_assignment,
    run,
    settle,
)


def mixed_group(scene: Scene, consumer: ConsumerClient) -> list[ClassicClient]:
    """One of the consumer protocol, and two of the classic one."""
    classic = [ClassicClient(scene), ClassicClient(scene)]
    settle(scene, classic)
    settle(scene, [*classic, consumer])
    assert scene.type == "consumer"
    return classic


def test_the_group_rebalances_from_the_targets_that_it_had() -> None:
    scene = Scene()
    consumer = ConsumerClient(scene, "c")
    classic = mixed_group(scene, consumer)
    epoch, targets, start = scene.group.epoch, dict(scene.group.targets), len(scene.log)
    consumer.leave()
    group = scene.classic
    assert (group.state, group.generation, group.protocol_name) == ("PreparingRebalance", epoch, "range")
    assert scene.history[-1].cause is Cause.PROTOCOL_CHANGED
    written = [decode_coordinator_record(GROUP_RECORDS, key, value) for key, value, _ in scene.log[start:]]
    key, stored = written.pop()
    assert isinstance(key, GroupMetadataKey)
    assert isinstance(stored, GroupMetadataValue)
    assert {member.member_id: read_assignment(member.assignment) for member in stored.members} == {
        client.member_id: {("t", index) for index in next(iter(targets[client.member_id].values()))}
        for client in classic
    }
    assert all(value is None for _, value in written)
    settle(scene, classic)
    assert stored.generation == epoch + 1
    assert scene.classic.generation == epoch + 2


def test_a_consumer_that_is_not_heard_any_more_is_the_last_one_too() -> None:
    scene = Scene()
    consumer = ConsumerClient(scene, "c")
    classic = mixed_group(scene, consumer)
    run(scene, classic, CONSUMER_SESSION_MS // 1000 + 1)
    assert scene.type == "classic"
    settle(scene, classic)


def test_a_group_of_both_goes_on_while_one_of_the_consumer_protocol_is_left() -> None:
    scene = Scene()
    first, second = ConsumerClient(scene, "c1"), ConsumerClient(scene, "c2")
    classic = mixed_group(scene, first)
    settle(scene, [*classic, first, second])
    first.leave()
    assert scene.type == "consumer"
    second.leave()
    assert scene.type == "classic"


def test_a_group_without_any_member_left_stays_what_it_is() -> None:
    scene = Scene()
    consumer = ConsumerClient(scene, "c")
    for client in mixed_group(scene, consumer):
        client.leave()
    consumer.leave()
    assert scene.type == "consumer"
    assert scene.group.state_name == "Empty"


@pytest.mark.parametrize(
    ("settings", "group_type"),
    [
        ({"group_consumer_migration_policy": "bidirectional"}, "classic"),
        ({"group_consumer_migration_policy": "upgrade"}, "consumer"),
        ({"group_max_size": 2}, "classic"),
    ],
)
def test_the_policy_and_the_size_decide(settings: dict[str, object], group_type: str) -> None:
    scene = Scene(**settings)
    consumer = ConsumerClient(scene, "c")
    classic = mixed_group(scene, consumer)
    consumer.leave()
    assert scene.type == group_type
    settle(scene, classic)
    assert scene.type == group_type


def test_a_group_too_large_for_a_classic_one_stays_a_consumer_group() -> None:
    scene = Scene(group_max_size=1)
    first, second, consumer = ClassicClient(scene), ClassicClient(scene), ConsumerClient(scene, "c")
    settle(scene, [first])
    settle(scene, [first, consumer])
    settle(scene, [first, consumer, second])
    consumer.leave()
    settle(scene, [first, second])
    assert scene.type == "consumer"


def test_sessions_go_on_under_the_classic_protocol() -> None:
    scene = Scene()
    consumer = ConsumerClient(scene, "c")
    silent, other = mixed_group(scene, consumer)
    consumer.leave()
    run(scene, [other], SESSION_MS // 1000 + 1)
    assert silent.member_id not in scene.classic.members
    settle(scene, [other])


def test_another_coordinator_rebalances_even_if_it_does_not_know_why() -> None:
    """Else nobody would have the partitions of the one who has gone."""
    scene = Scene()
    consumer = ConsumerClient(scene, "c")
    classic = mixed_group(scene, consumer)
    consumer.leave()
    scene.fail_over()
    settle(scene, classic)


def test_another_coordinator_goes_on_with_the_rebalance() -> None:
    scene = Scene()
    consumer = ConsumerClient(scene, "c")
    classic = mixed_group(scene, consumer)
    consumer.leave()
    generation, leader_id = scene.classic.generation, scene.classic.leader_id
    scene.fail_over()
    group = scene.classic
    assert (group.state, group.generation, group.leader_id) == ("PreparingRebalance", generation, leader_id)
    assert scene.history[-1].cause is Cause.COORDINATOR_CHANGED
    for client in classic:
        client.step()
    # They are members still, and so they may commit what they have done.
    assert [client.errors[-1] for client in classic] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    settle(scene, classic)


def test_another_coordinator_waits_for_a_member_that_does_not_join_as_long_as_for_any() -> None:
    scene = Scene()
    consumer = ConsumerClient(scene, "c")
    silent, other = mixed_group(scene, consumer)
    consumer.leave()
    scene.fail_over()
    other.step()
    other.step()
    for _ in range(REBALANCE_MS // BEAT_MS):
        assert silent.member_id in scene.classic.members
        silent.heartbeat()
        scene.pass_ms(BEAT_MS)
    assert silent.member_id not in scene.classic.members
    settle(scene, [other])


@pytest.mark.parametrize("count", [1, 2])
def test_static_members_come_back_to_another_coordinator_under_other_ids(count: int) -> None:
    """In a stable group they would go on with what they had, and be told not to assign (KIP-814)."""
    scene = Scene()
    consumer = ConsumerClient(scene, "c")
    settle(scene, [consumer])
    instance_ids = [f"i{place}" for place in range(count)]
    for instance_id in instance_ids:
        ClassicClient(scene, instance_id=instance_id).ask_to_join()
    consumer.leave()
    assert scene.classic.static_member_ids.keys() == set(instance_ids)
    # The answers are lost with the coordinator, and so the clients do not know their member ids.
    scene.fail_over()
    settle(scene, [ClassicClient(scene, instance_id=instance_id) for instance_id in instance_ids])


def test_another_coordinator_gives_nobody_what_another_member_still_has() -> None:
    scene = Scene()
    consumer, first, second = ConsumerClient(scene, "c"), ClassicClient(scene), ClassicClient(scene)
    settle(scene, [first])
    settle(scene, [first, consumer])
    # The second one's target has a partition of the first one, who has yet to learn that it must give it up.
    run(scene, [second], 3)
    assert second.owned == set()
    consumer.leave()
    scene.fail_over()
    for _ in range(8):
        second.step()
        check_owners([first, second])
    settle(scene, [first, second])


def test_a_new_coordinator_between_join_and_sync_after_it() -> None:
    scene = Scene()
    consumer = ConsumerClient(scene, "c")
    classic = mixed_group(scene, consumer)
    consumer.leave()
    for client in classic:
        client.step()
    for client in classic:
        client.ask_to_join()
    assert scene.classic.state == "CompletingRebalance"
    # They sync in a generation that the new coordinator does not know.
    scene.fail_over()
    settle(scene, classic)


def test_a_join_that_waits_for_targets_waits_for_the_classic_group_then() -> None:
    scene = Scene()
    consumer = ConsumerClient(scene, "c")
    classic = mixed_group(scene, consumer)
    newcomer = ClassicClient(scene)
    newcomer.step()
    newcomer.step()
    assert list(scene.group.waiting) == [newcomer.member_id]
    consumer.leave()
    assert scene.classic.joining_count == 1
    settle(scene, [*classic, newcomer])
    assert newcomer.errors.count(ErrorCode.NONE) == len(newcomer.errors) - 1, "it was told to join twice"


def test_the_last_static_member_comes_back_while_another_join_waits() -> None:
    scene = Scene()
    consumer = ConsumerClient(scene, "c", instance_id="i")
    classic = mixed_group(scene, consumer)
    newcomer, returned = ClassicClient(scene), ClassicClient(scene, instance_id="i")
    newcomer.step()
    newcomer.step()
    consumer.leave(-2)
    returned.step()
    assert scene.classic.state == "PreparingRebalance"
    settle(scene, [*classic, newcomer, returned])


def test_the_last_static_member_comes_back_as_a_classic_one_without_a_rebalance() -> None:
    scene = Scene()
    consumer = ConsumerClient(scene, "c", instance_id="i")
    classic = mixed_group(scene, consumer)
    owned, epoch = consumer.owned, scene.group.epoch
    consumer.leave(-2)
    returned = ClassicClient(scene, instance_id="i")
    returned.step()
    assert scene.type == "classic"
    assert (scene.classic.state, scene.classic.generation) == ("Stable", epoch)
    returned.step()
    assert returned.owned == owned
    assert returned.generation == epoch
    settle(scene, [*classic, returned])
    assert scene.classic.generation == epoch


def test_the_last_static_member_comes_back_with_another_subscription() -> None:
    scene = Scene({"t": 6, "u": 1})
    consumer = ConsumerClient(scene, "c", instance_id="i")
    classic = mixed_group(scene, consumer)
    consumer.leave(-2)
    returned = ClassicClient(scene, instance_id="i")
    returned.topics = ["t", "u"]
    returned.step()
    assert scene.classic.state == "PreparingRebalance"
    settle(scene, [*classic, returned])


def test_a_static_member_that_comes_back_among_others_keeps_its_target() -> None:
    scene = Scene()
    consumer, other = ConsumerClient(scene, "c", instance_id="i"), ConsumerClient(scene, "d")
    settle(scene, [consumer, other])
    owned = consumer.owned
    consumer.leave(-2)
    returned = ClassicClient(scene, instance_id="i")
    returned.step()
    returned.step()
    assert scene.type == "consumer"
    assert returned.owned == owned
    settle(scene, [returned, other])


def test_a_group_that_does_not_fit_into_one_record_stays_a_consumer_group() -> None:
    scene = Scene()
    consumer = ConsumerClient(scene, "c")
    classic = mixed_group(scene, consumer)
    scene.config = scene.config.replace(message_max_bytes=1000)
    consumer.leave()
    assert scene.type == "consumer"
    settle(scene, classic)
