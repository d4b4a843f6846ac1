"""`tailrace pipeline list`, `status`, `lag` and `stop` without Spark: what is told of runs that live, and that died."""

import json
import threading
import time

import pytest

from tailrace.cli import main
from tailrace.real.runs.folder import RunFile
from tailrace.real.runs.status import RunStatus, State

PIPELINE = """\
name = "orders"
bootstrap = "127.0.0.1:1"
checkpoint = "{folder}/checkpoint"
[sources.orders]
topic = "orders"
[sink]
table = "/data/orders"
[kafka]
"request.timeout.ms" = 200
"default.api.timeout.ms" = 200
"""


@pytest.fixture
def orders(tmp_path, monkeypatch):
    """The file of a pipeline, and what a run of it tells."""
    monkeypatch.setenv("TAILRACE_PIPELINES", str(tmp_path / "runs"))
    (tmp_path / "orders.toml").write_text(PIPELINE.format(folder=tmp_path))
    run = RunFile(tmp_path / "runs", "orders", f"{tmp_path}/checkpoint")
    told = RunStatus(
        name="orders",
        run_id="r1",
        state=State.RUNNING,
        checkpoint=f"{tmp_path}/checkpoint",
        file=f"{tmp_path}/orders.toml",
        summary="a -> b",
        host="here",
        process_id=7,
        url="",
        started=0.0,
        written=time.time(),
        rows=5,
        lag=3,
        lag_seconds=2.0,
        last_batch=4,
    )
    with run.hold():
        run.write(told)
    return run


def lines(capsys, *words, code=0):
    assert main(["pipeline", *map(str, words)]) == code
    found = capsys.readouterr()
    return (found.err if code else found.out).splitlines()


def test_a_lag_of_a_run_that_died_is_no_news(orders, tmp_path, capsys):
    where = f"7@here\t{tmp_path}/orders.toml"
    with orders.hold():
        assert lines(capsys, "list") == [f"orders\trunning\t1970-01-01 00:00:00\t5\t4\t3\t2\t{where}"]
    assert lines(capsys, "list") == [f"orders\tdied\t1970-01-01 00:00:00\t5\t4\t-\t-\t{where}"]
    assert json.loads(lines(capsys, "list", "--json")[0])[0]["state"] == "died"


def test_status_says_what_it_knows_and_what_it_does_not(orders, tmp_path, capsys):
    told = lines(capsys, "status", "orders")
    assert "state: died: it ended without a word: killed, or it could not write" in told
    assert told[-1].startswith(f"problem: the checkpoint {tmp_path}/checkpoint cannot be read from here: ")
    for name, text in (("metadata", '{"id": "1"}'), ("commits/4", "v1"), ("offsets/4", 'v1\n{}\n{"orders": {"0": 9}}')):
        (tmp_path / "checkpoint" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkpoint" / name).write_text(text)
    (tmp_path / "checkpoint" / "offsets" / "5").write_text('v1\n{}\n{"orders": {"0": 12}}')
    told = lines(capsys, "status", tmp_path / "orders.toml")
    assert "checkpoint: batch 4 is done, and batch 5 was begun" in told
    assert "problem: cannot reach 127.0.0.1:1" in told[-1]
    found = json.loads(lines(capsys, "status", "orders", "--json")[0])
    assert (found["done_batch"], found["planned_batch"], found["lag"]) == (4, 5, None)
    assert "cannot reach 127.0.0.1:1" in lines(capsys, "lag", "orders", code=1)[0]


def test_stop_waits_for_the_batch(orders, capsys):
    def run():
        while not orders.is_to_stop("r1"):
            time.sleep(0.02)
        told = RunStatus("orders", "r1", State.STOPPED, checkpoint, "", "", "", 7, "", 0.0, time.time())
        orders.write(told)
        asked.set()

    asked = threading.Event()
    checkpoint = json.loads(lines(capsys, "list", "--json")[0])[0]["checkpoint"]
    with orders.hold():
        running = threading.Thread(target=run)
        running.start()
        assert main(["pipeline", "stop", "orders"]) == 0
        assert asked.is_set()
        running.join(10)
    assert "orders has stopped" in capsys.readouterr().err


def test_what_cannot_be_stopped(orders, capsys):
    assert "does not run on this machine" in lines(capsys, "stop", "orders", code=1)[0]
    assert "knows orders" in lines(capsys, "stop", "payments", code=1)[0]
    with orders.hold():
        told = lines(capsys, "stop", "orders", "--timeout", "1", code=1)
    assert "has not finished its batch in 1 s" in told[0]
