"""The work behind the requests, one round at a time."""

import asyncio
import errno

import pytest

from tailrace.model.ports import Ports
from tailrace.real.network import RealNetwork
from tailrace.replica.maintenance import Maintenance
from tailrace.sim.background import SimBackground
from tailrace.sim.random import SimRandom
from tailrace.wire.records import build_batch, iterate_records
from tests.unit.replica.replicas import Cluster, batch


def make_maintenance(cluster: Cluster) -> Maintenance:
    ports = Ports(
        clock=cluster.disk.clock,
        random=SimRandom(1),
        disk=cluster.disk,
        network=RealNetwork(),
        background=SimBackground(),
    )
    return Maintenance(cluster.replicas, ports)


def keyed(cluster: Cluster, key: bytes, value: bytes | None) -> memoryview:
    return memoryview(bytearray(build_batch([(0, cluster.disk.clock.wall_ms(), key, value, ())])))


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("jump_ms", [0, 3_600_000, -3_600_000])
async def test_flush_ms(jump_ms: int):
    cluster = Cluster()
    cluster.publish({"soon": 1, "never": 1}, configs={"soon": {"flush.ms": "100"}})
    maintenance = make_maintenance(cluster)
    logs = [cluster.replicas.find(name, 0).log for name in ("soon", "never")]
    for name in ("soon", "never"):
        cluster.replicas.find(name, 0).append(batch(b"x"), required_acks=1)
    cluster.disk.clock.jump_ms(jump_ms)
    await maintenance.flush_due()
    await _turns()
    assert [log.recovery_point for log in logs] == [0, 0]
    cluster.disk.clock.advance_ms(100)
    await maintenance.flush_due()
    await _turns()
    assert [log.recovery_point for log in logs] == [1, 0]
    assert maintenance._flush_interval_ms == 50


async def test_closed_segments_are_synced():
    cluster = Cluster()
    cluster.publish({"a": 1})
    partition = cluster.replicas.find("a", 0)
    partition.append(batch(b"x"), required_acks=1)
    partition.log.roll()
    await make_maintenance(cluster).flush_due()
    await _turns()
    assert partition.log.recovery_point == 1


async def test_retention_deletes_and_the_files_go_later():
    cluster = Cluster()
    cluster.publish({"a": 1}, configs={"a": {"retention.ms": "1000", "file.delete.delay.ms": "5000"}})
    partition = cluster.replicas.find("a", 0)
    partition.append(batch(b"old"), required_acks=1)
    cluster.disk.clock.advance_ms(2000)
    maintenance = make_maintenance(cluster)
    await maintenance.apply_retention()
    assert partition.log.log_start_offset == 1
    assert cluster.replicas.flusher.unsynced_bytes == 0
    deleted = [name for name in cluster.disk.list("data0/a-0") if name.endswith(".deleted")]
    assert deleted
    await maintenance.remove_due()
    assert set(deleted) <= set(cluster.disk.list("data0/a-0"))
    cluster.disk.clock.advance_ms(5000)
    await maintenance.remove_due()
    assert not set(deleted) & set(cluster.disk.list("data0/a-0"))


async def test_a_deleted_topic_leaves_no_folder_behind():
    cluster = Cluster()
    cluster.publish({"a": 1})
    cluster.publish({})
    maintenance = make_maintenance(cluster)
    assert any(name.endswith("-delete") for name in cluster.disk.list("data0"))
    cluster.disk.clock.advance_ms(61_000)
    await maintenance.remove_due()
    assert not any(name.endswith("-delete") for name in cluster.disk.list("data0"))


async def test_compaction_keeps_the_last_value_of_each_key():
    cluster = Cluster()
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    cluster.publish({"a": 1}, configs={"a": settings})
    partition = cluster.replicas.find("a", 0)
    for number in range(10):
        partition.append(keyed(cluster, b"k%d" % (number % 2), b"%d" % number), required_acks=1)
    partition.log.roll()
    partition.append(keyed(cluster, b"k9", b"end"), required_acks=1)
    maintenance = make_maintenance(cluster)
    await maintenance.flush_due()
    await _turns()
    await maintenance.compact()
    left = []
    offset = 0
    while (found := partition.read(offset, 1 << 20, isolation_level=0, at_least_one_batch=True)) is not None:
        data = found.read()
        while data:
            size = 12 + int.from_bytes(data[8:12], "big")
            left += [(r.offset, r.key, r.value) for r in iterate_records(data[:size], max_decompressed_bytes=1000)]
            data = data[size:]
        offset = left[-1][0] + 1
    assert left == [(8, b"k0", b"8"), (9, b"k1", b"9"), (10, b"k9", b"end")]


async def test_a_topic_may_be_deleted_while_it_is_compacted():
    cluster = Cluster()
    cluster.publish({"a": 1}, configs={"a": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}})
    partition = cluster.replicas.find("a", 0)
    for number in range(3000):
        partition.append(keyed(cluster, b"k%d" % (number % 7), b"v"), required_acks=1)
    partition.log.roll()
    maintenance = make_maintenance(cluster)
    maintenance._replicas.before_deletion.append(maintenance._on_deletion)
    await maintenance.flush_due()
    await _turns()
    compacting = asyncio.ensure_future(maintenance.compact())
    await asyncio.sleep(0)
    assert not compacting.done()
    cluster.publish({})
    await asyncio.wait_for(compacting, 5)


async def test_compaction_keeps_to_its_rate():
    cluster = Cluster(log_cleaner_io_max_bytes_per_second=200_000.0)
    cluster.publish({"a": 1}, configs={"a": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}})
    partition = cluster.replicas.find("a", 0)
    for number in range(300):
        partition.append(keyed(cluster, b"k%d" % (number % 7), b"v"), required_acks=1)
    partition.log.roll()
    dirty_bytes = partition.log.size_bytes
    maintenance = make_maintenance(cluster)
    await maintenance.flush_due()
    await _turns()
    start = asyncio.get_running_loop().time()
    await maintenance.compact()
    taken_seconds = asyncio.get_running_loop().time() - start
    (cleaner,) = maintenance._cleaners.values()
    # Read once for its keys and once to be copied, and a little is written.
    assert 2 * dirty_bytes < cleaner.io_bytes < 3 * dirty_bytes
    assert taken_seconds >= cleaner.io_bytes / 200_000


@pytest.mark.parametrize(
    ("setting", "file"),
    [
        ("log_flush_offset_checkpoint_interval_ms", "recovery-point-offset-checkpoint"),
        ("log_flush_start_offset_checkpoint_interval_ms", "log-start-offset-checkpoint"),
    ],
)
async def test_each_checkpoint_has_its_own_interval(setting, file):
    cluster = Cluster(**{setting: 0})
    cluster.publish({"a": 1})
    maintenance = make_maintenance(cluster)
    before = cluster.disk.list("data0")
    failing = cluster.disk.fail("replace", f"data0/{file}", count=1000)
    maintenance.start()
    await asyncio.sleep(0.1)
    await maintenance.stop()
    assert 1 <= 1000 - failing.count <= 10  # Not as often as the loop turns.
    cluster.disk.heal()
    assert cluster.disk.list("data0") == before


async def test_idle_producers_are_forgotten():
    cluster = Cluster(producer_id_expiration_ms=1000)
    cluster.publish({"a": 1})
    partition = cluster.replicas.find("a", 0)
    partition.append(batch(b"x", producer_id=4, producer_epoch=0, base_sequence=0), required_acks=1)
    maintenance = make_maintenance(cluster)
    await maintenance.expire_producers()
    assert len(partition.log.producers) == 1
    cluster.disk.clock.advance_ms(1001)
    await maintenance.expire_producers()
    assert len(partition.log.producers) == 0


async def test_a_round_that_fails_is_followed_by_the_next(caplog):
    cluster = Cluster(replica_high_watermark_checkpoint_interval_ms=5, log_initial_task_delay_ms=0)
    cluster.publish({"a": 1})
    fault = cluster.disk.fail("replace", error=errno.EIO, count=1)
    maintenance = make_maintenance(cluster)
    maintenance.start()
    deadline = asyncio.get_running_loop().time() + 5
    while not cluster.disk.exists("data0/replication-offset-checkpoint"):
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.005)
    assert fault.count == 0
    assert "a data folder could not be tended" in caplog.text
    await maintenance.stop()


async def test_a_folder_that_fails_keeps_no_other_from_its_turn():
    cluster = Cluster(folders=2)
    cluster.publish({"a": 2})
    maintenance = make_maintenance(cluster)
    cluster.disk.fail("replace", "data0/*")
    await maintenance.checkpoint_recovery_points()
    assert cluster.disk.exists("data1/recovery-point-offset-checkpoint")
    assert [each.is_offline for each in cluster.directories] == [True, False]
    await maintenance.checkpoint_high_watermarks()
    await maintenance.checkpoint_log_start_offsets()
    await maintenance.apply_retention()
    await cluster.replicas.store_log_start_offsets()
    assert cluster.disk.exists("data1/replication-offset-checkpoint")
    assert not cluster.disk.exists("data0/replication-offset-checkpoint")
