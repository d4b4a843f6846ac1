"""A leader that cannot read a part of its log names who is to lead."""

import pytest

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.own import MoveLeaderRequest, MoveLeaderResponse
from tests.unit.controller.cluster import Cluster, assigned


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(brokers=4, features=True)
    cluster.create(assigned("t", [1, 2, 3]))
    return cluster


def ask(cluster: Cluster, **changes: object) -> ErrorCode:
    asked: dict[str, object] = {
        "broker_id": 1,
        "broker_epoch": cluster.image.brokers[1].epoch,
        "topic_id": cluster.image.topics["t"].id,
        "partition_index": 0,
        "leader_epoch": cluster.partition("t").leader_epoch,
        "new_leader_id": 3,
    }
    request = MoveLeaderRequest(**(asked | changes))  # type: ignore[arg-type]
    return ErrorCode(cluster.do(request, MoveLeaderResponse).error_code)


def test_the_lead_moves_and_nothing_else_changes(cluster):
    before = cluster.partition("t")
    assert ask(cluster) is ErrorCode.NONE
    after = cluster.partition("t")
    assert after == before._replace(
        leader=3, leader_epoch=before.leader_epoch + 1, partition_epoch=before.partition_epoch + 1
    )


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"broker_epoch": 0}, ErrorCode.STALE_BROKER_EPOCH),
        ({"broker_id": 9}, ErrorCode.BROKER_ID_NOT_REGISTERED),
        ({"topic_id": b"x" * 16}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition_index": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_epoch": 7}, ErrorCode.NOT_CONTROLLER),
        ({"new_leader_id": 1}, ErrorCode.INVALID_REQUEST),
        ({"new_leader_id": 4}, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),  # No replica.
        ({"new_leader_id": 77}, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_what_does_not_fit_is_refused(cluster, changes, error):
    before = cluster.image
    assert ask(cluster, **changes) is error
    assert cluster.image is before


def test_only_the_leader_of_this_epoch_may_ask(cluster):
    assert ask(cluster) is ErrorCode.NONE
    assert ask(cluster, leader_epoch=0) is ErrorCode.FENCED_LEADER_EPOCH
    assert ask(cluster, new_leader_id=2) is ErrorCode.INVALID_REQUEST
    assert cluster.partition("t").leader == 3


def test_one_that_is_out_of_sync_or_away_does_not_lead(cluster):
    cluster.heartbeat(3, want_fence=True)
    assert 3 not in cluster.partition("t").isr
    assert ask(cluster) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert ask(cluster, new_leader_id=2) is ErrorCode.NONE
