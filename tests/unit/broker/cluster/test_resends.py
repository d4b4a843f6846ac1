"""Changes that a broker hands on twice because the controller moves: the client hears that they were made."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tailrace.broker.broker import Broker
from tailrace.model.errors import ErrorCode
from tailrace.model.security import Principal
from tailrace.sim.cluster import CONTROLLER_LISTENER, CONTROLLER_PORT
from tailrace.wire.apis.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    UnregisterBrokerRequest,
)
from tailrace.wire.apis.quorum import AddRaftVoterRequest, RemoveRaftVoterRequest
from tailrace.wire.apis.security import (
    CreateDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from tailrace.wire.schema import Message
from tests.unit.broker.cluster_world import ClusterWorld, running_cluster, simulated
from tests.unit.broker.world import Peer, create_topic

ROLES = ("controller", "controller", "controller", "broker")
BROKER = 4
Topic = CreateTopicsRequest.CreatableTopic
Setting = CreateTopicsRequest.CreatableTopicConfig


def creation(*names: str, partitions: int = 2, **settings: str) -> CreateTopicsRequest:
    configs = [Setting(name=name.replace("_", "."), value=value) for name, value in settings.items()]
    return CreateTopicsRequest(
        topics=[Topic(name=name, num_partitions=partitions, replication_factor=1, configs=configs) for name in names],
        timeout_ms=5000,
    )


@asynccontextmanager
async def running(**settings: str) -> AsyncIterator[tuple[ClusterWorld, Peer]]:
    given = {name.replace("_", "."): text for name, text in settings.items()}
    async with running_cluster(*ROLES, "broker", settings=given) as world:
        peer = await world.connect(BROKER)
        await create_topic(peer, "old")
        await world.wait(lambda: all("old" in each.image.topics for each in world.running), "all have heard of it")
        yield world, peer


async def answer_across_a_change(
    world: ClusterWorld, peer: Peer, request: Message, version: int, is_done: Callable[[Broker], bool]
) -> Any:
    """The controller makes the change and dies before its answer arrives; the broker asks the next one."""
    active = world.active
    world.network.cut(f"node-{active.node_id}", f"node-{BROKER}")
    peer.send(request, version)
    others = [each for each in world.running if each.node_id not in (active.node_id, BROKER, 5)]
    await world.wait(lambda: all(is_done(each) for each in others), "the change is made")
    await world.kill(active.node_id)
    answer = await peer.receive()
    world.network.heal()
    await world.wait(lambda: any(each.quorum.is_active for each in world.running), "there is a controller")
    return answer


@simulated
async def test_a_topic_that_the_first_try_has_created():
    async with running() as (world, peer):
        request = creation("new", "old", retention_ms="1000")
        answer = await answer_across_a_change(world, peer, request, 7, lambda node: "new" in node.image.topics)
        created, existing = answer.topics
        assert (created.error_code, created.error_message) == (0, None)
        topic = world.active.image.topics["new"]
        assert (created.topic_id, created.num_partitions, created.replication_factor) == (topic.id, 2, 1)
        assert {each.name: each.value for each in created.configs}["retention.ms"] == "1000"
        assert existing.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@simulated
async def test_a_topic_that_another_has_created_otherwise():
    """The controller that dies has never seen the request; another client was faster."""
    async with running() as (world, peer):
        active = world.active
        world.network.cut(f"node-{BROKER}", f"node-{active.node_id}")
        peer.send(creation("new"), 7)
        await active.quorum.submit_local(creation("new", partitions=3))
        await world.kill(active.node_id)
        answer = await peer.receive()
        world.network.heal()
        assert answer.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@simulated
async def test_a_topic_that_the_first_try_has_deleted():
    async with running() as (world, peer):
        topic_id = world.active.image.topics["old"].id
        request = DeleteTopicsRequest(topic_names=["old", "none"], timeout_ms=5000)
        answer = await answer_across_a_change(world, peer, request, 5, lambda node: "old" not in node.image.topics)
        assert [(each.name, each.error_code) for each in answer.responses] == [
            ("old", 0),
            ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        by_id = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id)
        answer = await peer.request(DeleteTopicsRequest(topics=[by_id], timeout_ms=5000), 6)
        assert answer.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID, "it was asked once, and is not there"


@simulated
async def test_partitions_that_the_first_try_has_added():
    def has_three(node: Broker) -> bool:
        return "old" in node.image.topics and len(node.image.topics["old"].partitions) == 3

    async with running() as (world, peer):
        asked = CreatePartitionsRequest.CreatePartitionsTopic(name="old", count=3, assignments=None)
        request = CreatePartitionsRequest(topics=[asked], timeout_ms=5000)
        answer = await answer_across_a_change(world, peer, request, 3, has_three)
        assert answer.results[0].error_code == 0
        again = await peer.request(request, 3)
        assert again.results[0].error_code == ErrorCode.INVALID_PARTITIONS


@simulated
async def test_a_token_that_the_first_try_has_ended():
    """And one that was made just before its controller died is there afterwards."""
    async with running(delegation_token_secret_key="a key") as (world, peer):
        (connection,) = next(each for each in world.running if each.node_id == BROKER).acceptors[0].connections
        connection.principal = Principal("User", "alice")
        creation = CreateDelegationTokenRequest(owner_principal_type=None, owner_principal_name=None)
        kept, ended = await peer.request(creation, 3), await peer.request(creation, 3)
        await world.wait(
            lambda: all(ended.token_id in each.image.delegation_tokens for each in world.running),
            "all have heard of it",
        )
        request = ExpireDelegationTokenRequest(hmac=ended.hmac, expiry_time_period_ms=-1)
        answer = await answer_across_a_change(
            world, peer, request, 2, lambda node: ended.token_id not in node.image.delegation_tokens
        )
        assert answer.error_code == 0
        assert (await peer.request(request, 2)).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        renewal = RenewDelegationTokenRequest(hmac=kept.hmac, renew_period_ms=-1)
        assert (await peer.request(renewal, 2)).error_code == 0


@simulated
async def test_a_broker_that_the_first_try_has_unregistered():
    async with running() as (world, peer):
        await world.stop(5)
        request = UnregisterBrokerRequest(broker_id=5)
        answer = await answer_across_a_change(world, peer, request, 0, lambda node: 5 not in node.image.brokers)
        assert answer.error_code == 0
        assert (await peer.request(request, 0)).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def is_voter(node: Broker, node_id: int) -> bool:
    return node_id in [voter.key.id for voter in node.quorum.driver.voters]


async def addition_of_another(world: ClusterWorld) -> AddRaftVoterRequest:
    """Of a controller that has just been started."""
    joining = world.add("controller")
    await world.start(joining.node_id)
    return AddRaftVoterRequest(
        cluster_id=world.cluster_id,
        timeout_ms=5000,
        voter_id=joining.node_id,
        voter_directory_id=world.directory_id(joining),
        listeners=[AddRaftVoterRequest.Listener(name=CONTROLLER_LISTENER, host=joining.name, port=CONTROLLER_PORT)],
    )


def removal_of(world: ClusterWorld, node_id: int) -> RemoveRaftVoterRequest:
    directory_id = world.directory_id(world.nodes[node_id])
    return RemoveRaftVoterRequest(cluster_id=world.cluster_id, voter_id=node_id, voter_directory_id=directory_id)


@simulated
async def test_a_voter_that_the_first_try_has_added():
    async with running() as (world, peer):
        request = await addition_of_another(world)
        answer = await answer_across_a_change(world, peer, request, 1, lambda node: is_voter(node, request.voter_id))
        assert (answer.error_code, answer.error_message) == (0, None)
        assert (await peer.request(request, 1)).error_code == ErrorCode.DUPLICATE_VOTER


@simulated
async def test_a_voter_that_the_first_try_has_removed():
    async with running() as (world, peer):
        added = await peer.request(await addition_of_another(world), 1)
        assert added.error_code == 0, added.error_message
        victim = next(node_id for node_id in (1, 2, 3) if node_id != world.active.node_id)
        request = removal_of(world, victim)
        answer = await answer_across_a_change(world, peer, request, 0, lambda node: not is_voter(node, victim))
        assert (answer.error_code, answer.error_message) == (0, None)
        assert (await peer.request(request, 0)).error_code == ErrorCode.VOTER_NOT_FOUND


@simulated
async def test_a_controller_that_removes_itself():
    """It steps down with that, perhaps before it has answered."""
    async with running() as (world, peer):
        leader = world.active.node_id
        answer = await peer.request(removal_of(world, leader), 0)
        assert (answer.error_code, answer.error_message) == (0, None)
        await world.wait(lambda: any(each.quorum.is_active for each in world.running), "another is active")
        assert world.active.node_id != leader
        assert (await peer.request(removal_of(world, leader), 0)).error_code == ErrorCode.VOTER_NOT_FOUND
