"""The simulated Background: work runs at once, in the caller's turn, so that a run has one order of events."""

from collections.abc import Awaitable, Callable, Generator
from typing import Generic, TypeVar

T = TypeVar("T")


class SimBackground:
    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        try:
            return _Done(work(), None)
        except Exception as error:
            # Raised again where the outcome is awaited, as a thread's would be.
            return _Done(None, error)

    def close(self) -> None:
        """Nothing is ever under way."""


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
