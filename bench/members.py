"""Members of groups that cost next to nothing: a connection and the requests of its protocol, no fetching.

A thousand of them run on one loop. A member owns what it was told; that all have settled is judged from outside.
"""

import asyncio
import json
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.groups import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tailrace.wire.frame import decode_response, encode_request
from tailrace.wire.schema import Message

_SESSION_MS = 45_000
_REBALANCE_MS = 60_000
# Clients ask every three or five seconds; so that little of what is measured is their patience, these ask more often.
HEARTBEAT_S = 0.5
_RETRIED = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


class Member(ABC):
    """One connection, one member; `owned` are the partitions that it has now."""

    def __init__(self, port: int, group: str, topic: str, partitions: int) -> None:
        self.owned: frozenset[int] = frozenset()
        self.epoch = -1
        self._port = port
        self._group = group
        self._topic = topic
        self._partitions = partitions
        self._member_id = ""
        self._sent = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def check(self) -> None:
        """Raises what ended it, if something did."""
        if self._task is not None and self._task.done():
            self._task.result()

    async def stop(self) -> None:
        """Leaves the group."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        await self._leave()
        self._writer.close()
        self.owned = frozenset()

    async def _run(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            await self._live()
        finally:
            self._writer.close()

    @abstractmethod
    async def _live(self) -> None: ...

    @abstractmethod
    async def _leave(self) -> None: ...

    async def _ask(self, request: Message, version: int) -> Any:
        while True:
            self._sent += 1
            parts = encode_request(request.api_key, version, self._sent, "bench", request)
            self._writer.write(b"".join(bytes(part) for part in parts))
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            _, response = decode_response(request.api_key, version, await self._reader.readexactly(size))
            if response.error_code not in _RETRIED:
                return response
            await asyncio.sleep(0.05)


class ClassicMember(Member):
    """JoinGroup and SyncGroup; who leads shares the partitions out evenly."""

    async def _live(self) -> None:
        while True:
            joined = await self._join()
            synced = await self._ask(
                SyncGroupRequest(
                    group_id=self._group,
                    generation_id=joined.generation_id,
                    member_id=self._member_id,
                    protocol_type="consumer",
                    protocol_name="even",
                    assignments=self._share_out([each.member_id for each in joined.members]),
                ),
                5,
            )
            if synced.error_code == 0:
                self.epoch, self.owned = joined.generation_id, frozenset(json.loads(synced.assignment or b"[]"))
                await self._stay()

    async def _join(self) -> Any:
        while True:
            request = JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=_SESSION_MS,
                rebalance_timeout_ms=_REBALANCE_MS,
                member_id=self._member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="even", metadata=self._topic.encode())],
            )
            joined = await self._ask(request, 9)
            if joined.error_code == 0:
                return joined
            if joined.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                raise RuntimeError(f"JoinGroup failed: {ErrorCode(joined.error_code).name}")
            self._member_id = joined.member_id

    def _share_out(self, members: Sequence[str]) -> list[SyncGroupRequest.SyncGroupRequestAssignment]:
        return [
            SyncGroupRequest.SyncGroupRequestAssignment(
                member_id=member, assignment=json.dumps([*range(index, self._partitions, len(members))]).encode()
            )
            for index, member in enumerate(members)
        ]

    async def _stay(self) -> None:
        """Until the group wants it to join again."""
        request = HeartbeatRequest(group_id=self._group, generation_id=self.epoch, member_id=self._member_id)
        while True:
            answer = await self._ask(request, 4)
            if answer.error_code != 0:
                return
            await asyncio.sleep(HEARTBEAT_S)

    async def _leave(self) -> None:
        members = [LeaveGroupRequest.MemberIdentity(member_id=self._member_id)]
        await self._ask(LeaveGroupRequest(group_id=self._group, members=members), 5)


class ConsumerMember(Member):
    """ConsumerGroupHeartbeat (KIP-848): the broker shares out, a member confirms what it is told at once."""

    def __init__(self, port: int, group: str, topic: str, partitions: int) -> None:
        super().__init__(port, group, topic, partitions)
        self._member_id = f"member-{id(self)}"
        self.epoch = 0

    async def _live(self) -> None:
        owned: list[Any] | None = []
        while True:
            answer = await self._ask(
                ConsumerGroupHeartbeatRequest(
                    group_id=self._group,
                    member_id=self._member_id,
                    member_epoch=self.epoch,
                    rebalance_timeout_ms=_REBALANCE_MS if self.epoch == 0 else -1,
                    subscribed_topic_names=[self._topic] if self.epoch == 0 else None,
                    topic_partitions=owned,
                ),
                1,
            )
            if answer.error_code:
                raise RuntimeError(f"ConsumerGroupHeartbeat failed: {answer.error_message}")
            self.epoch = answer.member_epoch
            if answer.assignment is None:
                owned = None
                await asyncio.sleep(HEARTBEAT_S)
                continue
            told = answer.assignment.topic_partitions
            self.owned = frozenset(partition for each in told for partition in each.partitions)
            owned = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
                for each in told
            ]

    async def _leave(self) -> None:
        request = ConsumerGroupHeartbeatRequest(group_id=self._group, member_id=self._member_id, member_epoch=-1)
        await self._ask(request, 1)


async def wait_settled(members: Sequence[Member], partitions: int, timeout_s: float) -> None:
    """Until every partition has one owner, everybody its share, and all are of one epoch."""

    def is_settled() -> bool:
        owned = sorted(partition for each in members for partition in each.owned)
        share = partitions // len(members)
        return (
            owned == list(range(partitions))
            and all(share <= len(each.owned) <= share + 1 for each in members)
            and len({each.epoch for each in members}) == 1
        )

    await _wait(is_settled, members, timeout_s)


async def _wait(holds: Callable[[], bool], members: Sequence[Member], timeout_s: float) -> None:
    async with asyncio.timeout(timeout_s):
        while not holds():
            for member in members:
                member.check()
            await asyncio.sleep(0.01)
