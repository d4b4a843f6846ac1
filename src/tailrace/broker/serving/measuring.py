"""What requests have taken, for the functions that a row of the catalogue names to measure them: their last step.

    handling    decode, the steps before, and the handler until it returns
    parked      from there until the answer is known: for replicas, for records, for a coordinator or another node
    sending     from there until the socket has taken its last byte; behind the answers to earlier requests, too

A measuring function is given one `Measurement` once all of that is over. It must not raise and must not wait: it is
called in the middle of sending.

Not measured are requests whose connection closes before their answer is sent, and those in an Envelope: the Envelope
is, and its sender measures the request that it has put there. Where a row names no function, none of this is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from tailrace.model.ports import Bytes, Clock, FileSlice
from tailrace.wire.schema import Struct

Measure = Callable[["Measurement"], None]


class Measurement:
    """One request, or those of an express run, which are handled, parked and sent together."""

    __slots__ = (
        "_answered_ms",
        "_began_ms",
        "_clock",
        "_handled_ms",
        "_measures",
        "_sent_ms",
        "api_key",
        "count",
        "errors",
        "received_bytes",
        "sent_bytes",
    )

    def __init__(self, measures: Iterable[Measure], clock: Clock, api_key: int, *, received_bytes: int = 0) -> None:
        self._measures = measures
        self._clock = clock
        self._began_ms = self._handled_ms = self._answered_ms = self._sent_ms = clock.monotonic_ms()
        self.api_key = api_key
        self.count = 1
        self.errors: Counter[int] = Counter()  # How often each code other than 0 stands in the answers.
        # Sizes of requests and answers, without the four bytes that tell them.
        self.received_bytes = received_bytes
        self.sent_bytes = 0

    @property
    def handling_ms(self) -> float:
        return self._handled_ms - self._began_ms

    @property
    def parked_ms(self) -> float:
        return self._answered_ms - self._handled_ms

    @property
    def sending_ms(self) -> float:
        return self._sent_ms - self._answered_ms

    # ---- the pipeline notes these, in this order

    def note_handled(self) -> None:
        self._handled_ms = self._clock.monotonic_ms()

    def note_answered(self, parts: Iterable[Bytes | FileSlice], errors: Iterable[int]) -> None:
        """`parts` are the answers, with their sizes before them, to all requests that are counted."""
        self._answered_ms = self._clock.monotonic_ms()
        self.sent_bytes = sum(map(len, parts)) - 4 * self.count
        self.errors.update(errors)

    def note_unanswered(self) -> None:
        """Nothing is sent: the client wants no answer."""
        self._answered_ms = self._clock.monotonic_ms()
        self.note_sent()

    def note_sent(self) -> None:
        self._sent_ms = self._clock.monotonic_ms()
        for measure in self._measures:
            measure(self)


def error_codes(answer: Struct) -> Iterator[int]:
    """Those of an answer and of all its items, without the zeros."""
    for field in answer.fields:
        value = getattr(answer, field.name)
        if field.name == "error_code":
            if value:
                yield value
        elif field.struct is not None and value:
            for item in value if field.kind == "array" else (value,):
                yield from error_codes(item)
