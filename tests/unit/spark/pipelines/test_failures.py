"""The one sentence in what Spark raises."""

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.spark.options.errors import OptionError
from tailrace.spark.pipelines.failures import failure_text, is_transient
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


def python(line: str) -> StreamingQueryException:
    cause = "tailrace.spark.options.errors.OptionError: option subscribe is missing: name a topic"
    assert cause in PYTHON
    return StreamingQueryException(PYTHON.replace(cause, line))


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (KafkaError(ErrorCode.NETWORK_EXCEPTION, "no broker"), True),
        (KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic t"), False),
        (python("tailrace.model.errors.KafkaError: NOT_LEADER_OR_FOLLOWER: t-0"), True),
        (python("tailrace.model.errors.KafkaError: NETWORK_EXCEPTION"), True),
        (python("tailrace.model.errors.KafkaError: SASL_AUTHENTICATION_FAILED: wrong password"), False),
        (python("tailrace.model.errors.KafkaError: what is this?"), False),
        (python("tailrace.spark.source.loss.DataLossError: offsets 1 to 2 of t-0 are lost"), False),
        # What a user's function raised is the user's, whatever Spark says of the worker.
        (python("ValueError: Python worker failed to connect back"), False),
        (StreamingQueryException("[STREAM_FAILED] x\nCaused by: Python worker failed to connect back."), True),
        (StreamingQueryException("[STREAM_FAILED] x\nCaused by: Python worker exited unexpectedly (crashed)"), True),
        (
            StreamingQueryException(
                "[STREAM_FAILED] x\norg.apache.spark.SparkException: Python worker failed to connect back."
            ),
            True,
        ),
        (StreamingQueryException("[STREAM_FAILED] x\nCaused by: java.lang.IllegalStateException"), False),
        (OptionError("option x is wrong"), False),
    ],
)
def test_what_passes_is_told_from_what_stays(error, passes):
    assert is_transient(error) is passes
