"""The simulated Clock: time stands still until someone moves it, or it is that of a process of the simulated loop."""

from tailrace.model.attention import Attention
from tailrace.sim.loop import Process

# 2026-01-01, so that timestamps look like timestamps.
_START_WALL_MS = 1_767_225_600_000


class SimClock:
    def __init__(self, wall_ms: int = _START_WALL_MS) -> None:
        self._monotonic_ms = 0.0
        self._wall_ms = float(wall_ms)

    def monotonic_ms(self) -> float:
        return self._monotonic_ms

    def wall_ms(self) -> int:
        return int(self._wall_ms)

    def note_look(self) -> None:
        """Nobody is ever held up while time stands still."""

    def looked_ms(self) -> float:
        return self._monotonic_ms

    def patient_ms(self) -> float:
        return self._monotonic_ms

    def advance_ms(self, duration_ms: float) -> None:
        assert duration_ms >= 0, "monotonic time never goes back"
        self._monotonic_ms += duration_ms
        self._wall_ms += duration_ms

    def jump_ms(self, duration_ms: float) -> None:
        """Somebody sets the wall clock."""
        self._wall_ms += duration_ms


class ProcessClock:
    """The clock of one process: as fast as the process is, and wrong by `wall_skew_ms`, which may change any time."""

    def __init__(self, process: Process, *, wall_skew_ms: float = 0.0) -> None:
        self._process = process
        self._attention = Attention()
        self.wall_skew_ms = wall_skew_ms

    def monotonic_ms(self) -> float:
        return self._process.time() * 1000

    def wall_ms(self) -> int:
        return int(_START_WALL_MS + self._process.time() * 1000 + self.wall_skew_ms)

    def note_look(self) -> None:
        self._attention.note_look(self.monotonic_ms())

    def looked_ms(self) -> float:
        return self._attention.looked_ms(self.monotonic_ms())

    def patient_ms(self) -> float:
        return self._attention.patient_ms(self.monotonic_ms())
