"""What a process knows of its own absences: when it last looked at its sockets, and how much of the time it did.

A process that is stopped, has no processor, or is held up by its own work hears nobody meanwhile, and finds what was
sent to it when it goes on. Two kinds of deadlines have to know of that:

    on others         the session of a member or a broker, the timer of an election: judged by the patient time, in
                      which absences do not count. After one it stands still until the sockets were looked at.
    on one's own      a lease, a leader's check of its quorum: judged by the clock, whatever was missed. What is read
    authority         now counts as of `looked_ms`: it may have lain there since.

Whoever runs the loop tells of its looks every 100 ms or more often (`note_look`). Before the first one nothing is known
of absences. Pure: it is told the time, in milliseconds of the monotonic clock.
"""

from __future__ import annotations

LOOK_INTERVAL_MAX_MS = 100.0
# A look that comes later than this after the last one tells of an absence. Some looks are late by a few milliseconds on
# any machine, and deadlines are seconds.
_ABSENCE_MS = 2 * LOOK_INTERVAL_MAX_MS
# Patient time stands still after an absence: a timer that is there then does not ask for it all the time.
_TIMER_MIN_MS = 1.0


class Attention:
    __slots__ = ("_absence_ms", "_before_ms", "_last_ms", "_patient_ms", "_told_ms")

    def __init__(self) -> None:
        self._before_ms: float | None = None  # The look before the last one.
        self._last_ms = 0.0
        self._patient_ms = 0.0  # At the last look.
        self._told_ms = 0.0  # The patient time never goes back.
        # The part of the last absence that is counted at the next look: so the time of a loop that is late every time
        # goes on, though slowly.
        self._absence_ms = 0.0

    def note_look(self, now_ms: float) -> None:
        if self._before_ms is None:
            self._before_ms = self._last_ms = self._patient_ms = self._told_ms = now_ms
            return
        gap_ms = now_ms - self._last_ms
        is_absence = gap_ms > _ABSENCE_MS
        passed_ms = self._absence_ms + (0.0 if is_absence else gap_ms)
        self._absence_ms = _ABSENCE_MS if is_absence else 0.0
        self._patient_ms = max(self._told_ms, self._patient_ms + passed_ms)
        self._before_ms, self._last_ms = self._last_ms, now_ms

    def looked_ms(self, now_ms: float) -> float:
        """What is read now came after this moment. Not the last look: the loop asks the kernel first and calls back
        then, so what came in between is found only after it."""
        return now_ms if self._before_ms is None else self._before_ms

    def patient_ms(self, now_ms: float) -> float:
        if self._before_ms is None:
            return now_ms
        passed_ms = now_ms - self._last_ms
        if passed_ms <= _ABSENCE_MS:
            self._told_ms = max(self._told_ms, self._patient_ms + passed_ms)
        return self._told_ms


def timer_seconds(left_ms: float) -> float:
    """How long a timer sleeps for a deadline that is so far away by patient time."""
    return max(left_ms, _TIMER_MIN_MS) / 1000 if left_ms > 0 else 0.0
