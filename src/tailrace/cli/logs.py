"""Where log lines go: stderr, as key=value text or as JSON. stdout is only for what a command was asked for."""

from __future__ import annotations

import argparse
import logging
import sys
from collections import deque
from typing import Any

from tailrace.model.events import JsonFormatter, TextFormatter

_RECENT_LINES_MAX = 500
LEVELS = ("debug", "info", "warning", "error")


def add_log_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--log-level", choices=LEVELS, default="info", help="what to log on stderr (default: info)")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="text (default), or JSON lines")


def start_logging(options: argparse.Namespace) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if options.log_format == "json" else TextFormatter())
    # asyncio and libraries speak through the root logger, and only when something is wrong.
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("tailrace").setLevel(options.log_level.upper())
    logging.getLogger("tailrace").addHandler(_recent)


class _RecentLines(logging.Handler):
    """The last lines, as text: for a bundle of `tailrace debug`."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=_RECENT_LINES_MAX)
        self.setFormatter(TextFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


_recent = _RecentLines()


def recent_lines() -> list[str]:
    """Of this process, since its logging began."""
    return list(_recent.lines)


def label_log_lines(label: str) -> None:
    """Every later line of this process tells that it is this node's: several nodes share one stderr."""
    make = logging.getLogRecordFactory()

    def make_labelled(*arguments: Any, **options: Any) -> logging.LogRecord:
        record = make(*arguments, **options)
        record.name = f"{label} {record.name}"
        return record

    logging.setLogRecordFactory(make_labelled)
