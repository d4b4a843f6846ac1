"""`tailrace mirror`: topics of another cluster, here."""

from __future__ import annotations

import argparse

from tailrace.cli import Actions
from tailrace.cli.mirror.links import create_link, delete_link, pause_link, resume_link
from tailrace.cli.mirror.opening import cut, fail_over, promote
from tailrace.cli.mirror.reversing import reopen, reverse
from tailrace.cli.mirror.showing import describe_link, list_links
from tailrace.cli.session import (
    Work,
    add_client_work,
    add_source_login,
    add_source_options,
    key_and_value,
    positive_seconds,
)

DESCRIPTION = (
    "Mirror topics of another cluster, any Kafka from 2.1 on, with the same bytes at the same offsets; and fail over "
    "to them, or move to them for good."
)
EXAMPLES = """\
examples:
  tailrace mirror create dc1 --source kafka-1:9092 --topics 'orders,payments*'
  tailrace mirror describe dc1
  tailrace mirror failover dc1 --dry-run
  tailrace mirror promote dc1 --topic orders --wait 60
  tailrace mirror reverse dc1

Passwords and certificates for the source lie in a file on each broker: NAME.properties in the folder that
mirror.credentials.dir names. They never get into the metadata.
"""


def register(parser: argparse.ArgumentParser) -> None:
    actions = Actions(parser)
    _register_create(actions)
    parser = _add_action(actions, "list", list_links, "list links, with how far they are behind", "list")
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    parser = _add_link_action(actions, "describe", describe_link, "show the topics and partitions of a link")
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    _add_link_action(actions, "pause", pause_link, "mirror nothing for a while; what is here can be read on")
    _add_link_action(actions, "resume", resume_link, "go on after a pause, where it was")
    parser = _add_link_action(
        actions, "promote", promote, "make mirrors topics of their own, once all that the source has is here"
    )
    _add_topics(parser)
    parser.add_argument("--wait", type=positive_seconds, metavar="SECONDS", help="until it is done, so long at most")
    parser.add_argument("--cancel", action="store_true", help="take a promote back that still waits")
    parser.add_argument(
        "--fence-source",
        action="store_true",
        help="deny WRITE at a source that is no Tailrace, by an ACL",
    )
    add_source_login(parser)
    parser = _add_link_action(
        actions, "failover", fail_over, "make mirrors topics of their own at once, with what is here; tells the loss"
    )
    _add_topics(parser)
    parser = _add_link_action(
        actions,
        "cut",
        cut,
        "cut what the source has lost where a partition has stopped; it is saved first",
    )
    _add_topics(parser)
    _register_reverse(actions)
    parser = _add_action(
        actions, "reopen", reopen, "let clients write again to topics here that were handed over", "reopen orders"
    )
    parser.add_argument("topics", metavar="TOPIC", nargs="+", help="a topic of this cluster")
    parser = _add_link_action(actions, "delete", delete_link, "delete a link by which nothing is mirrored any more")
    _add_dry_run(parser)


def _register_reverse(actions: Actions) -> None:
    parser = _add_link_action(
        actions,
        "reverse",
        reverse,
        "make the source, a Tailrace, the mirror of what was promoted or failed over here",
    )
    _add_topics(parser)
    add_source_login(parser)
    parser.add_argument(
        "--here", metavar="HOST:PORT,...", help="how the source reaches this cluster (default: as brokers advertise)"
    )
    parser.add_argument("--as", dest="reverse_name", metavar="NAME", help="of the link at the source")


def _register_create(actions: Actions) -> None:
    parser = _add_action(
        actions,
        "create",
        create_link,
        "make a link to another cluster, and mirror its topics",
        "create dc1 --source kafka-1:9092 --topics 'orders,payments*'",
    )
    parser.add_argument("name", metavar="NAME", help="of the link")
    add_source_options(parser)
    for option, text in (
        ("topics", "names, and beginnings of names that end in *, separated by commas (default: *)"),
        ("topics-exclude", "those that are not mirrored all the same"),
        ("groups", "consumer groups whose committed offsets follow (default: *)"),
        ("groups-exclude", "those that do not"),
        ("acls", "principals whose ACLs on these topics and groups follow, such as User:* (default: none)"),
    ):
        parser.add_argument(f"--{option}", metavar="NAMES", help=text)
    parser.add_argument("--prefix", metavar="TEXT", help="before the names of topics here, such as dc1.")
    parser.add_argument(
        "--start", metavar="WHERE", help="earliest (the default), latest, a time in ms since 1970, or offset:NUMBER"
    )
    parser.add_argument(
        "--set", type=key_and_value, action="append", default=[], dest="settings", metavar="NAME=VALUE",
        help="other settings of the link, see docs/mirroring.md; repeatable",
    )  # fmt: skip
    _add_dry_run(parser)


def _add_action(actions: Actions, name: str, work: Work, help_text: str, example: str) -> argparse.ArgumentParser:
    parser = actions.add(name, help_text, example)
    add_client_work(parser, work)
    return parser


def _add_link_action(actions: Actions, name: str, work: Work, help_text: str) -> argparse.ArgumentParser:
    parser = _add_action(actions, name, work, help_text, f"{name} dc1")
    parser.add_argument("name", metavar="NAME", help="of the link")
    return parser


def _add_topics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topic", action="append", default=[], dest="topics", metavar="TOPIC", help="only these; repeatable"
    )
    _add_dry_run(parser)


def _add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
