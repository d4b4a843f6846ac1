"""`tailrace transaction list|describe|find-hanging|abort`: who is in a transaction, since when, and which hang."""

from __future__ import annotations

import argparse

from tailrace.cli import Actions
from tailrace.cli.session import Work, add_client_work, positive_seconds
from tailrace.cli.transaction.hanging import abort_transactions, find_hanging_transactions
from tailrace.cli.transaction.listing import describe_transactions, list_transactions

DESCRIPTION = "List and describe transactions, and find and abort those that hang."
EXAMPLES = """\
examples:
  tailrace transaction list --state Ongoing
  tailrace transaction describe loader
  tailrace transaction find-hanging
  tailrace transaction abort --topic orders --partition 0 --start-offset 42 --execute
"""


def register(parser: argparse.ArgumentParser) -> None:
    actions = Actions(parser)
    _register_list(actions)
    _register_describe(actions)
    _register_find_hanging(actions)
    _register_abort(actions)


def _register_list(actions: Actions) -> None:
    parser = _add_action(
        actions, "list", list_transactions, "list transactional ids of all brokers", "list --longer-than 60"
    )
    parser.add_argument(
        "--state", action="append", default=[], metavar="STATE", help="only these: Ongoing, CompleteCommit, ..."
    )
    parser.add_argument("--producer-id", action="append", default=[], type=int, metavar="N", help="only these")
    parser.add_argument(
        "--longer-than", type=positive_seconds, metavar="SECONDS", help="only those that began so long ago"
    )
    parser.add_argument("--pattern", metavar="REGEX", help="only ids that this expression of RE2 matches as a whole")


def _register_describe(actions: Actions) -> None:
    parser = _add_action(
        actions,
        "describe",
        describe_transactions,
        "show the state, timeout and partitions of transactions",
        "describe loader",
    )
    parser.add_argument("transactional_ids", nargs="+", metavar="ID")


def _register_find_hanging(actions: Actions) -> None:
    parser = _add_action(
        actions,
        "find-hanging",
        find_hanging_transactions,
        "find transactions that are open in a partition though no coordinator will end them, or for too long",
        "find-hanging --topic orders --max-age 900",
    )
    parser.add_argument("--topic", action="append", metavar="TOPIC", help="only these (default: all); repeatable")
    parser.add_argument(
        "--max-age",
        type=positive_seconds,
        default=900.0,
        metavar="SECONDS",
        help="report those that were not written to for so long, too (default: 900)",
    )


def _register_abort(actions: Actions) -> None:
    parser = _add_action(
        actions,
        "abort",
        abort_transactions,
        "end a hanging transaction in one partition; shows what would be done, unless --execute is given",
        "abort --topic orders --partition 0 --start-offset 42 --execute",
    )
    parser.add_argument("--topic", required=True, metavar="TOPIC")
    parser.add_argument("--partition", required=True, type=int, metavar="N")
    parser.add_argument("--start-offset", required=True, type=int, metavar="N", help="as find-hanging has it")
    parser.add_argument("--execute", action="store_true", help="do it")
    parser.add_argument(
        "--force", action="store_true", help="though a coordinator knows it: other partitions may have it committed"
    )


def _add_action(actions: Actions, name: str, work: Work, help_text: str, example: str) -> argparse.ArgumentParser:
    parser = actions.add(name, help_text, example)
    add_client_work(parser, work)
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    return parser
