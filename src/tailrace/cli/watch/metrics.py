"""`tailrace metrics rules|dashboard`: what Prometheus and Grafana need, written from the same rules as `alerts`."""

from __future__ import annotations

import argparse

from tailrace.cli import Actions

DESCRIPTION = "Write rules for Prometheus and a dashboard for Grafana."
EXAMPLES = """\
examples:
  tailrace metrics rules > tailrace-rules.yml
  tailrace metrics rules --rules alerts.toml --job orders > orders-rules.yml    of one of several clusters
  tailrace metrics dashboard > tailrace-dashboard.json
"""


def register(parser: argparse.ArgumentParser) -> None:
    actions = Actions(parser)
    rules = actions.add("rules", "print the rules of alerts as Prometheus takes them", "rules > tailrace-rules.yml")
    rules.add_argument("--rules", metavar="FILE", help="TOML that changes the shipped ones")
    rules.add_argument(
        "--job", default="tailrace", metavar="NAME", help="the job_name of its nodes at Prometheus (default: tailrace)"
    )
    rules.set_defaults(run=_rules)
    dashboard = actions.add("dashboard", "print a dashboard for Grafana", "dashboard > tailrace-dashboard.json")
    dashboard.set_defaults(run=_dashboard)


def _rules(options: argparse.Namespace) -> int:
    from tailrace.apps.alerts.prometheus import prometheus_rules
    from tailrace.cli.watch.alerts import _rule_file

    print(prometheus_rules(_rule_file(options.rules).rules, job=options.job), end="")
    return 0


def _dashboard(_options: argparse.Namespace) -> int:
    from tailrace.apps.alerts.prometheus import grafana_dashboard

    print(grafana_dashboard(), end="")
    return 0
