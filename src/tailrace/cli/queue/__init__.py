"""`tailrace queue list|describe|set|peek|redrive|purge`: share groups as queues, and their dead letters."""

from __future__ import annotations

import argparse

from tailrace.cli import Actions
from tailrace.cli.queue.looking import describe_queue, list_queues, peek_queue
from tailrace.cli.queue.moving import configure_queue, purge_queue, redrive_queue
from tailrace.cli.records import ENCODINGS
from tailrace.cli.session import Work, add_client_work, key_and_value

DESCRIPTION = "See how deep queues (share groups) are, look into them, and send dead letters back."
EXAMPLES = """\
examples:
  tailrace queue list
  tailrace queue describe workers
  tailrace queue set workers errors.deadletterqueue.topic.name=dlq.jobs share.retry.backoff.ms=1000
  tailrace queue peek workers --dead-letters
  tailrace queue redrive workers
  tailrace queue purge workers --execute
"""


def register(parser: argparse.ArgumentParser) -> None:
    actions = Actions(parser)
    _add_action(actions, "list", list_queues, "list share groups with depth, what is out, and dead letters", "list")
    parser = _add_action(
        actions,
        "describe",
        describe_queue,
        "show each partition of a queue: depth, what is out, age",
        "describe workers",
    )
    parser.add_argument("group", metavar="GROUP")
    _register_set(actions)
    _register_peek(actions)
    _register_redrive(actions)
    _register_purge(actions)


def _register_set(actions: Actions) -> None:
    parser = _add_action(
        actions,
        "set",
        configure_queue,
        "change settings of a share group, which need not exist yet",
        "set workers share.delivery.count.limit=3",
    )
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("settings", nargs="*", type=key_and_value, metavar="KEY=VALUE", help="by Kafka's names")
    parser.add_argument("--unset", action="append", default=[], metavar="KEY", help="back to its default; repeatable")


def _register_peek(actions: Actions) -> None:
    parser = _add_action(
        actions,
        "peek",
        peek_queue,
        "print the first records of each partition, without taking them; some may be out, or done with already",
        "peek workers --dead-letters",
    )
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("--dead-letters", action="store_true", help="its dead letters instead: where from, and why")
    parser.add_argument(
        "--count", "-n", type=_positive, default=10, metavar="N", help="of each partition (default: 10)"
    )
    parser.add_argument("--value-encoding", choices=ENCODINGS, default="utf-8", help="how to print keys and values")


def _register_redrive(actions: Actions) -> None:
    parser = _add_action(
        actions,
        "redrive",
        redrive_queue,
        "send the records of dead letters back to the end of their partitions, and delete the letters",
        "redrive workers --count 10",
    )
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("--count", "-n", type=_positive, metavar="N", help="no more than so many (default: all)")
    parser.add_argument("--to", metavar="TOPIC", help="send them there instead")
    parser.add_argument(
        "--all-groups", action="store_true", help="letters of other groups too, where they share the topic"
    )
    parser.add_argument(
        "--drop-lost", action="store_true", help="delete letters whose records are gone, and that have no copy"
    )


def _register_purge(actions: Actions) -> None:
    parser = _add_action(
        actions,
        "purge",
        purge_queue,
        "empty a queue whose group has no members, or delete its dead letters; shows what would be done, unless "
        "--execute is given",
        "purge workers --dead-letters --execute",
    )
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("--dead-letters", action="store_true", help="the topic of its dead letters, all of it")
    parser.add_argument("--execute", action="store_true", help="do it")


def _positive(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is not a number above 0")
    return int(word)


def _add_action(actions: Actions, name: str, work: Work, help_text: str, example: str) -> argparse.ArgumentParser:
    parser = actions.add(name, help_text, example)
    add_client_work(parser, work)
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    return parser
