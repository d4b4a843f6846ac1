"""The command line of an audit: what its words declare, and what is refused before Spark starts."""

import argparse

import pytest

from tailrace.cli import CommandError, audit, main
from tailrace.spark.audit import Audit, HistorySide, TableSide, TopicSide


def declared(*words: str) -> Audit:
    parser = argparse.ArgumentParser()
    audit.register(parser)
    return audit._declared(parser.parse_args(words))


def test_two_topics_share_what_is_said_once():
    assert declared(
        "orders", "topic:copy", "--bootstrap", "b:1", "--kafka", "client.id=x", "--start", "earliest"
    ) == Audit(TopicSide("orders", "b:1", kafka={"client.id": "x"}), TopicSide("copy", "b:1", kafka={"client.id": "x"}))
    assert declared("orders", "copy", "--actual-bootstrap", "b:2", "--no-order", "--where", "partition = 0") == Audit(
        TopicSide("orders", "127.0.0.1:9092", order_by=(), where="partition = 0"), TopicSide("copy", "b:2")
    )


def test_a_table_has_expressions_of_its_own():
    words = (
        "--by",
        "key",
        "--actual-by",
        "id",
        "--compare",
        "value",
        "--actual-compare",
        "amount",
        "--actual-offset",
        "o",
    )
    assert declared("orders", "delta:/data/x:y", *words, "--actual-partition", "p", "--distinct") == Audit(
        TopicSide("orders", "127.0.0.1:9092", by=("key",), compare=("value",)),
        TableSide("/data/x:y", format="delta", by=("id",), compare=("amount",), partition="p", offset="o"),
        distinct=True,
    )


def test_gaps_are_allowed_unless_they_are_to_fail():
    assert declared("history:run.jsonl", "orders", "--allow", "reordered") == Audit(
        HistorySide("run.jsonl"), TopicSide("orders", "127.0.0.1:9092"), allow=("gap", "reordered")
    )
    assert declared("history:run.jsonl", "orders", "--fail-on-gaps").allow == ()


def test_what_cannot_be_is_said_before_spark_starts(capsys, tmp_path):
    with pytest.raises(CommandError, match="give it first"):
        declared("orders", "history:run.jsonl")
    with pytest.raises(CommandError, match=r"cannot write .*: No such file"):
        declared("orders", "copy", "--html", str(tmp_path / "no" / "report.html"))
    assert main(["audit", "orders", "table:/data"]) == 1
    assert "tailrace: say what tells its rows apart" in capsys.readouterr().err
