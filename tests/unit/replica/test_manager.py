"""All partitions follow the metadata: created, reconfigured, deleted, and found again after a restart."""

import asyncio
import errno

import pytest

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.records import Compression
from tests.unit.replica.replicas import Cluster, batch


async def test_topics_come_and_go_with_the_image():
    cluster = Cluster()
    cluster.publish({"a": 2, "b": 1})
    assert set(cluster.replicas.partitions) == {("a", 0), ("a", 1), ("b", 0)}
    partition = cluster.replicas.find("a", 0)
    assert partition.is_leader
    partition.append(batch(b"x"), required_acks=1)
    cluster.publish({"a": 3})
    assert cluster.replicas.find("a", 0) is partition
    assert cluster.replicas.find("a", 2).high_watermark == 0
    with pytest.raises(KafkaError) as raised:
        cluster.replicas.find("b", 0)
    assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_made_anew_under_its_old_name_starts_empty():
    cluster = Cluster()
    cluster.publish({"a": 1}, a=b"1" * 16)
    old = cluster.replicas.find("a", 0)
    old.append(batch(b"x"), required_acks=1)
    cluster.publish({"a": 1}, a=b"2" * 16)
    new = cluster.replicas.find("a", 0)
    assert new is not old
    assert new.high_watermark == 0
    assert not old.is_leader


async def test_names_by_id():
    cluster = Cluster()
    cluster.publish({"a": 1}, a=b"1" * 16)
    assert cluster.replicas.topic_name(b"1" * 16) == "a"
    with pytest.raises(KafkaError) as raised:
        cluster.replicas.topic_name(b"2" * 16)
    assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_settings_reach_the_logs():
    cluster = Cluster()
    cluster.publish({"a": 1, "b": 1})
    cluster.publish({"a": 1, "b": 1}, configs={"a": {"flush.messages": "1"}})
    assert cluster.replicas.find("a", 0).flush_messages == 1
    assert cluster.replicas.find("b", 0).flush_messages > 1
    cluster.publish({"a": 1, "b": 1})
    assert cluster.replicas.find("a", 0).flush_messages > 1


async def test_new_logs_go_to_the_emptiest_folder_and_are_found_there_again():
    cluster = Cluster(folders=2)
    cluster.publish({"a": 4})
    assert [len(directory.logs) for directory in cluster.directories] == [2, 2]
    for index in range(4):
        cluster.replicas.find("a", index).append(batch(b"x"), required_acks=1)
    places = [set(directory.logs) for directory in cluster.directories]
    cluster.disk.crash()
    cluster.open()
    image, cluster.image = cluster.image, None
    cluster.replicas.follow_image(None, image)
    assert [set(directory.logs) for directory in cluster.directories] == places
    assert [cluster.replicas.find("a", index).high_watermark for index in range(4)] == [1] * 4


async def test_logs_of_topics_that_were_deleted_meanwhile_are_removed():
    cluster = Cluster()
    cluster.publish({"a": 1, "stray": 1})
    cluster.disk.make_folder("data0/__cluster_metadata-0")
    cluster.disk.crash()
    cluster.open()
    cluster.image = None
    cluster.publish({"a": 1})
    names = cluster.disk.list("data0")
    assert "a-0" in names
    assert "stray-0" not in names
    assert "__cluster_metadata-0" in names


async def test_a_log_that_cannot_be_created_is_tried_again_and_costs_the_others_nothing():
    cluster = Cluster()
    cluster.disk.fail("create", "*a-0*", error=errno.ENOSPC)
    cluster.publish({"a": 1, "b": 1})
    with pytest.raises(KafkaError) as raised:
        cluster.replicas.find("a", 0)
    assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster.replicas.find("b", 0).is_leader
    cluster.disk.heal()
    assert cluster.replicas.find("a", 0).is_leader


async def test_a_log_that_nobody_asks_for_is_tried_again_too():
    cluster = Cluster()
    cluster.disk.fail("create", "*a-0*", error=errno.ENOSPC)
    cluster.publish({"a": 1, "b": 1})
    cluster.replicas.open_missing()
    await asyncio.sleep(0)
    assert ("a", 0) not in cluster.replicas.partitions
    cluster.disk.heal()
    cluster.replicas.open_missing()
    await asyncio.sleep(0)
    assert cluster.replicas.partitions["a", 0].is_leader


async def test_what_a_batch_unpacks_to_is_bounded_by_the_setting():
    cluster = Cluster(max_decompressed_bytes=5000)
    cluster.publish({"deep": 1, "plain": 1}, configs={"deep": {"record.validation.deep": "true"}})
    deep, plain = (cluster.replicas.find(name, 0) for name in ("deep", "plain"))
    small = batch(bytes(4000), compression=Compression.ZSTD)
    large = batch(bytes(6000), compression=Compression.ZSTD)
    deep.append(small, required_acks=1)
    with pytest.raises(KafkaError, match="5000"):
        deep.append(large, required_acks=1)
    plain.append(large, required_acks=1)  # Nothing looks into it, until someone asks for a time.
    with pytest.raises(KafkaError, match="5000"):
        plain.log.offset_by_timestamp(0, end_offset=1)
    assert deep.log.offset_by_timestamp(0, end_offset=1) is not None


async def test_a_deletion_is_announced_before_the_files_go():
    cluster = Cluster()
    cluster.publish({"a": 1})
    announced = []
    cluster.replicas.before_deletion.append(
        lambda topic_partition: announced.append((topic_partition, cluster.disk.exists("data0/a-0")))
    )
    cluster.publish({})
    assert announced == [(("a", 0), True)]
    assert not cluster.disk.exists("data0/a-0")


async def test_a_start_opens_the_logs_a_few_a_turn_and_ends_with_the_newest_image():
    cluster = Cluster()
    cluster.publish({"a": 40, "b": 1})
    async with asyncio.timeout(10):
        while len(cluster.replicas.partitions) < 41:
            await asyncio.sleep(0)
    old = cluster.image
    cluster.publish({"a": 40})
    newest = cluster.image
    cluster.disk.crash()
    cluster.open()
    cluster.image = old
    opened: list[int] = []

    async def look() -> None:
        while len(cluster.replicas.partitions) < 20:
            opened.append(len(cluster.replicas.partitions))
            await asyncio.sleep(0)
        cluster.image = newest  # While the others are being opened.

    looking = asyncio.ensure_future(look())
    async with asyncio.timeout(10):
        await cluster.replicas.open_logs(lambda: cluster.image)
        await looking
    assert opened == [10], "others have their turns meanwhile"
    assert set(cluster.replicas.partitions) == {("a", index) for index in range(40)}
