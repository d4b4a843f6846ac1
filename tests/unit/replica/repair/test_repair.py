"""Bytes that change in old segments, on nodes that fetch from each other: found, told to readers, and repaired."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tailrace.log.compaction.cleaner import Cleaner
from tailrace.log.compaction.run import Limits
from tailrace.log.validation import Origin
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId
from tailrace.model.ports import Ports
from tailrace.real.network import RealNetwork
from tailrace.replica.partition import Partition
from tailrace.replica.repair.upkeep import Scrubbing
from tailrace.sim.clock import SimClock
from tailrace.sim.random import SimRandom
from tailrace.wire.markers import Marker, build_marker
from tailrace.wire.records import build_batch, iterate_headers
from tests.unit.log.scrub.scrubbing import run
from tests.unit.replica.cluster import Cluster, Node, _Leaders, simulate

CLOSED = f"data/t-0/{0:020d}.log"
SOON = {"log_scrub_interval_ms": 60_000}


class Scrubs:
    """A scrub on every node; the test is the controller, and remembers who asked it to move a lead."""

    def __init__(self, cluster: Cluster, *, moves: bool = True) -> None:
        self.cluster = cluster
        self.moves: list[tuple[NodeId, NodeId]] = []
        self.damaged: list[NodeId] = []
        self.of: dict[NodeId, Scrubbing] = {}
        self._tasks: dict[NodeId, asyncio.Task[None]] = {}
        for node in cluster.nodes.values():
            self.start(node, moves=moves)

    def start(self, node: Node, *, moves: bool = True) -> None:
        leaders = _Leaders(self.cluster, node.id)

        async def call(node_id: int, request: Any, response_type: Any, *, channel: str, timeout_ms: Any = None) -> Any:
            return await leaders.call(node_id, request, response_type, timeout_ms=timeout_ms, channel=channel)

        async def move_lead(partition: Partition, new_leader: NodeId) -> None:
            self.moves.append((partition.node_id, new_leader))
            if not moves:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "nobody knows this request")
            self.cluster.set(leader=new_leader)

        async def call_damaged(partition: Partition) -> None:
            self.damaged.append(partition.node_id)
            others = [each for each in self.cluster.nodes if each != partition.node_id]
            self.cluster.set(leader=others[0], isr=others[:1])

        ports = Ports(node.clock, SimRandom(1), node.disk, RealNetwork(), node.background)
        self.of[node.id] = Scrubbing(
            node.replicas,
            ports,
            call=call,
            move_lead=move_lead,
            call_damaged=call_damaged,
            is_compacting=lambda _partition: False,
        )
        self._tasks[node.id] = asyncio.create_task(self.of[node.id].run())

    async def stop(self, *node_ids: int) -> None:
        for node_id in node_ids or tuple(self._tasks):
            task = self._tasks[NodeId(node_id)]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def fill(cluster: Cluster, *, leader: int = 1, batches: int = 8, isr: Sequence[int] | None = None) -> None:
    """Two closed segments and an active one, on every replica."""
    cluster.set(leader=leader, isr=isr)
    for part in range(3):
        for number in range(batches):
            await cluster[leader].append(b"%d-%d" % (part, number) * 20, b"second")
        await cluster.settle(0.2)
        for node in cluster.nodes.values():
            if part < 2 and node.is_up:
                node.partition().log.roll()
                node.replicas.flusher.request(node.partition())
    await cluster.settle(1.0)


def flip(node: Node, batch: int, at: int = 70, path: str = CLOSED) -> tuple[int, int]:
    """Damages a batch; gives the offsets that it had."""
    data = node.disk.open(path)._content.data
    position, header = list(iterate_headers(bytes(data)))[batch]
    data[position + at] ^= 0x10
    return header.base_offset, header.next_offset


def stored(node: Node, path: str = CLOSED) -> bytes:
    return bytes(node.disk.open(path)._content.data)


@pytest.mark.parametrize("at", [3, 9, 14, 16, 18, 70])
@pytest.mark.parametrize("batch", [0, 3, 7])
def test_a_follower_takes_the_range_from_its_leader(at: int, batch: int):
    async def test(cluster: Cluster) -> None:
        cluster.start()
        await fill(cluster)
        sound, values = stored(cluster[1]), cluster[1].values()
        assert stored(cluster[2]) == sound
        fetched_from = cluster[1].partition().followers[NodeId(2)].log_end_offset
        flip(cluster[2], batch, at)
        scrubs = Scrubs(cluster)
        await cluster.settle(5)
        assert stored(cluster[2]) == sound
        assert cluster[2].values() == values
        assert cluster[2].partition().log.damaged_ranges == ()
        assert (scrubs.of[NodeId(2)].scrubber.found_count, scrubs.of[NodeId(2)].repairs.repaired_count) == (1, 1)
        assert scrubs.moves == []
        # The leader still knows that this follower has everything.
        assert cluster[1].partition().followers[NodeId(2)].log_end_offset == fetched_from
        assert cluster.partitions[0].isr == (1, 2, 3)
        names = cluster[2].disk.list("data/t-0")
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
        await scrubs.stop()

    simulate(test, **SOON)


def test_a_leader_gives_the_lead_away_and_is_repaired_as_a_follower():
    async def test(cluster: Cluster) -> None:
        cluster.start()
        await fill(cluster)
        sound = stored(cluster[2])
        flip(cluster[1], 4)
        flip(cluster[2], 4)  # The first that is asked cannot read it either.
        scrubs = Scrubs(cluster)
        await cluster.settle(8)
        assert scrubs.moves == [(1, 3)]
        assert cluster.partitions[0].leader == 3
        assert [stored(cluster[each]) for each in (1, 2, 3)] == [sound] * 3
        await cluster[3].append(b"goes on")
        await scrubs.stop()

    simulate(test, **SOON)


def test_with_a_controller_that_moves_no_lead_the_leader_takes_the_range_from_a_follower():
    async def test(cluster: Cluster) -> None:
        cluster.start()
        await fill(cluster)
        sound = stored(cluster[2])
        flip(cluster[1], 4)
        scrubs = Scrubs(cluster, moves=False)
        await cluster.settle(5)
        assert scrubs.moves == [(1, 2)]
        assert cluster.partitions[0].leader == 1
        assert stored(cluster[1]) == sound
        await scrubs.stop()

    simulate(test, **SOON)


def test_without_anybody_to_ask_readers_are_told_and_everything_around_is_read():
    async def test(cluster: Cluster) -> None:
        cluster.start()
        await fill(cluster)
        start, end = flip(cluster[1], 4)
        scrubs = Scrubs(cluster)
        await cluster.settle(5)
        partition = cluster[1].partition()
        assert [(each.start_offset, each.end_offset) for each in partition.log.damaged_ranges] == [(start, end)]
        for offset in range(48):
            if start <= offset < end:
                with pytest.raises(KafkaError) as refused:
                    partition.read(offset, 1 << 20, isolation_level=0, at_least_one_batch=True)
                assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
            else:
                found = partition.read(offset, 1 << 20, isolation_level=0, at_least_one_batch=True)
                assert found is not None
                first = next(iterate_headers(found.read()))[1]
                assert first.base_offset <= offset < first.next_offset
        assert scrubs.moves == []
        await scrubs.stop()

    simulate(test, nodes=1, **SOON)


def test_nobody_moves_while_no_replica_can_read_the_range():
    async def test(cluster: Cluster) -> None:
        cluster.start()
        await fill(cluster)
        sound = stored(cluster[3])
        for node in (1, 2):
            flip(cluster[node], 4)
        cluster[3].crash()
        cluster.set(isr=(1, 2))
        scrubs = Scrubs(cluster)
        await cluster.settle(5)
        assert scrubs.moves == []
        assert cluster[1].partition().log.damaged_ranges
        assert cluster[2].partition().log.damaged_ranges
        # One with a good copy comes back, and all of them are whole.
        cluster[3].start()
        cluster.publish()
        await cluster.settle(100)
        assert [stored(cluster[each]) for each in (1, 2, 3)] == [sound] * 3
        await scrubs.stop()

    simulate(test, **SOON)


def test_a_suspected_segment_is_checked_at_once():
    async def test(cluster: Cluster) -> None:
        cluster.start()
        await fill(cluster)
        sound = stored(cluster[1])
        scrubs = Scrubs(cluster)
        await cluster.settle(5)
        flip(cluster[2], 3)
        await cluster.settle(3)
        assert stored(cluster[2]) != sound  # The round is over.
        cluster[2].partition().log.suspect(6)
        await cluster.settle(3)
        assert stored(cluster[2]) == sound
        await scrubs.stop()

    simulate(test, **SOON)


def test_an_active_segment_is_rolled_to_be_repaired():
    async def test(cluster: Cluster) -> None:
        cluster.start()
        await fill(cluster)
        active = f"data/t-0/{32:020d}.log"
        sound = stored(cluster[1], active)
        flip(cluster[2], 3, path=active)
        scrubs = Scrubs(cluster)
        await cluster.settle(5)
        assert stored(cluster[2], active) == sound
        assert cluster[2].partition().log.active.base_offset == 48
        await cluster[1].append(b"goes on")
        await cluster.settle(1)
        assert cluster[2].values() == cluster[1].values()
        await scrubs.stop()

    simulate(test, **SOON)


def test_a_follower_that_cannot_take_what_it_gets_makes_its_leader_look():
    async def test(cluster: Cluster) -> None:
        cluster.start()
        cluster[3].crash()
        await fill(cluster, isr=(1, 2))
        sound = stored(cluster[2])
        scrubs = Scrubs(cluster)
        await cluster.settle(70)  # A round has passed.
        flip(cluster[1], 4)
        cluster[3].start()
        cluster.publish()
        await cluster.settle(8)
        assert scrubs.moves == [(1, 2)]
        assert [stored(cluster[each]) for each in (1, 2)] == [sound] * 2
        assert cluster[3].values() == cluster[2].values()
        await scrubs.stop()

    simulate(test, **(SOON | {"log_scrub_interval_ms": 3_600_000}))


def test_a_closed_segment_that_was_lost_is_fetched_again():
    async def test(cluster: Cluster) -> None:
        cluster.start()
        await fill(cluster)
        lost, values = f"data/t-0/{16:020d}.log", cluster[1].values()
        node = cluster[2]
        node.replicas.close()
        node.directory.close()
        node.is_up = False
        node.disk.crash()
        node.disk.remove(lost)
        node.start()
        cluster.publish()
        scrubs = Scrubs(cluster)
        await cluster.settle(8)
        assert node.values() == values
        await scrubs.stop()

    simulate(test, **SOON)


@pytest.mark.parametrize("is_held", [True, False])
@pytest.mark.parametrize("path", [CLOSED, f"data/t-0/{32:020d}.log"])
@pytest.mark.parametrize("node_id", [1, 2])
def test_a_file_that_is_removed_while_the_broker_runs_is_made_again(is_held: bool, path: str, node_id: int):
    async def test(cluster: Cluster) -> None:
        cluster.start()
        await fill(cluster)
        node, sound, values = cluster[node_id], stored(cluster[3], path), cluster[3].values()
        node.disk.remove(path)
        for segment in node.partition().log.segments:
            if is_held:
                assert segment.is_open or segment.file.size
            else:
                segment.release()
        scrubs = Scrubs(cluster)
        await cluster.settle(8)
        assert stored(node, path) == sound
        assert node.values() == values
        assert (scrubs.of[NodeId(node_id)].scrubber.found_count == 0) is is_held
        await scrubs.stop()

    simulate(test, **SOON)


@pytest.mark.parametrize("has_successor", [False, True])
def test_a_log_that_was_deleted_is_not_lost(has_successor: bool):
    """Even if a new one, of a topic that has its name, has other files under its names."""

    async def test(cluster: Cluster) -> None:
        cluster.start()
        await fill(cluster)
        partition = cluster[2].partition()
        scrubs = Scrubs(cluster)
        cluster.set(replicas=(1, 3), isr=(1, 3))
        if has_successor:
            cluster[2].disk.make_folder("data/t-0")
        for segment in partition.log.segments:
            if has_successor:
                cluster[2].disk.open(segment.path(".log"), create=True)
            await scrubs.of[NodeId(2)].scrubber.check(partition, segment)
        assert scrubs.of[NodeId(2)].scrubber.found_count == 0
        await scrubs.stop()

    simulate(test, **SOON)


def test_a_wrong_index_is_made_anew():
    async def test(cluster: Cluster) -> None:
        cluster.start(index_interval_bytes="200")
        await fill(cluster)
        path = CLOSED.replace(".log", ".timeindex")
        sound, log = stored(cluster[1], path), stored(cluster[1])
        cluster[1].disk.open(path)._content.data[7] ^= 0x40
        scrubs = Scrubs(cluster)
        await cluster.settle(5)
        assert stored(cluster[1], path) == sound
        assert stored(cluster[1]) == log
        assert scrubs.of[NodeId(1)].scrubber.found_count == 0
        await scrubs.stop()

    simulate(test, **SOON)


def test_it_can_be_turned_off_and_keeps_to_its_rate():
    async def test(cluster: Cluster, rate: int) -> int:
        cluster.start()
        await fill(cluster, batches=400)
        scrubs = Scrubs(cluster)
        await cluster.settle(5)
        checked = scrubs.of[NodeId(1)].scrubber.checked_bytes
        await scrubs.stop()
        return checked

    closed = 2 * 400 * 170
    fast = simulate(lambda cluster: test(cluster, 0), **SOON)
    slow = simulate(lambda cluster: test(cluster, 0), log_scrub_max_bytes_per_second=20_000, **SOON)
    off = simulate(lambda cluster: test(cluster, 0), log_scrub_max_bytes_per_second=0, **SOON)
    assert fast >= closed
    assert slow <= 5 * 20_000
    assert off == 0


def compact(node: Node) -> None:
    """Compacts all that can be of the partition's log."""
    cleaner = Cleaner(node.disk, "data", Limits(1 << 20, 1 << 16, 1 << 20))
    partition = node.partition()
    steps = cleaner.begin([(partition.log, partition.last_stable_offset)], node.clock.wall_ms())
    assert steps is not None
    run(steps)


async def append_raw(node: Node, data: bytes, *, origin: Origin = Origin.CLIENT) -> None:
    partition = node.partition()
    partition.append(memoryview(bytearray(data)), required_acks=-1, origin=origin)
    await asyncio.sleep(0.05)


async def close_segments(cluster: Cluster) -> None:
    await cluster.settle(0.3)
    for node in cluster.nodes.values():
        node.partition().log.roll()
        node.replicas.flusher.request(node.partition())
    await cluster.settle(0.3)


def keyed(key: bytes, value: bytes | None, **options: Any) -> bytes:
    return build_batch([(0, SimClock().wall_ms(), key, value, ())], **options)


def test_of_a_compacted_topic_no_value_comes_back_without_its_tombstone():
    async def test(cluster: Cluster) -> None:
        cluster.start(cleanup_policy="compact", min_cleanable_dirty_ratio="0", delete_retention_ms="0")
        cluster.set(leader=1)
        for key, value in ((b"gone", b"old value"), (b"a", b"1"), (b"b", b"2")):
            await append_raw(cluster[1], keyed(key, value))
        await close_segments(cluster)
        for key, value in ((b"gone", None), (b"c", b"3"), (b"d", b"4")):
            await append_raw(cluster[1], keyed(key, value))
        await close_segments(cluster)
        await append_raw(cluster[1], keyed(b"e", b"5"))
        await close_segments(cluster)
        for _ in range(2):  # The tombstone goes in the second run.
            compact(cluster[1])
            await append_raw(cluster[1], keyed(b"e", b"5"))
            await close_segments(cluster)
            await cluster.settle(1)
        assert b"old value" not in cluster[1].values()
        assert b"old value" in cluster[2].values()
        # The batch with the tombstone, which the leader does not have any more.
        flip(cluster[2], 0, path=f"data/t-0/{3:020d}.log")
        scrubs = Scrubs(cluster)
        await cluster.settle(10)
        assert cluster[2].partition().log.damaged_ranges == ()
        assert scrubs.of[NodeId(2)].repairs.repaired_count == 1
        assert b"old value" not in cluster[2].values()
        assert sorted(cluster[2].values()) == sorted(cluster[1].values())
        bases = [segment.base_offset for segment in cluster[2].partition().log.segments]
        for base in bases[:-1]:
            data = stored(cluster[2], f"data/t-0/{base:020d}.log")
            assert [header.next_offset for _, header in iterate_headers(data)][-1] in bases
        await scrubs.stop()

    simulate(test, **SOON)


def test_of_a_compacted_topic_what_was_aborted_does_not_come_back():
    async def test(cluster: Cluster) -> None:
        cluster.start(cleanup_policy="compact", min_cleanable_dirty_ratio="0")
        cluster.set(leader=1)
        producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
        for sequence, key in enumerate((b"x", b"y")):
            await append_raw(cluster[1], keyed(key, b"aborted", base_sequence=sequence, transactional=True, **producer))
        abort = build_marker(
            Marker(is_commit=False, coordinator_epoch=1), timestamp_ms=SimClock().wall_ms(), **producer
        )
        await append_raw(cluster[1], abort, origin=Origin.COORDINATOR)
        await append_raw(cluster[1], keyed(b"y", b"good"))
        await close_segments(cluster)
        await append_raw(cluster[1], keyed(b"z", b"good too"))
        await close_segments(cluster)
        compact(cluster[2])
        assert b"aborted" not in cluster[2].values()
        flip(cluster[2], -1)
        scrubs = Scrubs(cluster)
        await cluster.settle(10)
        assert cluster[2].partition().log.damaged_ranges == ()
        assert cluster[2].values()[-2:] == [b"good", b"good too"]
        assert b"aborted" not in cluster[2].values()
        await scrubs.stop()

    simulate(test, **SOON)


def test_whenever_the_process_dies_the_log_is_good_or_as_before():
    async def test(cluster: Cluster, operations: int) -> bool:
        cluster.start()
        await fill(cluster)
        sound, values = stored(cluster[1]), cluster[1].values()
        flip(cluster[2], 3)
        bad = stored(cluster[2])
        node = cluster[2]
        node.directory.begin_checkpoint()()  # Or recovery would look at it, and cut the log there.
        died: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        node.disk.die_after(operations, torn_bytes=20, on_death=lambda: died.done() or died.set_result(None))
        scrubs = Scrubs(cluster)
        await asyncio.wait((died,), timeout=5)
        await scrubs.stop(2)
        node.crash()
        node.start()
        cluster.publish()
        assert stored(node) in (sound, bad)
        names = node.disk.list("data/t-0")
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
        was_bad = stored(node) == bad
        scrubs.start(node)
        await cluster.settle(5)
        assert stored(node) == sound
        assert node.values() == values
        await scrubs.stop()
        return was_bad

    seen = {simulate(lambda cluster, count=count: test(cluster, count), **SOON) for count in range(0, 36, 2)}
    assert seen == {True, False}
