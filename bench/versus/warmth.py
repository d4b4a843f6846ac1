"""When brokers are warm: the rule that ends a warm-up, the same for every rival. Numbers only; nothing runs here.

A JVM compiles what it runs while it runs it, for seconds where requests are many and for minutes where three brokers
share two cores, so that no fixed time fits. What tells is the brokers' own CPU for a piece of the row's work: it falls
until all is compiled. It is asked to be flat over the second half of the warm-up, whatever its length: a cost that
still creeps down shows in the long windows of a long warm-up, and noise of single pieces goes into their means.
"""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

WINDOWS = 3
# Pieces of work before anything is said: the second half then has one for each window.
_PIECES_MIN = 2 * WINDOWS
# Figures of a row whose name begins so are what its work cost the brokers.
COST = "broker CPU"


class WarmUp(NamedTuple):
    """Its settings; results.json keeps them."""

    # Each window may differ by so much from the mean of the three.
    tolerance: float = 0.05
    # After that a row is not published. One JVM needs less than half of it; three share the cores.
    seconds_max: float = 120.0
    seconds_max_of_cluster: float = 240.0
    # What counts may be cheaper than the windows were by so much: by more, and the brokers were not warm yet.
    fall_max: float = 0.1
    # So often a row is taken: rounds that got cheaper join the warm-up, which goes on, and others are taken.
    attempts: int = 3

    def limit_s(self, brokers: int) -> float:
        return self.seconds_max if brokers == 1 else self.seconds_max_of_cluster


class Piece(NamedTuple):
    """Some work of a row's own, as much as in a round, that does not count."""

    ended_s: float  # of work, since the first began
    cost: float
    load: float  # cores that others kept busy meanwhile


class Warmed(NamedTuple):
    """What the warm-up of one row on one rival was."""

    row: str
    rival: str
    figure: str  # the cost that was watched, with its unit
    pieces: tuple[Piece, ...]
    is_flat: bool

    @property
    def costs(self) -> list[float]:
        return [piece.cost for piece in self.pieces]

    def joined_by(self, rounds: Sequence[float], seconds: float, tolerance: float) -> "Warmed":
        """With rounds that were to count and turned out to be warming too."""
        ended_s = self.pieces[-1].ended_s
        more = [Piece(round(ended_s + number * seconds, 2), cost, 0.0) for number, cost in enumerate(rounds, 1)]
        pieces = (*self.pieces, *more)
        return self._replace(pieces=pieces, is_flat=is_flat([piece.cost for piece in pieces], tolerance))


def windows(costs: Sequence[float]) -> list[float]:
    """The second half of a warm-up in three equal parts, the mean of each; none of one that is too short to tell."""
    if len(costs) < _PIECES_MIN:
        return []
    size = len(costs) // _PIECES_MIN
    late = costs[len(costs) - WINDOWS * size :]
    return [statistics.fmean(late[start : start + size]) for start in range(0, WINDOWS * size, size)]


def is_flat(costs: Sequence[float], tolerance: float) -> bool:
    seen = windows(costs)
    mean = statistics.fmean(seen) if seen else 0.0
    return bool(seen) and all(abs(each - mean) <= tolerance * mean for each in seen)


def fell(costs: Sequence[float], counted: Sequence[float], fall_max: float) -> bool:
    """Whether the rounds that counted were still cheaper than the end of the warm-up."""
    seen = windows(costs)
    return bool(seen) and bool(counted) and statistics.fmean(counted) < (1 - fall_max) * statistics.fmean(seen)
