"""One node of a metadata quorum on simulated ports: its processes come and go, its disk stays."""

import asyncio
from typing import Any

from tailrace.broker.quorum.quorum import Quorum
from tailrace.controller.features import KRAFT_VERSION, MIRROR_VERSION, SUPPORTED_FEATURES
from tailrace.model.config import BrokerConfig, Endpoint
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import Uuid
from tailrace.model.ports import Ports
from tailrace.sim.background import HeldBackground
from tailrace.sim.clock import SimClock
from tailrace.sim.disk import SimDisk
from tailrace.sim.random import SimRandom
from tailrace.wire.apis.admin import CreateTopicsRequest, CreateTopicsResponse
from tailrace.wire.apis.quorum import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
DIRECTORY_ID = Uuid(b"directory-number")
ENDPOINT = Endpoint("PLAINTEXT", "localhost", 9092)
FOLDER = "/data/__cluster_metadata-0"
# Each at its highest level; that of Raft itself is no metadata.
FEATURES = {name: high for name, (_, high) in SUPPORTED_FEATURES.items() if name not in (KRAFT_VERSION, MIRROR_VERSION)}
LOG_FILE = f"{FOLDER}/00000000000000000000.log"


class World:
    """One node whose processes come and go; its disk stays."""

    def __init__(self, **settings: Any) -> None:
        self.clock = SimClock()
        self.disk = SimDisk(self.clock)
        self.disk.make_folder("/data")
        self.background = HeldBackground(is_holding=False)
        self.random = SimRandom(1)
        # The quorum of one voter talks to nobody.
        self.ports = Ports(self.clock, self.random, self.disk, None, self.background)  # type: ignore[arg-type]
        self.config = BrokerConfig(node_id=1, log_dirs=("/data",), **settings)

    async def start(self, *, previous_broker_epoch: int = -1) -> Quorum:
        quorum = Quorum(self.config, self.ports, cluster_id=CLUSTER_ID, directory_id=DIRECTORY_ID)
        await quorum.start()
        await register(quorum, self.random, previous_broker_epoch=previous_broker_epoch)
        return quorum

    async def restart(self) -> Quorum:
        self.disk.crash()
        return await self.start()


async def register(quorum: Quorum, random: SimRandom, *, previous_broker_epoch: int = -1) -> None:
    """As a broker does when it starts: it makes itself known, then asks to be unfenced."""
    registration = BrokerRegistrationRequest(
        broker_id=1,
        cluster_id=CLUSTER_ID,
        incarnation_id=random.uuid(),
        listeners=[
            BrokerRegistrationRequest.Listener(name=name, host=host, port=port) for name, host, port in [ENDPOINT]
        ],
        features=[
            BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        log_dirs=[DIRECTORY_ID],
        previous_broker_epoch=previous_broker_epoch,
    )
    registered = await quorum.submit_local(registration)
    assert isinstance(registered, BrokerRegistrationResponse)
    assert registered.error_code == ErrorCode.NONE
    heartbeat = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=registered.broker_epoch, current_metadata_offset=quorum.image.next_offset - 1
    )
    response = await quorum.submit_local(heartbeat)
    assert isinstance(response, BrokerHeartbeatResponse)
    assert not response.is_fenced


def creation(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic
    return CreateTopicsRequest(
        topics=[topic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    )


async def create(quorum: Quorum, *names: str, partitions: int = 1) -> CreateTopicsResponse:
    response = await quorum.submit_local(creation(*names, partitions=partitions))
    assert isinstance(response, CreateTopicsResponse)
    return response


async def turns() -> None:
    """Lets every task that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)
