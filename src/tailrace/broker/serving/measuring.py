"""What requests have taken: the last step on their way.

    handling    decode, the steps before, and the handler until it returns; with an answer at once, to its last byte
    parked      from there until the answer is known: for replicas, for records, for a coordinator or another node
    sending     from there until the socket has taken its last byte; behind the answers to earlier requests, too

Every request is counted once its answer is known. Times are taken of some (`metrics.requests` chooses), and only these
have a `Measurement`. Its meter, and the function that it was given besides, are told once all of that is over. They
must not raise and must not wait: they are called in the middle of sending.

Not counted are requests whose connection closes before their answer is known, and those in an Envelope: the Envelope
is, and its sender counts the request that it has put there. Where nobody measures (`metrics.listeners` is not set),
none of this is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Protocol

from tailrace.model.ports import Bytes, Clock, FileSlice
from tailrace.wire.schema import Struct

Errors = Mapping[int, int]
"""How often each code other than 0 stands in an answer."""

NO_ERRORS: Errors = {}


class Timer(Protocol):
    """Is told of the times that are taken. From its answer on a request is expected to tell its own."""

    def expect(self) -> None: ...

    def measure(self, measured: Measurement, /) -> None: ...

    def give_up(self) -> None:
        """What is expected will not come."""


class Measurement:
    """One request, or those of an express run, which are handled, parked and sent together."""

    __slots__ = (
        "_clock",
        "_tell",
        "_timer",
        "answered_ms",
        "began_ms",
        "errors",
        "handled_ms",
        "received_bytes",
        "sent_bytes",
        "sent_ms",
    )

    def __init__(self, clock: Clock, timer: Timer | None, tell: Callable[[Measurement], None] | None = None) -> None:
        self._clock = clock
        self._timer = timer
        self._tell = tell
        self.handled_ms: float | None = None  # None while it is handled; as of one that is not parked at all.
        self.began_ms = clock.monotonic_ms()

    # ---- the pipeline notes these, in this order

    def note_parked(self) -> None:
        """The handler has returned, and its answer is not known."""
        self.handled_ms = self._clock.monotonic_ms()

    def note_answered(self, parts: Iterable[Bytes | FileSlice], errors: Errors) -> None:
        """`parts` are the answer, with its size before it."""
        self.answered_ms = self._clock.monotonic_ms()
        # The size of the answer, without the four bytes that tell it.
        self.sent_bytes = sum(map(len, parts)) - 4
        self.errors = errors
        if self._timer is not None:
            self._timer.expect()

    def note_unanswered(self) -> None:
        """Nothing is sent: the client wants no answer."""
        self.answered_ms = self._clock.monotonic_ms()
        self.sent_bytes, self.errors = 0, NO_ERRORS
        if self._timer is not None:
            self._timer.expect()
        self.note_sent()

    def note_sent(self) -> None:
        self.sent_ms = self._clock.monotonic_ms()
        if self._timer is not None:
            self._timer.measure(self)
        if self._tell is not None:
            self._tell(self)

    def note_lost(self) -> None:
        """The answer is known, and will not be sent: the connection has closed."""
        if self._timer is not None:
            self._timer.give_up()


def errors_of(answer: Struct) -> Errors:
    """Those of an answer and of all its items, without the zeros."""
    return looker(type(answer))(answer)


Look = Callable[[Any], Errors]


@cache
def looker(kind: type[Struct]) -> Look:
    """Looks where codes can stand in messages of that kind, and nowhere else. Its source is written here: it is run
    for each answer, and nested loops take a third of the time of calls."""
    lines = ["def look(answer):", "    found = NO_ERRORS", *_looking(kind, "answer", "    "), "    return found"]
    scope: dict[str, Any] = {"NO_ERRORS": NO_ERRORS}
    exec("\n".join(lines), scope)  # noqa: S102 - of names that our own tables have
    look: Look = scope["look"]
    return look


def _looking(kind: type[Struct], name: str, indent: str) -> Iterator[str]:
    for field in kind.fields:
        inner = f"item{len(indent)}"
        if field.name == "error_code":
            yield f"{indent}if {name}.error_code:"
            yield f"{indent}    if not found: found = {{}}"
            yield f"{indent}    found[{name}.error_code] = found.get({name}.error_code, 0) + 1"
        elif field.struct is not None and (lines := list(_looking(field.struct, inner, indent + "    "))):
            values = f"{name}.{field.name} or ()" if field.kind == "array" else f"({name}.{field.name},)"
            yield f"{indent}for {inner} in {values}:"
            if field.kind != "array":
                yield f"{indent}    if {inner} is None: break"
            yield from lines
