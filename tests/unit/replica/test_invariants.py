"""What must always hold of a replica: a bug is planted, and the replica goes offline instead of confirming by it."""

import asyncio

import pytest

from tailrace.controller.image import MetadataImage
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ids import NodeId
from tailrace.replica import partition as partitions
from tailrace.replica.following import changes
from tailrace.replica.maintenance import Maintenance
from tailrace.sim.background import HeldBackground
from tests.unit.replica.replicas import ME, OTHER, Cluster, batch, lead, led_by, make_partition, release
from tests.unit.replica.test_maintenance import make_maintenance

BOTH = (ME, OTHER)


async def test_a_high_watermark_that_would_rise_above_the_log_end(monkeypatch):
    partition = make_partition()
    lead(partition, epoch=1, isr=BOTH, replicas=2)
    monkeypatch.setattr(partitions, "decide_high_watermark", lambda own_end, _followers, **_: own_end + 1)
    told: list[KafkaError | None] = []
    result = partition.append(batch(b"a"), required_acks=-1)
    partition.wait_for_high_watermark(result.next_offset, told.append)
    partition.note_fetch(OTHER, 5, offset=0, log_start_offset=0)
    partition.raise_high_watermark()
    assert partition.log.is_offline
    assert partition.high_watermark == 0, "nothing is confirmed by it"
    partition.on_synced()
    (error,) = told
    assert error is not None
    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        partition.check_leader()


async def test_a_leader_that_proposes_a_set_without_itself(monkeypatch):
    partition = make_partition()
    lead(partition, epoch=1, isr=BOTH, replicas=2)
    monkeypatch.setattr(partitions, "decide_isr_shrink", lambda *_, **__: (OTHER,))
    partition.shrink_isr()
    assert partition.log.is_offline
    assert partition.proposal is None


async def test_one_that_is_offline_proposes_nothing():
    """Nobody can read from it, so all others would be found to lag, and it would be left as the only one in sync."""
    partition = make_partition()
    lead(partition, epoch=1, isr=BOTH, replicas=2)
    partition.append(batch(b"a"), required_acks=1)
    partition.log.give_up(AssertionError("a planted one"))
    partition.shrink_isr()
    assert partition.proposal is None


async def test_a_follower_that_believes_its_leader_beyond_its_own_log(monkeypatch):
    partition = make_partition()
    lead(partition, leader=OTHER, epoch=1, isr=BOTH, replicas=2)
    sent = {"leader_epoch": 1, "log_start_offset": 0}
    changes.append_fetched(partition, batch(b"a"), high_watermark=9, **sent)
    assert partition.high_watermark == 1
    monkeypatch.setattr(changes, "min", lambda one, _other: one, raising=False)
    with pytest.raises(KafkaError, match=r"KAFKA_STORAGE_ERROR.*high watermark at 9"):
        changes.append_fetched(partition, memoryview(b""), high_watermark=9, **sent)
    assert partition.log.is_offline


@pytest.mark.parametrize("is_plain", [False, True])
async def test_an_append_below_the_high_watermark(is_plain):
    partition, view = make_partition(), batch(b"b")
    partition.append(batch(b"a"), required_acks=1)
    partition.high_watermark = 5
    plain = [(view, len(view), 0, 1000, None)]
    with pytest.raises(KafkaError, match=r"KAFKA_STORAGE_ERROR.*high watermark at 5"):
        partition.append_plain(plain) if is_plain else partition.append(view, required_acks=1)
    assert partition.log.is_offline


async def test_what_one_that_is_offline_remembers_is_no_answer():
    partition = make_partition()
    again = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    partition.append(batch(b"a", **again), required_acks=1)
    assert partition.append(batch(b"a", **again), required_acks=1).duplicate
    partition.log.give_up(AssertionError("a planted one"))
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        partition.append(batch(b"a", **again), required_acks=1)


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(3, 1 << 30), (5, 0)])
async def test_an_image_whose_epochs_have_fallen_breaks_one_partition(leader_epoch, partition_epoch):
    cluster = Cluster()
    cluster.publish({"t": 2})
    image = cluster.image
    assert image is not None
    partition, other = (cluster.replicas.find("t", index) for index in range(2))
    first = led_by(ME, epoch=5, isr=(ME,), replicas=(ME,), partition_epoch=9)
    image = publish(cluster, image, first)
    fallen = led_by(ME, epoch=leader_epoch, isr=(ME,), replicas=(ME,), partition_epoch=partition_epoch)
    publish(cluster, image, fallen)
    assert partition.log.is_offline
    assert cluster.replicas.broken == {partition.topic_partition: None}
    assert not other.log.is_offline
    other.append(batch(b"a"), required_acks=1)


def publish(cluster: Cluster, image: MetadataImage, state) -> MetadataImage:
    topic = image.topics["t"]
    topic = topic._replace(partitions={**topic.partitions, 0: state})
    new = MetadataImage(image.cluster_id, topics={"t": topic}, topic_names=image.topic_names, configs=image.configs)
    cluster.replicas.follow_image(image, new)
    return new


async def test_a_sync_that_breaks_an_invariant_is_not_believed():
    background = HeldBackground()
    partition = make_partition(background=background, flush_messages=1)
    result = partition.append(batch(b"a"), required_acks=-1)
    told: list[KafkaError | None] = []
    partition.wait_for_high_watermark(result.next_offset, told.append)
    await asyncio.sleep(0)
    partition.log.files.durability._syncs[0].covered_offset = 7
    await release(background)
    assert partition.log.is_offline
    assert partition.high_watermark == 0
    assert [error is not None and error.code for error in told] == [ErrorCode.KAFKA_STORAGE_ERROR]


async def test_a_round_of_maintenance_that_fails_an_assertion_is_judged(monkeypatch):
    cluster = Cluster()
    judged: list[BaseException] = []
    told = asyncio.Event()

    def judge(error: BaseException, _partition: object) -> None:
        judged.append(error)
        told.set()

    async def fail(_self: Maintenance) -> None:
        raise AssertionError("a planted one")

    cluster.replicas.on_bug = judge
    monkeypatch.setattr(Maintenance, "shrink_isrs", fail)
    monkeypatch.setattr(type(cluster.replicas), "lag_max_ms", 1.0)
    maintenance = make_maintenance(cluster)
    maintenance.start()
    async with asyncio.timeout(5):
        await told.wait()
    await maintenance.stop()
    assert str(judged[0]) == "a planted one"


async def test_a_copy_that_gives_up_leaves_the_log_alone():
    partition = make_partition()
    disk = partition.log.files.disk
    future = type(partition.log).open(
        disk, disk.clock, "data/t-0.0-future", partition.log.config, topic_partition=partition.topic_partition
    )
    with pytest.raises(StorageError, match="no sync"):
        future.mark_synced(4)
    assert future.is_offline
    assert not partition.log.is_offline
    assert partition.leader_id == NodeId(1)
