"""Groups as each library's administrator sees and changes them: list, describe, offsets, reset, delete."""

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator

import pytest
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, OffsetAndMetadata
from kafka import TopicPartition as PurePartition

from tests.compat.clients import DEADLINE_S
from tests.parts import need_node_clients

from .crowd import Crowd, python_member

PARTITIONS = 4
KINDS = {
    "classic": {"partition.assignment.strategy": "range"},
    "consumer": {"group.protocol": "consumer"},
}


@pytest.fixture
def left_behind(bootstrap: str, create_topic: Callable[..., str]) -> tuple[str, str]:
    """A group without members and its topic: partition 0 is committed at 3, partition 1 at 5, with a note."""
    topic = create_topic(PARTITIONS)
    group = f"group-of-{topic}"
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    offsets = {0: OffsetAndMetadata(3, "", -1), 1: OffsetAndMetadata(5, "half of it", -1)}
    admin.alter_group_offsets(group, {PurePartition(topic, index): offset for index, offset in offsets.items()})
    admin.close()
    return group, topic


@pytest.fixture(params=KINDS)
def at_work(
    request: pytest.FixtureRequest, bootstrap: str, create_topic: Callable[..., str]
) -> Iterator[tuple[str, Crowd]]:
    topic = create_topic(PARTITIONS)
    with Crowd(bootstrap, f"group-of-{topic}", topic, PARTITIONS) as crowd:
        for index in range(2):
            crowd.add(python_member("confluent"), **KINDS[request.param], **{"client.id": f"client-{index}"})
        crowd.wait_shared()
        yield request.param, crowd


def _offsets(admin: AdminClient, group: str) -> dict[int, int]:
    (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {each.partition: each.offset for each in asked.result(DEADLINE_S).topic_partitions if each.offset >= 0}


def test_librdkafka_sees_a_group_at_work(admin: AdminClient, at_work: tuple[str, Crowd]):
    kind, crowd = at_work
    wanted = ConsumerGroupType.CLASSIC if kind == "classic" else ConsumerGroupType.CONSUMER
    listed = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}, types={wanted}).result(DEADLINE_S)
    (found,) = [each for each in listed.valid if each.group_id == crowd.group]
    assert (found.state, found.type, found.is_simple_consumer_group) == (ConsumerGroupState.STABLE, wanted, False)
    others = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(DEADLINE_S)
    assert crowd.group not in {each.group_id for each in others.valid}
    (asked,) = admin.describe_consumer_groups([crowd.group]).values()
    told = asked.result(DEADLINE_S)
    assert (told.state, told.type) == (ConsumerGroupState.STABLE, wanted)
    assert told.partition_assignor == ("range" if kind == "classic" else "uniform")
    assert told.coordinator is not None
    assert told.coordinator.id == 1
    assert sorted(member.client_id for member in told.members) == ["client-0", "client-1"]
    assert {member.host.lstrip("/") for member in told.members} == {"127.0.0.1"}
    owned = sorted(each.partition for member in told.members for each in member.assignment.topic_partitions)
    assert owned == list(range(PARTITIONS))


def test_a_group_at_work_is_neither_reset_nor_deleted(admin: AdminClient, at_work: tuple[str, Crowd]):
    _, crowd = at_work
    (deleted,) = admin.delete_consumer_groups([crowd.group]).values()
    with pytest.raises(KafkaException) as refused:
        deleted.result(DEADLINE_S)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    wanted = ConsumerGroupTopicPartitions(crowd.group, [TopicPartition(crowd.topic, 0, 7)])
    (altered,) = admin.alter_consumer_group_offsets([wanted]).values()
    (refusal,) = altered.result(DEADLINE_S).topic_partitions
    assert refusal.error.code() == KafkaError.UNKNOWN_MEMBER_ID
    assert _offsets(admin, crowd.group).get(0) != 7


def test_librdkafka_changes_what_was_left_behind(admin: AdminClient, left_behind: tuple[str, str]):
    group, topic = left_behind
    # The note of partition 1 is left to the other libraries: librdkafka copies it without its ending zero, so what
    # Python is given may go on into memory that is not its own.
    assert _offsets(admin, group) == {0: 3, 1: 5}
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1), TopicPartition(topic, 3, 2)])
    (altered,) = admin.alter_consumer_group_offsets([wanted]).values()
    assert all(each.error is None for each in altered.result(DEADLINE_S).topic_partitions)
    assert _offsets(admin, group) == {0: 1, 1: 5, 3: 2}
    (told,) = admin.describe_consumer_groups([group]).values()
    assert told.result(DEADLINE_S).state == ConsumerGroupState.EMPTY
    (deleted,) = admin.delete_consumer_groups([group]).values()
    deleted.result(DEADLINE_S)
    assert _offsets(admin, group) == {}
    listed = admin.list_consumer_groups().result(DEADLINE_S)
    assert group not in {each.group_id for each in listed.valid}
    (again,) = admin.delete_consumer_groups([group]).values()
    with pytest.raises(KafkaException) as refused:
        again.result(DEADLINE_S)
    assert refused.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


def test_kafka_python_sees_and_changes(bootstrap: str, left_behind: tuple[str, str]):
    group, topic = left_behind
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        assert group in {each["group_id"] for each in admin.list_groups()}
        told = admin.describe_groups([group])[group]
        assert (told["group_state"], told["members"]) == ("Empty", [])
        first, second = PurePartition(topic, 0), PurePartition(topic, 1)
        found = admin.list_group_offsets(group)[group]
        assert {each: offset.offset for each, offset in found.items()} == {first: 3, second: 5}
        admin.alter_group_offsets(group, {first: OffsetAndMetadata(4, "", -1)})
        admin.delete_group_offsets(group, [second])
        found = admin.list_group_offsets(group)[group]
        assert {each: offset.offset for each, offset in found.items() if offset.offset >= 0} == {first: 4}
        admin.delete_groups([group])
        assert group not in {each["group_id"] for each in admin.list_groups()}
    finally:
        admin.close()


async def test_aiokafka_sees(bootstrap: str, left_behind: tuple[str, str]):
    group, topic = left_behind
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    async with asyncio.timeout(DEADLINE_S):
        await admin.start()
        try:
            assert group in {found[0] for found in await admin.list_consumer_groups()}
            (told,) = await admin.describe_consumer_groups([group])
            assert told.to_object()["groups"][0]["state"] == "Empty"
            found = await admin.list_consumer_group_offsets(group)
            assert found[AioTopicPartition(topic, 1)].offset == 5
            assert found[AioTopicPartition(topic, 1)].metadata == "half of it"
        finally:
            await admin.close()


# Its setOffsets joins the group and waits for a fetch of five seconds.
@pytest.mark.long
def test_kafkajs_sees_and_changes(bootstrap: str, left_behind: tuple[str, str]):
    group, topic = left_behind
    script = need_node_clients() / "kafkajs-groups.mjs"
    done = subprocess.run(
        ["node", script, bootstrap, group, topic], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["listed"], told["state"], told["left"]) == (True, "Empty", False)
    assert told["before"] == [[0, "3", ""], [1, "5", "half of it"]]
    assert told["after"] == [[0, "4", ""], [1, "5", "half of it"]]
