"""Throttles that say who has set them: read, written, and taken away once nothing moves."""

import pytest

from tailrace.controller.image import ResourceType
from tailrace.controller.partitions.throttles import (
    FOLLOWER_LIST,
    LEADER_LIST,
    RATES,
    Mark,
    decide_stale_throttles,
    format_list,
    mark_of,
    parse_list,
)
from tailrace.model.config import BrokerConfig, parse_topic_config
from tailrace.wire.apis.stored_records import ConfigRecord
from tests.unit.controller.cluster import Cluster, alter_topic, assigned
from tests.unit.controller.test_reassignment import reassign

MARK = Mark(1_800_000_000, sets_rate=True)


@pytest.mark.parametrize("mark", [MARK, Mark(0, sets_rate=False)])
def test_a_list_tells_who_made_it(mark: Mark):
    text = format_list([(3, 1), (0, 2)], mark)
    assert parse_list(text) == ([(0, 2), (3, 1)], mark)
    config = parse_topic_config({LEADER_LIST: text}, BrokerConfig(node_id=1))
    assert config.leader_replication_throttled_replicas[:2] == ("0:2", "3:1")


@pytest.mark.parametrize("text", [None, "", "*", "0:1,1:2", "nonsense", "a:b"])
def test_a_list_of_somebody_else_has_no_mark(text: str | None):
    assert parse_list(text)[1] is None
    assert mark_of({LEADER_LIST: text}) is None


def with_rate(cluster: Cluster) -> None:
    cluster.replay([ConfigRecord(resource_type=ResourceType.BROKER, name=name, value="1000") for name in RATES])


def has_rate(cluster: Cluster) -> bool:
    return not {*RATES}.isdisjoint(cluster.image.config(ResourceType.BROKER, ""))


def lists(cluster: Cluster, topic: str) -> set[str]:
    return {*cluster.image.config(ResourceType.TOPIC, topic)} & {LEADER_LIST, FOLLOWER_LIST}


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(brokers=4, features=True, leader_imbalance_check_interval_seconds=10)
    cluster.create(assigned("moves", [1, 2]), assigned("rests", [1, 2]), assigned("foreign", [1, 2]))
    for topic in ("moves", "rests"):
        alter_topic(cluster, topic, LEADER_LIST, format_list([(0, 1)], MARK))
        alter_topic(cluster, topic, FOLLOWER_LIST, format_list([(0, 3)], MARK))
    alter_topic(cluster, "foreign", LEADER_LIST, "0:1")
    with_rate(cluster)
    reassign(cluster, [1, 3], name="moves")
    return cluster


def test_what_a_dead_balancer_has_left_goes_once_its_moves_are_over(cluster: Cluster):
    cluster.live(11_000)
    assert lists(cluster, "moves") == {LEADER_LIST, FOLLOWER_LIST}, "its partition is on its way"
    assert lists(cluster, "rests") == set()
    assert lists(cluster, "foreign") == {LEADER_LIST}
    assert has_rate(cluster)
    cluster.expand("moves", 3)
    cluster.live(11_000)
    assert lists(cluster, "moves") == set()
    assert lists(cluster, "foreign") == {LEADER_LIST}
    assert not has_rate(cluster)


def test_a_rate_of_somebody_else_stays():
    cluster = Cluster(brokers=2, features=True, leader_imbalance_check_interval_seconds=10)
    cluster.create(assigned("rests", [1, 2]))
    alter_topic(cluster, "rests", LEADER_LIST, format_list([(0, 1)], MARK._replace(sets_rate=False)))
    with_rate(cluster)
    cluster.live(11_000)
    assert lists(cluster, "rests") == set()
    assert has_rate(cluster)


def test_without_marks_nothing_is_decided():
    cluster = Cluster(brokers=2, features=True)
    with_rate(cluster)
    assert decide_stale_throttles(cluster.image) == []
