"""`tailrace cluster describe|add|decommission`: a cluster as its operator sees it, grown and shrunk while it works."""

from __future__ import annotations

import argparse

from tailrace.cli import Actions
from tailrace.cli.balance.options import add_goal_options, add_pace_options
from tailrace.cli.cluster.change import Change
from tailrace.cli.cluster.describe import describe
from tailrace.cli.session import Work, add_client_work

DESCRIPTION = "Describe the cluster, add brokers and decommission them while it works."
EXAMPLES = """\
examples:
  tailrace cluster describe
  tailrace cluster add
  tailrace cluster decommission 4
"""


def register(parser: argparse.ArgumentParser) -> None:
    actions = Actions(parser)
    _register_describe(actions)
    _register_add(actions)
    _register_decommission(actions)


def _register_describe(actions: Actions) -> None:
    _add_action(
        actions,
        "describe",
        lambda cluster, options: describe(cluster, as_json=options.json),
        "show brokers, the metadata quorum, leaders, and partitions that lack replicas or a leader",
        "describe --json",
    )


def _register_add(actions: Actions) -> None:
    parser = _add_action(
        actions,
        "add",
        lambda cluster, options: Change(cluster, options).add(options.broker),
        "bring one more broker in and move its share of partitions to it",
        "add --at-once 5",
    )
    parser.add_argument(
        "--broker",
        type=int,
        metavar="ID",
        help="a broker that was started with `tailrace broker`; without it the `tailrace up` that runs the cluster on "
        "this machine starts one",
    )
    add_goal_options(parser)
    add_pace_options(parser)


def _register_decommission(actions: Actions) -> None:
    parser = _add_action(
        actions,
        "decommission",
        lambda cluster, options: Change(cluster, options).decommission(options.broker),
        "move everything off a broker, stop it and forget it",
        "decommission 4",
    )
    parser.add_argument("broker", type=int, metavar="ID", help="the broker that is to go")
    add_goal_options(parser)
    add_pace_options(parser)


def _add_action(actions: Actions, name: str, work: Work, help_text: str, example: str) -> argparse.ArgumentParser:
    parser = actions.add(name, help_text, example)
    add_client_work(parser, work)
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser
