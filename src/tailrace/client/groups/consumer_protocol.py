"""A member of a KIP-848 group: one heartbeat joins, stays, acknowledges and leaves.

The broker says what this member is to own; a heartbeat that names what it owns now is the acknowledgement. A heartbeat
whose answer was lost may have been heard, so the next one says everything: the coordinator takes the epoch before the
last from a member that names what it owns.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from tailrace.client.groups.coordinator import Coordinator
from tailrace.client.groups.membership import MemberOptions, Membership, Partitions
from tailrace.client.groups.offsets import by_topic
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition, Uuid, uuid_text
from tailrace.wire.apis.groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

_JOINING = 0
_LEAVING = -1
# A static member that will be back within its session time.
_LEAVING_FOR_NOW = -2
_FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})

_Request = ConsumerGroupHeartbeatRequest


class ConsumerMembership(Membership):
    def __init__(self, coordinator: Coordinator, options: MemberOptions, on_news: Callable[[], None]) -> None:
        super().__init__(coordinator, options, on_news)
        self.member_id = uuid_text(Uuid(coordinator.cluster.ports.random.uuid()))
        self.epoch = _JOINING
        self._interval_ms = options.heartbeat_interval_ms
        self._sent_ms = 0.0
        # What the coordinator has heard of; None if that is not known.
        self._acknowledged: Partitions | None = None
        # What the coordinator wants, by topic id: names may not be known yet.
        self._assigned: dict[bytes, list[int]] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._is_unresolved = False

    @property
    def is_member(self) -> bool:
        return self.epoch > _JOINING

    async def _run(self) -> None:
        failures = 0
        unreleased_since_ms: float | None = None
        while True:
            if self._is_idle:
                await self._pause_membership()
            try:
                await self._heartbeat()
                await self._resolve()
            except KafkaError as error:
                self._acknowledged = None
                now = self._clock.monotonic_ms()
                if error.code in _FENCED:
                    await self._start_over()
                elif error.code is ErrorCode.UNRELEASED_INSTANCE_ID:
                    # Who had this name before may have died, and counts as alive until its session ends.
                    unreleased_since_ms = now if unreleased_since_ms is None else unreleased_since_ms
                    if now - unreleased_since_ms > self._options.rebalance_timeout_ms:
                        raise
                elif not error.code.retriable:
                    raise
                await self._wait_awake(self._coordinator.cluster.backoff_ms(failures))
                failures += 1
                continue
            failures = 0
            unreleased_since_ms = None
            while not self._is_due:
                await self._wait_awake(self._sent_ms + self._interval_ms - self._clock.monotonic_ms())

    @property
    def _is_due(self) -> bool:
        has_news = not self.is_lost and self.owned != self._acknowledged
        return has_news or self._clock.monotonic_ms() - self._sent_ms >= self._interval_ms

    async def _heartbeat(self) -> None:
        says_all = self._acknowledged is None
        owned = self.owned
        request = _Request(
            group_id=self._coordinator.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self._options.instance_id,
        )
        if says_all:
            request.rack_id = self._options.rack_id
            request.rebalance_timeout_ms = self._options.rebalance_timeout_ms
            request.subscribed_topic_names = list(self._options.topics)
            request.subscribed_topic_regex = self._options.topic_regex
            request.server_assignor = self._options.server_assignor
        if owned != self._acknowledged:
            request.topic_partitions = self._topic_partitions(owned)
        sent_ms = self._sent_ms = self._clock.monotonic_ms()
        answer = await self._coordinator.call(request, ConsumerGroupHeartbeatResponse)
        failure = f"member {self.member_id} is not in group {self._coordinator.group_id}"
        self._coordinator.check(answer.error_code, failure, answer.error_message)
        self.heard_ms = sent_ms
        self._acknowledged = owned
        self.epoch = answer.member_epoch
        self._interval_ms = answer.heartbeat_interval_ms
        if answer.assignment is not None:
            self._assigned = {bytes(each.topic_id): each.partitions for each in answer.assignment.topic_partitions}
            self._is_unresolved = True

    def _topic_partitions(self, owned: Partitions) -> list[_Request.TopicPartitions]:
        return [
            _Request.TopicPartitions(topic_id=self._topic_ids[topic], partitions=indexes)
            for topic, indexes in by_topic(owned).items()
        ]

    async def _resolve(self) -> None:
        """Finds the names of the topics that are assigned. One that has none here, since it is very new or deleted by
        now, is looked for again with every heartbeat."""
        if not self._is_unresolved:
            return
        names = {topic_id: name for name, topic_id in self._topic_ids.items()}
        if not names.keys() >= self._assigned.keys():
            topics = await self._coordinator.cluster.refresh(None)
            names = {bytes(topic.id): name for name, topic in topics.items()}
        # For a partition that is still owned, the topic id under which it was given counts: a newer topic of the same
        # name has to wait until that partition is given up.
        held = {topic: self._topic_ids[topic] for topic, _ in self.owned}
        found = {
            topic_id: names[topic_id]
            for topic_id in self._assigned
            if topic_id in names and held.get(names[topic_id], topic_id) == topic_id
        }
        self._is_unresolved = len(found) < len(self._assigned)
        self._topic_ids = {name: topic_id for topic_id, name in found.items()} | held
        self._want(
            frozenset(
                TopicPartition(name, PartitionIndex(index))
                for topic_id, name in found.items()
                for index in self._assigned[topic_id]
            )
        )

    async def _start_over(self) -> None:
        self.epoch = _JOINING
        self._assigned = {}
        self._is_unresolved = False
        self._lose()
        while self.is_lost:
            await self._wait_awake(1000)

    async def _pause_membership(self) -> None:
        """The caller does not poll: others get its partitions, until it is back."""
        with suppress(KafkaError):  # Else the session ends by itself.
            await self._leave()
        self._acknowledged = None
        self._lose()
        while self._is_idle:
            await self._wait_awake(self._options.rebalance_timeout_ms)
        await self._start_over()

    async def _leave(self) -> None:
        request = _Request(
            group_id=self._coordinator.group_id,
            member_id=self.member_id,
            member_epoch=_LEAVING if self._options.instance_id is None else _LEAVING_FOR_NOW,
            instance_id=self._options.instance_id,
        )
        await self._coordinator.call(request, ConsumerGroupHeartbeatResponse)
