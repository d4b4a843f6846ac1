"""`tailrace acl add|list|remove|explain`: who may do what, on any Kafka."""

from __future__ import annotations

import argparse

from tailrace.cli import Actions
from tailrace.cli.acl.change import add_acls, remove_acls
from tailrace.cli.acl.look import explain_acls, list_acls
from tailrace.cli.acl.words import add_resources, host, operation, principal, resource
from tailrace.cli.session import Work, add_client_work

DESCRIPTION = "Say who may do what: ACLs of topics, groups, transactional ids and the cluster."
EXAMPLES = """\
examples:
  tailrace acl add alice --producer --topic orders
  tailrace acl add bob --consumer --topic orders --group billing
  tailrace acl add mallory --operation read --topic secret- --prefixed --deny
  tailrace acl list --topic orders --match
  tailrace acl explain alice write topic:orders
  tailrace acl remove --principal mallory
"""


def register(parser: argparse.ArgumentParser) -> None:
    actions = Actions(parser)
    _register_add(actions)
    _register_list(actions)
    _register_remove(actions)
    _register_explain(actions)


def _register_add(actions: Actions) -> None:
    parser = _add_action(
        actions, "add", add_acls, "allow or deny somebody something", "add alice --producer --topic orders"
    )
    parser.add_argument("principals", nargs="+", type=principal, metavar="WHO", help="alice, User:alice, or * for all")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--producer", action="store_true", help="what a producer needs: of topics, transactional ids")
    what.add_argument("--consumer", action="store_true", help="what a consumer needs: of topics and groups")
    what.add_argument(
        "--transactional", action="store_true", help="what a transactional producer needs: of topics, ids and groups"
    )
    what.add_argument(
        "--operation", action="append", type=operation, metavar="OPERATION", help="read, write, all, ...; repeatable"
    )
    add_resources(parser)
    parser.add_argument("--prefixed", action="store_true", help="names are the beginnings of names")
    parser.add_argument("--deny", action="store_true", help="deny it, whatever else allows it")
    parser.add_argument(
        "--host", action="append", type=host, metavar="ADDRESS", help="only from there (default: from anywhere)"
    )


def _register_list(actions: Actions) -> None:
    parser = _add_action(actions, "list", list_acls, "list ACLs", "list --topic orders --match")
    _add_filters(parser)


def _register_remove(actions: Actions) -> None:
    parser = _add_action(
        actions, "remove", remove_acls, "remove ACLs, and show which", "remove --principal mallory --topic orders"
    )
    _add_filters(parser)
    parser.add_argument("--all", action="store_true", help="all ACLs that there are")


def _register_explain(actions: Actions) -> None:
    parser = _add_action(
        actions,
        "explain",
        explain_acls,
        "say whether somebody may do something, and which rule decides",
        "explain alice write topic:orders",
    )
    parser.add_argument("principal", type=principal, metavar="WHO")
    parser.add_argument("operation", type=operation, metavar="OPERATION", help="read, write, describe, ...")
    parser.add_argument(
        "resource", type=resource, metavar="RESOURCE", help="topic:NAME, group:NAME, transactional-id:NAME or cluster"
    )
    parser.add_argument("--host", type=host, default="127.0.0.1", metavar="ADDRESS", help="asking from there")


def _add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--principal", type=principal, metavar="WHO", help="only those for alice or User:alice")
    parser.add_argument("--operation", type=operation, metavar="OPERATION", help="only those for this operation")
    add_resources(parser)
    pattern = parser.add_mutually_exclusive_group()
    pattern.add_argument("--prefixed", action="store_true", help="only patterns that are prefixes")
    pattern.add_argument("--match", action="store_true", help="all patterns that fit the name: prefixes and * too")


def _add_action(actions: Actions, name: str, work: Work, help_text: str, example: str) -> argparse.ArgumentParser:
    parser = actions.add(name, help_text, example)
    add_client_work(parser, work)
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    return parser
