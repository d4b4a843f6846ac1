"""How pipelines go, on stderr: a table on a terminal, now and then a line in a pipe. The table has the last batches of
one pipeline, or the last batch of each of several."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.cli.output import is_terminal, note
from tailrace.spark.pipelines.progress import BatchProgress

if TYPE_CHECKING:
    from typing import Self

    from rich.live import Live
    from rich.table import Table

_BATCHES_SHOWN = 8
_LINE_EVERY_S = 5.0


class Display:
    """`show` is called on the listener's thread, `say` in a signal handler: neither waits for the other."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._messages = {"": "Ctrl-C finishes the batch and stops"}  # By pipeline; of all together under no name.
        self._batches: dict[str, deque[BatchProgress]] = {name: deque(maxlen=_BATCHES_SHOWN) for name in names}
        self._rows = dict.fromkeys(names, 0)
        self._last_line = dict.fromkeys(names, -_LINE_EVERY_S)
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if is_terminal(sys.stderr):
            from rich.console import Console
            from rich.live import Live

            # Asked for the table a few times a second by rich's own thread.
            self._live = Live(get_renderable=self._table, console=Console(stderr=True), refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._messages = {}
            self._live.stop()

    def show(self, progress: BatchProgress) -> None:
        name = progress.pipeline
        self._rows[name] += progress.rows
        self._batches[name].append(progress)
        self._messages.pop(name, None)
        if self._live is None and time.monotonic() - self._last_line[name] >= _LINE_EVERY_S:
            self._last_line[name] = time.monotonic()
            note(f"{name}: {_line(progress)}; {self._rows[name]:,} rows so far")

    def say(self, message: str, name: str = "") -> None:
        """Of one pipeline, or of all."""
        self._messages[name] = message
        if self._live is None:
            # A print could meet one that it interrupted, which Python refuses.
            threading.Thread(target=note, args=(f"{name or ', '.join(self._names)}: {message}",)).start()

    def _table(self) -> Table:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        is_one = len(self._names) == 1
        told = [f"{name}: {message}" if name and not is_one else message for name, message in self._messages.items()]
        table = Table(
            box=SIMPLE_HEAD,
            title=f"{self._names[0]}: {self._rows[self._names[0]]:,} rows" if is_one else "pipelines",
            title_justify="left",
            title_style="bold",
            caption="\n".join(told),
            caption_justify="left",
        )
        if not is_one:
            table.add_column("pipeline")
        for heading in ("batch", "rows", "rows/s", "lag", "ms", "state", "late"):
            table.add_column(heading, justify="right")
        if is_one:
            for batch in list(self._batches[self._names[0]]):
                table.add_row(*_cells(batch))
            return table
        for name, batches in self._batches.items():
            last = list(batches)[-1:]
            table.add_row(name, *(_cells(last[0]) if last else ["-"] * 7))
        return table


def _cells(batch: BatchProgress) -> list[str]:
    return [
        f"{batch.batch:,}",
        f"{batch.rows:,}",
        f"{batch.rows_per_second:,.0f}",
        "-" if batch.lag is None else f"{batch.lag:,}",
        f"{batch.duration_ms:,}",
        f"{batch.state_rows:,}",
        f"{batch.late_rows:,}",
    ]


def _line(batch: BatchProgress) -> str:
    lag = "" if batch.lag is None else f", lag {batch.lag:,}"
    rate = f"{batch.rows_per_second:,.0f} rows/s"
    return f"batch {batch.batch:,}: {batch.rows:,} rows in {batch.duration_ms:,} ms, {rate}{lag}"
