"""A cluster seen from outside: who leads, who is active, whether all replicas are in sync and equal on disk."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from tailrace.client.admin import Admin, QuorumDescription
from tailrace.client.connection import ConnectionLimits
from tailrace.client.metadata import Cluster, PartitionMetadata, parse_bootstrap
from tailrace.client.security.settings import parse_security
from tailrace.model.errors import KafkaError
from tailrace.real.cluster import open_cluster
from tailrace.testing.users import ClientSettings

T = TypeVar("T")
# Bootstrap servers, or who comes in there and how.
Place = str | ClientSettings

WAIT_S = 60.0
_LIMITS = ConnectionLimits(connect_timeout_ms=1000, request_timeout_ms=5000)


def ask(place: Place, work: Callable[[Admin], Awaitable[T]], *, wait_s: float = WAIT_S) -> T:
    """Repeated for as long as it fails with what time may heal."""

    async def run() -> T:
        cluster = _open(place)
        try:
            return await cluster.with_retries(lambda: work(Admin(cluster)), timeout_ms=int(wait_s * 1000))
        finally:
            cluster.close()
            cluster.ports.background.close()

    return asyncio.run(run())


def _open(place: Place) -> Cluster:
    if isinstance(place, str):
        return open_cluster(parse_bootstrap(place), limits=_LIMITS)
    security = parse_security(place.login.java())
    return open_cluster(parse_bootstrap(place.bootstrap), security=security, limits=_LIMITS)


def create_topic(place: Place, name: str, partitions: int, **configs: str) -> None:
    ask(place, lambda admin: admin.create_topic(name, partition_count=partitions, configs=configs))


def partitions_of(place: Place, topic: str) -> dict[int, PartitionMetadata]:
    async def describe(admin: Admin) -> dict[int, PartitionMetadata]:
        (found,) = await admin.describe_topics([topic])
        return found.partitions

    return ask(place, describe)


def leader_of(place: Place, topic: str, partition: int = 0) -> int:
    deadline = time.monotonic() + WAIT_S
    while (leader := partitions_of(place, topic)[partition].leader_id) < 0:
        assert time.monotonic() < deadline, f"{topic}-{partition} has no leader"
        time.sleep(0.05)
    return leader


def quorum_of(place: Place) -> QuorumDescription:
    return ask(place, lambda admin: admin.describe_quorum())


def wait_in_sync(place: Place, topic: str) -> float:
    """Until every replica is in sync and every partition has a leader; how long that took."""
    begun = time.monotonic()
    while True:
        try:
            found = partitions_of(place, topic).values()
            lacking = [each for each in found if each.leader_id < 0 or len(each.isr) < len(each.replicas)]
        except KafkaError as error:
            lacking = [error]
        if not lacking:
            return time.monotonic() - begun
        assert time.monotonic() < begun + WAIT_S, f"not in sync after {WAIT_S} s: {lacking[:3]}"
        time.sleep(0.05)


def assert_replicas_equal(data: str, place: Place, topic: str) -> None:
    """The logs of all replicas, byte for byte: batches are stored as they were sent. Nobody may be writing."""
    for index, partition in partitions_of(place, topic).items():
        deadline = time.monotonic() + WAIT_S
        while True:
            logs = {node: log_bytes(Path(data) / f"broker-{node}" / f"{topic}-{index}") for node in partition.replicas}
            if len(set(logs.values())) == 1:
                break
            # A follower has the last batch a moment after the leader.
            sizes = {node: len(log) for node, log in logs.items()}
            assert time.monotonic() < deadline, f"{topic}-{index} differs between its replicas: {sizes}"
            time.sleep(0.1)


def log_bytes(folder: Path) -> bytes:
    """All segments in a row; where one ends is each broker's own business."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
