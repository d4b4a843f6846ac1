"""`tailrace pipeline` as far as it goes without Spark: what a file declares, and what is shown of a run."""

import argparse

import pytest

from tailrace.cli import CommandError, main
from tailrace.cli.pipeline.display import Display
from tailrace.cli.pipeline.together import Together
from tailrace.real.runs.folder import read_runs
from tailrace.spark.pipelines import load
from tailrace.spark.pipelines.progress import BatchProgress

PIPELINE = """\
name = "orders"
bootstrap = "127.0.0.1:9092"
checkpoint = "/data/checkpoint"
[sources.orders]
topic = "orders"
[sink]
table = "/data/orders"
"""
BACKFILL = """\
name: replay
bootstrap: 127.0.0.1:9092
checkpoint: /data/checkpoint
kafka: {security.protocol: SSL}
backfill:
  source: {topic: orders, start: "2026-01-30T00:00:00Z"}
  sink: {topic: again}
"""


@pytest.fixture
def file(tmp_path):
    def write(text, name="p.toml"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def test_check_says_what_is_declared(file, capsys):
    assert main(["pipeline", "check", "--offline", file(PIPELINE)]) == 0
    assert capsys.readouterr().out == "pipeline orders: topic orders -> parquet table /data/orders\n"
    assert main(["pipeline", "check", file(BACKFILL, "p.yaml")]) == 0
    assert capsys.readouterr().out == "backfill replay: topic orders -> topic again\n"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "p.toml",
            PIPELINE.replace("topic", "topik"),
            "p.toml:5: sources.orders.topik: no such key: did you mean topic?",
        ),
        (
            "p.yaml",
            BACKFILL.replace("again", "orders"),
            "p.yaml:7: backfill.sink: the topic would be copied into itself",
        ),
        (
            "p.yaml",
            BACKFILL.replace("start", "stort"),
            "p.yaml:6: backfill.source.stort: no such key: did you mean start?",
        ),
        ("p.yaml", BACKFILL.replace("kafka", "kavka"), "p.yaml:4: kavka: no such key: did you mean kafka?"),
        ("p.yaml", BACKFILL.replace("again", "[]"), "p.yaml:7: backfill.sink.topic: a list where a text belongs"),
    ],
)
def test_check_names_the_line(file, capsys, name, text, message):
    assert main(["pipeline", "check", file(text, name)]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('format = "json"\nschema = "id INTT"', "source orders: option value.schema"),
        ('format = "json"\nschema = "id INT, id INT"', "field 'id' is there twice"),
        ('options = { maxOffsetPerTrigger = "5" }', "did you mean maxOffsetsPerTrigger?"),
    ],
)
def test_check_parses_schemas_and_options_without_anybody(file, capsys, line, message):
    text = PIPELINE.replace('topic = "orders"\n', f'topic = "orders"\n{line}\n')
    assert main(["pipeline", "check", "--offline", file(text)]) == 1
    assert message in capsys.readouterr().err


def test_check_says_which_broker_cannot_be_reached(file, capsys):
    text = PIPELINE.replace("127.0.0.1:9092", "127.0.0.1:1") + '[kafka]\n"request.timeout.ms" = 200\n'
    assert main(["pipeline", "check", file(text)]) == 1
    assert "cannot reach 127.0.0.1:1: connection refused" in capsys.readouterr().err


def test_what_cannot_be_compacted(file, capsys):
    assert main(["pipeline", "compact", file(PIPELINE)]) == 1
    assert "Use format delta or iceberg" in capsys.readouterr().err
    assert main(["pipeline", "compact", file(BACKFILL, "p.yaml")]) == 1
    assert "declares no table" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_ends_no_run(file, capsys, monkeypatch):
    monkeypatch.setenv("TAILRACE_PIPELINES", "/proc/nowhere")
    options = argparse.Namespace(port=0, host="127.0.0.1", once=True, retries=0, remote=None)
    with Together({"p.toml": load(file(PIPELINE))}, options, None).told():
        told = capsys.readouterr().err
    assert "others will not see this run: /proc/nowhere: No such file" in told
    assert "metrics and health: http://127.0.0.1:" in told


def test_two_runs_and_a_port_that_is_taken(file, tmp_path, monkeypatch):
    monkeypatch.setenv("TAILRACE_PIPELINES", str(tmp_path / "runs"))
    monkeypatch.setattr("tailrace.real.runs.folder._LOCK_ATTEMPTS", 2)
    options = argparse.Namespace(port=0, host="127.0.0.1", once=True, retries=0, remote=None)
    other = PIPELINE.replace("data/checkpoint", "data/other")
    with Together({"p.toml": load(file(PIPELINE))}, options, None).told():
        with pytest.raises(CommandError, match="orders runs already, as process"):
            Together({"p.toml": load(file(PIPELINE))}, options, None).told().__enter__()
        (run,) = read_runs(tmp_path / "runs")
        options.port = int(run.url.rpartition(":")[2])
        with pytest.raises(CommandError, match=r"cannot listen on 127\.0\.0\.1:"):
            Together({"o.toml": load(file(other))}, options, None).told().__enter__()


def progress(batch, rows, lag):
    return BatchProgress("orders", "q", batch, "2026-01-01T00:00:00Z", rows, 50.0, 2000, lag, None, 0, 0)


def test_a_pipe_gets_a_line_now_and_then(capsys):
    with Display(["orders"]) as display:
        display.show(progress(0, 1000, 5))
        display.show(progress(1, 10, None))
    assert capsys.readouterr().err == "orders: batch 0: 1,000 rows in 2,000 ms, 50 rows/s, lag 5; 1,000 rows so far\n"


def test_a_terminal_gets_a_table(capsys, monkeypatch):
    monkeypatch.setattr("tailrace.cli.pipeline.display.is_terminal", lambda stream: True)
    with Display(["orders"]) as display:
        display.show(progress(3, 1000, 5))
        display.show(progress(4, 10, None))
    shown = capsys.readouterr().err
    assert "orders: 1,010 rows" in shown
    assert [line.split() for line in shown.splitlines() if line.strip()[:1] in ("3", "4")] == [
        ["3", "1,000", "50", "5", "2,000", "0", "0"],
        ["4", "10", "50", "-", "2,000", "0", "0"],
    ]
