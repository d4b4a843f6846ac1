"""Whether a request that is not whole yet comes in fast enough. Pure: told the time, it says what is wrong, or nothing.

A request that is begun takes memory, and a client can begin one and stop. So there are two bounds, both settings:

- `socket.request.max.ms` from its first byte to its last.
- `socket.request.min.bytes.per.second`: it is too slow once `socket.request.rate.window.ms` have passed in which it
  brought less than that. While others wait for memory the window is a third as long, and so much is asked for each
  64 KB that it holds: what is held must then come in about a minute, whatever its size.

Time in which we did not read, because the connection's earlier requests were not done, or there was no memory, or the
whole process stood still, is not the client's, and is excused.
"""

from typing import NamedTuple

from tailrace.broker.serving.buffers import START_BYTES

_SHORT_WINDOW_SHARE = 1 / 3


class ArrivalRules(NamedTuple):
    max_ms: float
    window_ms: float
    min_bytes_per_second: int


class Arrival:
    """How the bytes of one request come in."""

    __slots__ = ("_began_ms", "_mark_bytes", "_mark_ms")

    def __init__(self, now_ms: float) -> None:
        self._began_ms = now_ms
        # Since then it has brought what is counted beyond that.
        self._mark_ms = now_ms
        self._mark_bytes = 0

    def excuse(self, time_ms: float, now_ms: float) -> None:
        """The last `time_ms` were not the client's."""
        self._began_ms = min(self._began_ms + time_ms, now_ms)
        self._mark_ms = min(self._mark_ms + time_ms, now_ms)

    def decide_late(
        self,
        now_ms: float,
        rules: ArrivalRules,
        *,
        received_bytes: int,
        held_bytes: int,
        is_short: bool,
    ) -> str | None:
        """What is wrong, with so much of it here. To be asked about once a second: that is how exact it is."""
        if now_ms - self._began_ms >= rules.max_ms:
            return f"not whole after socket.request.max.ms={rules.max_ms:g}"
        window_ms, rate = rules.window_ms, float(rules.min_bytes_per_second)
        if is_short:
            window_ms *= _SHORT_WINDOW_SHARE
            rate *= max(1.0, held_bytes / START_BYTES)
        brought_bytes = received_bytes - self._mark_bytes
        if brought_bytes >= rate * window_ms / 1000:
            self._mark_ms, self._mark_bytes = now_ms, received_bytes
        elif now_ms - self._mark_ms >= window_ms:
            while_short = ", while others wait for its memory" if is_short else ""
            return f"{brought_bytes} bytes in {(now_ms - self._mark_ms) / 1000:.0f} s{while_short}"
        return None
