"""What Prometheus' own tool says to the rules, to the text of /metrics and to the dashboard's queries."""

import json
import subprocess
from pathlib import Path

import pytest

from tailrace.apps.alerts.defaults import DEFAULT_RULES
from tailrace.apps.alerts.prometheus import grafana_dashboard, prometheus_rules
from tailrace.testing import Broker
from tests.parts import need_program

DEADLINE_S = 60.0
CAMEL_CASE = "label names should be written in 'snake_case' not 'camelCase'"
OF_LOG_DIRECTORIES = {
    "kafka_log_logmanager_logdirectoryoffline",
    "tailrace_log_dir_total_bytes",
    "tailrace_log_dir_usable_bytes",
}


def promtool(*words: str, text: str = "") -> str:
    command = [need_program("promtool"), *words]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    said = done.stdout + done.stderr
    # 3: it can be read, and there are names that it would not have chosen.
    assert done.returncode in (0, 3), said
    return said


def queries() -> list[str]:
    return [target["expr"] for panel in json.loads(grafana_dashboard())["panels"] for target in panel["targets"]]


def test_the_rules_and_the_queries_of_the_dashboard_are_taken(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yml"
    rules.write_text(prometheus_rules(DEFAULT_RULES, job="tailrace"))
    assert f"SUCCESS: {len(DEFAULT_RULES)} rules found" in promtool("check", "rules", str(rules))
    records = [{"record": f"query_{number}", "expr": query} for number, query in enumerate(queries())]
    recorded = tmp_path / "queries.yml"
    recorded.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": records}]}))
    assert f"SUCCESS: {len(records)} rules found" in promtool("check", "rules", str(recorded))


@pytest.mark.parametrize(
    ("alert", "series", "values", "at", "is_firing"),
    [
        ("UnderReplicated", "kafka_server_replicamanager_underreplicatedpartitions", "0 3x20", "2m", True),
        ("UnderReplicated", "kafka_server_replicamanager_underreplicatedpartitions", "0 3 0x20", "2m", False),
        ("NoController", "kafka_controller_kafkacontroller_activecontrollercount", "1 0x20", "2m", True),
    ],
)
def test_prometheus_fires_when_we_would(
    tmp_path: Path, *, alert: str, series: str, values: str, at: str, is_firing: bool
) -> None:
    (tmp_path / "rules.yml").write_text(prometheus_rules(DEFAULT_RULES, job="tailrace"))
    rule = next(each for each in DEFAULT_RULES if each.name == alert)
    value = "3" if is_firing and rule.above is not None else "0"
    expected = {
        "exp_labels": {"severity": rule.severity},
        "exp_annotations": {"summary": rule.summary.replace("{value}", value), "runbook_url": rule.runbook},
    }
    case = {
        "interval": "15s",
        "input_series": [{"series": f'{series}{{instance="one", job="tailrace"}}', "values": values}],
        "alert_rule_test": [{"eval_time": at, "alertname": alert, "exp_alerts": [expected] if is_firing else []}],
    }
    path = tmp_path / "test.yml"
    path.write_text(json.dumps({"rule_files": ["rules.yml"], "evaluation_interval": "15s", "tests": [case]}))
    assert "SUCCESS" in promtool("test", "rules", str(path))


def test_the_text_of_metrics_is_taken() -> None:
    with Broker() as broker:
        text = broker.metrics().text
    # `logDirectory` is Kafka's name for it.
    complaints = promtool("check", "metrics", text=text).splitlines()
    assert {each.partition(" ")[2] for each in complaints} <= {CAMEL_CASE}
    assert {each.partition(" ")[0] for each in complaints} <= OF_LOG_DIRECTORIES
