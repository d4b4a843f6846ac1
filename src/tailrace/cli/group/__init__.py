"""`tailrace group list|describe|reset|delete|history`: who reads what, how far behind, and why it rebalanced."""

from __future__ import annotations

import argparse
import re

from tailrace.cli import Actions
from tailrace.cli.group.describe import describe_groups
from tailrace.cli.group.history import history_groups
from tailrace.cli.group.listing import delete_groups, list_groups
from tailrace.cli.group.reset import reset_groups
from tailrace.cli.session import Work, add_client_work, positive_seconds
from tailrace.cli.times import parse_time

DESCRIPTION = "List, describe, reset and delete consumer groups, and see why they rebalanced."
EXAMPLES = """\
examples:
  tailrace group list
  tailrace group describe billing --watch
  tailrace group reset billing --topic orders --to-datetime 2026-01-01T00:00:00Z --execute
  tailrace group history billing
  tailrace group delete billing
"""

_NEGATIVE_VALUE = re.compile(r"-\d+(ms|s|m|h|d)?$")


def register(parser: argparse.ArgumentParser) -> None:
    actions = Actions(parser)
    _register_list(actions)
    _register_describe(actions)
    _register_reset(actions)
    _register_delete(actions)
    _register_history(actions)


def _register_list(actions: Actions) -> None:
    parser = _add_action(actions, "list", list_groups, "list groups of all brokers", "list --state empty")
    parser.add_argument("--state", action="append", default=[], metavar="STATE", help="only these: stable, empty, ...")
    parser.add_argument(
        "--type", action="append", default=[], choices=("classic", "consumer", "share", "streams"), help="only these"
    )


def _register_describe(actions: Actions) -> None:
    parser = _add_action(
        actions,
        "describe",
        describe_groups,
        "show members, their partitions, offsets and lag",
        "describe billing --watch",
    )
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="default: all")
    parser.add_argument(
        "--watch",
        nargs="?",
        const=2.0,
        type=positive_seconds,
        metavar="SECONDS",
        help="again every so often (default: 2), until Ctrl-C",
    )


def _register_reset(actions: Actions) -> None:
    parser = _add_action(
        actions,
        "reset",
        reset_groups,
        "move the committed offsets of a group without members; shows what would change, unless --execute is given",
        "reset billing --topic orders:0,1 --shift-by -100 --execute",
    )
    # Without this argparse takes the -100 of `--shift-by -100` for an option.
    parser._negative_number_matcher = _NEGATIVE_VALUE
    parser.add_argument("group", metavar="GROUP")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--topic", action="append", metavar="TOPIC[:N,...]", help="these partitions, or all of it; repeatable"
    )
    which.add_argument("--all-topics", action="store_true", help="wherever the group has committed an offset")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="to the first record that is there")
    where.add_argument("--to-latest", action="store_true", help="to the end: what comes next")
    where.add_argument("--to-offset", type=int, metavar="N", help="to this offset, or the nearest that is there")
    where.add_argument(
        "--to-datetime",
        type=parse_time,
        metavar="TIME",
        help="to the first record at or after it: ISO 8601, or milliseconds since 1970",
    )
    where.add_argument("--by-duration", type=parse_time, metavar="TIME", help="to so long ago: 30s, 5m, 2h, 1d")
    where.add_argument("--shift-by", type=int, metavar="N", help="by so many records, back if negative")
    parser.add_argument("--execute", action="store_true", help="do it")


def _register_delete(actions: Actions) -> None:
    parser = _add_action(
        actions, "delete", delete_groups, "delete groups without members, with their offsets", "delete billing"
    )
    parser.add_argument("groups", nargs="+", metavar="GROUP")
    parser.add_argument("--if-exists", action="store_true", help="no failure if a group is not there")


def _register_history(actions: Actions) -> None:
    parser = _add_action(
        actions, "history", history_groups, "show the last rebalances and their causes", "history billing"
    )
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="default: all")


def _add_action(actions: Actions, name: str, work: Work, help_text: str, example: str) -> argparse.ArgumentParser:
    parser = actions.add(name, help_text, example)
    add_client_work(parser, work)
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    return parser
