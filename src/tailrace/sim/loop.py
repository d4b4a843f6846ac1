"""The simulated event loop: asyncio under virtual time, with many processes on one thread.

A process is a set of callbacks: whatever is scheduled by its code, directly or through futures, tasks and streams,
carries its context and so belongs to it. That makes three things possible without any help of the code that runs:

    kill     its callbacks are dropped. No `finally` and no `except` runs: a dead process tidies nothing up.
    pause    its callbacks and timers are kept until `resume`, while time goes on for the others (SIGSTOP)
    slow     each of its turns takes a while, in which others go on (a machine without a processor to spare)
    skew     its clock runs a little faster or slower than those of the others

Time moves only when no process has anything to do, and then straight to the next timer. Among the processes that have
something to do chance picks one, which does a turn: all that was ready when it began, in the order in which it became
so, since asyncio promises that order to its callers. Which process is next, how long messages take and which of them
come together is what the seed decides.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from math import ceil
from typing import Any, NamedTuple, TypeVar, cast
from warnings import catch_warnings, simplefilter
from weakref import WeakSet

from tailrace.model.ports import Random

T = TypeVar("T")

_process: contextvars.ContextVar[Process] = contextvars.ContextVar("process")
# Turns in one moment after which somebody is thought to go round and round; a busy moment takes some hundred.
_TURNS_MAX = 20_000
_TICK_SECONDS = 1e-6
# How often the coroutines of a task are told to end, in all, before they are left to themselves.
_ENDS_MAX = 200
# Cancelled timers are swept out when they are this many and most of all.
_SWEEP_MIN = 500


class StuckError(AssertionError):
    """Everybody waits and nothing will ever happen, or something goes round and round."""


class DeadError(BaseException):
    """The process died in the middle of a step. Not an Exception: a dead process handles nothing."""


class _Event(NamedTuple):
    """Something that happens in the world. It is nobody's turn."""

    callback: Callable[..., object]
    args: tuple[Any, ...]

    def cancelled(self) -> bool:
        return False


class Process:
    """Whatever runs on behalf of one process. Made by `SimLoop.process`."""

    def __init__(self, loop: SimLoop, name: str, rate: float) -> None:
        self.name = name
        self.is_alive = True
        self.is_paused = False
        self.turn_seconds = 0.0  # How long each turn takes.
        self.rests_until = 0.0  # Its last turn lasts until then.
        self.pauses_at_work = False
        self.ready: deque[asyncio.Handle] = deque()
        self.rate = rate  # seconds of this process in one second of the world
        self.tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._loop = loop
        self._context = contextvars.copy_context()
        self._context.run(_process.set, self)

    def __repr__(self) -> str:
        return f"<Process {self.name}>"

    def context(self) -> contextvars.Context:
        """A new one: callbacks that are scheduled with it belong to this process."""
        return self._context.copy()

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        return self.context().run(self._loop.create_task, coroutine, name=name)

    def time(self) -> float:
        """In seconds, by the clock of this process: in whole microseconds, rounded up, so that it is never before the
        time of a timer that is due."""
        return ceil(self._loop.now * self.rate * 1e6) / 1e6

    def kill(self) -> None:
        """Nothing of it runs from here on. What it holds open is for its host to close."""
        self.is_alive = False
        self._loop.bury(self)
        self.ready.clear()

    def pause(self, *, at_work: bool = False) -> None:
        """Now; or `at_work`, once a turn has left something to do: what it has read by then is done after the pause."""
        self.is_paused = self.is_paused or not at_work
        self.pauses_at_work = not self.is_paused

    def resume(self) -> None:
        self.is_paused = self.pauses_at_work = False

    def end_turn(self, now: float) -> None:
        self.rests_until = now + self.turn_seconds
        if self.pauses_at_work and self.ready:
            self.pause()


class SimLoop(asyncio.BaseEventLoop):
    """`after_turn` is called after every turn, outside all processes; what it raises ends the run."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.now = 0.0
        self.turns = 0
        self._turns_left = _TURNS_MAX
        self.after_turn: Callable[[Process], None] = lambda _process: None
        self._random = random
        self._processes: list[Process] = []
        # (when, number, handle): numbers keep timers of one moment in the order in which they were set.
        self._timers: list[tuple[float, int, asyncio.TimerHandle | _Event]] = []
        self._timer_count = 0
        self._cancelled_count = 0
        # Tasks of dead processes. Held, for as garbage they would run their `finally` blocks at any time.
        self._buried: list[asyncio.Task[Any]] = []
        self.world = self.process("world")
        self._current = self.world
        self.set_task_factory(_make_task)

    def process(self, name: str, *, rate: float = 1.0) -> Process:
        process = Process(self, name, rate)
        self._processes.append(process)
        return process

    @property
    def current(self) -> Process:
        """The process that is running."""
        return self._current

    # ---- the interface of asyncio

    def time(self) -> float:
        return self._current.time()

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if context is None:
            context = contextvars.copy_context()
        handle = asyncio.Handle(callback, args, self, context)
        process = context.get(_process, self.world)
        if process.is_alive:
            process.ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """`when` is by the clock of the process that calls."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        handle._scheduled = True  # type: ignore[attr-defined]  # asyncio counts cancelled timers by it
        self._timer_count += 1
        # Time always passes before a timer comes, if only a little: one that comes too early by the last digit of a
        # float would be set again and again otherwise.
        world_when = max(when / self._current.rate, self.now + _TICK_SECONDS)
        heapq.heappush(self._timers, (world_when, self._timer_count, handle))
        return handle

    def at(self, when: float, callback: Callable[..., object], *args: Any) -> None:
        """Something that happens in the world, at a time of the world; it must not block or raise."""
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._timer_count, _Event(callback, args)))

    def _timer_handle_cancelled(self, _handle: asyncio.TimerHandle) -> None:
        self._cancelled_count += 1
        if self._cancelled_count > _SWEEP_MIN and self._cancelled_count * 2 > len(self._timers):
            self._timers = [timer for timer in self._timers if not timer[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled_count = 0

    def _write_to_self(self) -> None:
        """There is no other thread that would have to wake this one."""

    def _process_events(self, event_list: list[Any]) -> None:
        """There is no selector."""

    def _run_once(self) -> None:
        runnable = [
            process
            for process in self._processes
            if process.ready and not process.is_paused and process.rests_until <= self.now
        ]
        if not runnable:
            self._move_time()
        elif len(runnable) == 1:
            self._run_turn(runnable[0])
        else:
            self._run_turn(runnable[self._random.randrange(len(runnable))])

    # ---- turns and time

    def _run_turn(self, process: Process) -> None:
        self.turns += 1
        self._turns_left -= 1
        if self._turns_left < 0:
            raise StuckError(f"{process.name} goes round and round: {list(process.ready)[:3]}")
        self._current = process
        ready = process.ready
        for _ in range(len(ready)):
            if not ready:
                break  # It died.
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()
        self._current = self.world
        process.end_turn(self.now)
        if process.turn_seconds:
            self.at(process.rests_until, _go_on)
        self.after_turn(process)

    def _move_time(self) -> None:
        """To the next timer; all timers of that moment become ready."""
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
            self._cancelled_count -= 1
        if not timers:
            raise StuckError("everybody waits, and nothing will ever happen")
        now = timers[0][0]
        if now > self.now:
            self.now = now
            self._turns_left = _TURNS_MAX
        now = self.now
        # An event may set timers, of this moment too, and cancel others, so that they are swept into a new heap.
        while self._timers and self._timers[0][0] <= now:
            due = heapq.heappop(self._timers)[2]
            if isinstance(due, _Event):
                due.callback(*due.args)
            elif due.cancelled():
                self._cancelled_count -= 1
            else:
                self._make_ready(due)

    def _make_ready(self, timer: asyncio.TimerHandle) -> None:
        timer._scheduled = False  # type: ignore[attr-defined]
        process = cast(contextvars.Context, timer._context).get(_process, self.world)  # type: ignore[attr-defined]
        if process.is_alive:
            process.ready.append(timer)

    # ---- the dead

    def note_task(self, process: Process, task: asyncio.Task[Any]) -> None:
        if process.is_alive:
            process.tasks.add(task)
        else:
            self._buried.append(task)  # Made in the step in which its process died.

    def bury(self, process: Process) -> None:
        self._processes.remove(process)
        self._buried += [task for task in process.tasks if not task.done()]

    def close(self) -> None:
        """Ends what is left of all processes, quietly: nobody is there to hear what their ends would say."""
        for process in self._processes:
            process.is_alive = False
            self._buried += [task for task in process.tasks if not task.done()]
        asyncio._set_running_loop(self)
        # Their `finally` blocks may begin new tasks, which are ended in their turn.
        for task in self._buried:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _end(cast(Coroutine[Any, Any, Any], task.get_coro()))
        asyncio._set_running_loop(None)
        self._buried.clear()
        self._timers.clear()
        super().close()


def _go_on() -> None:
    """Time has come to where a slow process has ended its turn."""


def _end(coroutine: Coroutine[Any, Any, Any]) -> None:
    """From the innermost out, since one that ends drops what it waits for. One that waits again, in a `finally` block,
    is told again."""
    for _ in range(_ENDS_MAX):
        chain = [coroutine]
        while isinstance(awaited := getattr(chain[-1], "cr_await", None), Coroutine):
            chain.append(awaited)
        alive = [each for each in chain if getattr(each, "cr_frame", None) is not None]
        if not alive:
            return
        # From Python 3.12 on one that was not begun keeps what it was given, which may be such a one itself.
        frame = getattr(alive[-1], "cr_frame", None)
        kept = [each for each in frame.f_locals.values() if isinstance(each, Coroutine)] if frame is not None else []
        with suppress(Exception, DeadError), catch_warnings():
            # One that was made and not begun dies unawaited, as it would with its process.
            simplefilter("ignore", RuntimeWarning)
            alive[-1].close()
        for each in kept:
            _end(each)


def _make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
    context = options.get("context")
    process = _process.get(None) if context is None else context.get(_process)
    cast(SimLoop, loop).note_task(process or cast(SimLoop, loop).world, task)
    return task
