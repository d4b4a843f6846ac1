"""The requests under way: one of a kind at a time to each node, and a pause after one that failed.

What should be asked of whom follows from the role, and is asked again at every step until it is answered; this keeps
that from becoming a flood.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from tailrace.model.config import Endpoint
from tailrace.raft.messages import Request, Send, Vote

# The pause grows to so many times retry.backoff.ms: a node that starts is found within 100 ms at the default, and a
# dead one costs ten connections a second.
_BACKOFF_STEPS_MAX = 5


class Sent(NamedTuple):
    node_id: int
    request: Request
    sent_ms: float


class Outgoing:
    def __init__(self, retry_backoff_ms: int) -> None:
        self._retry_backoff_ms = retry_backoff_ms
        self._next_id = 0
        # Both bounded: every request ends, at the latest by its timeout.
        self._sent: dict[int, Sent] = {}
        self._in_flight: dict[tuple[int, object], int] = {}
        # Failures in a row, and when to try again; by node and kind.
        self._backoff: dict[tuple[int, object], tuple[int, float]] = {}

    def send(self, node_id: int, endpoint: Endpoint, request: Request, now_ms: float) -> Send | None:
        if (node_id, _round(request)) in self._in_flight or now_ms < self.ready_ms(node_id, type(request)):
            return None
        send = Send(self._next_id, node_id, endpoint, request)
        self._next_id += 1
        self._in_flight[(node_id, _round(request))] = send.id
        self._sent[send.id] = Sent(node_id, request, now_ms)
        return send

    def ready_ms(self, node_id: int, kind: type) -> float:
        """When the pause is over; in the past if there is none."""
        return self._backoff.get((node_id, kind), (0, -inf))[1]

    def failures(self, node_id: int, kind: type) -> int:
        """In a row; does not count beyond a few."""
        return self._backoff.get((node_id, kind), (0, -inf))[0]

    def is_under_way(self, node_id: int, request: Request) -> bool:
        return (node_id, _round(request)) in self._in_flight

    def finish(self, send_id: int) -> Sent | None:
        sent = self._sent.pop(send_id, None)
        if sent is not None:
            del self._in_flight[(sent.node_id, _round(sent.request))]
        return sent

    def succeed(self, node_id: int, kind: type) -> None:
        self._backoff.pop((node_id, kind), None)

    def pause(self, node_id: int, kind: type, until_ms: float) -> None:
        """Not its fault: nothing is counted."""
        self._backoff[(node_id, kind)] = (0, until_ms)

    def back_off(self, node_id: int, kind: type, now_ms: float) -> None:
        failures = min(self._backoff.get((node_id, kind), (0, 0.0))[0] + 1, _BACKOFF_STEPS_MAX)
        self._backoff[(node_id, kind)] = (failures, now_ms + failures * self._retry_backoff_ms)


def _round(request: Request) -> object:
    """A vote of a new round does not wait for the answer to one of the last."""
    return (request.epoch, request.is_pre_vote) if isinstance(request, Vote) else type(request)
