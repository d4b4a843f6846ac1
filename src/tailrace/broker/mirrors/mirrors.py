"""The mirrors of one broker: follows the metadata, so that each link has its work here, and opens what was promoted or
failed over.

A cluster that never had a link pays for none of it. What is led here is pulled; a link that is paused, changed or gone
is dropped with all its connections.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from tailrace.controller.features import MIRROR_VERSION
from tailrace.controller.image import MirrorState
from tailrace.controller.mirrors.links import mirrors_of
from tailrace.model import events
from tailrace.model.errors import KafkaError
from tailrace.replica.leading.mirrors import open_mirror
from tailrace.wire.apis.mirrors import DescribeMirrorsResponse

if TYPE_CHECKING:
    from tailrace.broker.coordinators.coordination import Coordination
    from tailrace.broker.mirrors.link import LinkWork
    from tailrace.broker.mirrors.pulled import Pulled
    from tailrace.broker.mirrors.puller import Key
    from tailrace.broker.node import Node
    from tailrace.controller.image import MetadataImage, MirrorLink, TopicImage
    from tailrace.model.ids import Uuid
    from tailrace.replica.partition import Partition

_log = events.logger("mirror")

_LOOK_SECONDS = 1.0
_OPENED_PER_TURN = 8
_LOOKED_AT_PER_TURN = 500
_TRANSACTIONS_TOLD_MAX = 100

Description = DescribeMirrorsResponse


class Mirrors:
    def __init__(self, node: Node, coordination: Coordination) -> None:
        self._node = node
        self._coordination = coordination
        self._works: dict[Uuid, LinkWork] = {}
        self._wakeup = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_open = False

    # ---- life

    def open(self) -> None:
        self._is_open = True
        self.follow_image(self._node.image, self._node.image)

    def follow_image(self, _old: MetadataImage, new: MetadataImage) -> None:
        if not self._is_open or MIRROR_VERSION not in new.features:
            return
        self._wakeup.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="mirrors")

    async def close(self) -> None:
        self._is_open = False
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        for work in self._works.values():
            await work.close()
        self._works.clear()

    async def _run(self) -> None:
        while True:
            self._wakeup.clear()
            try:
                await self._settle()
            except Exception as error:
                _log.error("mirrors could not be settled", trace=True)
                self._node.judge_bug(error)
            # What follows the image late is found by looking again.
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._wakeup.wait()

    async def _settle(self) -> None:
        image = self._node.image
        for link_id, work in list(self._works.items()):
            link = image.mirror_links.get(link_id)
            if link is None or link.is_paused or link != work.link:
                del self._works[link_id]
                await work.close()
        wanted: dict[Uuid, dict[Key, Pulled]] = {}
        must_open: list[Partition] = []
        for number, (topic, index, _state) in enumerate(image.partitions_of(self._node.node_id)):
            if number % _LOOKED_AT_PER_TURN == _LOOKED_AT_PER_TURN - 1:
                await asyncio.sleep(0)
            mirror = topic.mirror
            partition = self._node.replicas.partitions.get((topic.name, index)) if mirror is not None else None
            if mirror is None or partition is None or not partition.is_leader:
                continue
            if partition.must_open:
                must_open.append(partition)
            elif mirror.is_read_only and partition.is_mirror:
                pulled = self._pulled(partition, topic)
                if pulled.is_stopped and mirror.state is MirrorState.CUTTING:
                    pulled.try_again()
                wanted.setdefault(mirror.link_id, {})[pulled.source] = pulled
        for link_id, link in image.mirror_links.items():
            if not link.is_paused:
                self._work(link).follow(wanted.get(link_id, {}))
        await self._open_all(must_open)

    def _work(self, link: MirrorLink) -> LinkWork:
        work = self._works.get(link.id)
        if work is None:
            from tailrace.broker.mirrors.link import LinkWork

            work = self._works[link.id] = LinkWork(self._node, self._coordination, self.describe, link)
        return work

    def _pulled(self, partition: Partition, topic: TopicImage) -> Pulled:
        from tailrace.broker.mirrors.pulled import Pulled

        mirror = topic.mirror
        assert mirror is not None, "it is a mirror"
        work = self._works.get(mirror.link_id)
        key = mirror.source_topic, partition.topic_partition.partition
        known = work.pulled.get(key) if work is not None else None
        return known if known is not None and known.is_of(partition, mirror) else Pulled(partition, mirror)

    async def _open_all(self, partitions: list[Partition]) -> None:
        """A few a turn: who wants to write to one opens it at once."""
        for number, partition in enumerate(partitions):
            try:
                if partition.must_open:
                    open_mirror(partition)
            except KafkaError as error:
                _log.error("a mirror cannot be opened", partition=partition.topic_partition, cause=error.message)
            if number % _OPENED_PER_TURN == _OPENED_PER_TURN - 1:
                await asyncio.sleep(0)

    # ---- what people ask

    def describe(self, link_name: str | None) -> DescribeMirrorsResponse:
        """Links as the metadata have them, and the partitions that are led here."""
        image = self._node.image
        return Description(
            links=[
                self._describe_link(image, link)
                for link in sorted(image.mirror_links.values(), key=lambda each: each.name)
                if link_name in (None, link.name)
            ],
            closed=[self._describe_closed(topic) for topic in image.topics.values() if topic.closed is not None],
        )

    def _describe_closed(self, topic: TopicImage) -> DescribeMirrorsResponse.ClosedTopic:
        assert topic.closed is not None, "it was handed over"
        partitions = []
        for index in topic.partitions:
            partition = self._node.replicas.partitions.get((topic.name, index))
            # The image may be ahead of what the partition goes by: it must have been closed by this promote itself.
            role = partition.mirror if partition is not None and partition.is_leader else None
            if partition is not None and role is not None and role.closed == topic.closed:
                described = Description.ClosedPartition(
                    partition_index=index,
                    leader_epoch=partition.leader_epoch,
                    log_end_offset=partition.log.log_end_offset,
                    high_watermark=partition.high_watermark,
                    has_open_transactions=partition.log.producers.first_open_offset is not None,
                )
                partitions.append(described)
        return Description.ClosedTopic(
            name=topic.name,
            cluster_id=topic.closed.cluster_id,
            handover_id=topic.closed.handover_id,
            partitions=partitions,
        )

    def _describe_link(self, image: MetadataImage, link: MirrorLink) -> DescribeMirrorsResponse.Link:
        work = self._works.get(link.id)
        return Description.Link(
            name=link.name,
            link_id=link.id,
            source_cluster_id=link.source_cluster_id,
            is_paused=link.is_paused,
            settings=[Description.Setting(name=name, value=value) for name, value in sorted(link.settings.items())],
            problems=[f"{what}: {problem}" for what, problem in sorted(work.problems.items())] if work else [],
            topics=[
                self._describe_topic(topic, work)
                for topic in sorted(mirrors_of(image, link.id), key=lambda it: it.name)
            ],
        )

    def _describe_topic(self, topic: TopicImage, work: LinkWork | None) -> DescribeMirrorsResponse.Topic:
        mirror = topic.mirror
        assert mirror is not None, "it is a mirror"
        partitions = []
        for index, state in topic.partitions.items():
            partition = self._node.replicas.partitions.get((topic.name, index))
            if state.leader == self._node.node_id and partition is not None and partition.is_leader:
                pulled = work.pulled.get((mirror.source_topic, index)) if work is not None else None
                described = self._describe_partition(partition, pulled)
                if not mirror.is_read_only and not partition.must_open:
                    described.opened_offset = _opened_offset(partition, mirror.opening_epoch)
                partitions.append(described)
        return Description.Topic(
            name=topic.name,
            source_topic=mirror.source_topic,
            state=mirror.state.name.lower(),
            origins=list(mirror.origins),
            opening_epoch=mirror.opening_epoch,
            partition_count=len(topic.partitions),
            partitions=partitions,
        )

    def _describe_partition(self, partition: Partition, pulled: Pulled | None) -> DescribeMirrorsResponse.Partition:
        log = partition.log
        producers = log.producers.states if log.producers.first_open_offset is not None else {}
        open_ones = [
            Description.OpenTransaction(producer_id=producer_id, first_offset=state.current_txn_first_offset)
            for producer_id, state in producers.items()
            if state.current_txn_first_offset >= 0
        ]
        described = Description.Partition(
            partition_index=partition.topic_partition.partition,
            leader_epoch=partition.leader_epoch,
            log_start_offset=partition.log_start_offset,
            log_end_offset=log.log_end_offset,
            high_watermark=partition.high_watermark,
            last_timestamp=log.active.max_timestamp,
            open_transactions=open_ones[:_TRANSACTIONS_TOLD_MAX],
        )
        if pulled is not None:
            described.source_end_offset = pulled.source_end
            lag = max(0, pulled.source_end - log.log_end_offset)
            offsets = log.log_end_offset - log.log_start_offset
            if not lag or (pulled.source_end >= 0 and offsets):
                described.lag_bytes = lag * log.size_bytes // max(1, offsets)
            described.bytes_per_second = pulled.bytes_per_second
            described.problem, described.is_stopped = pulled.problem, pulled.is_stopped
            described.is_agreeing = pulled.is_agreeing
            if pulled.caught_up_ms is not None:
                now_ms = self._node.ports.clock.monotonic_ms()
                described.behind_ms = int(now_ms - pulled.caught_up_ms)
        return described


def _opened_offset(partition: Partition, opening_epoch: int) -> int:
    entries = partition.log.epochs.entries
    return next((each.start_offset for each in entries if each.epoch >= opening_epoch), -1)
