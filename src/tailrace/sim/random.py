"""The simulated Random: the same seed gives the same sequence."""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class SimRandom:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - reproducible by purpose

    def random(self) -> float:
        return self._random.random()

    def randrange(self, stop: int) -> int:
        return self._random.randrange(stop)

    def uuid(self) -> bytes:
        raw = bytearray(self._random.randbytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        return bytes(raw)

    def choice(self, options: Sequence[T]) -> T:
        return options[self._random.randrange(len(options))]

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self._random.random()

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return self._random.sample(items, len(items))

    def fork(self) -> "SimRandom":
        """A sequence of its own, so that more draws in one place do not move those in another."""
        return SimRandom(self._random.getrandbits(64))
