"""What passes is tried again, with pauses that grow and an end; what stays is not."""

import threading
from collections.abc import Callable

import pytest
from pyspark.errors import StreamingQueryException

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.spark.pipelines.failures import Retrying, RetryPolicy
from tailrace.spark.pipelines.progress import BatchProgress, RunSummary

AWAY = KafkaError(ErrorCode.NETWORK_EXCEPTION, "cannot reach 127.0.0.1:9092")
STAYS = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic t")
BUSY = StreamingQueryException(
    "[STREAM_FAILED] Query 1 terminated with exception: Python worker failed to connect back."
)


class Runs:
    """Attempts that fail one after the other, and what was told of them."""

    def __init__(self, *failures: Exception | None, attempts_max: int = 3) -> None:
        self.left = list(failures)
        self.told: list[tuple[int, float]] = []
        self.stop = threading.Event()
        policy = RetryPolicy(attempts_max, pause_s=0.001, pause_s_max=0.004)
        self.retrying = Retrying(policy, self.stop, lambda _, failures, pause_s: self.told.append((failures, pause_s)))

    def run(self, before: Callable[[], None] = lambda: None) -> RunSummary:
        def attempt() -> RunSummary:
            before()
            failure = self.left.pop(0)
            if failure is not None:
                raise failure
            return RunSummary()

        return self.retrying.run(attempt)


def test_what_passes_is_tried_again_after_longer_and_longer_pauses():
    runs = Runs(AWAY, BUSY, AWAY, None)
    runs.run()
    assert runs.told == [(1, 0.001), (2, 0.002), (3, 0.004)]


def test_there_is_an_end():
    runs = Runs(AWAY, AWAY, AWAY, AWAY, None)
    with pytest.raises(KafkaError, match="cannot reach"):
        runs.run()
    assert len(runs.told) == 3


def test_what_stays_is_not_tried_again():
    runs = Runs(STAYS, None)
    with pytest.raises(KafkaError, match="topic t"):
        runs.run()
    assert not runs.told


def test_a_finished_batch_ends_the_row_and_all_batches_count():
    runs = Runs(*[AWAY] * 6, None)
    batch = BatchProgress("p", "q", 0, "2026-01-01T00:00:00Z", 5, 1.0, 10, 0, None, 0, 0)
    runs.run(lambda: runs.retrying.progressed(batch))
    assert [failures for failures, _ in runs.told] == [1] * 6
    assert (runs.retrying.summary.rows, runs.retrying.summary.batches) == (35, 7)


def test_a_stop_ends_the_pause():
    runs = Runs(AWAY)
    runs.stop.set()
    runs.run()
    assert not runs.left
