"""`tailrace cluster describe|add|decommission`: a cluster as its operator sees it, grown and shrunk while it works."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tailrace.cli.session import add_client_options, positive_seconds, run_client

if TYPE_CHECKING:
    from tailrace.cli import Subparsers
    from tailrace.client.metadata import Cluster

EXAMPLES = """\
examples:
  tailrace cluster describe
  tailrace cluster add
  tailrace cluster decommission 4
"""

# Partitions that move at one time: each copies as fast as it can, and clients share disks and network with them.
_AT_ONCE = 20


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "cluster",
        help="describe the cluster, add and decommission brokers",
        description="Describe the cluster, add brokers and decommission them while it works.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _register_describe(actions)
    _register_add(actions)
    _register_decommission(actions)


def _register_describe(actions: Subparsers) -> None:
    parser = _add_action(
        actions,
        "describe",
        "show brokers, the metadata quorum, leaders, and partitions that lack replicas or a leader",
        "describe --json",
    )

    async def work(cluster: Cluster, options: argparse.Namespace) -> int:
        from tailrace.cli.cluster.describe import describe

        return await describe(cluster, as_json=options.json)

    parser.set_defaults(run=lambda options: run_client(options, lambda cluster: work(cluster, options)))


def _register_add(actions: Subparsers) -> None:
    parser = _add_action(
        actions, "add", "bring one more broker in and move its share of partitions to it", "add --at-once 5"
    )
    parser.add_argument(
        "--broker",
        type=int,
        metavar="ID",
        help="a broker that was started with `tailrace broker`; without it the `tailrace up` that runs the cluster on "
        "this machine starts one",
    )
    _add_move_options(parser)

    async def work(cluster: Cluster, options: argparse.Namespace) -> int:
        from tailrace.cli.cluster.change import Change

        return await Change(cluster, options).add(options.broker)

    parser.set_defaults(run=lambda options: run_client(options, lambda cluster: work(cluster, options)))


def _register_decommission(actions: Subparsers) -> None:
    parser = _add_action(
        actions, "decommission", "move everything off a broker, stop it and forget it", "decommission 4"
    )
    parser.add_argument("broker", type=int, metavar="ID", help="the broker that is to go")
    _add_move_options(parser)

    async def work(cluster: Cluster, options: argparse.Namespace) -> int:
        from tailrace.cli.cluster.change import Change

        return await Change(cluster, options).decommission(options.broker)

    parser.set_defaults(run=lambda options: run_client(options, lambda cluster: work(cluster, options)))


def _add_action(actions: Subparsers, name: str, help_text: str, example: str) -> argparse.ArgumentParser:
    parser = actions.add_parser(
        name,
        help=help_text,
        description=f"{help_text[0].upper()}{help_text[1:]}.",
        epilog=f"example:\n  tailrace cluster {example}\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_client_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _add_move_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--at-once",
        type=int,
        default=_AT_ONCE,
        metavar="N",
        help=f"how many partitions move at one time (default: {_AT_ONCE})",
    )
    parser.add_argument(
        "--wait",
        type=positive_seconds,
        default=3600.0,
        metavar="SECONDS",
        help="how long all of it may take; what moves then goes on moving (default: 3600)",
    )
