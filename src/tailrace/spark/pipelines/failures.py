"""Why a query failed, in one sentence: what Spark wraps in pages of Java and Python traces is found again."""

from __future__ import annotations

import re

from tailrace.model.errors import KafkaError
from tailrace.spark.audit.errors import AuditError
from tailrace.spark.options.errors import OptionError
from tailrace.spark.pipelines.declaration import DeclarationError
from tailrace.spark.pipelines.landing.batches import LandingError

# The last line of a Python traceback, as a text within the message of a Java exception.
_PYTHON_ERROR = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Za-z_]\w*(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)
# Spark's own errors begin with a condition: [TABLE_OR_VIEW_NOT_FOUND] ...
_SPARK_ERROR = re.compile(r"^\[([A-Z_.]+)\] ?(.+)$", re.MULTILINE)
# Conditions that say only that something of ours or of the user's failed; the reason is within.
_WRAPPERS = ("STREAM_FAILED", "PYTHON_DATA_SOURCE_ERROR", "PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR")


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
    python = [found for found in _PYTHON_ERROR.finditer(text) if not found[1].startswith(("Py4J", "PySpark"))]
    if python:
        return python[-1][2]
    conditions = [found for found in _SPARK_ERROR.finditer(text) if found[1] not in _WRAPPERS]
    return conditions[0][2] if conditions else text.splitlines()[0]
