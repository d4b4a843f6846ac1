"""Offsets of transactions: they count once their marker says so, and never if it says otherwise."""

import pytest

from tailrace.coordinator.offsets.store import offset_record
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.groups import DeleteGroupsRequest, OffsetDeleteRequest
from tailrace.wire.apis.transactions import TxnOffsetCommitRequest
from tests.unit.coordinator.offsets.scene import Asked, Scene, classic_group

Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
Partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition


def commit(
    scene: Scene, offset: int, *, producer_id: int = 5, partition: int = 0, topic: str = "t", **rest: object
) -> Asked:
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=producer_id,
        producer_epoch=1,
        topics=[Topic(name=topic, partitions=[Partition(partition_index=partition, committed_offset=offset)])],
        **rest,
    )
    return scene.ask(request, 5)


@pytest.mark.parametrize(("is_commit", "expected"), [(True, 9), (False, 7)])
def test_an_offset_waits_for_its_marker(is_commit: bool, expected: int) -> None:
    scene = Scene()
    scene.commit(7)
    commit(scene, 9)
    assert scene.fetch(0, 1) == {0: 7, 1: -1}
    assert scene.fetch(0, 1, require_stable=True) == {0: ErrorCode.UNSTABLE_OFFSET_COMMIT, 1: -1}
    scene.mark(6, is_commit=True)
    assert scene.fetch(0) == {0: 7}, "the marker of another producer"
    scene.mark(5, is_commit=is_commit)
    assert scene.fetch(0, require_stable=True) == {0: expected}
    scene.mark(5, is_commit=True)
    assert scene.fetch(0) == {0: expected}


def test_what_was_committed_last_stays() -> None:
    scene = Scene()
    commit(scene, 9)
    scene.commit(12)
    assert scene.fetch(0, require_stable=True) == {0: ErrorCode.UNSTABLE_OFFSET_COMMIT}
    scene.mark(5, is_commit=True)
    assert scene.fetch(0, require_stable=True) == {0: 12}


def test_a_transaction_that_commits_again_after_that() -> None:
    scene = Scene()
    commit(scene, 9)
    scene.commit(12)
    commit(scene, 15)
    scene.mark(5, is_commit=True)
    assert scene.fetch(0) == {0: 15}


def test_two_transactions_count_in_the_order_of_their_markers() -> None:
    scene = Scene()
    commit(scene, 9, producer_id=5)
    commit(scene, 10, producer_id=6, partition=1)
    scene.mark(6, is_commit=True)
    assert scene.fetch(0, 1, require_stable=True) == {0: ErrorCode.UNSTABLE_OFFSET_COMMIT, 1: 10}
    scene.mark(5, is_commit=True)
    assert scene.fetch(0, 1, require_stable=True) == {0: 9, 1: 10}


@pytest.mark.parametrize("order", [(5, 6), (6, 5)])
def test_of_two_transactions_on_one_partition_the_last_one_written_stays(order: tuple[int, int]) -> None:
    """Else a coordinator that loads the compacted log, where only the last one is left, would tell another offset."""
    scene = Scene()
    commit(scene, 9, producer_id=5)
    commit(scene, 10, producer_id=6)
    for producer_id in order:
        scene.mark(producer_id, is_commit=True)
    assert scene.fetch(0) == {0: 10}


def test_a_tombstone_takes_what_is_pending() -> None:
    scene = Scene()
    commit(scene, 9)
    scene.store(offset_record("g", "t", 0, None))
    scene.mark(5, is_commit=True)
    assert scene.fetch(0, require_stable=True) == {0: -1}


def test_a_group_of_an_open_transaction_exists_and_its_offsets_can_be_deleted() -> None:
    scene = Scene()
    commit(scene, 9)
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(
        name="t", partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)]
    )
    asked = scene.ask(OffsetDeleteRequest(group_id="g", topics=[topic]), 0)
    assert [record.key.partition for record in asked.records] == [0]  # type: ignore[attr-defined]
    scene.mark(5, is_commit=True)
    assert scene.fetch(0) == {0: -1}


def test_a_group_is_deleted_with_what_is_pending() -> None:
    scene = Scene()
    commit(scene, 9)
    scene.commit(7)
    commit(scene, 10, partition=1)
    (result,) = scene.ask(DeleteGroupsRequest(groups_names=["g"]), 2).answer.results
    assert result.error_code == 0
    scene.mark(5, is_commit=True)
    assert scene.fetch(0, 1) == {0: -1, 1: -1}


def test_who_may_commit() -> None:
    scene = Scene()
    assert commit(scene, 9, generation_id=1, member_id="m").code == ErrorCode.ILLEGAL_GENERATION
    scene.store(classic_group("g", "t"))
    assert commit(scene, 9).code == ErrorCode.NONE, "producers of old versions tell no generation"
    assert commit(scene, 9, generation_id=2, member_id="m").code == ErrorCode.ILLEGAL_GENERATION
    assert commit(scene, 9, generation_id=3, member_id="n").code == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(scene, 9, generation_id=3, member_id="m").code == ErrorCode.NONE


def test_partitions_that_cannot_be_stored() -> None:
    scene = Scene()
    asked = commit(scene, 9, partition=7)
    assert asked.answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert scene.log == []
