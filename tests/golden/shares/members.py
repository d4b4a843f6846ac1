"""Members of a share group who ask for what a scenario says, right or wrong, and note what they are told.

Of answers there is kept what a client goes by: codes, which records were acquired and how often they were delivered.
Partitions of which nothing is told are left out: Kafka names some of them, and clients pass over them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tailrace.model.errors import ErrorCode
from tailrace.model.ids import Uuid
from tailrace.wire.apis.admin import CreateTopicsRequest, IncrementalAlterConfigsRequest
from tailrace.wire.apis.groups import FindCoordinatorRequest
from tailrace.wire.apis.shares import ShareAcknowledgeRequest, ShareFetchRequest, ShareGroupHeartbeatRequest
from tests.unit.broker.world import Peer, batch, produce

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
GROUP_RESOURCE = 32
Batches = Sequence[tuple[int, int, Sequence[int]]]

_NEWEST = 2
_WAIT_MS = 500
_TRIES = 60
_PAUSE_SECONDS = 0.1
# How long nothing must come for there to be nothing.
_SILENCE_MS = 200


def code(number: int) -> str:
    return ErrorCode(number).name


class Queue:
    """A topic of one partition, and a group that reads it from its beginning."""

    def __init__(self, connect: Callable[[], Awaitable[Peer]], name: str) -> None:
        self._connect = connect
        self.group, self.topic = name, f"{name}-topic"
        self.topic_id = Uuid(bytes(16))
        self.root: Peer
        self.told: list[Any] = []

    async def prepare(self) -> None:
        self.root = await self._connect()
        topics = [CreateTopicsRequest.CreatableTopic(name=self.topic, num_partitions=1, replication_factor=1)]
        created = await self.root.request(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
        assert created.topics[0].error_code == 0, created
        self.topic_id = Uuid(created.topics[0].topic_id)
        await self.configure("share.auto.offset.reset", "earliest")
        for _ in range(_TRIES):
            found = await self.root.request(FindCoordinatorRequest(coordinator_keys=[self.group]), 6)
            if not found.coordinators[0].error_code:
                return
            await asyncio.sleep(_PAUSE_SECONDS)
        raise AssertionError("nobody coordinates groups")

    async def configure(self, name: str, value: str) -> None:
        request = IncrementalAlterConfigsRequest
        configs = [request.AlterableConfig(name=name, value=value, config_operation=0)]
        resource = request.AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=self.group, configs=configs)
        answer = await self.root.request(request(resources=[resource]), 1)
        assert answer.responses[0].error_code == 0, answer

    def note(self, what: str, told: Any) -> None:
        self.told.append([what, told])

    async def write(self, *sizes: int) -> None:
        """Batches of so many records."""
        for size in sizes:
            for _ in range(_TRIES):
                answer = await self.root.request(produce(self.topic, batch(*[b"v"] * size)), 9)
                if not answer.responses[0].partition_responses[0].error_code:
                    break
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                raise AssertionError("records cannot be written")

    async def member(self, letter: str) -> Member:
        """It has joined and knows its partition."""
        member = Member(self, await self._connect(), letter)
        await member.join()
        return member

    async def stranger(self, letter: str) -> Member:
        return Member(self, await self._connect(), letter)


class Member:
    def __init__(self, queue: Queue, peer: Peer, letter: str) -> None:
        self._queue = queue
        self.peer = peer
        self.letter = letter
        # As Java clients make them.
        self.id = letter * 22
        self.member_epoch = 0
        # Of the next request of its share session.
        self.epoch = 0

    async def join(self) -> None:
        self.member_epoch = 0
        for _ in range(_TRIES):
            topics = [self._queue.topic] if not self.member_epoch else None
            told = await self.beat(self.member_epoch, topics)
            self.member_epoch = told.member_epoch
            if told.assignment is not None and told.assignment.topic_partitions:
                return
            await asyncio.sleep(_PAUSE_SECONDS)
        raise AssertionError(f"{told} is no assignment")

    async def beat(self, epoch: int, topics: list[str] | None = None, **fields: Any) -> Any:
        named = {"group_id": self._queue.group, "member_id": self.id} | fields
        request = ShareGroupHeartbeatRequest(member_epoch=epoch, subscribed_topic_names=topics, **named)
        return await self.peer.request(request, 1)

    async def leave(self) -> None:
        await self.beat(-1)

    # ---- fetching

    async def take(self, *batches: tuple[int, int, Sequence[int]], **fields: Any) -> None:
        """Asks until it is given something. What rides on the first request is told, too."""
        for _ in range(_TRIES):
            told = await self._fetch(batches, self.epoch, fields)
            if _told_of(told) or told.error_code:
                self._note("take", batches, fields, told)
                return
            batches = ()
        raise AssertionError(f"there was nothing to take after {self._queue.told}: {told}")

    async def look(self, *batches: tuple[int, int, Sequence[int]], **fields: Any) -> None:
        """Asks once."""
        told = await self._fetch(batches, self.epoch, {"max_wait_ms": _SILENCE_MS} | fields)
        self._note("look", batches, fields, told)

    async def ask(self, *batches: tuple[int, int, Sequence[int]], epoch: int, **fields: Any) -> None:
        """With a session epoch that may be wrong."""
        told = await self._fetch(batches, epoch, {"max_wait_ms": _SILENCE_MS} | fields)
        self._note(f"ask in epoch {epoch}", batches, fields, told)

    async def _fetch(self, batches: Batches, epoch: int, fields: dict[str, Any]) -> Any:
        request = ShareFetchRequest
        told = [
            request.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
            for first, last, types in batches
        ]
        partition = request.FetchPartition(partition_index=0, acknowledgement_batches=told)
        topics = [request.FetchTopic(topic_id=self._queue.topic_id, partitions=[partition])]
        chosen: dict[str, Any] = {"group_id": self._queue.group, "member_id": self.id}
        chosen |= {"max_wait_ms": _WAIT_MS, "min_bytes": 1, "max_records": 500, "batch_size": 500, "topics": topics}
        chosen |= fields
        version = chosen.pop("version", _NEWEST)
        answer = await self.peer.request(request(share_session_epoch=epoch, **chosen), version)
        if not answer.error_code:
            self.epoch = 0 if epoch == -1 else self.epoch + 1
        return answer

    def _note(self, verb: str, batches: Batches, fields: dict[str, Any], answer: Any) -> None:
        told: Any = code(answer.error_code) if answer.error_code else _told_of(answer)
        self._queue.note(_sentence(f"{self.letter} {verb}", batches, fields), told)

    # ---- acknowledging

    async def say(self, *batches: tuple[int, int, Sequence[int]], epoch: int | None = None, **fields: Any) -> None:
        request = ShareAcknowledgeRequest
        told = [
            request.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
            for first, last, types in batches
        ]
        partition = request.AcknowledgePartition(partition_index=0, acknowledgement_batches=told)
        topics = [request.AcknowledgeTopic(topic_id=self._queue.topic_id, partitions=[partition])]
        chosen: dict[str, Any] = {"group_id": self._queue.group, "member_id": self.id, "topics": topics} | fields
        version = chosen.pop("version", _NEWEST)
        asked = request(share_session_epoch=self.epoch if epoch is None else epoch, **chosen)
        answer = await self.peer.request(asked, version)
        if not answer.error_code:
            self.epoch = 0 if epoch == -1 else self.epoch + 1
        codes = [code(each.error_code) for topic in answer.responses for each in topic.partitions if each.error_code]
        where = "say" if epoch is None else f"say in epoch {epoch}"
        told_it = code(answer.error_code) if answer.error_code else codes
        self._queue.note(_sentence(f"{self.letter} {where}", batches, fields), told_it)


def _sentence(start: str, batches: Batches, fields: dict[str, Any]) -> str:
    said = " ".join(f"{first}-{last}:{','.join(map(str, types))}" for first, last, types in batches)
    chosen = " ".join(f"{name}={value}" for name, value in fields.items() if name != "topics")
    return " ".join(each for each in (start, said, chosen) if each)


def _told_of(answer: Any) -> list[Any]:
    told: list[Any] = []
    for topic in answer.responses:
        for each in topic.partitions:
            kept: dict[str, Any] = {}
            if each.error_code:
                kept["error"] = code(each.error_code)
            if each.acknowledge_error_code:
                kept["acknowledge error"] = code(each.acknowledge_error_code)
            if each.acquired_records:
                kept["acquired"] = [
                    [one.first_offset, one.last_offset, one.delivery_count] for one in each.acquired_records
                ]
            if kept:
                told.append(kept)
    return told
