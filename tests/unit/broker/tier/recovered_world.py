"""Brokers with remote storage that are lost with their disks, and come back from the bucket."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count

from tailrace.broker.tier.recovery.folder import check_folders, write_folders
from tailrace.model.config import Endpoint
from tailrace.model.errors import ErrorCode
from tailrace.model.ports import Ports
from tailrace.sim.clock import ProcessClock
from tailrace.sim.cluster import CONTROLLER_LISTENER, CONTROLLER_PORT
from tailrace.sim.objects import SimObjects
from tailrace.sim.random import SimRandom
from tailrace.tier.format.marker import Claim
from tailrace.tier.reading.bucket import Bucket
from tailrace.tier.reading.segments import SegmentObjects
from tailrace.tier.recovery.plan import RecoveryPlan
from tailrace.tier.recovery.survey import survey, take_over
from tailrace.tier.store.guard import GuardedObjects, GuardLimits
from tailrace.wire.apis.groups import FindCoordinatorRequest, OffsetCommitRequest, OffsetFetchRequest
from tests.unit.broker.tier.tiered_world import TieredWorld
from tests.unit.broker.world import Peer

_NUMBERS = count(1)
RECOVERED = {
    "remote.log.export.interval.ms": "500",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
}


async def lose_all(world: TieredWorld) -> None:
    for peer in world.peers:
        await peer.close()
    for node_id, node in world.nodes.items():
        if node.is_up:
            await world.kill(node_id)
        node.wipe()


def ports_of(world: TieredWorld, node_id: int) -> Ports:
    node = world.nodes[node_id]
    return Ports(
        clock=ProcessClock(world.loop.world),
        random=SimRandom(5),
        disk=node.disk,
        network=world.network.port("recovery", world.loop.world),
        background=node.background,
    )


async def open_bucket(world: TieredWorld, node_id: int = 1) -> tuple[Bucket, SegmentObjects]:
    ports = ports_of(world, node_id)
    store = GuardedObjects(SimObjects(world.bucket, "prefix"), ports.clock, ports.random, GuardLimits())
    bucket = await Bucket.open(store)
    return bucket, SegmentObjects(store, ports.background, bucket.marker.cluster_id)


async def recover(
    world: TieredWorld,
    *,
    node_id: int = 1,
    replicas: Sequence[int] = (1,),
    takes_over: bool = True,
    accepts_loss: bool = False,
) -> RecoveryPlan:
    """As the command does."""
    check_folders(ports_of(world, node_id).disk, world.nodes[node_id].config)
    bucket, segments = await open_bucket(world, node_id)
    plan = world.recovered = await survey(bucket, segments, accepts_loss=accepts_loss)
    claim = Claim(may_write=False)
    if takes_over:
        claim = await take_over(bucket, f"{next(_NUMBERS):06d}-recovery")
    begin(world, plan, claim, node_id=node_id, replicas=replicas)
    return plan


def begin(
    world: TieredWorld, plan: RecoveryPlan, claim: Claim, *, node_id: int = 1, replicas: Sequence[int] = (1,)
) -> None:
    """The data folder of the first node."""
    node = world.nodes[node_id]
    controller = Endpoint(CONTROLLER_LISTENER, node.name, CONTROLLER_PORT)
    write_folders(ports_of(world, node_id), node.config, plan, claim, replicas=replicas, controller=controller)


async def find_coordinator(peer: Peer, group: str) -> int:
    """Which is made by the first who asks for it."""
    while True:
        answer = await peer.request(FindCoordinatorRequest(coordinator_keys=[group]), 6)
        if not answer.coordinators[0].error_code:
            return answer.coordinators[0].node_id
        await asyncio.sleep(0.1)


async def commit(peer: Peer, group: str, offset: int, *, leader_epoch: int = 0) -> None:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0,
        committed_offset=offset,
        committed_leader_epoch=leader_epoch,
        committed_metadata="so far",
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(group_id=group, topics=[topic])
    for _ in range(50):
        answer = (await peer.request(request, 8)).topics[0].partitions[0]
        if answer.error_code not in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
            break
        await asyncio.sleep(0.1)
    assert answer.error_code == 0, answer


async def committed(peer: Peer, group: str):
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
    answer = await peer.request(OffsetFetchRequest(groups=[asked]), 8)
    (found,) = answer.groups
    if found.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        await asyncio.sleep(0.1)
        return await committed(peer, group)
    assert found.error_code == 0, answer
    return {
        (topic.name, each.partition_index): (each.committed_offset, each.committed_leader_epoch, each.metadata)
        for topic in found.topics
        for each in topic.partitions
    }
