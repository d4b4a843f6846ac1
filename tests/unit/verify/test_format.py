"""The lines of a history: what is refused and how it is told, what is passed over, what the recorder writes."""

import json

import pytest

from tailrace.verify import HistoryError, Recorder, verify
from tailrace.verify.findings import EVIDENCE_PER_KIND
from tests.unit.verify.scribe import P, Scribe

POLL = '{"process":"c","type":"ok","op":"poll","records":[["orders-0",0,"a"]]}\n'


def event(**fields):
    return json.dumps({"process": 1, "type": "ok", "op": "poll", "records": [], **fields}) + "\n"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("nonsense\n", "not JSON"),
        ("[1]\n", "not a JSON object"),
        ('{"process":1}\n', "has no `type`"),
        ('{"process":1,"type":"ok"}\n', "has no `op`"),
        ('{"type":"ok","op":"poll"}\n', "has no `process`"),
        ('{"process":1,"type":"ok","op":"poll"}\n', "`poll` has no 'records'"),
        (event(op="read"), "there is no operation 'read'; they are begin, send,"),
        (event(type="done"), "`type` is one of invoke, ok, fail, info"),
        (event(process=None), "`process` is a string or a number"),
        (event(records=[["orders-0", 5]]), "is not of the format"),
        (event(records=[["orders-0", -1, "a"]]), "an offset is a whole number"),
        (event(records=[["orders-0", 0, ["a"]]]), "a value is a string or a whole number"),
        (event(records=[[7, 0, "a"]]), "a partition is a string"),
        (event(op="send"), "`send` of process 1 ends as 'ok', but was not invoked"),
        (event(op="commit", type="invoke"), "`commit` of process 1, which has not begun a transaction"),
    ],
)
def test_what_is_no_history_is_refused_by_its_line(line, problem):
    with pytest.raises(HistoryError) as error:
        verify([POLL, "\n", line, POLL])
    assert str(error.value).startswith("line 3: ")
    assert problem in str(error.value)


def test_a_send_that_ends_as_another_is_refused():
    lines = [
        '{"process":1,"type":"invoke","op":"send","records":[["orders-0","a"]]}',
        '{"process":1,"type":"ok","op":"send","records":[["orders-0",0,"b"]]}',
    ]
    with pytest.raises(HistoryError, match='line 2: the send of "a" ends with the value "b"'):
        verify(lines)


@pytest.mark.parametrize("end", ["commit ok", "abort ok"])
def test_a_transaction_that_is_over_cannot_be_committed(end):
    scribe = Scribe()
    scribe.write(end, (P, 0, "a"))
    scribe.producer.commit()
    with pytest.raises(HistoryError, match="line 6: `commit` of process p, which has not begun a transaction"):
        scribe.judge()


def test_a_last_line_that_was_cut_off_is_passed_over():
    assert verify([POLL, POLL[:20]]).figures.events == 1
    with pytest.raises(HistoryError, match="line 1: not JSON"):
        verify([POLL[:20], POLL])


def test_sends_of_several_records_and_begins_of_polls_are_understood():
    lines = [
        '{"process":1,"type":"invoke","op":"send","records":[["t-0","a"],[null,"b"]],"more":1}',
        '{"process":1,"type":"ok","op":"send","records":[["t-0",0,"a"],["t-1",null,"b"]]}',
        '{"process":2,"type":"invoke","op":"poll"}',
        '{"process":2,"type":"ok","op":"poll","records":[["t-0",0,"a"]]}',
        '{"process":2,"type":"ok","op":"drain"}',
    ]
    report = verify(lines)
    assert [finding.sentence for finding in report.anomalies] == [
        '"b" of t-1 was acknowledged to process 1 (line 2); nobody read it until all was drained (line 5)'
    ]


def test_values_that_tell_no_records_apart_are_refused():
    scribe = Scribe()
    for offset in range(1001):
        scribe.sent("hello", offset)
    with pytest.raises(HistoryError, match='line 2001: "hello" was sent more than 1000 times'):
        scribe.judge()


def test_a_kind_that_does_not_exist_cannot_be_allowed():
    with pytest.raises(ValueError, match="there is no kind lost: the kinds are lost-write,"):
        verify([], allow=["lost"])


def test_of_many_anomalies_all_are_counted_and_the_first_are_kept():
    scribe = Scribe()
    scribe.sent("a", 0)
    count = EVIDENCE_PER_KIND + 5
    scribe.reader.polled([(P, offset + 1, f"x{offset}") for offset in range(count)])
    report = scribe.judge()
    assert report.findings.counts_of_anomalies() == {"unsent-read": count}
    assert len(report.anomalies) == EVIDENCE_PER_KIND


def test_long_values_are_shortened_in_sentences():
    scribe = Scribe()
    scribe.sent("a", 0)
    scribe.reader.polled([(P, 1, "long" * 1000)])
    assert len(scribe.only("unsent-read")) < 200


def test_the_recorder_writes_one_line_for_each_moment():
    lines = []
    times = iter(range(100))
    recorder = Recorder(lines.append, now=lambda: next(times))
    process = recorder.process("p", isolation="read_committed", idempotent=False)
    process.begin()
    send = process.send(None, "a")
    send.ok(7, P)
    process.offsets("g", {P: 1})
    process.commit().ok()
    process.assigned([P])
    process.polled([(P, 7, "a")])
    assert [json.loads(line) for line in lines] == [
        {"process": "p", "time": time, **fields}
        for time, fields in enumerate(
            [
                {"type": "ok", "op": "begin"},
                {"type": "invoke", "op": "send", "id": 1, "records": [[None, "a"]], "idempotent": False},
                {"type": "ok", "op": "send", "id": 1, "records": [[P, 7, "a"]]},
                {"type": "ok", "op": "offsets", "group": "g", "offsets": {P: 1}},
                {"type": "invoke", "op": "commit"},
                {"type": "ok", "op": "commit"},
                {"type": "ok", "op": "assign", "partitions": [P]},
                {"type": "ok", "op": "poll", "isolation": "read_committed", "records": [[P, 7, "a"]]},
            ]
        )
    ]
    assert verify(lines).is_clean
