"""What requests have taken: the last step on their way.

    handling    decode, the steps before, and the handler until it returns; with an answer at once, to its last byte
    parked      from there until the answer is known: for replicas, for records, for a coordinator or another node
    sending     from there until the socket has taken its last byte; behind the answers to earlier requests, too

A measuring function is given one `Measurement` once all of that is over. It must not raise and must not wait: it is
called in the middle of sending.

Not measured are requests whose connection closes before their answer is sent, and those in an Envelope: the Envelope
is, and its sender measures the request that it has put there. Where nobody measures (`metrics.listeners` is not set),
none of this is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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
        "errors",
        "handled_ms",
        "received_bytes",
        "sent_bytes",
        "sent_ms",
    )

    def __init__(self, measure: Measure, clock: Clock, received_bytes: int = 0) -> None:
        self._measure = measure
        self._clock = clock
        # Sizes of requests and answers, without the four bytes that tell them.
        self.received_bytes = received_bytes
        self.handled_ms: float | None = None  # None while it is handled; as of one that is not parked at all.
        self.began_ms = clock.monotonic_ms()

    # ---- the pipeline notes these, in this order

    def note_parked(self) -> None:
        """The handler has returned, and its answer is not known."""
        self.handled_ms = self._clock.monotonic_ms()

    def note_answered(self, parts: Iterable[Bytes | FileSlice], errors: Errors) -> None:
        """`parts` are the answer, with its size before it."""
        self.answered_ms = self._clock.monotonic_ms()
        self.sent_bytes = sum(map(len, parts)) - 4
        self.errors = errors

    def note_unanswered(self) -> None:
        """Nothing is sent: the client wants no answer."""
        self.answered_ms = self._clock.monotonic_ms()
        self.sent_bytes, self.errors = 0, NO_ERRORS
        self.note_sent()

    def note_sent(self) -> None:
        self.sent_ms = self._clock.monotonic_ms()
        self._measure(self)


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
    """Looks where codes can stand in messages of that kind, and nowhere else; None if they cannot. Its source is
    written here: it is run for each answer, and nested loops take a third of the time of calls."""
    lines = list(_looking(kind, "answer", "    "))
    if not lines:
        return None
    scope: dict[str, Look] = {}
    exec("\n".join(["def look(answer, found):", *lines]), scope)  # noqa: S102 - of names that our own tables have
    return scope["look"]


def _looking(kind: type[Struct], name: str, indent: str) -> Iterator[str]:
    for field in kind.fields:
        inner = f"item{len(indent)}"
        if field.name == "error_code":
            yield f"{indent}if {name}.error_code:"
            yield f"{indent}    found[{name}.error_code] = found.get({name}.error_code, 0) + 1"
        elif field.struct is not None and (lines := list(_looking(field.struct, inner, indent + "    "))):
            values = f"{name}.{field.name} or ()" if field.kind == "array" else f"({name}.{field.name},)"
            yield f"{indent}for {inner} in {values}:"
            if field.kind != "array":
                yield f"{indent}    if {inner} is None: break"
            yield from lines
