"""The real Clock."""

import time

from tailrace.model.attention import Attention


class RealClock:
    def __init__(self) -> None:
        self._attention = Attention()

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def note_look(self) -> None:
        self._attention.note_look(self.monotonic_ms())

    def looked_ms(self) -> float:
        return self._attention.looked_ms(self.monotonic_ms())

    def patient_ms(self) -> float:
        return self._attention.patient_ms(self.monotonic_ms())
