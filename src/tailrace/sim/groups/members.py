"""The members of consumer groups in a run: processes of their own, over our own client.

A member reads, processes a record by noting it, and commits behind that: at least once. What it believes and was told
goes to `checks.groups`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tailrace.client.consumer import ConsumerOptions
from tailrace.client.groups.consumer import GroupConsumer, GroupOptions, GroupProtocol
from tailrace.client.groups.membership import MemberOptions
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.sim.checks.groups import GroupChecks, Session
from tailrace.sim.checks.history import demand
from tailrace.sim.clients.workload import Ledger
from tailrace.sim.loop import Process
from tailrace.sim.random import SimRandom

_POLL_MS = 200
_COMMIT_CHANCE = 0.3
_REFUSED_PAUSE_SECONDS = 0.1
SESSION_MS = 3000
HEARTBEAT_MS = 500
# Nobody polls so rarely, but for processes that are paused, and their sessions end first: commits give up before.
_REBALANCE_MS = 10_000
_COMMIT_MS_MAX = 3000
_METADATA_MS = 1000
# The client waits for longer before it tries again.
_ONE_ATTEMPT_MS_MAX = 35
_FETCHING = ConsumerOptions(fetch_max_wait_ms=200, retry_timeout_ms=600_000, partition_max_bytes=20_000)
# The ways of assigning that a classic member knows, the best first; or that it leaves that to the coordinator.
Kind = tuple[str, ...]
CONSUMER: Kind = ("consumer",)
# Its successor was started before it was dead; or its predecessor's session begins anew with each new coordinator.
_FATAL = (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID)
# Where kinds of members are mixed: it comes back to a group that has become a classic one; or the group has a new
# coordinator, which knows only the way of assigning that its members had agreed on.
_FATAL_IF_MIXED = (*_FATAL, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


COMMIT_REFUSALS = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)


class Member:
    """One process of a group. A static member that comes back is another one."""

    def __init__(
        self,
        process: Process,
        cluster: Cluster,
        *,
        group_id: str,
        kind: Kind,
        is_mixed: bool,
        instance_id: str | None,
        topics: tuple[str, ...],
        checks: GroupChecks,
        ledger: Ledger,
        random: SimRandom,
    ) -> None:
        self.name = process.name
        self.process = process
        self.group_id = group_id
        self.instance_id = instance_id
        self._session = Session(SESSION_MS / 1000)
        self.is_leaving = False
        self._fatal = _FATAL_IF_MIXED if is_mixed else _FATAL
        self.is_gone = False
        self._cluster = cluster
        self._checks = checks
        self._ledger = ledger
        self._random = random
        self._options = GroupOptions(
            group_id,
            MemberOptions(
                topics=topics,
                instance_id=instance_id,
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=HEARTBEAT_MS,
                rebalance_timeout_ms=_REBALANCE_MS,
                assignors=kind,
                metadata_max_age_ms=_METADATA_MS,
            ),
            protocol=GroupProtocol.CONSUMER if kind == CONSUMER else GroupProtocol.CLASSIC,
            auto_commit_interval_ms=None,
            retry_timeout_ms=_COMMIT_MS_MAX,
            fetching=_FETCHING,
        )
        self.consumer: GroupConsumer | None = None
        self.task = process.spawn(self._run(), name=process.name)

    @property
    def identity(self) -> str:
        return self.instance_id or self._known.member_id

    @property
    def epoch(self) -> int:
        return self._known.epoch

    @property
    def session(self) -> Session:
        self._session.hear(self._known.heard_ms / 1000)
        return self._session

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self.consumer.assignment if self.consumer is not None else frozenset()

    @property
    def _known(self) -> GroupConsumer:
        assert self.consumer is not None, "only a member that runs has beliefs"
        return self.consumer

    def leave(self) -> None:
        """Soon, and in good order."""
        self.is_leaving = True

    def note_death(self) -> None:
        self.is_gone = True
        self._checks.note_gone(self)

    # ---- its life

    async def _run(self) -> None:
        self.consumer = GroupConsumer(
            self._cluster,
            self._options,
            on_assigned=self._on_assigned,
            on_revoked=self._on_given_up,
            on_lost=self._on_given_up,
        )
        while not self.is_leaving:
            try:
                await self._work(self.consumer)
            except KafkaError as error:
                if error.code in self._fatal:
                    break
                demand(error.code.retriable, "members meet errors that pass", member=self.name, error=error)
        await self.consumer.close()
        self.note_death()
        self._cluster.close()

    async def _work(self, consumer: GroupConsumer) -> None:
        polled = await consumer.poll(_POLL_MS)
        _ = self.session  # It must not be taken for silent between two looks.
        for partition, records in polled.items():
            for record in records:
                self._checks.note_processed(self, partition, record.offset)
                self._ledger.note_read(partition, record.offset, record.value or b"")
        if self._random.random() < _COMMIT_CHANCE:
            await self._commit(consumer)
        if self._random.random() < _COMMIT_CHANCE / 3:
            expected = dict(self._checks.of(self.group_id).committed)
            found = await consumer.committed(None)
            self._checks.judge_committed(self.group_id, expected, found)

    async def _commit(self, consumer: GroupConsumer) -> None:
        positions = {partition: consumer.position(partition) for partition in sorted(consumer.assignment)}
        commit = self._checks.begin_commit(self, positions)
        asked = self._cluster.ports.clock.monotonic_ms()
        try:
            await consumer.commit(positions)
        except KafkaError as error:
            # Later it may be the second attempt: what became of the first is not known.
            is_first = self._cluster.ports.clock.monotonic_ms() - asked < _ONE_ATTEMPT_MS_MAX
            if is_first and error.code in COMMIT_REFUSALS:
                self._checks.note_refused(commit)
            if error.code in self._fatal:
                raise
            # Refused, since it is not a member any more or others have joined: it learns of that when it polls.
            await asyncio.sleep(_REFUSED_PAUSE_SECONDS)
        else:
            self._checks.note_committed(commit)

    def _on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._checks.note_assigned(self, partitions)

    def _on_given_up(self, partitions: Sequence[TopicPartition]) -> None:
        self._checks.note_given_up(self, partitions)
