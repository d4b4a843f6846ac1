"""Brokers that fall silent, are fenced and come back, again and again, while their process lives.

Fencing one rewrites all partitions that it has, and taking it back does so again: with a thousand of them some three
thousand records, which every node replays. On machines that are too slow for the session time that work causes the next
silence. So the first time a broker comes back at once, as after any restart; then it waits, twice as long each time, up
to a bound. Nobody is kept out who is needed: where a partition has no leader, or too few replicas in sync.

Soft state of the active controller; times are those of its patient clock, in milliseconds.
"""

# The first pause is so much of the longest: some 2 s of 30.
_FIRST_SHARE = 1 / 16
_DOUBLINGS_MAX = 4
# Silences are forgotten after so many times the longest pause.
_MEMORY = 10


class Flapping:
    def __init__(self, pause_max_ms: float) -> None:
        self._pause_max_ms = pause_max_ms
        # By broker: silences in a row, and when the last one was noticed. Bounded by the registered brokers.
        self._silences: dict[int, tuple[int, float]] = {}

    def note_silence(self, node_id: int, now_ms: float) -> None:
        count, last_ms = self._silences.get(node_id, (0, now_ms))
        is_old = now_ms - last_ms > _MEMORY * self._pause_max_ms
        self._silences[node_id] = (1 if is_old else count + 1), now_ms

    def was_silent(self, node_id: int, now_ms: float) -> bool:
        """Lately, while its process lived on."""
        found = self._silences.get(node_id)
        return found is not None and now_ms - found[1] <= _MEMORY * self._pause_max_ms

    def forget(self, node_id: int) -> None:
        """It was started anew."""
        self._silences.pop(node_id, None)

    def is_repeated(self, node_id: int) -> bool:
        """The first time it comes back at once."""
        return self._silences.get(node_id, (0, 0.0))[0] >= 2

    def must_wait(self, node_id: int, now_ms: float) -> bool:
        if not self.is_repeated(node_id):
            return False
        count, last_ms = self._silences[node_id]
        return now_ms - last_ms < self._pause_max_ms * min(1.0, _FIRST_SHARE * (1 << min(count - 2, _DOUBLINGS_MAX)))
