"""How long offsets are kept, and what becomes of groups of which nothing is left."""

from typing import Any

import pytest

from tailrace.coordinator.offsets.batch_capacity import RECORDS_PER_BATCH
from tailrace.coordinator.offsets.store import offset_record
from tailrace.wire.apis.groups import JoinGroupRequest
from tailrace.wire.apis.stored_records import OffsetCommitValue
from tailrace.wire.apis.transactions import TxnOffsetCommitRequest
from tests.unit.coordinator.offsets.scene import (
    MINUTE_MS,
    RETENTION_MINUTES,
    Scene,
    classic_group,
    contents,
    subscription,
    topic_id,
)
from tests.unit.coordinator.scene import START_MS, run

RETENTION_MS = RETENTION_MINUTES * MINUTE_MS


@pytest.fixture
def scene() -> Scene:
    scene = Scene(offsets_retention_check_interval_ms=MINUTE_MS)
    scene.load()
    return scene


def left(scene: Scene) -> set[tuple[str, int]]:
    return {(topic, partition) for _, topic, partition in contents(scene.offsets)}


def test_a_group_that_only_has_offsets_keeps_them_from_their_commit(scene: Scene) -> None:
    scene.commit(7)
    scene.sleep_ms(MINUTE_MS)
    scene.commit(8, partition=1)
    scene.sleep_ms(RETENTION_MS - MINUTE_MS - 1)
    assert left(scene) == {("t", 0), ("t", 1)}
    scene.sleep_ms(MINUTE_MS)
    assert left(scene) == {("t", 1)}
    scene.sleep_ms(MINUTE_MS)
    assert left(scene) == set()


def test_an_empty_group_keeps_them_from_when_it_became_empty_and_goes_with_them(scene: Scene) -> None:
    scene.commit(7)
    scene.store(classic_group("g", since_ms=START_MS + 5 * MINUTE_MS))
    scene.sleep_ms(RETENTION_MS + 4 * MINUTE_MS)
    assert left(scene) == {("t", 0)}
    assert "g" in scene.machine.state.groups
    scene.sleep_ms(MINUTE_MS)
    assert left(scene) == set()
    assert "g" not in scene.machine.state.groups


def test_a_group_that_works_keeps_what_it_reads(scene: Scene) -> None:
    scene.create("u", 1)
    scene.commit(7)
    scene.commit(8, topic="u")
    scene.store(classic_group("g", "t"))
    scene.sleep_ms(RETENTION_MS + MINUTE_MS)
    assert left(scene) == {("t", 0)}
    assert "g" in scene.machine.state.groups


def test_a_group_that_rebalances_keeps_everything(scene: Scene) -> None:
    scene.create("u", 1)
    scene.commit(7)
    scene.commit(8, topic="u")
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription("t"))
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=100 * RETENTION_MS,
        rebalance_timeout_ms=100 * RETENTION_MS,
        protocol_type="consumer",
        protocols=[protocol],
    )
    scene.config = scene.config.replace(
        group_max_session_timeout_ms=1000 * RETENTION_MS, group_initial_rebalance_delay_ms=100 * RETENTION_MS
    )
    scene.store(classic_group("g", "t"))
    scene.ask(request, 3)
    assert scene.machine.state.groups["g"].state_name == "PreparingRebalance"
    scene.sleep_ms(2 * RETENTION_MS)
    assert left(scene) == {("t", 0), ("u", 0)}


def test_a_commit_may_ask_for_a_time_of_its_own(scene: Scene) -> None:
    scene.commit(7, version=2, retention_time_ms=2 * MINUTE_MS)
    scene.commit(8, version=2, partition=1, retention_time_ms=2 * RETENTION_MS)
    scene.sleep_ms(MINUTE_MS)
    assert left(scene) == {("t", 0), ("t", 1)}
    scene.sleep_ms(MINUTE_MS)
    assert left(scene) == {("t", 1)}
    scene.sleep_ms(RETENTION_MS)
    assert left(scene) == {("t", 1)}


def test_an_offset_that_an_open_transaction_commits_stays(scene: Scene) -> None:
    scene.commit(7)
    scene.ask(transactional_commit(), 5)
    scene.sleep_ms(2 * RETENTION_MS)
    assert left(scene) == {("t", 0)}
    scene.mark(5, is_commit=False)
    scene.sleep_ms(MINUTE_MS)
    assert left(scene) == set()


def test_an_empty_group_of_an_open_transaction_stays(scene: Scene) -> None:
    scene.store(classic_group("g"))
    scene.ask(transactional_commit(), 5)
    scene.sleep_ms(2 * RETENTION_MS)
    assert "g" in scene.machine.state.groups
    scene.mark(5, is_commit=False)
    scene.sleep_ms(MINUTE_MS)
    assert "g" not in scene.machine.state.groups


def transactional_commit() -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=9)
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])
    return TxnOffsetCommitRequest(transactional_id="x", group_id="g", producer_id=5, topics=[topic])


def test_many_offsets_go_in_several_batches(scene: Scene) -> None:
    count = 2 * RECORDS_PER_BATCH + 1
    scene.create("big", count)
    value = OffsetCommitValue(offset=1, commit_timestamp=START_MS, topic_id=topic_id("big"))
    scene.store(*(offset_record("g", "big", number, value) for number in range(count)), classic_group("g"))
    sizes = watch_batches(scene)
    scene.sleep_ms(RETENTION_MS)
    # Each keeps a place for the group's own tombstone, which comes with the last one.
    assert sizes == [RECORDS_PER_BATCH - 1, RECORDS_PER_BATCH - 1, 4]
    assert len(scene.offsets) == 0
    assert scene.machine.state.groups == {}


def test_batches_stay_small_however_long_names_are(scene: Scene) -> None:
    group_id = "g" * 32_767
    scene.create("big", 20)
    value = OffsetCommitValue(offset=1, commit_timestamp=START_MS, topic_id=topic_id("big"))
    scene.store(*(offset_record(group_id, "big", number, value) for number in range(20)))
    sizes = watch_batches(scene)
    scene.sleep_ms(RETENTION_MS)
    assert len(scene.offsets) == 0
    assert max(sizes) * len(group_id) < 256 << 10


def watch_batches(scene: Scene) -> list[int]:
    sizes: list[int] = []
    apply: Any = scene.apply

    def watched(result: Any) -> None:
        if result.records:
            sizes.append(len(result.records))
        apply(result)

    scene.apply = watched  # type: ignore[method-assign]
    return sizes


def test_what_is_committed_while_expiry_looks_stays(scene: Scene) -> None:
    scene.create("big", 300)
    value = OffsetCommitValue(offset=1, commit_timestamp=START_MS, topic_id=topic_id("big"))
    scene.store(*(offset_record("g", "big", number, value) for number in range(300)))
    scene.work()
    scene.clock.advance_ms(RETENTION_MS)
    assert scene.machine.on_deadline(scene.call()) is not None
    steps = scene.machine.take_work(scene.call())
    assert steps is not None
    next(steps)  # The first ones are found to have expired.
    scene.commit(9, topic="big", partition=0)
    scene.apply(run(steps))
    assert left(scene) == {("big", 0)}


def test_it_goes_on_for_ever(scene: Scene) -> None:
    for _ in range(3):
        scene.commit(7)
        scene.sleep_ms(RETENTION_MS)
        assert left(scene) == set()
