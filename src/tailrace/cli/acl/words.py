"""The words of `tailrace acl`: principals, operations and resources as people write them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from tailrace.controller.security.authorizer import Resource
from tailrace.model.acls import CLUSTER_NAME, Kind, Operation

_KINDS = {
    "topic": Kind.TOPIC,
    "group": Kind.GROUP,
    "transactional-id": Kind.TRANSACTIONAL_ID,
    "cluster": Kind.CLUSTER,
    "delegation-token": Kind.DELEGATION_TOKEN,
    "user": Kind.USER,
}


def principal(word: str) -> str:
    """`alice` is a user."""
    text = word if ":" in word else f"User:{word}"
    if not all(text.partition(":")):
        raise argparse.ArgumentTypeError(f"{word!r} is nobody: write a name such as alice, or User:alice")
    return text


def host(word: str) -> str:
    if not word or word != word.strip():
        raise argparse.ArgumentTypeError(f"{word!r} is no address")
    return word


def operation(word: str) -> Operation:
    try:
        return Operation[word.upper().replace("-", "_")]
    except KeyError:
        known = ", ".join(name.lower() for name in Operation.__members__)
        raise argparse.ArgumentTypeError(f"{word!r} is no operation: {known}") from None


def resource(word: str) -> Resource:
    kind, _, name = word.partition(":")
    if kind == "cluster" and name in ("", CLUSTER_NAME):
        return Resource(Kind.CLUSTER, CLUSTER_NAME)
    if kind not in _KINDS or not name:
        raise argparse.ArgumentTypeError(f"{word!r} is no resource: write topic:NAME, group:NAME, ... or cluster")
    return Resource(_KINDS[kind], name)


def add_resources(parser: argparse.ArgumentParser) -> None:
    for option, what in (
        ("--topic", "a topic"),
        ("--group", "a consumer group"),
        ("--transactional-id", "a transactional id"),
        ("--delegation-token", "a delegation token"),
    ):
        parser.add_argument(option, action="append", default=[], metavar="NAME", help=f"of {what}; * for all")
    parser.add_argument("--cluster", action="store_true", help="of the cluster as a whole")


def named_resources(options: argparse.Namespace) -> Iterator[Resource]:
    for kind in (Kind.TOPIC, Kind.GROUP, Kind.TRANSACTIONAL_ID, Kind.DELEGATION_TOKEN):
        for name in getattr(options, kind.name.lower()):
            yield Resource(kind, name)
    if options.cluster:
        yield Resource(Kind.CLUSTER, CLUSTER_NAME)
