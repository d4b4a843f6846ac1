"""The balancer (`tailrace.balance`) for visitors: a plan to look at, and one run at a time.

Both work in a thread with a loop and connections of their own, by the login of whoever asked: thousands of partitions
take a while to think about, and pages are not to wait for that. A run needs no visitor once it has begun, and holds
their login until it ends. If the console dies, the next run, here or elsewhere, takes over what it has left.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from tailrace.balance.plan.picture import Goals, Plan, Wish
from tailrace.balance.run.look import Limits
from tailrace.balance.run.runner import BalanceError, Pace, Runner
from tailrace.client.admin import Admin
from tailrace.client.metadata import Cluster
from tailrace.client.security.settings import Security
from tailrace.model.errors import ErrorCode, KafkaError

T = TypeVar("T")

_LINES_MAX = 100
_PLAN_MS = 60_000
# How long the end of the console waits for a run to take its throttles away.
_CLOSE_S = 5.0

Job = Callable[[Runner], Awaitable[T]]


@dataclass
class Run:
    """What is shown of one; its thread writes, pages read."""

    what: str
    user: str | None
    began_ms: int
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES_MAX))
    done: int = 0
    total: int = 0
    said: str = ""
    failed: str = ""
    thread: threading.Thread | None = None
    stop: Callable[[], object] = lambda: None

    @property
    def is_on(self) -> bool:
        return not self.said and not self.failed

    def progress(self, done: int, total: int) -> None:
        self.done, self.total = done, total


class Balancing:
    def __init__(self, open_cluster: Callable[[Security], Cluster]) -> None:
        self._open_cluster = open_cluster
        self.run: Run | None = None

    async def plan(self, security: Security, wish: Wish) -> Plan:
        """Nothing is changed. Raises KafkaError."""

        def work() -> Plan:
            return asyncio.run(self._with_runner(security, Pace(wait_ms=_PLAN_MS), None, lambda each: each.plan(wish)))

        return await asyncio.to_thread(work)

    def start(self, security: Security, user: str | None, now_ms: int, *, wish: Wish, pace: Pace) -> None:
        """Raises KafkaError if another run of this console is under way."""
        if self.run is not None and self.run.is_on:
            raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, "this console is balancing already: stop that first")

        async def job(runner: Runner) -> str:
            outcome = await runner.run(wish)
            given_up = f"; given up: {'; '.join(outcome.given_up)}" if outcome.given_up else ""
            return f"{outcome.moved} partitions were moved, {outcome.copied_bytes:,} bytes copied{given_up}."

        self._begin(Run("moves partitions", user, now_ms), security, pace, job)

    def stop(self, security: Security, user: str | None, now_ms: int, *, cancel: bool) -> None:
        """Ends a run, ours or somebody else's: its moves are waited for, or taken back, and its throttles go."""
        before = self.run
        if before is not None and before.is_on:
            before.stop()

        async def job(runner: Runner) -> str:
            count = await runner.stop(cancel=cancel)
            return f"Stopped: {count} moves had been under way, and the throttles are gone."

        self._begin(Run("ends a run", user, now_ms), security, Pace(), job)

    def close(self) -> None:
        if self.run is not None and self.run.is_on and self.run.thread is not None:
            self.run.stop()
            self.run.thread.join(_CLOSE_S)

    def _begin(self, run: Run, security: Security, pace: Pace, job: Job[str]) -> None:
        async def work() -> str:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None
            run.stop = lambda: loop.call_soon_threadsafe(task.cancel)
            return await self._with_runner(security, pace, run, job)

        def until_it_ends() -> None:
            try:
                run.said = asyncio.run(work())
            except asyncio.CancelledError:
                run.failed = "It was stopped."
            except (BalanceError, KafkaError) as error:
                run.failed = str(error) or type(error).__name__
            except Exception as error:  # The thread's last stand: whoever looks is to know that it has ended.
                run.failed = f"It broke: {error!r}"
                raise

        run.thread = threading.Thread(target=until_it_ends, name="balancing", daemon=True)
        self.run = run
        run.thread.start()

    async def _with_runner(self, security: Security, pace: Pace, run: Run | None, job: Job[T]) -> T:
        cluster = self._open_cluster(security)
        told = run or Run("", None, 0)
        try:
            runner = Runner(
                Admin(cluster),
                goals=Goals(),
                pace=pace,
                limits=Limits(),
                tell=told.lines.append,
                progress=told.progress,
            )
            return await job(runner)
        finally:
            cluster.close()
