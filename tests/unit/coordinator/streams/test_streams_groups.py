"""Members of streams groups: who has which tasks, and when; what the goldens of Kafka do not have."""

import json
from typing import Any

import pytest

from tailrace.coordinator.streams.group import StreamsGroup
from tailrace.coordinator.streams.topology import StatusCode
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.groups import (
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
)
from tests.unit.coordinator.scene import Asked
from tests.unit.coordinator.streams.scene import GROUP, Scene, subtopology

SESSION_MS = 45_000
COUNTING = ("0", ("t",), ("store-changelog",))


def codes(asked: Asked) -> list[StatusCode]:
    return [StatusCode(each.status_code) for each in asked.answer.status]


def told(asked: Asked) -> Any:
    """The active tasks of an answer; None if it has none."""
    tasks = asked.answer.active_tasks
    return None if tasks is None else {each.subtopology_id: each.partitions for each in tasks}


def classic_join(group: str = GROUP, member: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        member_id=member,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="stream", metadata=b"")],
    )


def commit(epoch: int, partition: int = 0, *, member: str = "m", topic: str = "t") -> OffsetCommitRequest:
    request = OffsetCommitRequest
    return request(
        group_id=GROUP,
        generation_id_or_member_epoch=epoch,
        member_id=member,
        topics=[
            request.OffsetCommitRequestTopic(
                name=topic,
                partitions=[request.OffsetCommitRequestPartition(partition_index=partition, committed_offset=7)],
            )
        ],
    )


def fetch(epoch: int, member: str | None) -> OffsetFetchRequest:
    request = OffsetFetchRequest
    return request(
        groups=[request.OffsetFetchRequestGroup(group_id=GROUP, member_id=member, member_epoch=epoch, topics=None)]
    )


@pytest.fixture
def scene() -> Scene:
    return Scene({"t": 4, "store-changelog": 4})


def test_an_answer_that_was_lost_with_its_connection_is_told_again(scene: Scene) -> None:
    scene.join()
    assert told(scene.beat()) is None, "one is enough on a connection that works"
    scene.peer = "127.0.0.1:50001"
    assert told(scene.beat()) == {"0": [0, 1, 2, 3]}
    assert told(scene.beat(active={"0": [0, 1, 2, 3]})) is None
    scene.peer = "127.0.0.1:50002"
    assert told(scene.beat()) is None, "the member has said that it has them"


def test_an_answer_that_was_lost_with_its_coordinator_is_told_again(scene: Scene) -> None:
    scene.join("a")
    scene.join("b")
    scene.beat("a", {"0": [0, 1, 2, 3]})
    scene.beat("a", {"0": [0, 1]})
    scene.beat("b")  # The answer has tasks, and nobody hears it.
    scene.fail_over()
    assert told(scene.beat("b", {}, member_epoch=3)) == {"0": [2, 3]}
    assert told(scene.beat("b", {"0": [2, 3]})) is None


def test_a_new_coordinator_gives_members_a_session_time_to_be_heard(scene: Scene) -> None:
    scene.join("a")
    scene.join("b")
    scene.fail_over()
    scene.pass_ms(SESSION_MS - 1)
    scene.beat("a")
    scene.pass_ms(2)
    assert list(scene.group.members) == ["a"]


def test_a_new_coordinator_waits_for_tasks_no_longer_than_the_old_one(scene: Scene) -> None:
    scene.join("a")
    scene.join("b")
    scene.beat("a", {"0": [0, 1, 2, 3]})
    scene.fail_over()
    scene.pass_ms(1_001)
    assert list(scene.group.members) == ["b"], "it did not give up its tasks"
    assert told(scene.beat("b")) == {"0": [0, 1, 2, 3]}


def test_a_log_that_was_compacted_gives_the_same(scene: Scene) -> None:
    scene.join("a", subtopology(*COUNTING))
    scene.set_config("streams.num.standby.replicas", "1")
    scene.join("b", subtopology(*COUNTING))
    scene.beat("a", {"0": [0, 1, 2, 3]})
    scene.beat("a", {"0": [0, 1]})
    scene.beat("b", {})
    scene.join("c", subtopology(*COUNTING))
    scene.leave("c")
    before = scene.durable(scene.machine)
    latest = {written.key: written for written in scene.log}
    for _ in range(2):  # With tombstones, and when they are gone too.
        scene.log = [written for written in scene.log if latest[written.key] is written]
        scene.check_replay()
        latest = {key: written for key, written in latest.items() if written.value is not None}
        scene.log = [written for written in scene.log if written.key in latest]
    assert scene.durable(scene.replayed()) == before


def test_many_tasks_are_assigned_in_slices() -> None:
    scene = Scene({"t": 250})
    scene.work_is_held = True
    joined = scene.join()
    assert codes(joined) == [StatusCode.ASSIGNMENT_DELAYED]
    assert (joined.answer.member_epoch, told(joined)) == (1, {})
    assert codes(scene.beat()) == [StatusCode.ASSIGNMENT_DELAYED], "it is computed once"
    scene.work_is_held = False
    scene.work()
    assert told(scene.beat()) == {"0": list(range(250))}


def test_who_leaves_while_targets_are_computed_gets_none() -> None:
    scene = Scene({"t": 250})
    scene.join("a")
    scene.work_is_held = True
    scene.join("b")
    scene.leave("b")
    scene.work_is_held = False
    scene.work()
    assert list(scene.group.targets) == ["a"]
    assert codes(scene.beat("a")) == [StatusCode.ASSIGNMENT_DELAYED]
    scene.work()
    assert scene.group.targets["a"].active == {"0": frozenset(range(250))}


def test_records_that_cannot_be_written_leave_nothing_behind(scene: Scene) -> None:
    request = StreamsGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="m",
        rebalance_timeout_ms=1_000,
        topology=StreamsGroupHeartbeatRequest.Topology(subtopologies=[subtopology()]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    result = scene.machine.op(scene.call(), Asked(0), request)
    assert result.on_refused is not None
    scene.apply(result.on_refused(scene.call()))
    assert GROUP not in scene.machine.state.groups
    assert scene.machine.next_deadline_ms() is None
    scene.join("a")
    refused = scene.machine.op(scene.call(), Asked(0), request)
    scene.apply(refused.on_refused(scene.call()))
    assert list(scene.group.members) == ["a"]
    scene.join()
    assert sorted(scene.group.members) == ["a", "m"]


def test_a_classic_group_without_members_becomes_a_streams_group_and_back(scene: Scene) -> None:
    scene.ask(commit(-1, member=""), 9)
    scene.join()
    assert isinstance(scene.machine.state.groups[GROUP], StreamsGroup)
    scene.beat(active={"0": [0, 1, 2, 3]})
    assert scene.ask(classic_join(), 9).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    scene.leave()
    joining = scene.ask(classic_join(), 9)
    assert joining.error is ErrorCode.MEMBER_ID_REQUIRED
    assert scene.machine.state.groups[GROUP].type.value == "classic"
    (group,) = scene.ask(fetch(-1, None), 9).answer.groups
    assert group.topics[0].partitions[0].committed_offset == 7, "it goes on where it was"


def test_other_members_do_not_get_in(scene: Scene) -> None:
    scene.join()
    heartbeat = HeartbeatRequest(group_id=GROUP, member_id="m", generation_id=1)
    assert scene.ask(heartbeat).error is ErrorCode.UNKNOWN_MEMBER_ID
    consumer = ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id="x", rebalance_timeout_ms=1, subscribed_topic_names=["t"], topic_partitions=[]
    )
    assert scene.refusal_of(consumer) is ErrorCode.GROUP_ID_NOT_FOUND
    scene.leave()
    assert scene.refusal_of(consumer) is ErrorCode.GROUP_ID_NOT_FOUND, "not even into an empty one, as in Kafka"


def test_a_member_commits_in_its_epoch(scene: Scene) -> None:
    scene.join()
    epoch = scene.group.members["m"].member_epoch
    assert not scene.ask(commit(epoch), 9).answer.topics[0].partitions[0].error_code
    for wrong in (epoch + 1, epoch - 1):
        assert scene.refusal_of(commit(wrong), 9) is ErrorCode.STALE_MEMBER_EPOCH
    assert scene.refusal_of(commit(epoch), 8) is ErrorCode.UNSUPPORTED_VERSION
    assert scene.refusal_of(commit(epoch, member="x"), 9) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.refusal_of(commit(-1, member=""), 9) is ErrorCode.UNKNOWN_MEMBER_ID
    assert not scene.ask(fetch(epoch, "m"), 9).answer.groups[0].error_code
    assert scene.refusal_of(fetch(epoch - 1, "m"), 9) is ErrorCode.STALE_MEMBER_EPOCH


def test_who_is_behind_commits_what_it_has_had_since_before_its_epoch(scene: Scene) -> None:
    scene.join("m")
    scene.join("n")
    old = scene.group.members["m"].member_epoch
    scene.beat("m", {"0": [0, 1, 2, 3]})
    scene.beat("m", {"0": [0, 1]})
    assert scene.group.members["m"].member_epoch > old
    scene.ask(commit(old, 0), 9)
    assert scene.refusal_of(commit(old, 3), 9) is ErrorCode.STALE_MEMBER_EPOCH, "it is another's by now"
    scene.beat("n")
    assert scene.refusal_of(commit(old, 3, member="n"), 9) is ErrorCode.STALE_MEMBER_EPOCH, "given in a later epoch"
    assert scene.refusal_of(commit(old, 0, topic="store-changelog"), 9) is ErrorCode.STALE_MEMBER_EPOCH


def test_a_group_is_deleted_without_members(scene: Scene) -> None:
    scene.join()
    scene.ask(commit(scene.group.members["m"].member_epoch), 9)
    delete = DeleteGroupsRequest(groups_names=[GROUP])
    assert scene.refusal_of(delete) is ErrorCode.NON_EMPTY_GROUP
    scene.leave()
    scene.ask(delete)
    assert not scene.machine.state.groups
    live = {written.key: written.value for written in scene.log}
    assert not any(live.values()), "nothing is left of it once the log is compacted"


def test_wherever_the_cleaner_has_come_to_a_deleted_group_is_gone(scene: Scene) -> None:
    scene.join()
    scene.leave()
    scene.ask(DeleteGroupsRequest(groups_names=[GROUP]))
    log = list(scene.log)
    for end in range(len(log) + 1):
        last = {written.key: number for number, written in enumerate(log[:end])}
        cleaned = [each for number, each in enumerate(log[:end]) if last[each.key] == number and each.value is not None]
        scene.log = cleaned + log[end:]
        assert not scene.replayed().state.groups, end


def test_what_is_not_committed_for_long_goes_and_the_group_with_it(scene: Scene) -> None:
    scene.join()
    scene.ask(commit(scene.group.members["m"].member_epoch), 9)
    scene.leave()
    scene.load()
    scene.pass_ms(8 * 24 * 3_600_000)
    assert GROUP not in scene.machine.state.groups


def test_a_group_that_reads_a_topic_keeps_its_offsets(scene: Scene) -> None:
    scene.join()
    assert scene.group.is_subscribed_to("t")
    assert not scene.group.is_subscribed_to("store-changelog")
    scene.leave()
    assert not scene.group.is_subscribed_to("t")


def test_internal_topics_are_told_with_what_they_need(scene: Scene) -> None:
    scene.join("m", subtopology("0", ("t",), ("new-changelog",)))
    assert scene.group.state_name == "NotReady"
    assert scene.group.configured is not None
    missing = scene.group.configured.missing["new-changelog"]
    assert (missing.partition_count, missing.replication_factor) == (4, 0)
    scene.create_missing()
    assert told(scene.beat()) == {"0": [0, 1, 2, 3]}
    assert scene.group.state_name == "Stable"


def test_a_topic_of_the_wrong_size_takes_the_tasks_away(scene: Scene) -> None:
    scene.join("m", subtopology(*COUNTING))
    scene.set_topics({"t": 5, "store-changelog": 4})
    beat = scene.beat()
    assert codes(beat) == [StatusCode.INCORRECTLY_PARTITIONED_TOPICS]
    assert (
        "store-changelog has different number of partitions: expected 5, found 4" in beat.answer.status[0].status_detail
    )
    assert told(beat) == {}


def test_a_group_of_another_kind_is_not_described(scene: Scene) -> None:
    scene.ask(commit(-1, member=""), 9)
    (described,) = scene.ask(StreamsGroupDescribeRequest(group_ids=[GROUP])).answer.groups
    assert ErrorCode(described.error_code) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_description_survives_a_failover(scene: Scene) -> None:
    scene.join("m", subtopology(*COUNTING))
    request = StreamsGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=True)
    before = scene.ask(request).answer
    scene.fail_over()
    after = scene.ask(request).answer
    assert after == before
    (topic,) = after.groups[0].topology.subtopologies[0].state_changelog_topics
    assert (topic.name, topic.partitions) == ("store-changelog", 4)


def test_a_member_is_told_of_a_rack_that_moved_nothing(scene: Scene) -> None:
    """Heartbeats that change nothing write nothing."""
    scene.join()
    size = len(scene.log)
    for _ in range(3):
        scene.beat(active={"0": [0, 1, 2, 3]})
    assert len(scene.log) == size


def test_why_it_rebalanced_is_remembered(scene: Scene) -> None:
    scene.join()
    scene.set_topics({"t": 5})
    scene.beat()
    scene.leave()
    details = [each.detail for each in scene.machine.state.history.of(GROUP)]
    expected = ["member m joined, 1 now", "topics of the topology have changed", "member m left"]
    assert details == expected, json.dumps(details)
