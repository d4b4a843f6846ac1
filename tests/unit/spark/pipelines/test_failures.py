"""The one sentence in what Spark raises."""

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.spark.options.errors import OptionError
from tailrace.spark.pipelines.failures import failure_text
from tailrace.spark.pipelines.landing.batches import LandingError

PYTHON = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/a/b.py", line 1, in f
ValueError: the cause

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/a/b.py", line 3, in g
tailrace.spark.options.errors.OptionError: option subscribe is missing: name a topic

	at org.apache.spark.api.python.BasePythonRunner.run(Runner.scala:1)
Caused by: java.lang.IllegalStateException: not this one
"""


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (StreamingQueryException(PYTHON), "option subscribe is missing: name a topic"),
        (AnalysisException("[UNRESOLVED_COLUMN] No column x.\n== SQL =="), "No column x."),
        (
            StreamingQueryException("[STREAM_FAILED] Query 1 failed: requirement"),
            "[STREAM_FAILED] Query 1 failed: requirement",
        ),
        (LandingError("the table is other"), "the table is other"),
        (OptionError("option x is wrong"), "option x is wrong"),
        (KafkaError(ErrorCode.NETWORK_EXCEPTION, "no broker"), "no broker"),
        (ZeroDivisionError("ours"), None),
    ],
)
def test_the_reason_is_found(error, text):
    assert failure_text(error) == text
