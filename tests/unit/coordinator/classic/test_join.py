"""How a client becomes a member: ids, first generation, refusals."""

import pytest

from tailrace.model.errors import ErrorCode
from tests.unit.coordinator.classic.scene import DELAY_MS, GROUP, RANGE, REBALANCE_MS, ROUNDROBIN, SESSION_MS, Scene


def test_a_client_joins_twice_and_the_first_generation_waits_for_the_initial_delay():
    scene = Scene()
    first = scene.join(client_id="app")
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    member_id = first.answer.member_id
    assert member_id.startswith("app-")
    assert len(member_id) == len("app-") + 36
    assert scene.group.state == "Empty"

    second = scene.join(member_id)
    assert scene.group.state == "PreparingRebalance"
    scene.pass_ms(DELAY_MS - 1)
    assert second.is_waiting
    scene.pass_ms(1)
    assert second.error is ErrorCode.NONE
    assert scene.group.state == "CompletingRebalance"
    answer = second.answer
    assert (answer.generation_id, answer.leader, answer.member_id) == (1, member_id, member_id)
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert [(each.member_id, each.metadata) for each in answer.members] == [(member_id, RANGE[1])]


@pytest.mark.parametrize("version", [0, 3])
def test_an_old_client_is_a_member_at_once(version):
    scene = Scene()
    asked = scene.join(version=version)
    assert asked.is_waiting
    scene.pass_ms(DELAY_MS)
    assert asked.error is ErrorCode.NONE
    assert scene.group.rebalance_timeout_ms == (SESSION_MS if version == 0 else REBALANCE_MS)


def test_each_new_member_prolongs_the_initial_delay_up_to_the_rebalance_timeout():
    scene = Scene()
    joins = [scene.join(version=3)]
    for _ in range(30):
        scene.pass_ms(DELAY_MS - 500)
        if not joins[0].is_waiting:
            break
        joins.append(scene.join(version=3))
    assert not joins[0].is_waiting
    assert REBALANCE_MS - DELAY_MS <= scene.monotonic_ms <= REBALANCE_MS + DELAY_MS
    assert all(asked.answer.generation_id == 1 for asked in joins)
    assert [len(asked.answer.members) for asked in joins] == [len(joins)] + [0] * (len(joins) - 1)


def test_the_initial_delay_is_not_prolonged_if_nobody_comes():
    scene = Scene()
    first = scene.join(version=3)
    scene.pass_ms(DELAY_MS - 1)
    second = scene.join(version=3)
    scene.pass_ms(1)
    assert first.is_waiting
    scene.pass_ms(DELAY_MS)
    assert first.error is second.error is ErrorCode.NONE


def test_a_pending_member_id_holds_up_a_rebalance_until_its_session_ends():
    scene = Scene()
    (member,) = scene.stable(1)
    pending = scene.new_member_id()
    scene.join(member)  # The leader joins again.
    assert scene.group.state == "PreparingRebalance"
    scene.pass_ms(SESSION_MS)
    assert pending not in scene.group.pending_joins
    assert scene.group.state == "CompletingRebalance"
    assert scene.join(pending).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_members_choose_the_protocol_that_most_like_best_of_those_that_all_know():
    scene = Scene()
    joins = [
        scene.join("", RANGE, ROUNDROBIN, version=3),
        scene.join("", ("sticky", b""), ROUNDROBIN, RANGE, version=3),
        scene.join("", ROUNDROBIN, RANGE, version=3),
    ]
    scene.pass_ms(2 * DELAY_MS)
    assert {asked.answer.protocol_name for asked in joins} == {"roundrobin"}


def test_who_has_no_protocol_in_common_is_refused():
    scene = Scene()
    (member,) = scene.stable(1)
    refused = scene.join("", ROUNDROBIN)
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scene.join("", RANGE, protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scene.join(member, ROUNDROBIN).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scene.group.state == "Stable"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"member_id": "app-unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_bad_request_leaves_no_group_behind(fields, error):
    scene = Scene()
    asked = scene.join(**fields)
    assert asked.error is error
    assert asked.answer.member_id == fields.get("member_id", "")
    assert not scene.machine.state.groups
    assert not scene.log


def test_an_unknown_member_of_a_group_is_told_so():
    scene = Scene()
    scene.stable(1)
    assert scene.join("app-unknown").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.join("app-unknown", group_instance_id="i").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_has_at_most_its_maximum_of_members():
    scene = Scene(group_max_size=2)
    joins = [scene.join(version=3) for _ in range(3)]
    assert joins[2].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert joins[2].answer.member_id == ""
    scene.pass_ms(2 * DELAY_MS)
    assert len(scene.group.members) == 2
    assert scene.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    # Those who are in may come again.
    members = list(scene.group.members)
    assert [scene.join(each).error for each in members] == [ErrorCode.NONE] * 2


def test_a_pending_member_that_finds_the_group_full_is_forgotten():
    scene = Scene(group_max_size=1)
    first, second = scene.new_member_id(), scene.new_member_id()
    joined = scene.join(first)
    assert scene.join(second).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not scene.group.pending_joins
    scene.pass_ms(DELAY_MS)
    assert joined.error is ErrorCode.NONE


def test_a_lowered_maximum_makes_a_loaded_group_rebalance_and_refuses_the_last_ones():
    scene = Scene()
    ids = scene.stable(3)
    scene.config = Scene(group_max_size=2).config
    scene.fail_over()
    assert scene.group.state == "PreparingRebalance"
    joins = [scene.join(each) for each in ids]
    assert [asked.error for asked in joins] == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert list(scene.group.members) == ids[:2]


def test_a_new_member_whose_client_never_hears_of_a_generation_is_dropped_after_five_minutes():
    scene = Scene()
    long_ms = 1_800_000
    member = scene.new_member_id()
    joined = scene.join(member, rebalance_timeout_ms=long_ms)
    scene.pass_ms(DELAY_MS)
    scene.sync_all([member])
    newcomer = scene.join(version=3, rebalance_timeout_ms=long_ms)
    for _ in range(299_999 // 9_000):
        scene.pass_ms(9_000)
        assert scene.heartbeat(member, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert newcomer.is_waiting
    scene.pass_ms(9_000)
    assert newcomer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert list(scene.group.members) == [member]
    assert joined.error is ErrorCode.NONE


def test_a_request_that_is_repeated_ends_the_wait_of_the_first_one():
    scene = Scene()
    member = scene.new_member_id()
    first = scene.join(member)
    second = scene.join(member)
    assert first.error is ErrorCode.UNKNOWN_MEMBER_ID
    scene.pass_ms(2 * DELAY_MS)
    assert second.error is ErrorCode.NONE


def test_the_reason_of_the_client_is_in_the_history():
    scene = Scene()
    scene.join(version=8, group_instance_id="i", reason="rebalance enforced by user")
    (rebalance,) = scene.history
    assert rebalance.cause == "member joined"
    assert rebalance.detail.endswith("joined: rebalance enforced by user")
    assert (rebalance.epoch, rebalance.client_id) == (0, "app")


def test_a_long_reason_does_not_fill_the_memory():
    scene = Scene()
    scene.join(client_id="c" * 30_000, version=3)
    scene.join(version=8, group_instance_id="i", reason="r" * 30_000)
    scene.pass_ms(2 * DELAY_MS)
    scene.leave((next(iter(scene.group.members)), None))
    assert len(scene.history) == 2
    assert all(len(text) <= 500 for each in scene.history for text in (each.detail, each.member_id, each.client_id))


def test_a_machine_serves_several_groups():
    scene = Scene()
    scene.join(version=3)
    other = scene.join(version=3, group_id="other")
    assert set(scene.machine.state.groups) == {GROUP, "other"}
    scene.pass_ms(DELAY_MS)
    assert other.answer.generation_id == 1


def test_a_client_with_a_name_as_long_as_may_be_gets_an_id_that_can_be_stored():
    scene = Scene()
    asked = scene.join(client_id="c" * 32_767)
    member_id = asked.answer.member_id
    joined = scene.join(member_id, client_id="c" * 32_767)
    scene.pass_ms(DELAY_MS)
    assert joined.error is ErrorCode.NONE
    assert scene.sync(member_id, 1, {member_id: b"all"}).error is ErrorCode.NONE
    static = scene.join(group_instance_id="i" * 32_767)
    scene.join(member_id)
    assert static.error is ErrorCode.NONE


def test_ids_that_were_given_away_and_never_used_do_not_pile_up(monkeypatch):
    monkeypatch.setattr("tailrace.coordinator.classic.join._PENDING_JOINS_MAX", 3)
    scene = Scene()
    given = [scene.join().answer.member_id for _ in range(5)]
    assert list(scene.group.pending_joins) == given[2:]
    assert len(scene.machine.state.deadlines) == 3
    assert scene.join(given[0]).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.join(given[4]).is_waiting
