"""What requests have taken: the last step on their way.

    handling    decode, the steps before, and the handler until it returns
    parked      from there until the answer is known: for replicas, for records, for a coordinator or another node
    sending     from there until the socket has taken its last byte; behind the answers to earlier requests, too

A measuring function is given one `Measurement` once all of that is over. It must not raise and must not wait: it is
called in the middle of sending.

Not measured are requests whose connection closes before their answer is sent, and those in an Envelope: the Envelope
is, and its sender measures the request that it has put there. Where nobody measures (`metrics.listeners` is not set),
none of this is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from tailrace.model.ports import Bytes, Clock, FileSlice
from tailrace.wire.schema import Struct

Measure = Callable[["Measurement"], None]
Errors = Mapping[int, int]
"""How often each code other than 0 stands in an answer."""

NO_ERRORS: Errors = {}


class Measurement:
    """One request, or those of an express run, which are handled, parked and sent together."""

    __slots__ = (
        "_clock",
        "_measure",
        "answered_ms",
        "began_ms",
        "count",
        "errors",
        "handled_ms",
        "received_bytes",
        "sent_bytes",
        "sent_ms",
    )

    def __init__(self, measure: Measure, clock: Clock, received_bytes: int = 0) -> None:
        self._measure = measure
        self._clock = clock
        self.began_ms = self.handled_ms = self.answered_ms = self.sent_ms = clock.monotonic_ms()
        self.count = 1
        self.errors = NO_ERRORS
        # Sizes of requests and answers, without the four bytes that tell them.
        self.received_bytes = received_bytes
        self.sent_bytes = 0

    # ---- the pipeline notes these, in this order

    def note_handled(self) -> None:
        self.handled_ms = self._clock.monotonic_ms()

    def note_answered(self, parts: Iterable[Bytes | FileSlice], errors: Errors) -> None:
        """`parts` are the answers, with their sizes before them, to all requests that are counted."""
        self.answered_ms = self._clock.monotonic_ms()
        self.sent_bytes = sum(map(len, parts)) - 4 * self.count
        self.errors = errors

    def note_unanswered(self) -> None:
        """Nothing is sent: the client wants no answer."""
        self.answered_ms = self._clock.monotonic_ms()
        self.note_sent()

    def note_sent(self) -> None:
        self.sent_ms = self._clock.monotonic_ms()
        self._measure(self)


def count_codes(codes: Iterable[int]) -> Errors:
    found: dict[int, int] = {}
    for code in codes:
        found[code] = found.get(code, 0) + 1
    return found


def errors_of(answer: Struct) -> Errors:
    """Those of an answer and of all its items, without the zeros."""
    look = _looker(type(answer))
    if look is None:
        return NO_ERRORS
    found: dict[int, int] = {}
    look(answer, found)
    return found


Look = Callable[[Any, dict[int, int]], None]


@cache
def _looker(kind: type[Struct]) -> Look | None:
    """Looks where codes can stand in messages of that kind, and nowhere else; None if they cannot."""
    has_code = any(field.name == "error_code" for field in kind.fields)
    inner = [
        (field.name, field.kind == "array", look)
        for field in kind.fields
        if field.struct is not None and (look := _looker(field.struct)) is not None
    ]
    if not has_code and not inner:
        return None

    def look_at(struct: Any, found: dict[int, int]) -> None:
        if has_code and (code := struct.error_code):
            found[code] = found.get(code, 0) + 1
        for name, is_array, look in inner:
            value = getattr(struct, name)
            if is_array:
                for item in value or ():
                    look(item, found)
            elif value is not None:
                look(value, found)

    return look_at
