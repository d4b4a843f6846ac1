"""The `tailrace` command.

Each command lives in a module of this folder with one function, `register(subparsers)`, which adds its parser and sets
the default `run`, a function of the parsed arguments that returns the exit code. Only the module of the command that
was asked for is imported, since the time from `tailrace up` to a ready broker is a feature.

Exit codes: 0 done, 1 it failed (the reason stands on stderr), 2 the command line is wrong, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from tailrace import __version__

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

# In the order in which `tailrace --help` lists them.
COMMANDS = {
    "up": "tailrace.cli.node.up",
    "format": "tailrace.cli.node.format",
    "broker": "tailrace.cli.node.broker",
    "repair": "tailrace.cli.node.repair",
    "cluster": "tailrace.cli.cluster",
    "topic": "tailrace.cli.topic",
    "produce": "tailrace.cli.produce",
    "consume": "tailrace.cli.consume",
    "group": "tailrace.cli.group",
    "transaction": "tailrace.cli.transaction",
    "pipeline": "tailrace.cli.pipeline",
    "audit": "tailrace.cli.audit",
    "verify": "tailrace.cli.verify",
    "plan": "tailrace.cli.plan",
    "sim": "tailrace.cli.sim",
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
    wanted = [COMMANDS[words[0]]] if words and words[0] in COMMANDS else COMMANDS.values()
    for module in wanted:
        import_module(module).register(subparsers)
    return parser
