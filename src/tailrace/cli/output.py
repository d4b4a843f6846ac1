"""What commands print: tables and colours for a person at a terminal, plain lines for a pipe, JSON if asked.

In a pipe a row is one line with tabs between its fields and no heading, so that `cut` and `awk` can take it from
there. stdout carries only what was asked for; progress and notes go to stderr. NO_COLOR is respected.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

DIM = "2"
CYAN = "36"
_PROGRESS_EVERY_SECONDS = 0.2


def is_terminal(stream: TextIO) -> bool:
    return stream.isatty()


def has_colours(stream: TextIO) -> bool:
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(text: bytes, colour: str) -> bytes:
    return b"\x1b[%sm%s\x1b[0m" % (colour.encode(), text)


def print_json(value: Any) -> None:
    """One line, at once: its reader may act on it while the command goes on."""
    print(json.dumps(value), flush=True)


def print_rows(headings: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """A column whose cells are all numbers is aligned to the right."""
    table = [[_cell(value) for value in row] for row in rows]
    if not is_terminal(sys.stdout):
        for line in table:
            print("\t".join(line))
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    shown = Table(box=SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for index, heading in enumerate(headings):
        is_number = bool(table) and all(line[index].lstrip("-").isdigit() for line in table)
        shown.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    for line in table:
        shown.add_row(*line)
    Console(highlight=False, markup=False).print(shown)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    return str(value)


def note(text: str) -> None:
    print(text, file=sys.stderr)


def count_text(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


class Progress:
    """One line on stderr that is written over, while stderr is a terminal and the output is elsewhere."""

    def __init__(self, verb: str, *, is_shown: bool) -> None:
        self._verb = verb
        self._is_shown = is_shown and is_terminal(sys.stderr)
        self._started = self._last = time.monotonic()
        self._width = 0
        self.records = 0
        self.size_bytes = 0

    def add(self, records: int, size_bytes: int) -> None:
        self.records += records
        self.size_bytes += size_bytes
        if self._is_shown and time.monotonic() - self._last >= _PROGRESS_EVERY_SECONDS:
            self._last = time.monotonic()
            self._write(self.summary())

    def summary(self) -> str:
        rate = self.records / max(time.monotonic() - self._started, 1e-6)
        return f"{self._verb} {count_text(self.records, 'record')}, {self.size_bytes / 1e6:,.1f} MB, {rate:,.0f}/s"

    def end(self) -> None:
        """Leaves the terminal as it was."""
        if self._width:
            self._write("")
            print("\r", end="", file=sys.stderr, flush=True)

    def _write(self, text: str) -> None:
        print(f"\r{text:<{self._width}}", end="", file=sys.stderr, flush=True)
        self._width = len(text)


class ProgressBar:
    """How much of a known amount is done: a line on stderr that is written over; in a pipe only its last state."""

    _WIDTH = 30

    def __init__(self, title: str, total: int, noun: str) -> None:
        self._title = title
        self._total = total
        self._noun = noun
        self._done = 0
        self._is_shown = is_terminal(sys.stderr)

    def __enter__(self) -> ProgressBar:
        self.show(0)
        return self

    def show(self, done: int, total: int | None = None) -> None:
        """The total as well, if it was not known at first."""
        self._done = done
        self._total = self._total if total is None else total
        if self._is_shown:
            print(f"\r{self._line()}", end="", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        print(f"\r{self._line()}" if self._is_shown else self._line(), file=sys.stderr, flush=True)

    def _line(self) -> str:
        filled = self._WIDTH * self._done // self._total if self._total else self._WIDTH
        bar = "#" * filled + "-" * (self._WIDTH - filled)
        return f"{self._title} [{bar}] {self._done:,}/{self._total:,} {self._noun}"
