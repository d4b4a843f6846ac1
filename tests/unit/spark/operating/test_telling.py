"""What a run tells of itself: which state follows from what, in a file that others read."""

import pytest

from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.real.runs.folder import RunFile, read_runs
from tailrace.real.runs.status import State
from tailrace.spark.operating.lag import Lag, PartitionLag
from tailrace.spark.operating.telling import Telling
from tailrace.spark.pipelines.progress import BatchProgress, Sign

PARTITION = TopicPartition("a", PartitionIndex(0))


@pytest.fixture
def telling(tmp_path):
    file = RunFile(tmp_path, "orders", "/cp")
    with file.hold():
        telling = Telling(file, name="orders", checkpoint="/cp", declared_in="/p.toml", summary="a -> b")
        telling.begin("http://127.0.0.1:1")
        yield telling


def seen(tmp_path):
    (found,) = read_runs(tmp_path)
    return found


def progress(batch, rows):
    return BatchProgress("orders", "q", batch, "", rows, 1.0, 250, 0, None, 0, 1, {"a": {"0": 10 * batch}})


def test_from_its_start_to_its_end(telling, tmp_path):
    assert seen(tmp_path).state is State.STARTING
    telling.sign(Sign.STARTED)
    assert seen(tmp_path).state is State.RUNNING
    telling.progressed(progress(3, 5))
    telling.progressed(progress(4, 0))
    found = seen(tmp_path)
    assert (found.batches, found.rows, found.late_rows, found.last_batch, found.last_batch_ms) == (1, 5, 2, 4, 250)
    assert telling.done == {PARTITION: 40}
    telling.wish_to_stop()
    telling.progressed(progress(5, 1))
    assert seen(tmp_path).state is State.STOPPING
    telling.end(State.STOPPED)
    telling.beat()
    assert seen(tmp_path).state is State.STOPPED


def test_it_is_well_again_when_a_batch_is_done_and_not_when_it_starts_again(telling, tmp_path):
    telling.sign(Sign.STARTED)
    telling.failed("no broker")
    telling.sign(Sign.STARTED)
    found = seen(tmp_path)
    assert (found.state, found.problem) == (State.RETRYING, "no broker")
    telling.sign(Sign.IDLE)
    found = seen(tmp_path)
    assert (found.state, found.problem) == (State.RUNNING, "")


def test_a_lag_that_nobody_knows_any_more_is_not_the_last_one(telling, tmp_path):
    telling.lagging(Lag((PartitionLag(PARTITION, 3, 10, 2.5), PartitionLag(PARTITION, 5, 5, 0.0))))
    found = seen(tmp_path)
    assert (found.lag, found.lag_seconds) == (7, 2.5)
    telling.lagging(None)
    found = seen(tmp_path)
    assert (found.lag, found.lag_seconds, found.lag_at) == (None, None, None)


def test_a_full_disk_ends_no_pipeline(telling, tmp_path, monkeypatch):
    telling.progressed(progress(1, 5))

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunFile, "write", full)
    telling.progressed(progress(2, 5))
    assert telling.status.rows == 10
    assert seen(tmp_path).rows == 5


def test_how_old_a_lag_is():
    old, new, unknown = (PartitionLag(PARTITION, 0, 5, age) for age in (60.0, 1.0, None))
    assert Lag((new, old, unknown)).seconds == 60.0
    assert Lag((unknown,)).seconds is None
    assert Lag((PartitionLag(PARTITION, 5, 5, None),)).seconds == 0.0
