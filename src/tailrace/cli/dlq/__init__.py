"""`tailrace dlq list|show|replay|drop`: dead letters, and what becomes of them."""

from __future__ import annotations

import argparse

from tailrace.cli import Actions
from tailrace.cli.dlq.reading import list_letters, show_letters
from tailrace.cli.dlq.settling import drop_letters, replay_letters
from tailrace.cli.session import Work, add_client_work
from tailrace.cli.times import parse_time

DESCRIPTION = "Look at dead letters, replay and drop them."
EXAMPLES = """\
examples:
  tailrace dlq list
  tailrace dlq list orders.dlq --group billing --error TimeoutError
  tailrace dlq show orders.dlq 0:17
  tailrace dlq replay orders.dlq --group billing --execute
  tailrace dlq drop orders.dlq 0:17 --execute
"""


def register(parser: argparse.ArgumentParser) -> None:
    actions = Actions(parser)
    _register_list(actions)
    _register_show(actions)
    _register_replay(actions)
    _register_drop(actions)


def _register_list(actions: Actions) -> None:
    parser = _add_action(
        actions, "list", list_letters, "list the letters of a topic, or all topics named *.dlq", "list orders.dlq"
    )
    parser.add_argument("topic", nargs="?", metavar="TOPIC")
    _add_filters(parser)
    parser.add_argument("--limit", type=_positive, default=100, metavar="N", help="at most so many (default: 100)")


def _register_show(actions: Actions) -> None:
    parser = _add_action(
        actions, "show", show_letters, "show letters as a whole, with the stack of the failure", "show orders.dlq 0:17"
    )
    parser.add_argument("topic", metavar="TOPIC")
    _add_places(parser, nargs="*")
    _add_filters(parser)


def _register_replay(actions: Actions) -> None:
    parser = _add_action(
        actions,
        "replay",
        replay_letters,
        "give letters back to the handler that has failed; shows what would be done, unless --execute is given",
        "replay orders.dlq --error TimeoutError --execute",
    )
    parser.add_argument("topic", metavar="TOPIC")
    _add_places(parser, nargs="*")
    _add_filters(parser)
    parser.add_argument(
        "--to", metavar="TOPIC", help="where they go (default: each to the topic that it came from, for its group only)"
    )
    parser.add_argument("--all", action="store_true", help="without a filter")
    parser.add_argument("--execute", action="store_true", help="do it")


def _register_drop(actions: Actions) -> None:
    parser = _add_action(
        actions,
        "drop",
        drop_letters,
        "delete letters; shows what would be done, unless --execute is given",
        "drop orders.dlq --until -30d --execute",
    )
    parser.add_argument("topic", metavar="TOPIC")
    _add_places(parser, nargs="*")
    _add_filters(parser)
    parser.add_argument("--all", action="store_true", help="without a filter")
    parser.add_argument("--execute", action="store_true", help="do it")


def _add_places(parser: argparse.ArgumentParser, *, nargs: str) -> None:
    parser.add_argument(
        "places", nargs=nargs, type=_place, metavar="PARTITION:OFFSET", help="these letters, as `list` has them"
    )


def _add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--group", metavar="GROUP", help="only letters of this group's handlers")
    parser.add_argument("--from", dest="origin_topic", metavar="TOPIC", help="only those that came from this topic")
    parser.add_argument("--error", metavar="TEXT", help="only with this text in the class or the message of the error")
    parser.add_argument("--key", metavar="TEXT", help="only with this key")
    parser.add_argument("--since", type=parse_time, metavar="TIME", help="only those that failed then or later")
    parser.add_argument("--until", type=parse_time, metavar="TIME", help="only those that failed before")


def _place(word: str) -> tuple[int, int]:
    partition, colon, offset = word.partition(":")
    if not colon or not partition.isdigit() or not offset.isdigit():
        raise argparse.ArgumentTypeError(f"{word!r} is not PARTITION:OFFSET, such as 0:17")
    return int(partition), int(offset)


def _positive(word: str) -> int:
    if not word.isdigit() or not int(word):
        raise argparse.ArgumentTypeError(f"{word!r} is not a number above 0")
    return int(word)


def _add_action(actions: Actions, name: str, work: Work, help_text: str, example: str) -> argparse.ArgumentParser:
    parser = actions.add(name, help_text, example)
    add_client_work(parser, work)
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    return parser
