"""Figures in the docs are those that were measured, set or counted: whoever changes one of them changes the other."""

import json
import re
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from bench.versus.results import OURS, read_rows
from bench.versus.summary import fill, summary_text
from tailrace.cli import main
from tailrace.cli.plan.figures import DEFAULT_FIGURES
from tailrace.model.config import BrokerConfig
from tailrace.testing import LOW_LATENCY

ROOT = Path(__file__).parents[2]
BESIDE_KAFKA: dict[str, Any] = json.loads((ROOT / "bench" / "versus" / "results.json").read_text())
DEFAULTS = BrokerConfig(node_id=1)
GOLDEN = ROOT / "tests" / "golden"


def page(name: str) -> str:
    return (ROOT / name).read_text()


def default(setting: str) -> int:
    value = getattr(DEFAULTS, setting.replace(".", "_"))
    assert isinstance(value, int)
    return value


def number(name: str, pattern: str) -> float:
    """The one that stands in the page, where the pattern has a group. Lines may be broken anywhere."""
    found = re.search(pattern.replace(" ", r"\s+"), page(name))
    assert found is not None, f"{name} does not say any more: {pattern}"
    return float(found[1].replace(",", ""))


def table(name: str, heading: str) -> list[list[str]]:
    """The cells of the first table behind a heading, without its own."""
    lines = page(name).partition(heading)[2].partition("\n|")[2].splitlines()
    rows = list(takewhile(str.strip, lines))
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def test_the_readme_tells_what_was_measured_beside_kafka() -> None:
    assert fill(page("README.md"), summary_text(BESIDE_KAFKA)) == page("README.md"), "python -m bench.versus.page"


def test_the_readme_tells_the_measured_time_of_a_start() -> None:
    (start,) = [row for row in read_rows(BESIDE_KAFKA) if row.name == "start-1" and not row.figure]
    told = number("README.md", r"a broker, \[([\d.]+) s\]\(docs/benchmarks.md#start-and-memory\)")
    assert told == round(start.median(OURS) or 0, 1)


def test_spark_is_as_fast_as_was_recorded() -> None:
    records = [json.loads(line) for line in page("bench/results.jsonl").splitlines()]
    figures = {figure["name"]: figure for record in records for figure in record["figures"]}
    rows = {row[0]: row for row in table("docs/spark/performance.md", "# What Spark gets")}
    names = [name for name in rows if name in figures]
    assert len(names) >= 8
    for name in names:
        _name, ours, _goal, theirs, ratio = rows[name]
        assert ours == f"{figures[name]['value'] / 1000:,.0f}k"
        if figures[name]["baseline"] and not theirs.startswith("("):
            assert theirs == f"{figures[name]['baseline'] / 1000:,.0f}k"
            assert float(ratio) == pytest.approx(figures[name]["value"] / figures[name]["baseline"], abs=0.06)


def test_the_planner_counts_with_what_its_page_says() -> None:
    told = {meaning: figure for meaning, figure, _source in table("docs/planning.md", "## What it counts with")}
    assert told == {each.meaning: f"{each.value:,g} {each.unit}" for each in DEFAULT_FIGURES}


def test_the_plan_of_the_page_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    command, *lines = re.findall(r"```\n(.*?)```", page("docs/planning.md"), re.DOTALL)[0].splitlines()
    assert main(command.removeprefix("$ tailrace ").split()) == 0
    printed = [re.split(r"\t", line.strip()) for line in capsys.readouterr().out.splitlines()]
    assert [re.split(r"  +", line.strip()) for line in lines] == printed[: len(lines)]


def test_the_low_latency_profile() -> None:
    rows = table("docs/reliability.md", "## The low-latency profile")
    assert {name: int(low) for name, low, _default in rows} == dict(LOW_LATENCY)
    assert {name: int(told) for name, _low, told in rows} == {name: default(name) for name in LOW_LATENCY}


@pytest.mark.parametrize(
    ("name", "pattern", "setting", "unit"),
    [
        (
            "docs/reliability.md",
            r"takes up to (\d+) s longer .*`eligible.leader.wait.ms`",
            "eligible.leader.wait.ms",
            1000,
        ),
        ("docs/reliability.md", r"`replica.cut.retention.bytes` \((\d+) GB\)", "replica.cut.retention.bytes", 1 << 30),
        ("docs/reliability.md", r"at (\d+) MB/s at most \(`log.scrub.max", "log.scrub.max.bytes.per.second", 1 << 20),
        ("docs/reliability.md", r"to half a second, from ([\d.]+) s", "broker.session.timeout.ms", 1000),
        (
            "docs/reliability.md",
            r"Above (\d+) partition changes a second",
            "controller.partition.changes.max.per.second",
            1,
        ),
        ("docs/groups.md", r"the last (\d+) of a group \(`group.history", "group.history.max.rebalances", 1),
    ],
)
def test_defaults_that_are_told_in_words(name: str, pattern: str, setting: str, unit: int) -> None:
    assert number(name, pattern) * unit == default(setting)


def test_once_a_week() -> None:
    assert "once a week (`log.scrub.interval.ms`)" in page("docs/reliability.md")
    assert default("log.scrub.interval.ms") == 7 * 24 * 3_600_000


def test_what_was_recorded_from_kafka_is_counted() -> None:
    recorded = {
        "questions about transactions": ("transactions/kafka.json", "transactions/kafka_table.json"),
        "about offsets": ("groups/offsets.json",),
        "lives of groups": ("groups/kafka.json", "groups/consumers.json"),
    }
    for what, files in recorded.items():
        counted = sum(len(json.loads((GOLDEN / file).read_text())) for file in files)
        assert number("docs/reliability.md", rf"(\d+) {what}") == counted
