"""A child process that tries filters on records, so that none can cost the console more than a moment.

It reads questions from its input and answers each on its output; where the input ends, so does it. A question is
(filter, records), an answer the places of those that the filter takes, and of those that are too large to look into.
Both are bytes of `marshal` after their length. A question has so much processor time, and the process so much memory:
beyond the one the system ends it, which whoever asked takes for the answer.
"""

from __future__ import annotations

import marshal
import resource
import signal
import sys
from functools import lru_cache
from typing import Any, BinaryIO

from tailrace.apps.console.reading.filters import Test, parse_filter
from tailrace.wire.payload import Record

LENGTH_BYTES = 8
CPU_MAX_S = 3.0
MEMORY_MAX_BYTES = 2 << 30

Question = tuple[str, list[tuple[Any, ...]]]  # Records as (partition, *record).
Answer = tuple[list[int], list[int]]


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    while head := source.read(LENGTH_BYTES):
        question: Question = marshal.loads(source.read(int.from_bytes(head, "big")))  # noqa: S302 (of our own process)
        signal.setitimer(signal.ITIMER_PROF, CPU_MAX_S)
        answer = marshal.dumps(answer_to(question))
        signal.setitimer(signal.ITIMER_PROF, 0)
        sink.write(len(answer).to_bytes(LENGTH_BYTES, "big") + answer)
        sink.flush()


def answer_to(question: Question) -> Answer:
    text, records = question
    test = _parsed(text)
    taken, too_large = [], []
    for place, (partition, *record) in enumerate(records):
        try:
            if test(partition, Record(*record)):
                taken.append(place)
        except MemoryError:
            too_large.append(place)
    return taken, too_large


@lru_cache(maxsize=16)
def _parsed(text: str) -> Test:
    return parse_filter(text)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX_BYTES, MEMORY_MAX_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The console's to hear: it closes the input then.
    serve(sys.stdin.buffer, sys.stdout.buffer)
