"""`tailrace group list|describe|reset|delete|history`: who reads what, how far behind, and why it rebalanced."""

from __future__ import annotations

import argparse
import re
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING

from tailrace.cli.session import add_client_options, positive_seconds, run_client
from tailrace.cli.times import parse_time

if TYPE_CHECKING:
    from tailrace.cli import Subparsers
    from tailrace.client.metadata import Cluster

EXAMPLES = """\
examples:
  tailrace group list
  tailrace group describe billing --watch
  tailrace group reset billing --topic orders --to-datetime 2026-01-01T00:00:00Z --execute
  tailrace group history billing
  tailrace group delete billing
"""

_NEGATIVE_VALUE = re.compile(r"-\d+(ms|s|m|h|d)?$")

Work = Callable[["Cluster", argparse.Namespace], Awaitable[int]]


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "group",
        help="list, describe, reset and delete consumer groups; why they rebalanced",
        description="List, describe, reset and delete consumer groups, and see why they rebalanced.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _register_list(actions)
    _register_describe(actions)
    _register_reset(actions)
    _register_delete(actions)
    _register_history(actions)


def _register_list(actions: Subparsers) -> None:
    parser = _add_action(actions, "list", "listing", "list groups of all brokers", "list --state empty")
    parser.add_argument("--state", action="append", default=[], metavar="STATE", help="only these: stable, empty, ...")
    parser.add_argument("--type", action="append", default=[], choices=("classic", "consumer"), help="only these")


def _register_describe(actions: Subparsers) -> None:
    parser = _add_action(
        actions, "describe", "describe", "show members, their partitions, offsets and lag", "describe billing --watch"
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


def _register_reset(actions: Subparsers) -> None:
    parser = _add_action(
        actions,
        "reset",
        "reset",
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


def _register_delete(actions: Subparsers) -> None:
    parser = _add_action(
        actions, "delete", "listing", "delete groups without members, with their offsets", "delete billing"
    )
    parser.add_argument("groups", nargs="+", metavar="GROUP")
    parser.add_argument("--if-exists", action="store_true", help="no failure if a group is not there")


def _register_history(actions: Subparsers) -> None:
    parser = _add_action(actions, "history", "history", "show the last rebalances and their causes", "history billing")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="default: all")


def _add_action(actions: Subparsers, name: str, module: str, help_text: str, example: str) -> argparse.ArgumentParser:
    parser = actions.add_parser(
        name,
        help=help_text,
        description=f"{help_text[0].upper()}{help_text[1:]}.",
        epilog=f"example:\n  tailrace group {example}\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_client_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON lines")

    def run(options: argparse.Namespace) -> int:
        work: Work = getattr(import_module(f"tailrace.cli.group.{module}"), f"{name}_groups")
        return run_client(options, lambda cluster: work(cluster, options))

    parser.set_defaults(run=run)
    return parser
