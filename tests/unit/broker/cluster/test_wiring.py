"""Three nodes of the simulator: they elect, replicate, fail over and come back."""

import asyncio

import pytest

from tailrace.model.errors import ErrorCode, StorageError
from tailrace.sim.cluster import CLIENT_PORT, CONTROLLER_LISTENER, CONTROLLER_PORT
from tailrace.wire.apis.admin import CreateTopicsRequest
from tailrace.wire.apis.data import ApiVersionsRequest, MetadataRequest
from tailrace.wire.apis.quorum import AddRaftVoterRequest, DescribeQuorumRequest, RemoveRaftVoterRequest
from tailrace.wire.apis.transactions import InitProducerIdRequest
from tests.unit.broker.cluster_world import ClusterWorld, running_cluster, simulated
from tests.unit.broker.world import Peer, batch, fetch, fetched, produce, produced


async def create(peer: Peer, name: str, partitions: int = 3, factor: int = 3) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor)
    answer = await peer.request(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)
    assert answer.topics[0].error_code == 0, answer.topics[0].error_message


async def wait_topic(world: ClusterWorld, name: str) -> None:
    """Every running broker knows it, with all its replicas in sync."""

    def is_there() -> bool:
        return all(
            name in broker.image.topics
            and all(len(state.isr) == len(state.replicas) for state in broker.image.topics[name].partitions.values())
            for broker in world.running
            if broker.roles.is_broker
        )

    await world.wait(is_there, f"{name} is known and in sync everywhere")


def leader_of(world: ClusterWorld, name: str, partition: int = 0) -> int:
    return world.running[0].image.topics[name].partitions[partition].leader


async def send(world: ClusterWorld, name: str, value: bytes, partition: int = 0) -> int:
    """As a client does: to whoever leads, until it is acknowledged by all in sync. Gives the offset."""
    async with asyncio.timeout(15):
        while True:
            leader = leader_of(world, name, partition)
            if leader >= 0 and world.nodes[leader].broker is not None:
                peer = await world.connect(leader)
                answer = produced(await peer.request(produce(name, batch(value), partition=partition, acks=-1), 11))
                await peer.close()
                if answer.error_code == 0:
                    return answer.base_offset
                assert ErrorCode(answer.error_code).retriable, ErrorCode(answer.error_code)
            await asyncio.sleep(0.02)


@simulated
async def test_three_nodes_become_one_cluster():
    async with running_cluster() as world:
        await world.wait(lambda: sum(broker.quorum.is_active for broker in world.running) == 1, "one is active")
        for node_id in world.nodes:
            peer = await world.connect(node_id)
            answer = await peer.request(MetadataRequest(topics=None), 12)
            assert answer.cluster_id == world.cluster_id
            assert sorted(broker.node_id for broker in answer.brokers) == [1, 2, 3]
            assert answer.controller_id == node_id
            quorum = await peer.request(DescribeQuorumRequest(topics=[_metadata_partition()]), 2)
            partition = quorum.topics[0].partitions[0]
            assert partition.leader_id == world.active.node_id
            assert sorted(voter.replica_id for voter in partition.current_voters) == [1, 2, 3]


def _metadata_partition() -> DescribeQuorumRequest.TopicData:
    return DescribeQuorumRequest.TopicData(
        topic_name="__cluster_metadata", partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
    )


@simulated
async def test_any_broker_takes_admin_requests_and_every_replica_gets_the_records():
    async with running_cluster() as world:
        for node_id in world.nodes:
            await create(await world.connect(node_id), f"by-{node_id}")
        for node_id in world.nodes:
            await wait_topic(world, f"by-{node_id}")
        for number in range(5):
            assert await send(world, "by-1", b"%d" % number) == number
        replicas = [broker.replicas.find("by-1", 0) for broker in world.running]
        assert [replica.log.log_end_offset for replica in replicas] == [5, 5, 5]
        await world.wait(lambda: all(replica.high_watermark == 5 for replica in replicas), "all know what is committed")


@simulated
async def test_a_dead_leader_is_replaced_and_nothing_acknowledged_is_lost():
    async with running_cluster() as world:
        await create(await world.connect(1), "t", partitions=1)
        await wait_topic(world, "t")
        for number in range(5):
            await send(world, "t", b"%d" % number)
        leader = leader_of(world, "t")
        epoch = world.running[0].image.topics["t"].partitions[0].leader_epoch
        await world.kill(leader)
        await world.wait(lambda: leader_of(world, "t") not in (leader, -1), "another broker leads")
        assert world.running[0].image.topics["t"].partitions[0].leader_epoch > epoch
        assert await send(world, "t", b"5") == 5
        await world.start(leader)
        await wait_topic(world, "t")
        replicas = [broker.replicas.find("t", 0) for broker in world.running]
        assert [replica.log.log_end_offset for replica in replicas] == [6, 6, 6]
        records = await read_values(world, "t")
        assert records == [b"%d" % number for number in range(6)]


async def read_values(world: ClusterWorld, name: str) -> list[bytes]:
    from tailrace.wire.records import iterate_headers, iterate_records

    peer = await world.connect(leader_of(world, name))
    answer = fetched(await peer.request(fetch(name, 0, max_wait_ms=1000), 11))
    assert answer.error_code == 0
    view = memoryview(bytes(answer.records))
    return [
        bytes(record.value)
        for position, header in iterate_headers(view)
        for record in iterate_records(view[position : position + header.size_bytes], max_decompressed_bytes=1 << 20)
    ]


@simulated
async def test_the_death_of_the_active_controller_is_survived():
    async with running_cluster() as world:
        await create(await world.connect(1), "before", partitions=1)
        await wait_topic(world, "before")
        active = world.active.node_id
        await world.kill(active)
        await world.wait(lambda: any(broker.quorum.is_active for broker in world.running), "another is active")
        other = world.running[0].node_id
        await create(await world.connect(other), "after", partitions=1, factor=2)
        assert await send(world, "before", b"x") == 0


@simulated
async def test_a_stopped_broker_hands_its_leaderships_over_first():
    async with running_cluster() as world:
        await create(await world.connect(1), "t", partitions=6)
        await wait_topic(world, "t")
        await world.stop(1)
        states = world.running[0].image.topics["t"].partitions.values()
        assert all(state.leader in (2, 3) for state in states)
        await world.start(1)
        await wait_topic(world, "t")


@simulated
async def test_all_stop_and_all_come_back():
    async with running_cluster() as world:
        await create(await world.connect(1), "t", partitions=1)
        await wait_topic(world, "t")
        for number in range(3):
            await send(world, "t", b"%d" % number)
        await world.stop_all()
        await world.start_all()
        await wait_topic(world, "t")
        assert await read_values(world, "t") == [b"0", b"1", b"2"]
        assert await send(world, "t", b"3") == 3


@simulated
async def test_dedicated_controllers_serve_the_quorum_and_nobody_else():
    async with running_cluster("controller", "controller", "controller", "broker", "broker") as world:
        peer = await world.connect(4)
        answer = await peer.request(MetadataRequest(topics=None), 12)
        assert [broker.node_id for broker in answer.brokers] == [4, 5]
        await create(peer, "t", partitions=2, factor=2)
        await wait_topic(world, "t")
        assert await send(world, "t", b"x") == 0
        controller = await world.connect(1, "CONTROLLER")
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        served = {each.api_key for each in (await controller.request(request, 4)).api_keys}
        assert {1, 52, 58, 62, 63} <= served
        assert served.isdisjoint({0, 2, 3})


@simulated
async def test_replication_has_a_network_of_its_own():
    async with running_cluster(settings={"inter.broker.listener.name": "REPLICAS"}) as world:
        await create(await world.connect(1), "t", partitions=3)
        await wait_topic(world, "t")
        assert await send(world, "t", b"x") == 0
        for broker in world.running:
            used = {connection.listener.name for connection in broker.acceptors[0].connections}
            assert "REPLICAS" in used
        answer = await (await world.connect(2)).request(MetadataRequest(topics=[]), 12)
        assert [broker.port for broker in answer.brokers] == [CLIENT_PORT] * 3


@simulated
async def test_a_broker_with_an_emptied_disk_is_filled_again():
    async with running_cluster("controller", "broker", "broker", "broker") as world:
        await create(await world.connect(2), "t", partitions=1)
        await wait_topic(world, "t")
        for number in range(3):
            await send(world, "t", b"%d" % number)
        victim = leader_of(world, "t")
        await world.kill(victim)
        world.wipe(victim)
        broker = await world.start(victim)
        await wait_topic(world, "t")
        assert broker.replicas.find("t", 0).log.log_end_offset == 3
        assert await read_values(world, "t") == [b"0", b"1", b"2"]


@simulated
async def test_voters_are_added_and_removed_by_any_broker():
    async with running_cluster("broker,controller", "broker") as world:
        joining = world.add("controller")
        await world.start(joining.node_id)
        peer = await world.connect(2)
        addition = AddRaftVoterRequest(
            cluster_id=world.cluster_id,
            timeout_ms=5000,
            voter_id=joining.node_id,
            voter_directory_id=world.directory_id(joining),
            listeners=[AddRaftVoterRequest.Listener(name=CONTROLLER_LISTENER, host=joining.name, port=CONTROLLER_PORT)],
        )
        answer = await peer.request(addition, 1)
        assert answer.error_code == 0, answer.error_message
        assert await _voters(peer) == [1, 3]
        removal = RemoveRaftVoterRequest(
            cluster_id=world.cluster_id, voter_id=joining.node_id, voter_directory_id=world.directory_id(joining)
        )
        answer = await peer.request(removal, 0)
        assert answer.error_code == 0, answer.error_message
        assert await _voters(peer) == [1]


async def _voters(peer: Peer) -> list[int]:
    quorum = await peer.request(DescribeQuorumRequest(topics=[_metadata_partition()]), 2)
    return sorted(voter.replica_id for voter in quorum.topics[0].partitions[0].current_voters)


@simulated
async def test_producer_ids_are_unique_in_the_cluster():
    async with running_cluster() as world:
        ids = []
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        for _ in range(2):
            for node_id in world.nodes:
                answer = await (await world.connect(node_id)).request(request, 4)
                assert answer.error_code == 0
                ids.append(answer.producer_id)
        assert len(set(ids)) == len(ids)


@simulated
async def test_a_broker_that_can_no_longer_follow_the_metadata_ends():
    """It would keep its lease, and never hear who leads."""
    async with running_cluster("controller", "broker,controller", "broker,controller") as world:
        broker = world.nodes[3].broker
        assert broker is not None
        world.nodes[3].disk.fail("sync", "data/__cluster_metadata-0/*")
        await create(await world.connect(2), "t", partitions=1, factor=1)
        async with asyncio.timeout(15):
            with pytest.raises(StorageError, match="metadata log"):
                await broker.wait_failed()
        world.nodes[3].disk.heal()
        await world.kill(3)
