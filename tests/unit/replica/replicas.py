"""A partition, or a whole manager, on a simulated disk."""

import asyncio
import itertools
from typing import Any

from tailrace.controller.image import MetadataImage, PartitionImage, TopicImage
from tailrace.log.directory import LogDirectory
from tailrace.log.log import Log
from tailrace.model.config import BrokerConfig, TopicConfig
from tailrace.model.ids import NodeId, PartitionIndex, TopicPartition, Uuid
from tailrace.replica.flusher import Flusher
from tailrace.replica.manager import ReplicaManager
from tailrace.replica.partition import Partition
from tailrace.sim.background import HeldBackground, SimBackground
from tailrace.sim.clock import SimClock
from tailrace.sim.disk import SimDisk
from tailrace.sim.random import SimRandom
from tailrace.wire.records import build_batch

ME, OTHER = NodeId(1), NodeId(2)
TOPIC_ID = Uuid(b"t" * 16)


def batch(*values: bytes, **options: Any) -> memoryview:
    now_ms = SimClock().wall_ms()
    return memoryview(
        bytearray(build_batch([(i, now_ms, None, value, ()) for i, value in enumerate(values)], **options))
    )


async def release(background: HeldBackground) -> None:
    """The oldest piece, and all that follows from it."""
    background.release()
    for _ in range(5):
        await asyncio.sleep(0)


def make_partition(
    *,
    background: Any = None,
    unsynced_max_bytes: int = 1 << 30,
    disk: SimDisk | None = None,
    flusher: Flusher | None = None,
    **config: Any,
) -> Partition:
    disk = disk or SimDisk(SimClock())
    log = Log.open(
        disk,
        disk.clock,
        "data/t-0",
        TopicConfig(**config),
        topic_partition=TopicPartition("t", PartitionIndex(0)),
        topic_id=TOPIC_ID,
    )
    flusher = flusher or Flusher(background or SimBackground(), unsynced_max_bytes=unsynced_max_bytes)
    partition = Partition(log, topic_id=TOPIC_ID, node_id=ME, flusher=flusher)
    lead(partition)
    return partition


def led_by(
    leader: NodeId,
    *,
    epoch: int,
    isr: tuple[NodeId, ...],
    replicas: tuple[NodeId, ...],
    partition_epoch: int | None = None,
) -> PartitionImage:
    """Each is newer than the one before, unless it is told to be another."""
    return PartitionImage(
        replicas=replicas,
        isr=isr,
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=next(_partition_epochs) if partition_epoch is None else partition_epoch,
    )


_partition_epochs = itertools.count(1)


def lead(
    partition: Partition, *, leader: NodeId = ME, epoch: int = 0, isr: tuple[NodeId, ...] = (ME,), replicas: int = 1
) -> None:
    nodes = tuple(NodeId(1 + number) for number in range(replicas))
    partition.follow_image(led_by(leader, epoch=epoch, isr=isr, replicas=nodes))


class Cluster:
    """A manager over one or more folders, told of images as the quorum would. It leads everything: nobody is asked,
    so that no other node, nor a network, has to be simulated."""

    def __init__(self, disk: SimDisk | None = None, *, folders: int = 1, **config: Any) -> None:
        self.disk = disk or SimDisk(SimClock())
        self.config = BrokerConfig(node_id=ME, log_dirs=tuple(f"data{number}" for number in range(folders)), **config)
        self.image: MetadataImage | None = None
        self.open()

    def open(self) -> None:
        self.directories = [
            LogDirectory.open(self.disk, self.disk.clock, SimRandom(3), path, node_id=ME, cluster_id="c" * 22)
            for path in self.config.log_dirs
        ]
        self.replicas = ReplicaManager(self.config, self.directories, background=SimBackground())

    def publish(self, topics: dict[str, int], configs: dict[str, dict[str, str]] | None = None, **ids: bytes) -> None:
        """Topics and their numbers of partitions; `name=id` where the id matters."""
        images = {}
        for name, count in topics.items():
            topic_id = Uuid(ids.get(name, name.encode().ljust(16, b"-")))
            old = self.image.topics.get(name) if self.image is not None else None
            if old is not None and old.id == topic_id and len(old.partitions) == count:
                images[name] = old
                continue
            state = PartitionImage(replicas=(ME,), isr=(ME,), leader=ME, leader_epoch=0, partition_epoch=0)
            images[name] = TopicImage(name, topic_id, dict.fromkeys(range(count), state))
        old_image, self.image = (
            self.image,
            MetadataImage(
                "c" * 22,
                topics=images,
                topic_names={topic.id: name for name, topic in images.items()},
                configs={(2, name): settings for name, settings in (configs or {}).items()},
            ),
        )
        self.replicas.follow_image(old_image, self.image)
