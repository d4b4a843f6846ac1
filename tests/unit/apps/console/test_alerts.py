"""What the alerts tell the console, through the file between them."""

from __future__ import annotations

import json

from tailrace.apps.alerts.engine import Engine
from tailrace.apps.alerts.rules import Rule, Sending
from tailrace.apps.alerts.status import sorted_alerts, status_of, write_status
from tailrace.apps.console.alerts import read_status
from tailrace.apps.scrape import Moment, Reading, Sample

RULES = (
    Rule(name="Late", summary="{value} late", metric="lag", above=5, for_seconds=10),
    Rule(name="Down", summary="{instance} is away", metric="up", by=("instance",), below=1, severity="critical"),
)


def write(path, engine, readings, at, **changed):
    engine.step(Moment(at, at), readings)
    status = status_of(
        at=at,
        interval_seconds=10.0,
        problem="",
        rules=engine.rules,
        alerts=sorted_alerts(engine.alerts.values()),
        ended=[],
        readings=readings,
        is_silenced=lambda alert: alert.rule.name == changed.get("silenced"),
    )
    write_status(str(path), status)


def test_what_holds_is_read_as_it_was_written(tmp_path):
    path, engine = tmp_path / "status.json", Engine(RULES, Sending())
    info = Sample("tailrace_build_info", frozenset({("node", "7")}), 1)
    count = Sample("kafka_server_socket_server_metrics_connection_count", frozenset({("listener", "CLIENTS")}), 3)
    samples = (Sample("lag", frozenset(), 9), info, count)
    readings = [Reading("a:1", Moment(100, 100), samples), Reading("b:1", Moment(100, 100), None, "refused")]
    write(path, engine, readings, 100.0)
    status = read_status(str(path), 101.0)
    assert [(each["rule"], each["is_told"]) for each in status.alerts] == [("Down", True), ("Late", False)]
    assert status.alerts[0]["summary"] == "b:1 is away"
    assert (status.told, status.problem) == (1, "")
    assert status.nodes[0]["connections"] == {"CLIENTS": 3}
    assert (status.nodes[0]["node"], status.nodes[1]["problem"]) == ("7", "refused")
    assert [each["name"] for each in status.rules] == ["Late", "Down"]
    write(path, engine, readings, 111.0, silenced="Down")
    assert read_status(str(path), 112.0).told == 1
    assert "does `tailrace alerts` still run" in read_status(str(path), 200.0).problem


def test_what_is_wrong_with_the_file_is_told(tmp_path):
    path = tmp_path / "status.json"
    assert "is not there" in read_status(str(path), 0.0).problem
    for text in ("{", "[]", json.dumps({"at": "x"}), "\x00"):
        path.write_text(text)
        assert "is not what" in read_status(str(path), 0.0).problem
