"""Logging: one line an event, as a short sentence and key=value facts.

    log = events.logger("log.recovery")
    log.warning("cut a torn tail", partition="orders-0", position=4096, bytes=17)

The standard library does the work; this module only keeps facts apart from the sentence, so that a line can be
printed as key=value text or as JSON. Nothing is logged per request at the default level (INFO).

`Area` is the list of all sources. Their levels change while a node runs (broker.handlers.admin.loggers), also those of
modules that are not loaded yet.
"""

import json
import logging
from typing import Any, Literal, get_args

Area = Literal[
    "alerts",
    "alter_isr",
    "assignments",
    "audit",
    "authorizer",
    "broker",
    "certificates",
    "connections",
    "controller",
    "coordinator",
    "cuts",
    "directories",
    "dispatch",
    "fetch",
    "fetcher",
    "flusher",
    "future_logs",
    "gateway",
    "lifecycle",
    "log",
    "log.checkpoints",
    "log.compaction",
    "log.directory",
    "log.ledger",
    "log.recovery",
    "log.scrub",
    "log.segment",
    "maintenance",
    "metrics",
    "mirror",
    "network",
    "partition",
    "producer_ids",
    "proof",
    "quorum",
    "registration",
    "registry",
    "repair",
    "replicas",
    "reports",
    "requests",
    "scrub",
    "secrets",
    "settings",
    "shares",
    "stalls",
    "supervisor",
    "telemetry",
    "tier",
    "tokens",
    "topics",
    "transactions",
]
PREFIX = "tailrace"


class EventLogger:
    """A named source of events. Keyword arguments become the facts of the line."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"{PREFIX}.{name}")

    def debug(self, sentence: str, **facts: Any) -> None:
        if self._logger.isEnabledFor(logging.DEBUG):
            self._logger.debug(sentence, extra={"facts": facts})

    def info(self, sentence: str, **facts: Any) -> None:
        self._logger.info(sentence, extra={"facts": facts})

    def warning(self, sentence: str, **facts: Any) -> None:
        self._logger.warning(sentence, extra={"facts": facts})

    def error(self, sentence: str, *, trace: bool | BaseException = False, **facts: Any) -> None:
        """With `trace`, the traceback of the exception being handled follows, or of the one that is given."""
        self._logger.error(sentence, extra={"facts": facts}, exc_info=trace)


def logger(area: Area) -> EventLogger:
    return EventLogger(area)


def logger_names() -> list[str]:
    """Of all areas, whether their modules are loaded or not, and of what they have in common."""
    return sorted((PREFIX, *(f"{PREFIX}.{area}" for area in get_args(Area))))


class TextFormatter(logging.Formatter):
    """`2026-11-15 08:00:00,123 INFO  broker: ready bootstrap=127.0.0.1:9092`"""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        facts = getattr(record, "facts", {})
        if not facts:
            return line
        head, newline, trace = line.partition("\n")
        return head + "".join(f" {key}={_quoted(value)}" for key, value in facts.items()) + newline + trace


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, source, event, then the facts."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "source": record.name,
            "event": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _quoted(value: Any) -> str:
    """What a client sent may hold line ends and the control codes of a terminal: those are escaped."""
    text = str(value)
    return json.dumps(text) if not text.isprintable() or not text or any(c in text for c in ' "=') else text
