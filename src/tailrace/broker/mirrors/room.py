"""What the parts of one link's work on this broker share: the source as it was last told, and the way to the
controller.

Its problems are told as long as they last, for people to see.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tailrace.controller.mirrors.settings import parse_link_settings
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NO_EPOCH, ZERO_UUID, NodeId, Uuid
from tailrace.wire.apis.mirrors import FollowMirrorSourceRequest, FollowMirrorSourceResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tailrace.broker.coordinators.coordination import Coordination
    from tailrace.broker.mirrors.pulled import Pulled
    from tailrace.broker.node import Node
    from tailrace.client.connection import Connection
    from tailrace.client.metadata import Cluster, TopicMetadata
    from tailrace.controller.image import MirrorLink
    from tailrace.wire.apis.mirrors import DescribeMirrorsResponse

_log = events.logger("mirror")

_PROBLEMS_MAX = 50


class LinkRoom:
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
        self.cluster: Cluster  # The source, once it is known how to log in there.
        self.is_turned_away = False  # By the source, with the login that it was asked with.
        self._look = asyncio.Event()
        self._room_bytes, self._room_ms = 0.0, self.now_ms()
        self._asking: set[asyncio.Task[None]] = set()

    def now_ms(self) -> float:
        return self.node.ports.clock.monotonic_ms()

    def look_again(self) -> None:
        self._look.set()

    def tell(self, what: str, problem: str | None) -> None:
        """A problem of the link, or that it is gone."""
        if problem is None:
            self.problems.pop(what, None)
        elif self.problems.get(what) != problem and (what in self.problems or len(self.problems) < _PROBLEMS_MAX):
            self.problems[what] = problem
            _log.warning("a link has a problem", link=self.link.name, about=what, cause=problem)

    def forget_others(self, about: str, names: Collection[str]) -> None:
        """What was told about topics that are not among these: it concerns them no more."""
        for what in [each for each in self.problems if each.startswith(about) and each[len(about) :] not in names]:
            del self.problems[what]

    async def open_connection(self, source_node: NodeId) -> Connection:
        address = self.cluster.brokers.get(source_node)
        if address is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"broker {source_node} of the source is not there")
        try:
            return await self.cluster.open(address)
        except KafkaError as error:
            self.is_turned_away |= not error.code.retriable
            raise

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
        self,
        topics: list[FollowMirrorSourceRequest.Topic],
        *,
        caught_up: list[FollowMirrorSourceRequest.CaughtUp] | None = None,
        agreeing: list[str] | None = None,
    ) -> FollowMirrorSourceResponse:
        request = FollowMirrorSourceRequest(
            broker_id=self.node.node_id,
            broker_epoch=self.node.broker_epoch(),
            link_id=self.link.id,
            topics=topics,
            caught_up=caught_up or [],
            agreeing=agreeing or [],
        )
        answer = await self.node.forwarding.ask(request, FollowMirrorSourceResponse, channel="mirrors")
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            raise KafkaError(code, answer.error_message or f"the controller says {code.name}")
        return answer
