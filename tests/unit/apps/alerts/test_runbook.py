"""Every shipped rule has an entry in the runbook, and says the same to Prometheus; a dashboard of what there is."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from tailrace.apps.alerts.defaults import DEFAULT_RULES
from tailrace.apps.alerts.prometheus import grafana_dashboard, prometheus_rules, promql
from tailrace.cli import main

DOCS = Path(__file__).parents[4] / "docs"
# What Prometheus has by itself.
BUILT_IN = {"up"}


def test_every_alert_has_an_entry_with_its_three_parts() -> None:
    text = (DOCS / "runbook.md").read_text()
    entries = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert set(entries) == {rule.name for rule in DEFAULT_RULES}
    for name, body in entries.items():
        for part in ("**Means**", "**Look at**", "**Do**"):
            assert part in body, f"{name} has no {part}"


def test_every_metric_of_a_rule_and_of_the_dashboard_is_documented() -> None:
    page = (DOCS / "metrics.md").read_text()
    names = {rule.metric for rule in DEFAULT_RULES} | {rule.divide_by for rule in DEFAULT_RULES} - {""}
    names |= set(re.findall(r"\b(?:kafka|tailrace)_\w+", grafana_dashboard()))
    told = set(re.findall(r"(?:kafka|tailrace)_\w+", page))
    # A row may name several by their last parts: `kafka_x_one`, `_two`.
    for line in page.splitlines():
        parts = re.findall(r"`(\w+)`", line.split("|")[1]) if line.startswith("|") else []
        for first in (each for each in parts if not each.startswith("_")):
            stem = first
            while "_" in stem:
                stem = stem.rpartition("_")[0]
                told |= {stem + each for each in parts if each.startswith("_")}
    missing = {name for name in names - BUILT_IN if re.sub(r"_bucket$", "", name) not in told}
    assert not missing


def test_rules_are_those_that_prometheus_takes(capsys) -> None:
    assert main(["metrics", "rules"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads(prometheus_rules(DEFAULT_RULES, job="tailrace"))
    (group,) = document["groups"]
    rules = {rule["alert"]: rule for rule in group["rules"]}
    assert len(rules) == len(DEFAULT_RULES)
    assert rules["UnderReplicated"]["for"] == "60s"
    assert rules["NodeDown"]["annotations"]["summary"] == "{{ $labels.instance }} does not answer"
    for rule in rules.values():
        assert rule["expr"].count("(") == rule["expr"].count(")")


def test_expressions() -> None:
    by_name = {rule.name: promql(rule) for rule in DEFAULT_RULES}
    assert by_name["NodeDown"] == "min by (instance) (up) < 1"
    assert by_name["NoController"] == "(sum (kafka_controller_kafkacontroller_activecontrollercount) or vector(0)) < 1"
    assert by_name["DiskFilling"] == (
        "min by (instance, logDirectory) (tailrace_log_dir_usable_bytes / tailrace_log_dir_total_bytes) < 0.2"
    )
    assert by_name["UncleanElection"].startswith("max (increase(")
    assert by_name["ClockSkew"].startswith("max (tailrace_clock_seconds - timestamp(tailrace_clock_seconds)) - min (")


def test_the_dashboard_is_one(capsys) -> None:
    assert main(["metrics", "dashboard"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["title"] == "Tailrace"
    assert len({panel["id"] for panel in document["panels"]}) == len(document["panels"]) > 5
    assert set(_lost(document, _as_grafana_reads(document))) == set()
    document["panels"][0]["titel"] = document["templating"]["lists"] = "misspelt"
    assert set(_lost(document, _as_grafana_reads(document))) == {"/panels/0/titel", "/templating/lists"}


def _as_grafana_reads(document: object) -> object:
    """By the classes that Grafana's own schema of a dashboard was made into."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    return json.loads(JSONEncoder().encode(Dashboard.from_json(document)))


def _lost(ours: object, theirs: object, path: str = "") -> Iterator[str]:
    """What Grafana does not know, or reads otherwise."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name, value in ours.items():
            yield from _lost(value, theirs.get(name), f"{path}/{name}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, value in enumerate(ours):
            yield from _lost(value, theirs[index], f"{path}/{index}")
    elif ours != theirs:
        yield path
