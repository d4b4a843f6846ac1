"""Who writes: elected in a Kafka group, as Confluent's registries do, so that both kinds can share one group.

    group       schema-registry (a setting), protocol type `sr`, protocol `v0`
    metadata    {"version":1,"host":...,"port":...,"master_eligibility":true,"scheme":"http"}
    assignment  {"error":0,"master":<member id>,"master_identity":{...},"version":1}, the same for all

A registry is a static member by its address (KIP-345), so that one that comes back after a kill has its place at once,
and need not wait until the session of its former self has ended.

The group's leader, which is not the writer, chooses the eligible member with the smallest URL. A member goes on as
before while the group rebalances: fencing keeps the topic safe, and writes need not wait for a member that joins.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from tailrace.apps.registry.settings import RegistrySettings
from tailrace.client.connection import error_code
from tailrace.client.groups.coordinator import Coordinator
from tailrace.client.metadata import Cluster
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

_log = events.logger("registry")

_PROTOCOL_TYPE = "sr"
_PROTOCOL = "v0"
_REBALANCE_TIMEOUT_MS = 60_000
_ANSWER_MARGIN_MS = 5000
_LEAVE_TIMEOUT_S = 2.0
_FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
_DUPLICATE_URLS = 1


class Identity(NamedTuple):
    scheme: str
    host: str
    port: int
    is_eligible: bool = True

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def document(self) -> dict[str, Any]:
        return {
            "version": 1,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.is_eligible,
            "scheme": self.scheme,
        }


def read_identity(document: dict[str, Any]) -> Identity:
    return Identity(
        str(document.get("scheme") or "http"),
        str(document["host"]),
        int(document["port"]),
        bool(document.get("master_eligibility", True)),
    )


def choose_writer(members: dict[str, Identity]) -> tuple[str | None, int]:
    """The member that writes, and an error if two of them have one URL: requests could not be forwarded."""
    eligible = {name: member for name, member in members.items() if member.is_eligible}
    chosen = min(eligible, key=lambda name: eligible[name].url, default=None)
    is_twice = len({member.url for member in members.values()}) != len(members)
    return chosen, _DUPLICATE_URLS if is_twice else 0


class Election:
    """`start` it, and `close` it at the end. `on_result` is told who writes (None: nobody is known) and whether it is
    this one."""

    def __init__(
        self,
        cluster: Cluster,
        settings: RegistrySettings,
        identity: Identity,
        on_result: Callable[[Identity | None, bool], None],
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._on_result = on_result
        self._coordinator = Coordinator(cluster, settings.group_id)
        self._instance_id = identity.url
        self._member_id = ""
        self._generation = -1
        self._loop = asyncio.get_running_loop()
        # When this member last asked the coordinator something that it then answered as one that knows it.
        self._heard = self._loop.time()
        self._again = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    @property
    def is_recent(self) -> bool:
        """Whether the group has answered so lately that it cannot have chosen another meanwhile: a process that was
        stopped for a while goes on with what it believed."""
        return self._loop.time() - self._heard <= self._settings.session_timeout_ms / 1000

    def hold_again(self) -> None:
        """Somebody has reason to doubt the last result: the group decides anew."""
        self._again.set()

    async def close(self) -> None:
        """Leaves, so that another need not wait until the session has ended."""
        if self._task is None:
            return
        task, self._task = self._task, None
        task.cancel()
        await asyncio.wait([task])
        self._coordinator.close()  # A JoinGroup that waits there would hold this up.
        if self._member_id:
            with suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(_LEAVE_TIMEOUT_S):
                    await self._leave()
        self._coordinator.close()

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                await self._join_and_stay()
            except KafkaError as error:
                if error.code in _FENCED:
                    self._forget()
                elif error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                    if not self.is_recent:
                        self._on_result(None, False)  # By now another has been chosen.
                    log = _log.debug if error.code.retriable else _log.error
                    log("not in the group of registries now", group=self._settings.group_id, cause=error.message)
                    await asyncio.sleep(self._coordinator.cluster.backoff_ms(min(failures, 6)) / 1000)
                    failures += 1
                    continue
            failures = 0

    def _forget(self) -> None:
        self._member_id, self._generation = "", -1
        self._on_result(None, False)

    async def _join_and_stay(self) -> None:
        joined = await self._join()
        asked = self._loop.time()
        assignment = await self._sync(joined)
        self._generation, self._heard = joined.generation_id, asked
        self._tell(assignment)
        while not self._again.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.heartbeat_ms / 1000):
                    await self._again.wait()
            await self._heartbeat()
        self._again.clear()

    async def _join(self) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self._settings.group_id,
            session_timeout_ms=self._settings.session_timeout_ms,
            rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(
                    name=_PROTOCOL, metadata=json.dumps(self._identity.document(), separators=(",", ":")).encode()
                )
            ],
        )
        timeout_ms = _REBALANCE_TIMEOUT_MS + _ANSWER_MARGIN_MS
        answer = await self._coordinator.call(request, JoinGroupResponse, timeout_ms=timeout_ms)
        if error_code(answer.error_code) is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            return await self._join()
        self._check(answer.error_code, "join")
        self._member_id = answer.member_id
        return answer

    async def _sync(self, joined: JoinGroupResponse) -> bytes:
        assignments = []
        if joined.leader == joined.member_id and not joined.skip_assignment:
            assignment = self._assign(joined)
            assignments = [
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=member.member_id, assignment=assignment)
                for member in joined.members
            ]
        request = SyncGroupRequest(
            group_id=self._settings.group_id,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        timeout_ms = _REBALANCE_TIMEOUT_MS + _ANSWER_MARGIN_MS
        answer = await self._coordinator.call(request, SyncGroupResponse, timeout_ms=timeout_ms)
        self._check(answer.error_code, "learn who writes in")
        return bytes(answer.assignment)

    def _assign(self, joined: JoinGroupResponse) -> bytes:
        members = {}
        for member in joined.members:
            with suppress(ValueError, KeyError, TypeError):
                members[member.member_id] = read_identity(json.loads(member.metadata))
        chosen, error = choose_writer(members)
        if error:
            urls = ", ".join(sorted(member.url for member in members.values()))
            _log.error("two registries have one address: set host.name, so that each has its own", urls=urls)
        document: dict[str, Any] = {"error": error}
        if chosen is not None:
            document |= {"master": chosen, "master_identity": members[chosen].document()}
        return json.dumps(document | {"version": 1}, separators=(",", ":")).encode()

    def _tell(self, assignment: bytes) -> None:
        try:
            document = json.loads(assignment)
            identity = read_identity(document["master_identity"]) if document.get("master_identity") else None
        except (ValueError, KeyError, TypeError) as error:
            _log.error("the group's assignment cannot be read", cause=repr(error))
            self._on_result(None, False)
            return
        # By the address: whoever comes back to its place has another member id than the assignment names.
        self._on_result(identity, identity is not None and identity.url == self._identity.url)

    async def _heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self._settings.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
        )
        asked = self._loop.time()
        answer = await self._coordinator.call(request, HeartbeatResponse)
        self._check(answer.error_code, "stay in")
        self._heard = asked

    async def _leave(self) -> None:
        identity = LeaveGroupRequest.MemberIdentity(
            member_id=self._member_id, group_instance_id=self._instance_id, reason="the registry stops"
        )
        request = LeaveGroupRequest(group_id=self._settings.group_id, member_id=self._member_id, members=[identity])
        await self._coordinator.call(request, LeaveGroupResponse)

    def _check(self, number: int, action: str) -> None:
        self._coordinator.check(number, f"a registry cannot {action} group {self._settings.group_id}")
