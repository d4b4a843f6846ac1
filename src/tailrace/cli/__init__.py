"""The `tailrace` command.

`COMMANDS` is the one list of commands. The module of a command has `DESCRIPTION`, `EXAMPLES` and `register(parser)`,
which adds its options and sets the default `run`, a function of the parsed arguments that returns the exit code. Only
the module of the command that was asked for is imported, since the time from `tailrace up` to a ready broker is a
feature.

Exit codes: 0 done, 1 it failed (the reason stands on stderr), 2 the command line is wrong, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from tailrace import __version__


class Command(NamedTuple):
    module: str
    help_text: str


# In the order in which `tailrace --help` lists them.
COMMANDS = {
    "up": Command("tailrace.cli.node.up", "start a broker, or a cluster, in the foreground"),
    "format": Command("tailrace.cli.node.format", "prepare the data folders of a node"),
    "broker": Command("tailrace.cli.node.broker", "start one node from a settings file"),
    "repair": Command("tailrace.cli.node.repair", "show and mend a damaged metadata log"),
    "health": Command("tailrace.cli.health", "say whether nodes are ready and their cluster is whole"),
    "cluster": Command("tailrace.cli.cluster", "describe the cluster, add and decommission brokers"),
    "balance": Command("tailrace.cli.balance", "plan and run moves of partitions that balance the cluster, throttled"),
    "topic": Command("tailrace.cli.topic", "create, list, describe, alter and delete topics"),
    "produce": Command("tailrace.cli.produce", "write records to a topic"),
    "consume": Command("tailrace.cli.consume", "print the records of a topic"),
    "delays": Command("tailrace.cli.apps.delays", "bring delayed records to their topics when they are due"),
    "dlq": Command("tailrace.cli.dlq", "list, show, replay and drop the dead letters of applications"),
    "console": Command("tailrace.cli.apps.console", "show the cluster in a browser"),
    "gateway": Command("tailrace.cli.apps.gateway", "produce and consume by HTTP, for any Kafka"),
    "registry": Command("tailrace.cli.schema.registry", "start a schema registry, for any Kafka"),
    "schema": Command("tailrace.cli.schema.command", "check whether a schema may be registered; compare versions"),
    "group": Command("tailrace.cli.group", "list, describe, reset and delete consumer groups; why they rebalanced"),
    "queue": Command("tailrace.cli.queue", "see how deep queues (share groups) are; send dead letters back"),
    "transaction": Command(
        "tailrace.cli.transaction", "list and describe transactions; find and abort those that hang"
    ),
    "mirror": Command(
        "tailrace.cli.mirror", "mirror topics of another cluster, offset by offset, and fail over to them"
    ),
    "acl": Command("tailrace.cli.acl", "say who may do what: add, list, remove and explain ACLs"),
    "tier": Command("tailrace.cli.tier", "look into the bucket of a cluster: list, verify, find orphans"),
    "quota": Command("tailrace.cli.quota", "set, list and remove quotas of clients"),
    "user": Command("tailrace.cli.secure.user", "create, list and delete users that log in by SCRAM"),
    "token": Command("tailrace.cli.secure.token", "create, list, renew and expire delegation tokens"),
    "certificate": Command("tailrace.cli.secure.certificate", "make, show and renew certificates"),
    "pipeline": Command(
        "tailrace.cli.pipeline", "run pipelines on Spark: topics to tables and topics, backfills, audits"
    ),
    "audit": Command("tailrace.cli.audit", "compare topics, tables and recorded histories, on Spark"),
    "verify": Command("tailrace.cli.verify", "check a recorded history of clients"),
    "plan": Command("tailrace.cli.plan", "say how large a cluster a workload needs"),
    "top": Command("tailrace.cli.watch.top", "watch rates, lag, hot partitions and slow requests in the terminal"),
    "alerts": Command("tailrace.cli.watch.alerts", "tell people what is wrong with a cluster"),
    "metrics": Command("tailrace.cli.watch.metrics", "write rules for Prometheus and a dashboard for Grafana"),
    "debug": Command("tailrace.cli.debug", "look into a node: stacks, profile, a bundle for support"),
    "sim": Command("tailrace.cli.sim", "run a simulated cluster under faults"),
}


class CommandError(Exception):
    """The command cannot be done. The message says the problem, its cause and the remedy; it is all the user sees."""


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser(words).parse_args(words)
    try:
        exit_code: int = options.run(options)
        sys.stdout.flush()
    except CommandError as error:
        print(f"tailrace: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output (`| head`) has left: nothing went wrong. Python must not complain at exit either.
        sys.stdout = None
        return 0
    return exit_code


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tailrace",
        description="A durable message queue that speaks the Apache Kafka wire protocol.",
        epilog="example:\n  tailrace up\n\n`tailrace COMMAND --help` shows the options and an example of each command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tailrace {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    wanted = next((word for word in words if not word.startswith("-")), None)
    # Where the first word is a command nobody is shown the others, and thirty parsers are 3 ms of a start.
    shown = {words[0]: COMMANDS[words[0]]} if words and words[0] in COMMANDS else COMMANDS
    for name, command in shown.items():
        if name == wanted:
            module = import_module(command.module)
            module.register(
                _add_parser(subparsers, name, command.help_text, description=module.DESCRIPTION, epilog=module.EXAMPLES)
            )
        else:
            subparsers.add_parser(name, help=command.help_text)
    return parser


class Actions:
    """The second word of a command, such as the `list` of `tailrace topic list`."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._command = parser.prog
        self._subparsers = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(self, name: str, help_text: str, example: str) -> argparse.ArgumentParser:
        return _add_parser(
            self._subparsers,
            name,
            help_text,
            description=f"{help_text[0].upper()}{help_text[1:]}.",
            epilog=f"example:\n  {self._command} {example}\n",
        )


def _add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    help_text: str,
    *,
    description: str,
    epilog: str,
) -> argparse.ArgumentParser:
    return subparsers.add_parser(
        name,
        help=help_text,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
