"""The Raft driver on a simulated disk: what goes over the wire, what is on the device before it does, and what becomes
of a disk that fails."""

import asyncio
import errno
import json
from typing import Any

import pytest

from tailrace.broker.quorum.state_file import read_quorum_state, write_quorum_state
from tailrace.model.config import Endpoint
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ids import CLUSTER_METADATA_TOPIC, Uuid, uuid_text
from tailrace.raft.messages import QuorumState
from tailrace.raft.types import ReplicaKey
from tailrace.sim.disk import SimDisk
from tailrace.sim.loop import SimLoop
from tailrace.wire.apis import quorum as wire
from tailrace.wire.apis.data import FetchRequest, FetchResponse
from tests.unit.broker.quorum_cluster import CLUSTER_ID, FOLDER, SECOND_LISTENER, Cluster, Node, run, wait_until
from tests.unit.broker.test_quorum_cluster import setting

STATE = f"{FOLDER}/quorum-state"


async def settled(loop: SimLoop, **shape: Any) -> tuple[Cluster, Node]:
    cluster = Cluster(loop, **{"voters": 3, **shape})
    await cluster.start()
    await cluster.submit(setting(1))
    await cluster.wait_equal()
    return cluster, await cluster.wait_active()


def follower_of(cluster: Cluster, leader: Node) -> Node:
    return next(node for node in cluster.nodes.values() if node is not leader)


async def ask(node: Node, request: Any, listener_name: str = "") -> Any:
    assert node.quorum is not None
    return await node.run(node.quorum.driver.handle(request, listener_name))


def vote(candidate: Node, voter: Node, *, epoch: int, cluster_id: str = CLUSTER_ID) -> wire.VoteRequest:
    assert candidate.quorum is not None
    partition = wire.VoteRequest.PartitionData(
        replica_epoch=epoch,
        replica_id=candidate.node_id,
        replica_directory_id=candidate.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=candidate.quorum.log.last_epoch,
        last_offset=candidate.quorum.log.end_offset + 100,
    )
    topic = wire.VoteRequest.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])
    return wire.VoteRequest(cluster_id=cluster_id, voter_id=voter.node_id, topics=[topic])


def describe_request() -> wire.DescribeQuorumRequest:
    partition = wire.DescribeQuorumRequest.PartitionData(partition_index=0)
    topic = wire.DescribeQuorumRequest.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])
    return wire.DescribeQuorumRequest(topics=[topic])


def add_request(node: Node) -> wire.AddRaftVoterRequest:
    listener = wire.AddRaftVoterRequest.Listener(name="CONTROLLER", host="node", port=node.node_id)
    return wire.AddRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        timeout_ms=5000,
        voter_id=node.node_id,
        voter_directory_id=node.directory_id,
        listeners=[listener],
    )


def remove_request(node: Node) -> wire.RemoveRaftVoterRequest:
    return wire.RemoveRaftVoterRequest(
        cluster_id=CLUSTER_ID, voter_id=node.node_id, voter_directory_id=node.directory_id
    )


def epoch_of(node: Node) -> int:
    assert node.quorum is not None
    return node.quorum.leadership.epoch


def test_a_vote_is_on_the_device_before_it_is_told() -> None:
    async def story(loop: SimLoop) -> None:
        cluster, leader = await settled(loop)
        first, second = [node for node in cluster.nodes.values() if node is not leader]
        epoch = epoch_of(leader) + 1
        answer = await ask(second, vote(first, second, epoch=epoch))
        assert answer.topics[0].partitions[0].vote_granted
        stored = json.loads(second.disk.read(STATE))
        assert (stored["leaderEpoch"], stored["votedId"]) == (epoch, first.node_id)
        assert stored["votedDirectoryId"] == uuid_text(first.directory_id)

    run(story)


def test_a_leader_is_named_by_its_address_at_the_listener_that_was_asked() -> None:
    """A quorum that moves from one listener to another has nodes that know how to speak at one of them alone."""

    async def story(loop: SimLoop) -> None:
        cluster, _ = await settled(loop)
        for node in cluster.nodes.values():
            await node.stop()
            node.config = node.config.replace(
                listeners=(*node.config.listeners, Endpoint("SECOND", "node", node.node_id + SECOND_LISTENER)),
                controller_listener_names=("CONTROLLER", "SECOND"),
            )
        for node in cluster.nodes.values():
            await node.start()
        leader = await cluster.wait_active()
        assert leader.quorum is not None
        driver = leader.quorum.driver
        await wait_until(lambda: all(len(voter.endpoints) == 2 for voter in driver.voters))
        await cluster.wait_equal()
        for asked in cluster.nodes.values():
            request = vote(follower_of(cluster, asked), asked, epoch=0)
            for name, offset in (("CONTROLLER", 0), ("SECOND", SECOND_LISTENER)):
                answer = await ask(asked, request, name)
                assert [each.port for each in answer.node_endpoints] == [leader.node_id + offset]

    run(story)


def test_a_vote_that_cannot_be_stored_is_not_given() -> None:
    async def story(loop: SimLoop) -> None:
        cluster, leader = await settled(loop)
        first, second = [node for node in cluster.nodes.values() if node is not leader]
        second.disk.fail("replace", STATE)
        answer = await ask(second, vote(first, second, epoch=epoch_of(leader) + 1))
        assert (answer.error_code, answer.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
        assert second.quorum is not None
        assert second.quorum.driver.failure is not None
        # The others do without it.
        second.disk.heal()
        await cluster.submit(setting(2))

    run(story)


def test_a_full_disk_is_waited_out() -> None:
    async def story(loop: SimLoop) -> None:
        cluster, leader = await settled(loop)
        first, second = [node for node in cluster.nodes.values() if node is not leader]
        second.disk.fail("replace", STATE, error=errno.ENOSPC)
        assert second.process is not None
        assert second.quorum is not None
        voting = second.process.spawn(
            second.quorum.driver.handle(vote(first, second, epoch=epoch_of(leader) + 1)), name="vote"
        )
        await asyncio.sleep(2)
        assert not voting.done()
        second.disk.heal()
        await wait_until(voting.done)
        assert voting.result().topics[0].partitions[0].error_code == ErrorCode.NONE  # type: ignore[attr-defined]

    run(story)


def test_a_follower_with_a_full_disk_disturbs_nobody_and_catches_up() -> None:
    async def story(loop: SimLoop) -> None:
        cluster, leader = await settled(loop)
        full = follower_of(cluster, leader)
        epoch = epoch_of(leader)
        full.disk.fail("append", "*.log", error=errno.ENOSPC)
        for number in range(2, 12):
            await cluster.submit(setting(number))
            await asyncio.sleep(0.5)
        assert full.quorum is not None
        assert leader.quorum is not None
        assert full.quorum.log.end_offset < leader.quorum.log.end_offset
        full.disk.heal()
        await cluster.wait_equal()
        assert (epoch_of(leader), epoch_of(full)) == (epoch, epoch)

    run(story)


def test_a_leader_whose_disk_fails_is_succeeded() -> None:
    async def story(loop: SimLoop) -> None:
        cluster, leader = await settled(loop)
        leader.disk.fail("sync", "*.log")
        assert leader.quorum is not None
        with pytest.raises(KafkaError) as raised:
            await leader.run(leader.quorum.submit_local(setting(2)))
        assert raised.value.code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_CONTROLLER)
        successor = await cluster.wait_active(but=leader.node_id)
        assert successor is not leader
        with pytest.raises(KafkaError) as raised:
            leader.quorum.driver.append([])
        assert raised.value.code is ErrorCode.NOT_CONTROLLER

    run(story)


def test_requests_of_another_cluster_or_partition_are_refused() -> None:
    async def story(loop: SimLoop) -> None:
        cluster, leader = await settled(loop)
        other = follower_of(cluster, leader)
        answer = await ask(leader, vote(other, leader, epoch=99, cluster_id="BBBBBBBBBBBBBBBBBBBBBB"))
        assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        request = vote(other, leader, epoch=99)
        request.topics[0].topic_name = "orders"
        assert (await ask(leader, request)).error_code == ErrorCode.INVALID_REQUEST
        assert epoch_of(leader) < 99
        fetched = await ask(leader, FetchRequest(cluster_id=CLUSTER_ID, topics=[]))
        assert isinstance(fetched, FetchResponse)
        assert fetched.error_code == ErrorCode.INVALID_REQUEST

    run(story)


def test_describe_quorum() -> None:
    async def story(loop: SimLoop) -> None:
        cluster, leader = await settled(loop, observers=1)
        assert leader.quorum is not None
        await asyncio.sleep(1)
        answer = await ask(leader, describe_request())
        partition = answer.topics[0].partitions[0]
        assert (partition.error_code, partition.leader_id) == (ErrorCode.NONE, leader.node_id)
        assert partition.leader_epoch == epoch_of(leader)
        assert [voter.replica_id for voter in partition.current_voters] == [1, 2, 3]
        assert [observer.replica_id for observer in partition.observers] == [4]
        assert partition.high_watermark == leader.quorum.driver.high_watermark
        for replica in [*partition.current_voters, *partition.observers]:
            assert replica.log_end_offset == partition.high_watermark
            assert loop.now * 1000 - replica.last_caught_up_timestamp < 1500
        assert [(node.node_id, node.listeners[0].port) for node in answer.nodes] == [(1, 1), (2, 2), (3, 3)]
        elsewhere = await ask(follower_of(cluster, leader), describe_request())
        assert elsewhere.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await ask(leader, wire.DescribeQuorumRequest())).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(story)


def test_voters_are_removed_and_added_over_the_wire() -> None:
    async def story(loop: SimLoop) -> None:
        cluster, leader = await settled(loop)
        other = follower_of(cluster, leader)
        assert leader.quorum is not None
        assert (await ask(leader, remove_request(other))).error_code == ErrorCode.NONE
        assert len(leader.quorum.driver.voters) == 2
        assert (await ask(leader, remove_request(other))).error_code == ErrorCode.VOTER_NOT_FOUND
        assert (await ask(leader, add_request(other))).error_code == ErrorCode.NONE
        assert leader.quorum.driver.voters.ids == (1, 2, 3)
        assert (await ask(leader, add_request(other))).error_code == ErrorCode.DUPLICATE_VOTER
        # A restart finds the voters in the log.
        other.kill()
        await other.start()
        assert other.quorum is not None
        assert other.quorum.driver.voters.ids == (1, 2, 3)
        await cluster.submit(setting(2))

    run(story)


def test_a_controller_with_a_new_disk_takes_the_place_of_its_old_self() -> None:
    async def story(loop: SimLoop) -> None:
        cluster, leader = await settled(loop, controller_quorum_auto_join_enable=True)
        other = follower_of(cluster, leader)
        other.kill()
        await cluster.submit(setting(2))
        other.disk = SimDisk(cluster)  # type: ignore[arg-type]
        other.disk.make_folder("/data")
        other.directory_id = Uuid(b"a new directory!")
        await other.start()
        assert other.quorum is not None
        await wait_until(lambda: other.quorum.driver.node.is_voter)  # type: ignore[union-attr]
        await cluster.wait_equal()
        assert leader.quorum is not None
        known = leader.quorum.driver.voters.find(other.node_id)
        assert known is not None
        assert known.key == ReplicaKey(other.node_id, other.directory_id)

    run(story)


def test_a_fetch_waits_for_records_and_for_the_high_watermark() -> None:
    async def story(loop: SimLoop) -> None:
        cluster, leader = await settled(loop, metadata_max_idle_interval_ms=0)
        assert leader.quorum is not None
        log = leader.quorum.log
        await asyncio.sleep(1)
        partition = FetchRequest.FetchPartition(
            current_leader_epoch=epoch_of(leader),
            fetch_offset=log.end_offset,
            last_fetched_epoch=log.last_epoch,
            partition_max_bytes=1 << 20,
            replica_directory_id=Uuid(b"0123456789abcdef"),
            high_watermark=log.end_offset,
        )
        topic = FetchRequest.FetchTopic(topic=CLUSTER_METADATA_TOPIC, partitions=[partition])
        request = FetchRequest(replica_id=9, max_wait_ms=500, topics=[topic])
        began = loop.now
        answer = await ask(leader, request)
        assert loop.now - began >= 0.5
        assert len(answer.responses[0].partitions[0].records) == 0
        assert leader.process is not None
        waiting = leader.process.spawn(leader.quorum.driver.handle(request), name="fetch")
        began = loop.now
        await cluster.submit(setting(2))
        await wait_until(waiting.done)
        assert loop.now - began < 0.1
        got = waiting.result().responses[0].partitions[0]  # type: ignore[attr-defined]
        assert len(got.records) > 0
        partition.high_watermark = 0
        partition.fetch_offset = log.end_offset
        began = loop.now
        answer = await ask(leader, request)
        assert loop.now - began < 0.1, "it does not know yet what was committed"
        assert answer.responses[0].partitions[0].high_watermark == log.end_offset

    run(story)


@pytest.mark.parametrize("operation", ["append", "sync", "rename"])
def test_a_download_that_fails_is_begun_anew(operation: str) -> None:
    async def story(loop: SimLoop) -> None:
        cluster, leader = await settled(
            loop, metadata_log_max_record_bytes_between_snapshots=2000, metadata_max_retention_bytes=0
        )
        behind = follower_of(cluster, leader)
        behind.kill()
        for number in range(2, 60):
            await cluster.submit(setting(number))
        assert leader.quorum is not None
        start_offset = leader.quorum.log.start_offset
        assert start_offset > 10
        fault = behind.disk.fail(operation, "*.checkpoint.part", count=2)
        await behind.start()
        await cluster.wait_equal()
        assert fault.count == 0, "it was tried three times"
        assert behind.quorum is not None
        assert behind.quorum.log.start_offset >= start_offset
        assert not [name for name in behind.disk.list(FOLDER) if name.endswith(".part")]

    run(story)


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"leaderEpoch":"x"}', None])
def test_a_voter_that_does_not_know_how_it_voted_does_not_start(damage: bytes | None) -> None:
    async def story(loop: SimLoop) -> None:
        cluster, leader = await settled(loop)
        other = follower_of(cluster, leader)
        other.kill()
        if damage is None:
            other.disk.remove(STATE)
        else:
            other.disk.replace(STATE, damage)
        with pytest.raises(StorageError, match="how it has voted"):
            await other.start()

    run(story)


@pytest.mark.parametrize(
    "state", [QuorumState(), QuorumState(7, ReplicaKey(2, Uuid(b"0123456789abcdef")), 2), QuorumState(3, None, 1)]
)
def test_the_state_file_gives_back_what_it_was_given(state: QuorumState) -> None:
    disk = SimDisk()
    disk.make_folder("/q")
    assert read_quorum_state(disk, "/q") is None
    write_quorum_state(disk, "/q", state)
    assert read_quorum_state(disk, "/q") == state


def test_a_state_file_of_version_0_names_no_directory() -> None:
    disk = SimDisk()
    disk.make_folder("/q")
    disk.replace("/q/quorum-state", b'{"leaderId":1,"leaderEpoch":4,"votedId":-1,"data_version":0}')
    assert read_quorum_state(disk, "/q") == QuorumState(4, None, 1)
