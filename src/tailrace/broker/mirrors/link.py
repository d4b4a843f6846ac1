"""What one broker does for one link: it knows the source's leaders, and has a puller for each of those brokers.

    every sync.interval.ms, and when a puller has been turned away, the source's metadata are read; `Tender` does with
    them what one broker of the cluster does for all (controller.mirrors.following), if it is this one

What cannot be done is told in `problems` until it can. Never ends by itself: `close` it when the link is paused,
changed or gone.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from tailrace.broker.mirrors.credentials import connect_to_source
from tailrace.broker.mirrors.pulled import Pulled
from tailrace.broker.mirrors.puller import Puller
from tailrace.broker.mirrors.room import LinkRoom
from tailrace.broker.mirrors.tender import Tender
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import ZERO_UUID, NodeId

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tailrace.broker.coordinators.coordination import Coordination
    from tailrace.broker.mirrors.puller import Key
    from tailrace.broker.node import Node
    from tailrace.controller.image import MirrorLink
    from tailrace.wire.apis.mirrors import DescribeMirrorsResponse

_log = events.logger("mirror")

# The pause before the source's metadata are read again because somebody was turned away.
_LOOK_PAUSE_SECONDS = 0.2
_PROBLEMS_MAX = 50


class LinkWork(LinkRoom):
    def __init__(
        self,
        node: Node,
        coordination: Coordination,
        describe: Callable[[str | None], DescribeMirrorsResponse],
        link: MirrorLink,
    ) -> None:
        super().__init__(node, coordination, describe, link)
        self.pulled: dict[Key, Pulled] = {}
        self._pullers: dict[NodeId, Puller] = {}
        self._tender = Tender(self)
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"mirror link {link.name}")

    async def close(self) -> None:
        for task in (self._task, *self._asking):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        for puller in self._pullers.values():
            await puller.close()
        if hasattr(self, "cluster"):
            self.cluster.close()

    def follow(self, wanted: Mapping[Key, Pulled]) -> None:
        """These are the mirrors that are led here, by their names at the source."""
        if wanted.keys() != self.pulled.keys() or any(self.pulled[key] is not wanted[key] for key in wanted):
            self.pulled = dict(wanted)
            self._distribute()
        for puller in self._pullers.values():
            puller.wake()

    # ---- the source

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                if not hasattr(self, "cluster") or failures or self.is_turned_away:
                    await self._connect()
                await self._read_source()
                self.tell("source", None)
                failures = 0
                await self._tender.tend()
            except KafkaError as error:
                self.tell("source", error.message)
                failures += 1
            except Exception as error:
                _log.error("the work for a link failed", trace=True, link=self.link.name)
                self.node.judge_bug(error)
                failures += 1
            pause = _LOOK_PAUSE_SECONDS * (1 << min(failures, 4))
            await asyncio.sleep(pause)
            if not failures:
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, self.settings.sync_interval_ms / 1000 - pause)):
                        await self._look.wait()
            self._look.clear()

    async def _connect(self) -> None:
        """Anew after a failure, for the login may be another one by now. Pullers go on with the brokers they know."""
        self.is_turned_away = False
        cluster = await connect_to_source(self.node, self.link, self.settings)
        if hasattr(self, "cluster"):
            cluster.brokers = self.cluster.brokers
            self.cluster.close()
        self.cluster = cluster

    async def _read_source(self) -> None:
        topics = await self.cluster.refresh(None)
        if self.cluster.cluster_id != self.link.source_cluster_id:
            self.topics = {}
            self._distribute()
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"at {self.settings.bootstrap_servers} is the cluster {self.cluster.cluster_id}, but this link is of "
                f"{self.link.source_cluster_id}: nothing is mirrored from there",
            )
        self.topics = topics
        self._distribute()

    def _distribute(self) -> None:
        """Each mirror to the puller of its leader at the source."""
        shares: dict[NodeId, dict[Key, Pulled]] = {}
        for key, pulled in self.pulled.items():
            topic = self.topics.get(pulled.source.topic)
            if topic is None:
                pulled.is_recognized = False
                if self.topics:
                    pulled.problem = "the topic is not at the source, or this link may not see it"
                continue
            if topic.id != pulled.source_topic_id != ZERO_UUID:
                pulled.stop("the topic was deleted at the source and made again: it is another one")
            found = topic.partitions.get(pulled.source.partition)
            if found is None:
                pulled.problem = f"the source has {len(topic.partitions)} partitions of it: it was made again, perhaps"
            elif found.leader_id < 0:
                pulled.problem = "the partition has no leader at the source"
            elif found.leader_id in self.cluster.brokers:
                shares.setdefault(found.leader_id, {})[key] = pulled
        for node_id in self._pullers.keys() | shares.keys():
            share = shares.get(node_id, {})
            if node_id not in self._pullers:
                self._pullers[node_id] = Puller(self, node_id)
            puller = self._pullers[node_id]
            puller.pulled = share
            puller.wake()
