"""The simulated Background.

`SimBackground` does the work at once, in the caller's turn, so that a test has one order of events. `HeldBackground`
keeps it until the test lets it go. `SlowBackground` is a set of helper threads on the simulated loop: work is done some
time later, and one piece overtakes another.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

from tailrace.model.ports import Random

T = TypeVar("T")

# Most work is a write or a sync on a device that is not busy; now and then one has to wait behind others.
_USUAL_MS_MAX = 2
_SELDOM_MS_MAX = 50
_SELDOM_SHARE = 0.02


class SimBackground:
    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        try:
            return _Done(work(), None)
        except Exception as error:
            # Raised again where the outcome is awaited, as a thread's would be.
            return _Done(None, error)

    def close(self) -> None:
        """Nothing is ever under way."""


class HeldBackground(SimBackground):
    """While it `is_holding`, work waits until it is released, so that a test can look at what happens meanwhile."""

    def __init__(self, *, is_holding: bool = True) -> None:
        self.is_holding = is_holding
        self.held: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self.run_count = 0  # held or not

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        self.run_count += 1
        if not self.is_holding:
            return super().run(work)
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.held.append((work, done))
        return done

    def release(self) -> None:
        """The oldest piece."""
        _do(*self.held.pop(0))

    def release_all(self) -> None:
        """And what comes from now on is done at once."""
        self.is_holding = False
        while self.held:
            self.release()


class _Done(Generic[T]):
    """An outcome that is there already. Unlike a coroutine it may be dropped without being awaited."""

    def __init__(self, value: T | None, error: Exception | None) -> None:
        self._value = value
        self._error = error

    def __await__(self) -> Generator[None, None, T]:
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # a value is None only where T is
        yield


class SlowBackground:
    """`extra_ms` makes the device slower, for as long as it is set."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.extra_ms = 0.0

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        chance = self._random.random()
        is_seldom = chance < _SELDOM_SHARE
        # In tenths of a millisecond, so that some end in the same moment.
        delay_ms = int(chance * 10 * (_SELDOM_MS_MAX / _SELDOM_SHARE if is_seldom else _USUAL_MS_MAX)) / 10
        loop.call_later((delay_ms + self.extra_ms) / 1000, _do, work, done)
        return done

    def close(self) -> None:
        """A process that closes it has waited for all that it cares for."""


def _do(work: Callable[[], Any], done: asyncio.Future[Any]) -> None:
    try:
        result = work()
    except Exception as error:
        if not done.cancelled():
            done.set_exception(error)
    else:
        if not done.cancelled():
            done.set_result(result)
