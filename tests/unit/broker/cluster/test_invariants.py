"""A broken invariant of one replica: that one goes offline, another leads in its place, and nothing else is touched."""

import asyncio
from typing import Any

import pytest

from tailrace.broker.broker import Broker
from tailrace.broker.cluster.forwarding import Forwarding
from tailrace.coordinator import machine
from tailrace.log.run_marks import RUN_MARK
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.raft import step as raft_step
from tailrace.replica.partition import Partition
from tailrace.wire.apis.groups import FindCoordinatorRequest, OffsetCommitRequest
from tailrace.wire.apis.own import ReportReplicasRequest
from tests.unit.broker.cluster.test_folders import folder_of, state, wait_assigned
from tests.unit.broker.cluster.test_replica_reports import kill_all
from tests.unit.broker.cluster.test_wiring import create, leader_of, read_values, send, wait_topic
from tests.unit.broker.cluster_world import ClusterWorld, running_cluster, simulated
from tests.unit.broker.world import batch


async def filled(world: ClusterWorld, partitions: int = 3) -> None:
    await create(await world.connect(1), "t", partitions=partitions)
    await wait_topic(world, "t")
    for index in range(partitions):
        for number in range(3):
            await send(world, "t", b"%d" % number, index)


def broker_of(world: ClusterWorld, node_id: int) -> Broker:
    broker = world.nodes[node_id].broker
    assert broker is not None
    return broker


def broken(broker: Broker) -> Partition:
    """Its replica of t-0, which believes what cannot be: more is confirmed than it has."""
    partition = broker.replicas.find("t", 0)
    partition.high_watermark = partition.log.log_end_offset + 5
    return partition


@simulated
async def test_a_leader_that_is_broken_is_replaced_and_nothing_acknowledged_is_lost(caplog):
    async with running_cluster() as world:
        await filled(world)
        victim = broker_of(world, leader_of(world, "t"))
        partition = broken(victim)
        assert await send(world, "t", b"3") == 3
        assert partition.log.is_offline
        assert leader_of(world, "t") != victim.node_id
        (line,) = [each for each in caplog.records if "what must hold of its log does not" in each.getMessage()]
        assert line.facts["partition"] == partition.topic_partition
        assert "high watermark at 8" in str(line.facts["invariant"])
        assert "Restart the broker" in line.getMessage()
        for index in (1, 2):
            assert await send(world, "t", b"3", index) == 3
            assert victim.node_id in state(world, index).isr, "its other replicas are as good as before"
        assert not victim.directories.offline_directory_ids()
        await world.wait(lambda: victim.node_id not in state(world).isr, "it left the in-sync set")
        await world.wait(lambda: not victim.replicas.broken, "the controller knows")
        assert await send(world, "t", b"4") == 4
        assert partition.log.log_end_offset < 5, "it is not filled before it was checked"
        await world.stop(victim.node_id)
        await world.start(victim.node_id)
        await wait_topic(world, "t")
        assert broker_of(world, victim.node_id).replicas.find("t", 0).log.log_end_offset == 5
        assert await read_values(world, "t") == [b"%d" % number for number in range(5)]


@simulated
async def test_a_follower_that_is_broken_holds_nobody_up():
    async with running_cluster() as world:
        await filled(world)
        leader = leader_of(world, "t")
        victim = broker_of(world, next(node_id for node_id in world.nodes if node_id != leader))
        partition = broken(victim)
        assert await send(world, "t", b"3") == 3
        await world.wait(lambda: victim.node_id not in state(world).isr, "it left the in-sync set")
        assert partition.log.is_offline
        assert leader_of(world, "t") == leader
        await world.kill(victim.node_id)
        await world.start(victim.node_id)
        await wait_topic(world, "t")


@simulated
async def test_a_kill_before_the_controller_knows_proves_nothing(monkeypatch):
    async with running_cluster() as world:
        await filled(world, 1)
        victim = broker_of(world, leader_of(world, "t"))
        original = Forwarding.ask

        async def ask(self: Forwarding, request: Any, *arguments: Any, **options: Any) -> Any:
            if isinstance(request, ReportReplicasRequest):
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "it is not reached")
            return await original(self, request, *arguments, **options)

        disk = world.nodes[victim.node_id].disk
        monkeypatch.setattr(Forwarding, "ask", ask)
        partition = broken(victim)
        assert RUN_MARK in disk.list("data")
        with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
            partition.append(memoryview(bytearray(batch(b"3"))), required_acks=1)
        assert RUN_MARK not in disk.list("data"), "what the process has believed is not in the files"
        await asyncio.sleep(1)
        assert leader_of(world, "t") == victim.node_id
        assert RUN_MARK not in disk.list("data")
        monkeypatch.undo()
        await world.wait(lambda: leader_of(world, "t") not in (victim.node_id, -1), "another one leads")
        await world.wait(lambda: RUN_MARK in disk.list("data"), "the folder proves the others again")


@simulated
@pytest.mark.parametrize("when", ["at the start", "later"])
async def test_a_controller_of_kafkas_is_told_that_the_folder_has_failed(monkeypatch, when):
    """It does not know of replicas that must not be elected, but of folders."""
    original = Forwarding.ask

    async def ask(self: Forwarding, request: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(request, ReportReplicasRequest):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "an unknown request")
        return await original(self, request, *arguments, **options)

    monkeypatch.setattr(Forwarding, "ask", ask)
    async with running_cluster(settings={"log.dirs": "data,more"}) as world:
        await filled(world, 6)
        await wait_assigned(world, 6)
        victim = broker_of(world, leader_of(world, "t"))
        failed = folder_of(victim)
        gone = [index for index in range(6) if folder_of(victim, index) is failed]
        kept = [index for index in range(6) if index not in gone]
        assert kept
        if when == "later":
            broken(victim)
            assert await send(world, "t", b"3") == 3
        else:
            await kill_all(world)  # At one time: so it is in sync, and counted on.
            world.nodes[victim.node_id].disk.remove_folder(f"{failed.path}/t-0")
            await world.start_all()
            victim = broker_of(world, victim.node_id)
        assert victim.directories.offline_directory_ids() == [failed.directory_id]
        await world.wait(
            lambda: all(victim.node_id not in state(world, index).isr for index in gone), "it left the in-sync sets"
        )
        await world.wait(
            lambda: all(victim.node_id in state(world, index).isr for index in kept), "its other folder is in use"
        )
        assert await send(world, "t", b"4") == (4 if when == "later" else 3)


@simulated
async def test_a_coordinator_that_is_broken_is_replaced(monkeypatch):
    async with running_cluster() as world:
        await filled(world, 1)
        first = await coordinator(world)
        await commit(world, first, 1)
        victim = broker_of(world, first)
        shard = victim.services.coordination.groups.find("g")
        exec("def broken_op(*_): assert False, 'a planted one'", vars(machine))  # As if it were written there.
        monkeypatch.setattr(shard.machine, "op", vars(machine).pop("broken_op"))
        peer = await world.connect(first)
        answer = await peer.request(commit_request(2), 8)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        assert shard.partition.log.is_offline
        topic = "__consumer_offsets"
        await world.wait(lambda: leader_of(world, topic, shard.index) not in (first, -1), "another one leads")
        second = await coordinator(world)
        assert second != first
        found = broker_of(world, second).services.coordination.groups
        await commit(world, second, 3)
        assert found.find("g").is_active
        victim.statistics()  # It runs.


async def coordinator(world: ClusterWorld) -> int:
    peer = await world.connect(world.running[0].node_id)
    async with asyncio.timeout(15):
        while (found := await peer.request(FindCoordinatorRequest(key="g"), 3)).error_code:
            await asyncio.sleep(0.05)
    return found.node_id


async def commit(world: ClusterWorld, node_id: int, offset: int) -> None:
    peer = await world.connect(node_id)
    async with asyncio.timeout(15):
        while (await peer.request(commit_request(offset), 8)).topics[0].partitions[0].error_code:
            await asyncio.sleep(0.05)


def commit_request(offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])


@simulated
async def test_a_raft_node_that_is_broken_leaves_the_quorum(monkeypatch):
    async with running_cluster("broker,controller", "broker,controller", "broker,controller") as world:
        await filled(world, 1)
        leader = world.active
        exec("def broken_step(*_): assert False, 'a planted one'", vars(raft_step))
        planted = vars(raft_step).pop("broken_step")
        original = raft_step.step
        node = leader.quorum.driver.node
        monkeypatch.setattr(
            "tailrace.broker.quorum.driver.step",
            lambda each, *given, **named: planted() if each is node else original(each, *given, **named),
        )
        await world.wait(lambda: any(each.quorum.is_active for each in world.running if each is not leader), "another")
        assert leader.quorum.driver.failure is not None
        with pytest.raises(Exception, match="planted"):
            await leader.wait_failed()
