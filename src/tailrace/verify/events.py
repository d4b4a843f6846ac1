"""One line of a history: who, which operation, and whether it begins or how it ended. docs/verify.md has the format.

`read_events` turns lines into events and refuses what is not of the format, by line number; what an operation means is
the business of `history`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

Value = str | int
Event = dict[str, Any]

OPERATIONS = ("begin", "send", "offsets", "commit", "abort", "poll", "assign", "seek", "drain", "take", "settle")
TYPES = ("invoke", "ok", "fail", "info")


class HistoryError(Exception):
    """The lines are not a history."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")
        self.line = line


def read_events(lines: Iterable[str]) -> Iterator[tuple[int, Event]]:
    """Numbered from 1; empty lines are passed over. A last line without its end was cut off by a crash, and is too."""
    # json.loads looks for blanks before and after the value each time, which takes half as long as the value itself.
    decode = json.JSONDecoder().raw_decode
    cut_off: HistoryError | None = None
    for number, line in enumerate(lines, 1):
        if cut_off is not None:
            raise cut_off
        try:
            event, end = decode(line)
            if line[end:] != "\n":
                event = json.loads(line)
        except ValueError as error:
            if line.strip():
                cut_off = HistoryError(number, f"not JSON ({error}); a history has one JSON object a line")
                if line[-1] == "\n":
                    raise cut_off from None
            continue
        if type(event) is not dict:
            raise HistoryError(number, "not a JSON object")
        yield number, event
