"""A recorded history as the expected side: which sends must, may and must not stand in the topic."""

import json

import pytest

from tailrace.spark.audit.compare import differences
from tailrace.spark.audit.errors import AuditError
from tailrace.spark.audit.history import check_events, read_events, sends, sent_rows
from tailrace.spark.audit.rows import record_rows
from tailrace.verify import Recorder


@pytest.fixture
def history(tmp_path):
    """A path, and a recorder that writes there."""
    path = tmp_path / "history.jsonl"
    lines = path.open("w")
    yield str(path), Recorder(lambda line: (lines.write(line), lines.flush()))
    lines.close()


def record_outcomes(recorder: Recorder) -> None:
    plain = recorder.process("plain")
    plain.send("orders-0", "acked").ok(0)
    plain.send("orders-0", "refused").fail()
    plain.send("orders-0", "timed out").info()
    plain.send("orders-0", "never answered")
    plain.send("other-0", "of another topic").ok(0)
    recorder.process("leader only", acks=1).send("orders-0", "acked by one").ok(1)
    recorder.process("retrying", idempotent=False).send(None, "doubled by itself").ok(3, "orders-1")
    for ending in ("committed", "aborted", "undecided", "refused, then aborted", "open"):
        process = recorder.process(ending)
        process.begin()
        process.send("orders-2", f"in {ending}").ok(7)
        if ending == "committed":
            process.commit().ok()
        elif ending == "aborted":
            process.abort().ok()
        elif ending == "undecided":
            process.commit().info()
        elif ending.startswith("refused"):
            process.commit().fail()
            process.abort().ok()
        if ending != "open":
            process.send("orders-2", f"after {ending}").ok(8)


def test_each_outcome_says_how_often_a_record_must_and_may_stand(spark, history):
    path, recorder = history
    record_outcomes(recorder)
    events = read_events(spark, path)
    check_events(events, path)
    for at_read_committed, aborted in ((True, 0), (False, 1)):
        rows = sent_rows(sends(events), "orders", at_read_committed=at_read_committed)
        assert {row.label: (row.least, row.most) for row in rows.collect()} == {
            "acked": (1, 1),
            "refused": (0, 0),
            "timed out": (0, 1),
            "never answered": (0, 1),
            "acked by one": (0, 1),
            "doubled by itself": (1, 1_000_000_000),
            "in committed": (1, 1),
            "in aborted": (0, aborted),
            "in undecided": (0, 1),
            "in refused, then aborted": (0, aborted),
            "in open": (0, aborted),
            "after committed": (1, 1),
            "after aborted": (1, 1),
            "after undecided": (1, 1),
            "after refused, then aborted": (1, 1),
        }


def test_a_topic_is_held_against_what_clients_were_told(spark, history):
    path, recorder = history
    producer = recorder.process("p")
    for number in range(6):
        producer.send("orders-0", number).ok(number)
    producer.send("orders-0", "refused").fail()
    producer.send("orders-0", "unknown").info()
    # 1 is lost; 2 stands at 3 and 3 at 2; 4 stands twice; the refused one is there, and one that nobody sent.
    found = [(0, b"0"), (2, b"3"), (3, b"2"), (4, b"4"), (5, b"5"), (6, b"4"), (7, b"refused"), (8, b"stray")]
    topic = spark.createDataFrame(
        [(offset, bytearray(value)) for offset, value in found], "offset bigint, value binary"
    )
    actual = record_rows(
        topic, by=("value",), compare=("concat('orders-0@', offset)",), partition="'orders-0'", offset="offset"
    )
    expected = sent_rows(sends(read_events(spark, path)), "orders", at_read_committed=True)
    assert sorted((row.kind, row.records, row.label) for row in differences(expected, actual).collect()) == [
        ("changed", 1, "2"),
        ("changed", 1, "3"),
        ("duplicate", 1, "4"),
        ("lost", 1, "1"),
        ("unexpected", 1, "stray"),
        ("withdrawn", 1, "refused"),
    ]


def test_the_last_line_may_be_cut_off_and_no_other(spark, tmp_path):
    line = json.dumps({"process": "p", "type": "ok", "op": "begin"})
    path = tmp_path / "history.jsonl"
    path.write_text(f"{line}\n{line}\n\n" + line[:20])
    check_events(read_events(spark, str(path)), str(path))
    path.write_text(f"{line}\n{line[:20]}\n{line}\n")
    with pytest.raises(AuditError, match=r"is not a history: 1 lines .* such as '{\"process\""):
        check_events(read_events(spark, str(path)), str(path))
    path.write_text("")
    with pytest.raises(AuditError, match="is empty"):
        check_events(read_events(spark, str(path)), str(path))
