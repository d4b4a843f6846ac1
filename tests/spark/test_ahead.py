"""`tailrace pipeline plan`: what is told of a backfill before it runs, against what its topic really has."""

import json

import pytest

from tailrace.cli import main

RECORDS, SIZE = 1000, 500
HISTORY = """
name = "orders"
bootstrap = "{bootstrap}"
checkpoint = "{folder}/checkpoint"
[sources.rows]
topic = "{topic}"
format = "string"
[sink]
table = "{folder}/table"
format = "delta"
[history]
batch_records_max = 300
"""
BACKFILL = """
name = "again"
bootstrap = "{bootstrap}"
checkpoint = "{folder}/checkpoint"
[backfill]
records_per_second = 50
[backfill.source]
topic = "{topic}"
start = '{{"{topic}": {{"0": 100, "1": 500}}}}'
[backfill.sink]
topic = "elsewhere"
"""


@pytest.fixture(autouse=True)
def no_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("TAILRACE_PIPELINES", str(tmp_path / "runs"))


@pytest.fixture
def planned(tailrace_broker, create_topic, produce, tmp_path, capsys):
    topic = create_topic(2)
    produce(topic, [{"value": bytes(SIZE), "partition": n % 2} for n in range(RECORDS)])
    file = tmp_path / "p.toml"

    def plan(text, *words):
        file.write_text(text.format(bootstrap=tailrace_broker.bootstrap, folder=tmp_path, topic=topic))
        assert main(["pipeline", "plan", str(file), *words]) == 0
        return capsys.readouterr().out

    return plan


def test_a_history_before_it_begins(planned, tmp_path):
    told = json.loads(planned(HISTORY, "--json", "--rate", "100", "--cores", "4", "--core-hour", "0.9"))
    assert (told["records"], told["batches"], told["seconds"]) == (RECORDS, 4, 10.0)
    assert told["broker_bytes"] == RECORDS * SIZE
    assert told["costs"] == {"cores": pytest.approx(4 * 10 / 3600 * 0.9)}
    assert not (tmp_path / "checkpoint").exists(), "a plan writes nothing"
    assert "time     unknown: give --rate" in planned(HISTORY)


def test_what_is_left_of_one_that_was_cut_off(planned, tmp_path):
    topic = json.loads(planned(HISTORY, "--json"))["ranges"][0]["topic"]
    cut = tmp_path / "checkpoint" / "tailrace-cut"
    cut.mkdir(parents=True)
    (cut / "part-00000-x.txt").write_text(json.dumps({topic: {"0": 400, "1": 300}}) + "\n")
    for name, text in (("metadata", '{"id": "1"}'), ("commits/0", "v1\n{}"), ("offsets/0", None)):
        path = tmp_path / "checkpoint-history" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text or "v1\n{}\n" + json.dumps({topic: {"0": 150, "1": 300}}))
    told = json.loads(planned(HISTORY, "--json"))
    assert [(each["start"], each["end"]) for each in told["ranges"]] == [(150, 400), (300, 300)]
    assert "records  250 that are left\n" in planned(HISTORY)


def test_a_backfill_with_a_pace(planned):
    text = planned(BACKFILL, "--rate", "100000")
    assert "records  400\n" in text
    assert "batches  2 of 250 records" in text
    assert "8 seconds at 50 records a second (records_per_second)" in text
