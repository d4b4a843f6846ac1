"""A follower whose leader lacks what was confirmed: it asks before it cuts, and keeps what it cuts."""

import pytest

from tailrace.controller.partitions.change import RECOVERING
from tailrace.log.files.kept import CUT_SUFFIX
from tailrace.model.errors import ErrorCode
from tests.unit.replica.cluster import TOPIC, Cluster, Node, simulate

RECORDS = [b"%d" % number for number in range(10)]


async def with_a_leader_that_lacks(cluster: Cluster, *, recovery_state: int = 0) -> None:
    """Nodes 1 and 2 have confirmed ten records; node 3, which leads now, has none of them, and one of its own."""
    cluster.start(min_insync_replicas="1")
    cluster.set(leader=1, isr=(1, 2))
    cluster.isolate(3)
    for record in RECORDS:
        await cluster[1].append(record)
    await cluster.settle()
    assert cluster[2].partition().high_watermark == len(RECORDS)
    cluster.heal()
    cluster.set(leader=3, isr=(3,), recovery_state=recovery_state)
    await cluster[3].append(b"other")
    await cluster.settle(5.0)


def kept(node: Node) -> list[str]:
    return [name for name in node.disk.list(f"data/{TOPIC}-0") if name.endswith(CUT_SUFFIX)]


def test_with_leave_it_cuts_and_keeps() -> None:
    async def test(cluster: Cluster) -> None:
        await with_a_leader_that_lacks(cluster)
        assert {request.broker_id for request in cluster.leave_requests} == {1, 2}
        assert len(cluster.leave_requests) == 2, "each asks once"
        for node in (cluster[1], cluster[2]):
            assert node.values() == [b"other"]
            assert kept(node) == ["00000000000000000000.1.cut"]
            assert node.disk.size(f"data/{TOPIC}-0/{kept(node)[0]}") > 0

    simulate(test)


def test_without_leave_it_stops_following_and_cuts_nothing() -> None:
    async def test(cluster: Cluster) -> None:
        cluster.leave = ErrorCode.NEW_LEADER_ELECTED
        await with_a_leader_that_lacks(cluster)
        for node in (cluster[1], cluster[2]):
            assert node.values() == RECORDS
            assert node.partition().high_watermark == len(RECORDS)
            assert kept(node) == []
        # As the controller has said: another one is elected, and the one that lacked them follows.
        cluster.leave = ErrorCode.NONE
        cluster.set(leader=2, isr=(2, 1))
        await cluster.settle(3.0)
        for node in (cluster[1], cluster[2], cluster[3]):
            assert node.values() == RECORDS

    simulate(test)


@pytest.mark.parametrize("error", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_CONTROLLER])
def test_an_answer_that_is_none_changes_nothing(error: ErrorCode) -> None:
    async def test(cluster: Cluster) -> None:
        cluster.leave = error
        await with_a_leader_that_lacks(cluster)
        assert cluster[1].values() == RECORDS
        cluster.leave = ErrorCode.NONE
        await cluster.settle(3.0)
        assert cluster[1].values() == [b"other"]

    simulate(test)


def test_an_unclean_election_that_the_metadata_tells_of_needs_no_leave() -> None:
    async def test(cluster: Cluster) -> None:
        await with_a_leader_that_lacks(cluster, recovery_state=RECOVERING)
        assert cluster.leave_requests == []
        assert cluster[1].values() == [b"other"]
        assert kept(cluster[1]) == ["00000000000000000000.1.cut"]

    simulate(test)


def test_a_controller_of_kafkas_is_not_waited_for() -> None:
    async def test(cluster: Cluster) -> None:
        cluster.leave = ErrorCode.UNSUPPORTED_VERSION
        await with_a_leader_that_lacks(cluster)
        assert cluster[1].values() == [b"other"]
        assert kept(cluster[1]) == ["00000000000000000000.1.cut"]

    simulate(test)


def test_the_same_where_the_leaders_log_starts_behind_the_end() -> None:
    async def test(cluster: Cluster) -> None:
        cluster.leave = ErrorCode.NEW_LEADER_ELECTED
        cluster.start(min_insync_replicas="1")
        cluster.set(leader=1, isr=(1, 2))
        cluster.isolate(3)
        for record in RECORDS:
            await cluster[1].append(record)
        await cluster.settle()
        cluster.heal()
        cluster[3].partition().log.truncate_fully_and_start_at(100)
        cluster.set(leader=3, isr=(3,))
        await cluster.settle(2.0)
        assert cluster[2].values() == RECORDS
        cluster.leave = ErrorCode.NONE
        await cluster.settle(3.0)
        assert cluster[2].partition().log.log_start_offset == 100
        assert kept(cluster[2]) == ["00000000000000000000.1.cut"]

    simulate(test)


def test_what_was_not_confirmed_goes_without_a_word() -> None:
    async def test(cluster: Cluster) -> None:
        cluster.start(min_insync_replicas="2")
        cluster.set(leader=1, isr=(1, 2, 3))
        await cluster.settle()
        cluster.isolate(1)
        _ = cluster[1].append(b"never confirmed")
        cluster.set(leader=2, isr=(2, 3))
        cluster.heal()
        await cluster.settle(2.0)
        assert cluster[1].values() == []
        assert (cluster.leave_requests, kept(cluster[1])) == ([], [])

    simulate(test)
