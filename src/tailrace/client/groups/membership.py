"""What a group consumer sees of its membership, whichever protocol it speaks.

    membership                                 consumer, between two of the caller's polls
    `wanted`: what this member is to own   ->  gives up what it should not have, takes what it should
    learns what it owns now                <-  `note_owned`
    `is_lost`: the group goes on without   ->  drops everything; nobody may rely on it any more
    `failure`: it cannot be a member       ->  tells the caller

A membership runs in a task of its own, so that a caller who works on its records for long stays a member; but
partitions change hands only while the caller polls, since only then the records given before are known to be done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from tailrace.client.groups.coordinator import Coordinator
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition

Partitions = frozenset[TopicPartition]
NO_PARTITIONS: Partitions = frozenset()

# Clocks are floats: without it, who waits for the last billionth of a millisecond goes round and round.
WAIT_MS_MIN = 1.0
# A coordinator that does not answer a farewell in this time notices by itself, when the session ends.
_LEAVE_TIMEOUT_MS = 3000


class MemberOptions(NamedTuple):
    topics: tuple[str, ...] = ()
    # In KIP-848 groups only: topics by an RE2 expression, which the broker resolves.
    topic_regex: str | None = None
    # A name of its own makes a member static: it may be away for a session time and keeps its partitions (KIP-345).
    instance_id: str | None = None
    rack_id: str | None = None
    # These two are for classic groups; in KIP-848 groups the broker decides them.
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3000
    # How long giving up partitions may take, and how long the caller may go without polling.
    rebalance_timeout_ms: int = 300_000
    # In classic groups only: the assignors that this member supports, the preferred one first. If it is
    # `cooperative-sticky` alone, partitions that stay are read on during a rebalance.
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    # In KIP-848 groups only; None is the broker's default.
    server_assignor: str | None = None
    # How often the leader of a classic group looks for new partitions.
    metadata_max_age_ms: int = 30_000


class Membership:
    """`start` it, and `close` it at the end."""

    def __init__(self, coordinator: Coordinator, options: MemberOptions, on_news: Callable[[], None]) -> None:
        self.member_id = ""
        # The member epoch, or the generation of a classic group.
        self.epoch = -1
        self.wanted: Partitions | None = None
        # How often it was told. What is wanted again may have been another member's in between.
        self.wanted_count = 0
        self.owned = NO_PARTITIONS
        self.is_lost = False
        # How often the group has gone on without this member: what it began before a loss counts no more.
        self.loss_count = 0
        self.failure: KafkaError | None = None
        # When the last request was sent that the coordinator has answered well: the session counts from then at least.
        self.heard_ms = 0.0
        self._coordinator = coordinator
        self._clock = coordinator.cluster.ports.clock
        self._options = options
        self._on_news = on_news
        self._polled_ms = self._clock.monotonic_ms()
        self._is_polling = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._supervise())

    def note_owned(self, owned: Partitions) -> None:
        """The consumer owns exactly these from now on; a loss is dealt with."""
        self.owned = owned
        self.is_lost = False
        self._wake.set()

    def note_poll(self, *, is_polling: bool) -> None:
        if self._is_idle:
            self._wake.set()
        self._is_polling = is_polling
        self._polled_ms = self._clock.monotonic_ms()

    async def close(self, *, leave: bool = True) -> None:
        """Without `leave` the coordinator finds out when the session ends, as if the process had died."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        if leave and self.failure is None:
            with suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(_LEAVE_TIMEOUT_MS / 1000):
                    await self._leave()

    async def _supervise(self) -> None:
        try:
            await self._run()
        except KafkaError as error:
            self.failure = error
        except Exception as error:  # A bug must reach whoever polls, not leave it waiting.
            self.failure = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the group member has a bug: {error!r}")
        self._on_news()

    # --- what a protocol does

    @property
    def is_member(self) -> bool:
        """The coordinator knows it, as far as it has heard."""
        raise NotImplementedError

    async def _run(self) -> None:
        """Until it fails for good, which it raises."""
        raise NotImplementedError

    async def _leave(self) -> None:
        """Tells the coordinator, who may not know this member (yet, or any more); one attempt."""
        raise NotImplementedError

    # --- what protocols share

    def _want(self, partitions: Partitions) -> None:
        self.wanted = partitions
        self.wanted_count += 1
        self._on_news()

    def _lose(self) -> None:
        """The coordinator does not know this member any more, or has put another in its place."""
        self.wanted = NO_PARTITIONS
        self.wanted_count += 1
        self.is_lost = bool(self.owned)
        self.loss_count += 1
        self._on_news()

    @property
    def _is_idle(self) -> bool:
        """The caller has not polled for so long that others should have its partitions."""
        waited_ms = self._clock.monotonic_ms() - self._polled_ms
        return not self._is_polling and waited_ms > self._options.rebalance_timeout_ms

    async def _wait_awake(self, timeout_ms: float) -> None:
        """Until the time is over or the consumer has something new."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(WAIT_MS_MIN, timeout_ms) / 1000):
                await self._wake.wait()
        self._wake.clear()
