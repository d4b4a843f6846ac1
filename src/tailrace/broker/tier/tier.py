"""`Tier`: the remote storage of one broker, and its life.

keeper     copies, retention, orphans of what is led here
collector  what is left of deleted topics
announcer  manifests, for readers without a broker
exporter   topics and groups, for a recovery from the store
restater   cuts the records that tell of all that
disks      whether they fill up with what is not copied

A partition gets its part in the turn in which it is opened or its topic gets remote storage, before anybody can ask for
it: without, what is in the store alone would look deleted.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tailrace.broker.tier.announcing import Announcer
from tailrace.broker.tier.collector import Collector
from tailrace.broker.tier.disks import DiskWatch
from tailrace.broker.tier.keeper import Keeper
from tailrace.broker.tier.opening import NoStore, check_at_first_start, open_store
from tailrace.broker.tier.parts import TieredLog
from tailrace.broker.tier.recovery.exporting import Exporter
from tailrace.broker.tier.room import Room
from tailrace.broker.tier.topic.restating import Restater
from tailrace.model import events
from tailrace.model.errors import KafkaError
from tailrace.model.ids import CLUSTER_METADATA_TOPIC
from tailrace.model.ports import StoreAwayError, StoreError
from tailrace.tier.format.names import TieredPartition

if TYPE_CHECKING:
    from tailrace.broker.coordinators.coordination import Coordination
    from tailrace.broker.node import Node
    from tailrace.controller.image import MetadataImage
    from tailrace.model.ports import Objects
    from tailrace.replica.directories import LogDirectories
    from tailrace.replica.partition import Partition

_log = events.logger("tier")

_SNAPSHOT_RECORDS = 10_000
_TEND_SECONDS = 1.0
# After so many downloads memory is given back to the system: some milliseconds for a helper thread.
_TRIM_BYTES = 64 << 20
# How often it is looked whose the store is.
_MARKER_SECONDS = 30.0


class Tier(Room):
    """Made by `open_tier`."""

    def __init__(
        self,
        node: Node,
        directories: LogDirectories,
        cluster_id: str,
        objects: Objects,
        coordination: Coordination,
    ) -> None:
        super().__init__(node, directories, cluster_id, objects)
        self._announcer, self._exporter = Announcer(self), Exporter(self, coordination)
        self._keeper, self._collector = Keeper(self, self._announcer), Collector(self)
        self._restater = Restater(self)
        self._disks = DiskWatch(self, directories)
        self._tasks: list[asyncio.Task[None]] = []
        self._trimmed_at_bytes = 0  # Of what was downloaded in all.
        self._is_closed = False

    @property
    def problems(self) -> list[str]:
        """What an operator should know of."""
        return [each for each in (self.problem, self._keeper.problem, self._disks.problem) if each]

    # ---- life

    async def check_at_first_start(self) -> None:
        """KafkaError if the store says no."""
        await check_at_first_start(self.store, self.cluster_id)

    def attach(self) -> None:
        """From now on partitions have their parts."""
        self.node.replicas.on_settled = self._settle
        self.node.quorum.subscribe(self._follow_image)

    def start(self) -> None:
        self._follow_needs()  # What lies in the store alone can be read once its records are replayed.
        workers = self._keeper, self._collector, self._announcer, self._exporter, self._restater, self._disks
        works = [self._tend(), self._watch_marker(), self.cache.open(), *(self.work(worker) for worker in workers)]
        self._tasks = [asyncio.get_running_loop().create_task(work, name="tier") for work in works]

    async def close(self) -> None:
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._keeper.close()
        self.pieces.close()
        await self.metadata.close()
        try:
            await self.store_starts()
        except KafkaError as error:
            _log.warning("it is not stored where logs begin", cause=error.message)

    async def _watch_marker(self) -> None:
        """Nothing is copied before the store is known to be this cluster's, nor after a recovery has taken it over."""
        pause_seconds = 1.0
        while True:
            try:
                await self.confirm_ours()
                if not self.is_ours:
                    _log.info("remote storage is there", url=self.config.remote_log_storage_url)
                self.is_ours, self.problem = True, ""
                pause_seconds = _MARKER_SECONDS
            except StoreAwayError as error:
                self.complain("the store cannot be asked whose it is", error)
                self.problem = f"remote storage: {error}"
                pause_seconds = min(pause_seconds * 2, _MARKER_SECONDS)
            except StoreError as error:
                self.complain("nothing is copied to the store", error)
                self.is_ours, self.problem = False, f"remote storage: {error}"
                pause_seconds = min(pause_seconds * 2, _MARKER_SECONDS)
            except Exception as error:
                _log.error("it cannot be looked whose the store is", trace=True)
                self.node.judge_bug(error)
            await asyncio.sleep(pause_seconds)

    async def _tend(self) -> None:
        while True:
            await asyncio.sleep(_TEND_SECONDS)
            try:
                self.note_limits()
                self._follow_needs()
                await self._trim_memory()
                await self.store_starts()
                await self.metadata.store_snapshots(records_min=_SNAPSHOT_RECORDS)
            except KafkaError as error:
                self.complain("it cannot be stored where logs begin", error)
            except Exception as error:
                _log.error("a round of remote storage failed", trace=True)
                self.node.judge_bug(error)

    async def _trim_memory(self) -> None:
        """Pieces come and go in many threads, each with a heap of its own: without, heaps grow to several times of what
        is in use."""
        if self.pieces.got_bytes - self._trimmed_at_bytes >= _TRIM_BYTES:
            self._trimmed_at_bytes = self.pieces.got_bytes
            await self.node.ports.background.run(self.node.ports.memory.trim)

    # ---- which partitions

    def _settle(self, partition: Partition) -> None:
        """The partition is new, or its topic has other settings."""
        has_storage = partition.log.config.remote_storage_enable
        owner = TieredPartition(partition.topic_id, partition.topic_partition.partition)
        if has_storage and partition.tier is None:
            stored = self.starts.find(owner)
            start_offset = partition.log.log_start_offset if stored is None else stored
            partition.tier = self.parts[partition] = self.owners[owner] = TieredLog(self, partition, start_offset)
        elif not has_storage:
            self.starts.forget(owner)
            if partition.tier is not None:
                self._detach(partition)

    def _detach(self, partition: Partition) -> None:
        """What is in the store alone is given up (remote.log.delete.on.disable), and never comes back."""
        part = self.parts.pop(partition)
        partition.tier = None
        self._forget(part)
        partition.log.epochs.truncate_from_start(partition.log.log_start_offset)

    def _forget(self, part: TieredLog) -> None:
        if self.owners.get(part.owner) is part:
            del self.owners[part.owner]
        self._keeper.forget(part)
        self._announcer.forget(part)

    def _follow_image(self, old: MetadataImage, new: MetadataImage) -> None:
        if self._is_closed:
            return
        if old.topics is not new.topics:
            current = self.node.replicas.partitions
            for partition in [each for each in self.parts if current.get(each.topic_partition) is not each]:
                part = self.parts.pop(partition)
                self._forget(part)
                self.starts.forget(part.owner)
        if old.topics is not new.topics or old.configs is not new.configs:
            self._follow_needs()

    def _follow_needs(self) -> None:
        """Followed are the partitions of __remote_log_metadata that tell of a partition here, and those that are led
        here: their leader collects what is left of deleted topics."""
        metadata = self.metadata
        topic = metadata.topic
        needed = {index for part in self.parts.values() if (index := metadata.index_of(part.owner)) is not None}
        if topic is not None:
            needed |= {index for index in topic.partitions if metadata.leads(index)}
        is_wanted = any(part.partition.is_leader for part in self.parts.values())
        if needed != metadata.parts.keys() or (topic is None and is_wanted):
            metadata.need(needed, is_wanted=is_wanted)
        else:
            metadata.follow_leaders()


async def open_tier(node: Node, directories: LogDirectories, cluster_id: str, coordination: Coordination) -> Tier:
    """KafkaError INVALID_CONFIG if remote storage cannot work, unless there is data that has to be served."""
    config = node.config
    found = (each for directory in directories for each in directory.partitions_on_disk())
    has_data = any(each.topic != CLUSTER_METADATA_TOPIC for each in found)
    try:
        objects = await open_store(node.ports.objects, config)
    except KafkaError as error:
        if not has_data:
            raise
        _log.error("remote storage cannot be used: what lies here alone is served", cause=error.message)
        objects = NoStore(error.message)
    tier = Tier(node, directories, cluster_id, objects, coordination)
    if not has_data:
        await tier.check_at_first_start()
    tier.attach()
    return tier
