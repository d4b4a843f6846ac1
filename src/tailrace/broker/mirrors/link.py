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
from tailrace.broker.mirrors.tender import Tender
from tailrace.controller.mirrors.settings import parse_link_settings
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NO_EPOCH, ZERO_UUID, NodeId, Uuid
from tailrace.wire.apis.mirrors import FollowMirrorSourceRequest, FollowMirrorSourceResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tailrace.broker.coordinators.coordination import Coordination
    from tailrace.broker.mirrors.puller import Key
    from tailrace.broker.node import Node
    from tailrace.client.connection import Connection
    from tailrace.client.metadata import Cluster, TopicMetadata
    from tailrace.controller.image import MirrorLink
    from tailrace.wire.apis.mirrors import DescribeMirrorsResponse

_log = events.logger("mirror")

# The pause before the source's metadata are read again because somebody was turned away.
_LOOK_PAUSE_SECONDS = 0.2
_PROBLEMS_MAX = 50


class LinkWork:
    def __init__(
        self,
        node: Node,
        coordination: Coordination,
        describe: Callable[[str | None], DescribeMirrorsResponse],
        link: MirrorLink,
    ) -> None:
        """`describe` tells of the mirrors that are led here."""
        self.node, self.coordination, self.describe = node, coordination, describe
        self.link = link
        self.settings = parse_link_settings(link.settings)
        self.problems: dict[str, str] = {}
        self.topics: Mapping[str, TopicMetadata] = {}  # Of the source, as it was last told.
        self.pulled: dict[Key, Pulled] = {}
        self.cluster: Cluster
        self._pullers: dict[NodeId, Puller] = {}
        self._tender = Tender(self)
        self._look = asyncio.Event()
        self._room_bytes, self._room_ms = 0.0, self.now_ms()
        self._asking: set[asyncio.Task[None]] = set()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"mirror link {link.name}")

    def now_ms(self) -> float:
        return self.node.ports.clock.monotonic_ms()

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

    def look_again(self) -> None:
        self._look.set()

    def tell(self, what: str, problem: str | None) -> None:
        """A problem of the link, or that it is gone."""
        if problem is None:
            self.problems.pop(what, None)
        elif self.problems.get(what) != problem and (what in self.problems or len(self.problems) < _PROBLEMS_MAX):
            self.problems[what] = problem
            _log.warning("a link has a problem", link=self.link.name, about=what, cause=problem)

    # ---- what the pullers ask

    async def open_connection(self, source_node: NodeId) -> Connection:
        address = self.cluster.brokers.get(source_node)
        if address is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"broker {source_node} of the source is not there")
        return await self.cluster.open(address)

    def source_epoch(self, pulled: Pulled) -> int:
        topic = self.topics.get(pulled.source.topic)
        found = topic.partitions.get(pulled.source.partition) if topic is not None else None
        return NO_EPOCH if found is None else found.leader_epoch

    def source_topic_id(self, name: str) -> Uuid:
        topic = self.topics.get(name)
        return ZERO_UUID if topic is None else topic.id

    async def wait_for_room(self, taken_bytes: int) -> None:
        """Until max.bytes.per.second lets more in."""
        rate = self.settings.bytes_per_second
        if not rate:
            return
        now_ms = self.now_ms()
        self._room_bytes = min(rate, self._room_bytes + (now_ms - self._room_ms) * rate / 1000) - taken_bytes
        self._room_ms = now_ms
        if self._room_bytes < 0:
            await asyncio.sleep(-self._room_bytes / rate)

    def ask_for_epoch(self, pulled: Pulled) -> None:
        """The controller is to raise the partition's leader epoch to that of the source."""
        count = pulled.source.partition + 1
        topic = self.topics.get(pulled.source.topic)
        count = max(count, len(topic.partitions)) if topic is not None else count
        epochs = [pulled.needed_epoch if index == pulled.source.partition else NO_EPOCH for index in range(count)]
        found = FollowMirrorSourceRequest.Topic(
            source_topic=pulled.source.topic, source_topic_id=pulled.source_topic_id, leader_epochs=epochs
        )

        async def ask() -> None:
            try:
                await self.tell_controller([found])
            except KafkaError as error:
                self.tell("leader epochs", error.message)

        task = asyncio.get_running_loop().create_task(ask(), name="raise an epoch")
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def tell_controller(
        self, topics: list[FollowMirrorSourceRequest.Topic], caught_up: list[str] | None = None
    ) -> FollowMirrorSourceResponse:
        request = FollowMirrorSourceRequest(
            broker_id=self.node.node_id,
            broker_epoch=self.node.broker_epoch(),
            link_id=self.link.id,
            topics=topics,
            caught_up=caught_up or [],
        )
        answer = await self.node.forwarding.ask(request, FollowMirrorSourceResponse, channel="mirrors")
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            raise KafkaError(code, answer.error_message or f"the controller says {code.name}")
        return answer

    # ---- the source

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                if not hasattr(self, "cluster"):
                    self.cluster = await connect_to_source(self.node, self.link, self.settings)
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
                if self.topics:
                    pulled.problem = "the topic is not at the source, or this link may not see it"
                continue
            if topic.id != pulled.source_topic_id != ZERO_UUID:
                pulled.stop("the topic was deleted at the source and made again: it is another one")
            found = topic.partitions.get(pulled.source.partition)
            if found is None or found.leader_id < 0:
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
