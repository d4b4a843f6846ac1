"""A group that changes while it works: its assignor, its protocol, who its members are, its subscription, its topic."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import ConsumerGroupType
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.compat.clients import DEADLINE_S

from .crowd import Crowd, Member, python_member

PARTITIONS = 6
CONFLUENT = python_member("confluent")
CLASSIC = {"partition.assignment.strategy": "cooperative-sticky"}
CONSUMER = {"group.protocol": "consumer"}
# Kafka changes no group whose assignor keeps notes of its own with the members, as librdkafka's sticky one does.
PLAIN = {"partition.assignment.strategy": "range"}


def _replace(crowd: Crowd, old: Member, **settings: object) -> Member:
    """As a rolling deployment does: one leaves, another one comes."""
    old.ask_to_close()
    old.wait_closed()
    new = crowd.add(CONFLUENT, **settings)
    crowd.wait_shared()
    return new


def _type_of(admin: AdminClient, group: str) -> ConsumerGroupType:
    listed = admin.list_consumer_groups(request_timeout=DEADLINE_S).result(DEADLINE_S)
    assert not listed.errors
    (found,) = [each for each in listed.valid if each.group_id == group]
    return found.type


def test_the_assignor_is_changed_member_by_member(bootstrap: str, create_topic: Callable[..., str]):
    topic = create_topic(PARTITIONS)
    with Crowd(bootstrap, f"group-of-{topic}", topic, PARTITIONS) as crowd:
        writer = crowd.write()
        members = [crowd.add(CONFLUENT, **{"partition.assignment.strategy": "roundrobin"}) for _ in range(2)]
        crowd.wait_shared()
        for strategy in ("range,roundrobin", "range"):
            members = [_replace(crowd, each, **{"partition.assignment.strategy": strategy}) for each in members]
        crowd.wait_read(writer.finish())
        crowd.close()
        summary = crowd.check(writer.written)
    assert (summary.lost, summary.repeated) == (0, 0)


def test_the_protocol_is_changed_member_by_member_and_back(
    bootstrap: str, admin: AdminClient, create_topic: Callable[..., str]
):
    topic = create_topic(PARTITIONS)
    with Crowd(bootstrap, f"group-of-{topic}", topic, PARTITIONS) as crowd:
        writer = crowd.write()
        members = [crowd.add(CONFLUENT, **PLAIN) for _ in range(2)]
        crowd.wait_shared()
        assert _type_of(admin, crowd.group) == ConsumerGroupType.CLASSIC
        members = [_replace(crowd, each, **CONSUMER) for each in members]
        assert _type_of(admin, crowd.group) == ConsumerGroupType.CONSUMER
        members = [_replace(crowd, each, **PLAIN) for each in members]
        assert _type_of(admin, crowd.group) == ConsumerGroupType.CLASSIC
        crowd.wait_read(writer.finish())
        crowd.close()
        summary = crowd.check(writer.written)
    assert (summary.lost, summary.repeated) == (0, 0)


@pytest.mark.parametrize("settings", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
def test_a_static_member_that_comes_back_finds_its_partitions(
    bootstrap: str, create_topic: Callable[..., str], settings: dict[str, str]
):
    topic = create_topic(PARTITIONS)
    with Crowd(bootstrap, f"group-of-{topic}", topic, PARTITIONS) as crowd:
        writer = crowd.write()
        members = [crowd.add(CONFLUENT, **settings, **{"group.instance.id": f"static-{index}"}) for index in range(2)]
        crowd.wait_shared()
        owned = members[0].owned
        other = [event for event in members[1].journal if event.kind in ("assigned", "revoked")]
        if settings is CLASSIC:
            members[0].kill()
        else:
            # With the newer protocol an identity is free only when its member says so, or its session is over.
            members[0].ask_to_close()
            members[0].wait_closed()
        again = crowd.add(CONFLUENT, **settings, **{"group.instance.id": "static-0"})
        crowd.wait_shared()
        assert again.owned == owned
        crowd.wait_read(writer.finish())
        assert [event for event in members[1].journal if event.kind in ("assigned", "revoked")] == other
        crowd.close()
        crowd.check(writer.written)


# It takes a session of four seconds.
@pytest.mark.long
@pytest.mark.parametrize("settings", [CLASSIC, PLAIN, CONSUMER], ids=["cooperative", "eager", "consumer"])
def test_a_member_that_stalls_is_replaced_and_comes_back(
    bootstrap: str, create_topic: Callable[..., str], settings: dict[str, str]
):
    topic = create_topic(PARTITIONS)
    with Crowd(bootstrap, f"group-of-{topic}", topic, PARTITIONS) as crowd:
        writer = crowd.write()
        stalled, *_ = [crowd.add(CONFLUENT, **settings) for _ in range(3)]
        crowd.wait_shared()
        time.sleep(0.3)
        stalled.pause()
        crowd.wait_shared(without=stalled)
        time.sleep(0.3)
        stalled.resume()
        _wait(lambda: any(event.kind == "lost" for event in stalled.journal), [stalled])
        crowd.wait_shared()
        crowd.wait_read(writer.finish())
        crowd.close()
        summary = crowd.check(writer.written)
    assert summary.lost == 2, "both partitions of the one that stalled"


@pytest.mark.parametrize("settings", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
def test_a_topic_grows(bootstrap: str, admin: AdminClient, create_topic: Callable[..., str], settings: dict[str, str]):
    topic = create_topic(2)
    with Crowd(bootstrap, f"group-of-{topic}", topic, PARTITIONS) as crowd:
        members = [crowd.add(CONFLUENT, **settings) for _ in range(2)]
        _wait(lambda: set().union(*(member.owned for member in members)) == {0, 1}, members)
        (grown,) = admin.create_partitions([NewPartitions(topic, PARTITIONS)]).values()
        grown.result(DEADLINE_S)
        crowd.wait_shared()
        writer = crowd.write()
        time.sleep(0.2)
        crowd.wait_read(writer.finish())
        crowd.close()
        crowd.check(writer.written)


# Kafka looks for new topics of a pattern every ten seconds.
@pytest.mark.parametrize(
    "settings", [pytest.param(CLASSIC, id="classic"), pytest.param(CONSUMER, id="consumer", marks=pytest.mark.long)]
)
def test_a_pattern_finds_a_topic_that_comes_later_and_loses_it(
    bootstrap: str, admin: AdminClient, fresh_name: Callable[[], str], settings: dict[str, str]
):
    topic = f"{fresh_name()}-later"
    with Crowd(bootstrap, f"group-of-{topic}", topic, PARTITIONS) as crowd:
        pattern = f"^{topic[:-3]}...$"
        members = [crowd.add(CONFLUENT, **settings, subscription=pattern) for _ in range(2)]
        time.sleep(0.5)
        assert [member.owned for member in members] == [set(), set()]
        (created,) = admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values()
        created.result(DEADLINE_S)
        crowd.wait_shared()
        (deleted,) = admin.delete_topics([topic]).values()
        deleted.result(DEADLINE_S)
        _wait(lambda: not any(member.owned for member in members), members)
        crowd.close()


def _wait(holds: Callable[[], bool], members: list[Member]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, [member.story() for member in members]
        time.sleep(0.02)
