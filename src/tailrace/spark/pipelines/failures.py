"""Why a query failed, in one sentence, and whether that passes: what Spark wraps in pages of Java and Python traces is
found again. Runs that failed for a reason that passes are run again, after a pause that grows, and not for ever.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import NamedTuple

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.spark.audit.errors import AuditError
from tailrace.spark.options.errors import OptionError
from tailrace.spark.pipelines.declaration import DeclarationError
from tailrace.spark.pipelines.landing.batches import LandingError
from tailrace.spark.pipelines.progress import BatchProgress, RunSummary

# The last line of a Python traceback, as a text within the message of a Java exception.
_PYTHON_ERROR = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Za-z_]\w*(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)
# Spark's own errors begin with a condition: [TABLE_OR_VIEW_NOT_FOUND] ...
_SPARK_ERROR = re.compile(r"^\[([A-Z_.]+)\] ?(.+)$", re.MULTILINE)
# Conditions that say only that something of ours or of the user's failed; the reason is within.
_WRAPPERS = ("STREAM_FAILED", "PYTHON_DATA_SOURCE_ERROR", "PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR")
# A KafkaError as a text begins with the name of its code.
_KAFKA_CODE = re.compile(r"([A-Z_]+)(?:: |$)")
# A machine that is busy, or has killed a process for its memory: the same query may well succeed.
_PASSING = ("Python worker failed to connect back", "Python worker exited unexpectedly")


def failure_text(error: BaseException) -> str | None:
    """None if nobody foresaw it: then the trace is worth seeing."""
    from pyspark.errors import PySparkException

    if isinstance(error, KafkaError):
        return error.message
    if isinstance(error, DeclarationError | LandingError | OptionError | AuditError):
        return str(error)
    if not isinstance(error, PySparkException):
        return None
    text = str(error)
    python = _python_error(text)
    if python is not None:
        return python[2]
    conditions = [found for found in _SPARK_ERROR.finditer(text) if found[1] not in _WRAPPERS]
    return conditions[0][2] if conditions else text.splitlines()[0]


def is_transient(error: BaseException) -> bool:
    """Whether the same may succeed when it is tried again: a broker is away, a worker could not be started."""
    from pyspark.errors import PySparkException

    if isinstance(error, KafkaError):
        return error.code.retriable
    if not isinstance(error, PySparkException):
        return False
    text = str(error)
    python = _python_error(text)
    if python is not None and python[1] == "KafkaError":
        code = _KAFKA_CODE.match(python[2])
        return code is not None and code[1] in ErrorCode.__members__ and ErrorCode[code[1]].retriable
    return python is None and any(sign in text for sign in _PASSING)


def _python_error(text: str) -> re.Match[str] | None:
    """The last one: it is what the others led to."""
    found = [
        each
        for each in _PYTHON_ERROR.finditer(text)
        if not each[1].startswith(("Py4J", "PySpark")) and not each[0].startswith(("org.", "java."))
    ]
    return found[-1] if found else None


class RetryPolicy(NamedTuple):
    # So often in a row; a batch that is finished ends the row.
    attempts_max: int = 10
    # The first pause; each one is twice as long, up to the longest.
    pause_s: float = 1.0
    pause_s_max: float = 60.0

    def pause_after(self, failures: int) -> float:
        return min(self.pause_s_max, self.pause_s * 2.0 ** min(failures - 1, 30))


class Retrying:
    """For what can be repeated without harm: a run that goes on from its checkpoint. `on_retry` is told the failure,
    how many there were in a row, and the pause in seconds."""

    def __init__(
        self, policy: RetryPolicy, stop: threading.Event, on_retry: Callable[[Exception, int, float], None]
    ) -> None:
        self.summary = RunSummary()  # of all attempts
        self._policy = policy
        self._stop = stop
        self._on_retry = on_retry
        self._failures = 0

    def progressed(self, progress: BatchProgress) -> None:
        """To be called for every batch."""
        self.summary = self.summary.with_batch(progress)
        self._failures = 0

    def run(self, attempt: Callable[[], RunSummary]) -> RunSummary:
        """Raises what the last attempt has raised."""
        while True:
            try:
                attempt()
                return self.summary
            except Exception as error:
                self._failures += 1
                if not is_transient(error) or self._failures > self._policy.attempts_max:
                    raise
                pause_s = self._policy.pause_after(self._failures)
                self._on_retry(error, self._failures, pause_s)
            if self._stop.wait(pause_s):
                return self.summary
