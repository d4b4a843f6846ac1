"""A real bucket, filled by the tier's own writer from logs on the disk: marker, segments and manifests."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path

from tailrace.log.log import Log
from tailrace.model.config import TopicConfig
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition, Uuid
from tailrace.model.ports import StoreLimits
from tailrace.real.ports import real_ports
from tailrace.tier.format.marker import Marker, write_marker
from tailrace.tier.format.names import MARKER_NAME, TieredPartition
from tailrace.tier.keeping.copying import Copier
from tailrace.tier.keeping.decisions import decide_copy
from tailrace.tier.keeping.local import LocalSegmentSource, lineage_up_to, view_of
from tailrace.tier.keeping.manifests import LogFacts, PartitionManifests
from tailrace.tier.keeping.throttle import Throttle
from tailrace.tier.metadata.machine import TierMachine
from tailrace.tier.metadata.partition import PartitionTier
from tailrace.tier.store.guard import GuardedObjects, GuardLimits
from tailrace.wire.schema import Message

CONFIG = TopicConfig(message_timestamp_before_max_ms=1 << 60)


class TierWriter:
    """Of one cluster and one bucket. It leads every partition in epoch `leader_epoch`."""

    def __init__(self, url: str, cluster_id: str, options: Mapping[str, str] | None = None) -> None:
        self.url = url
        self.cluster_id = cluster_id
        self.options = dict(options or {})
        self.leader_epoch = 100
        self.machine = TierMachine()
        self.number = 0

    async def append(self, record: Message) -> None:
        """As MetadataLog."""
        if not self.machine.replay(record, self.machine.next_offset):
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)

    def copy_folder(
        self,
        folder: Path,
        partition: TopicPartition,
        topic_id: Uuid,
        *,
        scratch: Path,
        partition_count: int = 1,
        segments: int = 1000,
    ) -> int:
        """From the data folder of a broker, which may go on; gives the offset up to which everything was copied."""
        copied = scratch / f"copy-{self.number}"
        self.number += 1
        source = folder / f"{partition.topic}-{partition.partition}"
        shutil.copytree(source, copied, ignore=shutil.ignore_patterns("*.tmp"))
        ports = real_ports()
        log = Log.open(ports.disk, ports.clock, str(copied), CONFIG, topic_partition=partition)
        try:
            owner = TieredPartition(topic_id, PartitionIndex(partition.partition))
            return asyncio.run(self.copy(log, owner, partition_count=partition_count, segments=segments))
        finally:
            log.close(clean=False)
            ports.background.close()
            shutil.rmtree(copied)

    async def copy(self, log: Log, owner: TieredPartition, *, partition_count: int = 1, segments: int = 1000) -> int:
        ports = real_ports()
        assert ports.objects is not None
        objects = await ports.objects.open(self.url, self.options, StoreLimits())
        store = GuardedObjects(objects, ports.clock, ports.random, GuardLimits(tries=2))
        await store.put_bytes(MARKER_NAME, write_marker(Marker(self.cluster_id)))
        topic = log.topic_partition.topic
        tier = self.machine.partitions.setdefault(owner, PartitionTier(topic))
        copier = Copier(self.cluster_id, 1, store, ports.clock, ports.random, Throttle(ports.clock), ports.background)
        for _ in range(segments):
            number = decide_copy(view_of(log, tier, high_watermark=log.log_end_offset))
            if number is None:
                break
            source = LocalSegmentSource(ports.disk, ports.background, log, number)
            await copier.copy(self, topic, owner, source, source.epochs, leader_epoch=self.leader_epoch)
        manifests = PartitionManifests(
            self.cluster_id, 0, owner, self.leader_epoch, store, ports.clock, ports.background, number=self.number
        )
        self.number += 1
        lineage = lineage_up_to(log, log.log_end_offset)
        facts = LogFacts(lineage, log.log_start_offset, log.log_end_offset, partition_count, {})
        await manifests.write(tier, metadata_offset=self.machine.next_offset, log=facts)
        ports.background.close()
        return view_of(log, tier, high_watermark=log.log_end_offset).copied_end_offset
