"""How a pipeline goes, on stderr: a table of the last batches on a terminal, now and then a line in a pipe."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
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

    def __init__(self, title: str) -> None:
        self._title = title
        self._message = "Ctrl-C finishes the batch and stops"
        self._batches: deque[BatchProgress] = deque(maxlen=_BATCHES_SHOWN)
        self._rows = 0
        self._last_line = -_LINE_EVERY_S
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
            self._message = ""
            self._live.stop()

    def show(self, progress: BatchProgress) -> None:
        self._rows += progress.rows
        self._batches.append(progress)
        if self._live is None and time.monotonic() - self._last_line >= _LINE_EVERY_S:
            self._last_line = time.monotonic()
            note(f"{self._title}: {_line(progress)}; {self._rows:,} rows so far")

    def say(self, message: str) -> None:
        self._message = message
        if self._live is None:
            # A print could meet one that it interrupted, which Python refuses.
            threading.Thread(target=note, args=(f"{self._title}: {message}",)).start()

    def _table(self) -> Table:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        table = Table(
            box=SIMPLE_HEAD,
            title=f"{self._title}: {self._rows:,} rows",
            title_justify="left",
            title_style="bold",
            caption=self._message,
            caption_justify="left",
        )
        for heading in ("batch", "rows", "rows/s", "lag", "ms", "state", "late"):
            table.add_column(heading, justify="right")
        for batch in list(self._batches):
            lag = "-" if batch.lag is None else f"{batch.lag:,}"
            table.add_row(
                f"{batch.batch:,}",
                f"{batch.rows:,}",
                f"{batch.rows_per_second:,.0f}",
                lag,
                f"{batch.duration_ms:,}",
                f"{batch.state_rows:,}",
                f"{batch.late_rows:,}",
            )
        return table


def _line(batch: BatchProgress) -> str:
    lag = "" if batch.lag is None else f", lag {batch.lag:,}"
    rate = f"{batch.rows_per_second:,.0f} rows/s"
    return f"batch {batch.batch:,}: {batch.rows:,} rows in {batch.duration_ms:,} ms, {rate}{lag}"
