"""A machine is read from its log: everything that is in it, and nothing else."""

import asyncio
from collections.abc import Sequence
from struct import pack

import pytest

from tailrace.broker.coordinators.loading import load
from tailrace.broker.coordinators.shard import State
from tailrace.coordinator.op import StoredRecord
from tailrace.log.files.damaged import DamagedRange
from tailrace.log.files.segment import LOG_SUFFIX
from tailrace.log.validation import Origin
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId
from tailrace.replica.partition import Partition
from tailrace.wire.record_envelopes import encode_coordinator_key, encode_coordinator_value
from tailrace.wire.records import Compression, build_batch
from tests.unit.broker.coordinators.ledger import Desk, record
from tests.unit.broker.world import World, create_topic, running

NOW_MS = 1_767_225_600_000


async def partition_of(world: World) -> Partition:
    peer = await world.connect()
    await create_topic(peer, "t", cleanup_policy="compact", message_timestamp_before_max_ms=str((1 << 63) - 1))
    return world.broker.replicas.find("t", 0)


def append(partition: Partition, records: Sequence[StoredRecord | tuple[bytes, bytes]], **options) -> None:
    pairs = [
        (encode_coordinator_key(each.key), each.value and encode_coordinator_value(each.value))
        if isinstance(each, StoredRecord)
        else each
        for each in records
    ]
    built = build_batch([(index, NOW_MS, key, value, ()) for index, (key, value) in enumerate(pairs)], **options)
    partition.append(memoryview(bytearray(built)), required_acks=1, origin=Origin.COORDINATOR)


def append_marker(partition: Partition, producer_id: int, *, is_commit: bool) -> None:
    marker = pack(">hh", 0, is_commit), pack(">hi", 0, 0)
    append(partition, [marker], producer_id=producer_id, producer_epoch=0, transactional=True, control=True)


def transactional(producer_id: int) -> dict[str, int | bool]:
    return {"producer_id": producer_id, "producer_epoch": 0, "transactional": True}


async def test_the_last_record_of_each_name_counts() -> None:
    async with running() as world:
        partition = await partition_of(world)
        append(partition, [record("a", 1), record("b", 1)])
        append(partition, [record("a", 2), record("c", 1), record("b", None)], compression=Compression.ZSTD)
        desk = Desk(world.broker.node, partition)
        await load(world.broker.node, desk.shard, partition)
        assert desk.ledger.values == {"a": 2, "c": 1}
        assert (desk.shard.state, desk.ledger.loaded_count) == (State.ACTIVE, 1)


async def test_a_transaction_counts_from_its_marker_on() -> None:
    async with running() as world:
        partition = await partition_of(world)
        append(partition, [record("committed")], **transactional(5))
        append(partition, [record("aborted")], **transactional(6))
        append_marker(partition, 5, is_commit=True)
        append_marker(partition, 6, is_commit=False)
        append(partition, [record("open")], **transactional(7))
        desk = Desk(world.broker.node, partition)
        await load(world.broker.node, desk.shard, partition)
        assert desk.ledger.values == {"committed": 1}
        assert desk.ledger.pending == {7: {"open": 1}}


async def test_what_a_newer_version_wrote_is_passed_over(caplog) -> None:
    async with running() as world:
        partition = await partition_of(world)
        append(partition, [record("a"), (b"\x00\x63what", b""), record("b"), (b"\x00\x63ever", b"")])
        desk = Desk(world.broker.node, partition)
        await load(world.broker.node, desk.shard, partition)
        assert desk.ledger.values == {"a": 1, "b": 1}
        (told,) = [each.facts for each in caplog.records if each.getMessage() == "passed over records"]
        assert (told["cause"], told["count"]) == ("coordinator record type 99 is not known", 2)


async def test_reading_goes_in_slices_over_many_reads() -> None:
    async with running() as world:
        partition = await partition_of(world)
        for first in range(0, 12_000, 1000):
            append(partition, [record(f"{first + index}", metadata="x" * 150) for index in range(1000)])
        assert partition.log.size_bytes > 2 << 20, "more than one read"
        desk = Desk(world.broker.node, partition)
        loading = asyncio.ensure_future(load(world.broker.node, desk.shard, partition))
        turns = 0
        while not loading.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 10
        assert len(desk.ledger.values) == 12_000


async def test_a_shard_that_is_closed_meanwhile_stays_closed() -> None:
    async with running() as world:
        partition = await partition_of(world)
        for first in range(0, 5000, 1000):
            append(partition, [record(f"{first + index}") for index in range(1000)])
        desk = Desk(world.broker.node, partition)
        loading = asyncio.ensure_future(load(world.broker.node, desk.shard, partition))
        for _ in range(4):
            await asyncio.sleep(0)
        desk.shard.close()
        await loading
        assert (desk.shard.state, desk.ledger.loaded_count) == (State.CLOSED, 0)
        assert len(desk.ledger.values) < 5000


async def test_records_before_the_log_start_are_gone() -> None:
    async with running() as world:
        partition = await partition_of(world)
        append(partition, [record("a"), record("b"), record("c")])
        partition.log.advance_start(1)
        desk = Desk(world.broker.node, partition)
        await load(world.broker.node, desk.shard, partition)
        assert desk.ledger.values == {"b": 1, "c": 1}


async def test_what_the_disk_has_changed_is_not_loaded() -> None:
    async with running() as world:
        partition = await partition_of(world)
        append(partition, [record("a", 1)])
        append(partition, [record("a", 2)])
        partition.log.active.file._content.data[-3] ^= 1
        desk = Desk(world.broker.node, partition)
        with pytest.raises(KafkaError) as refused:
            await load(world.broker.node, desk.shard, partition)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
        assert desk.shard.state is State.LOADING
        assert world.broker.replicas.suspects == {partition.topic_partition: (1, False)}


@pytest.mark.parametrize("has_other_replica", [False, True])
async def test_damage_that_nobody_can_repair_is_passed_over(has_other_replica: bool, caplog) -> None:
    async with running() as world:
        partition = await partition_of(world)
        for name in ("a", "b", "a"):
            append(partition, [record(name, partition.log.log_end_offset)])
        segment = partition.log.active
        size_bytes = segment.size_bytes // 3
        damage = DamagedRange(segment.path(LOG_SUFFIX), size_bytes, 2 * size_bytes, 1, 2, "a bit has flipped")
        partition.log.note_damaged_ranges(segment, (damage,))
        if has_other_replica:
            partition.replicas = (NodeId(1), NodeId(2))
        desk = Desk(world.broker.node, partition)
        if has_other_replica:
            with pytest.raises(KafkaError) as refused:
                await load(world.broker.node, desk.shard, partition)
            assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
        else:
            await load(world.broker.node, desk.shard, partition)
            assert desk.ledger.values == {"a": 2}
            assert "goes on without records that are damaged" in caplog.text
