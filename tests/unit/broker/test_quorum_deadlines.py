"""What the active controller does without being asked: it fences who is silent, even if the disk was full meanwhile."""

import asyncio
import errno

from tailrace.controller.features import SUPPORTED_FEATURES
from tailrace.sim.loop import SimLoop
from tailrace.wire.apis.admin import CreateTopicsRequest, CreateTopicsResponse
from tailrace.wire.apis.quorum import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from tests.unit.broker.quorum_cluster import CLUSTER_ID, Cluster, run, wait_until

# Nobody listens on their ports: a silent one is fenced when its lease is over.
LEASE_SECONDS = 2.0


class Member:
    """A broker as the controller knows it: one that speaks or does not."""

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.epoch = -1
        self.lives = 0

    async def register(self) -> None:
        """As a new incarnation."""
        self.lives += 1
        answer = await self.cluster.submit(
            BrokerRegistrationRequest(
                broker_id=self.broker_id,
                cluster_id=CLUSTER_ID,
                incarnation_id=bytes(14) + bytes([self.lives, self.broker_id]),
                listeners=[BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="node", port=self.broker_id)],
                features=[
                    BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                    for name, (low, high) in SUPPORTED_FEATURES.items()
                ],
                log_dirs=[bytes(14) + b"\1" + bytes([self.broker_id])],
            )
        )
        assert isinstance(answer, BrokerRegistrationResponse)
        assert answer.error_code == 0
        self.epoch = answer.broker_epoch

    async def heartbeat(self) -> BrokerHeartbeatResponse:
        answer = await self.cluster.submit(
            BrokerHeartbeatRequest(
                broker_id=self.broker_id, broker_epoch=self.epoch, current_metadata_offset=self.epoch + 1
            )
        )
        assert isinstance(answer, BrokerHeartbeatResponse)
        assert answer.error_code == 0
        return answer

    async def heartbeat_for_ever(self) -> None:
        while True:
            await self.heartbeat()
            await asyncio.sleep(0.5)

    @property
    def is_fenced(self) -> bool:
        return self.cluster.running[0].image.brokers[self.broker_id].fenced


async def join(cluster: Cluster) -> tuple[Member, Member]:
    members = Member(cluster, 101), Member(cluster, 102)
    for member in members:
        await member.register()
        assert not (await member.heartbeat()).is_fenced
    return members


def test_a_silent_broker_is_fenced_and_the_others_are_not() -> None:
    async def story(loop: SimLoop) -> None:
        cluster = Cluster(loop, voters=1)
        await cluster.start()
        loud, silent = await join(cluster)
        heard_at = loop.now
        speaking = asyncio.ensure_future(loud.heartbeat_for_ever())
        await wait_until(lambda: silent.is_fenced)
        assert -0.1 < loop.now - heard_at - LEASE_SECONDS < 0.5
        await asyncio.sleep(10)
        assert not loud.is_fenced
        speaking.cancel()

    run(story)


def test_a_full_disk_only_delays_it() -> None:
    async def story(loop: SimLoop) -> None:
        cluster = Cluster(loop, voters=1, metadata_max_idle_interval_ms=0)
        await cluster.start()
        loud, silent = await join(cluster)
        speaking = asyncio.ensure_future(loud.heartbeat_for_ever())
        disk = cluster.nodes[1].disk
        disk.fail("append", "*.log", error=errno.ENOSPC)
        await asyncio.sleep(5)
        assert not silent.is_fenced, "what is not on the log has not happened"
        disk.heal()
        healed_at = loop.now
        await wait_until(lambda: silent.is_fenced)
        assert loop.now - healed_at < 1
        assert not loud.is_fenced
        speaking.cancel()

    run(story)


def test_what_is_too_large_for_one_batch_becomes_several() -> None:
    """Of a broker with many replicas: that it has died, that it has come back, and that it is let in again."""

    async def story(loop: SimLoop) -> None:
        cluster = Cluster(loop, voters=1, metadata_max_batch_bytes=1000)
        await cluster.start()
        loud, silent = await join(cluster)
        speaking = asyncio.ensure_future(loud.heartbeat_for_ever())
        for number in range(10):
            asked = CreateTopicsRequest.CreatableTopic(name=f"t{number}", num_partitions=4, replication_factor=2)
            created = await cluster.submit(CreateTopicsRequest(topics=[asked]))
            assert isinstance(created, CreateTopicsResponse)
            assert created.topics[0].error_code == 0
        await wait_until(lambda: silent.is_fenced)
        image = cluster.running[0].image
        replicas = [partition for topic in image.topics.values() for partition in topic.partitions.values()]
        assert [(partition.leader, partition.isr) for partition in replicas] == [(101, (101,))] * 40
        await silent.register()
        assert cluster.running[0].image.brokers[102].epoch == silent.epoch
        assert not (await silent.heartbeat()).is_fenced
        speaking.cancel()

    run(story)
