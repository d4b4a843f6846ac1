"""What happened in a run, as lines for people and as a hash that two runs of one seed must share.

A line has the time, the process and what it did. The state of a replica is told when its role, epoch or ISR has
changed, and from time to time while its log grows:

    12.3456 node-1     orders-0   leader    epoch=3 end=120 hw=118 isr=1,2,3

What arrives over the network is part of the hash alone: it would drown the rest. Only the last lines are kept.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from tailrace.sim.loop import SimLoop

_KEPT_LINES = 400


class Trace:
    def __init__(self, loop: SimLoop, echo: Callable[[str], None] | None = None) -> None:
        self.lines: deque[str] = deque(maxlen=_KEPT_LINES)
        # Events of level ERROR, for whoever judges whether they had a cause.
        self.on_error: Callable[[str, logging.LogRecord], None] = lambda _name, _record: None
        self._loop = loop
        self._echo = echo
        self._hash = sha256()

    def note(self, name: str, text: str) -> None:
        line = f"{self._loop.now:9.4f} {name:<13} {text}"
        self._hash.update(line.encode())
        self.lines.append(line)
        if self._echo is not None:
            self._echo(line)

    def note_arrival(self, source: str, target: str, size: int) -> None:
        self._hash.update(b"%.4f %s %s %d\n" % (self._loop.now, source.encode(), target.encode(), size))

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()[:16]

    @contextmanager
    def listening(self) -> Iterator[None]:
        """What the brokers log becomes part of the trace, under the name of the process that logs it."""
        logger = logging.getLogger("tailrace")
        handler = _EventHandler(self._note_event)
        before = logger.level, logger.propagate
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.level, logger.propagate = before

    def _note_event(self, record: logging.LogRecord) -> None:
        name = self._loop.current.name
        facts = "".join(f" {key}={value}" for key, value in getattr(record, "facts", {}).items())
        error = record.exc_info[1] if record.exc_info else None
        level = "" if record.levelno == logging.INFO else f"{record.levelname} "
        self.note(name, f"{level}{record.getMessage()}{facts}{f' {error!r}' if error else ''}")
        if record.levelno >= logging.ERROR:
            self.on_error(name, record)


class _EventHandler(logging.Handler):
    def __init__(self, tell: Callable[[logging.LogRecord], Any]) -> None:
        super().__init__(logging.INFO)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record)
