"""What the log does not hold any more is named, and never passed over in silence."""

import logging

import pytest

from tailrace.model.ids import TopicPartition
from tailrace.spark.source.loss import DataLossError, LossReport, clip_to_log, report_late_start, report_missing
from tailrace.spark.source.offsets import OffsetRange

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def clip(start: int, end: int, *, log: range, fails: bool = True) -> tuple[int, int] | None:
    losses = LossReport(fail_on_data_loss=fails)
    clipped = list(clip_to_log({A: start}, {A: end}, log_starts={A: log.start}, log_ends={A: log.stop}, losses=losses))
    assert all(each.partition == A for each in clipped)
    return (clipped[0].start, clipped[0].end) if clipped else None


def test_what_is_there_is_read():
    assert clip(5, 10, log=range(5, 10)) == (5, 10)
    assert clip(6, 9, log=range(100)) == (6, 9)
    assert clip(7, 7, log=range(100)) is None
    assert clip(100, 100, log=range(100)) is None
    assert clip(3, 3, log=range(50, 100)) is None  # Nothing was wanted, so nothing is lost.


@pytest.mark.parametrize(
    ("wanted", "log", "message", "rest"),
    [
        ((5, 20), range(12, 30), "offsets 5 to 11 of t-0 are lost: its log begins at 12", (12, 20)),
        ((5, 20), range(40, 50), "offsets 5 to 19 of t-0 are lost: its log begins at 40", None),
        ((5, 20), range(15), "offsets 15 to 19 of t-0 are not there: its log ends at 15", (5, 15)),
        ((5, 20), range(3), "offsets 5 to 19 of t-0 are not there: its log ends at 3", None),
        ((30, 20), range(20), "t-0 is to be read from offset 30, and ends at 20", None),
    ],
)
def test_what_is_lost_is_named(
    wanted: tuple[int, int],
    log: range,
    message: str,
    rest: tuple[int, int] | None,
    caplog: pytest.LogCaptureFixture,
):
    with pytest.raises(DataLossError, match=message) as failed:
        clip(*wanted, log=log)
    assert "failOnDataLoss to false" in str(failed.value)
    with caplog.at_level(logging.WARNING):
        assert clip(*wanted, log=log, fails=False) == rest
    assert message in caplog.text


def test_partitions_that_are_gone():
    losses = LossReport(fail_on_data_loss=True)
    with pytest.raises(DataLossError, match="t-1 is gone, with what it held below offset 9"):
        list(clip_to_log({A: 0, B: 0}, {A: 5, B: 9}, log_starts={A: 0}, log_ends={A: 5}, losses=losses))
    with pytest.raises(DataLossError, match="t-1 was read before and is gone"):
        report_missing({A: 1, B: 2}, {A: 1}, losses)
    report_missing({A: 1}, {A: 1, B: 2}, losses)
    lenient = LossReport(fail_on_data_loss=False)
    kept = list(clip_to_log({A: 0, B: 0}, {A: 5, B: 9}, log_starts={A: 0}, log_ends={A: 5}, losses=lenient))
    assert kept == [OffsetRange(A, 0, 5)]


def test_new_partitions_begin_at_their_first_record():
    losses = LossReport(fail_on_data_loss=True)
    report_late_start({A: 0}, losses)
    with pytest.raises(DataLossError, match="t-1 is new, and its log begins at offset 4: offsets 0 to 3 are lost"):
        report_late_start({A: 0, B: 4}, losses)
