"""`tailrace delays`: the mover of delayed records.

Prints one line on stdout, `delays: <room>`, once it moves or waits to take over.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import signal

from tailrace.cli import CommandError
from tailrace.cli.logs import add_log_options, start_logging
from tailrace.cli.session import add_client_options, run_client
from tailrace.client.metadata import Cluster
from tailrace.kit.delays.headers import Room
from tailrace.kit.delays.mover import Mover, MoverOptions, create_topics

DESCRIPTION = (
    "Bring delayed records to their topics when they are due, until Ctrl-C. Of several movers of a room one moves, and "
    "the others replace it."
)
EXAMPLES = """\
examples:
  tailrace delays
  tailrace delays --bootstrap one:9092,two:9092 --name reminders
"""


def register(parser: argparse.ArgumentParser) -> None:
    add_client_options(parser)
    defaults = MoverOptions()
    parser.add_argument(
        "--name", default=defaults.room.name, metavar="ROOM", help="where records wait: its topics are named so"
    )
    parser.add_argument(
        "--tick",
        type=int,
        default=defaults.tick_ms,
        metavar="MS",
        help=f"how often it looks what is due (default: {defaults.tick_ms})",
    )
    parser.add_argument(
        "--memory",
        type=int,
        default=defaults.memory_bytes,
        metavar="BYTES",
        help=f"of records that are due within a minute; beyond it they come late (default: {defaults.memory_bytes})",
    )
    add_log_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if re.fullmatch(r"[A-Za-z0-9._-]{1,200}", options.name) is None:
        raise CommandError(
            f"--name {options.name!r} cannot begin the name of a topic: letters, digits, '.', '_' and '-'"
        )
    if options.tick < 1 or options.memory < 1:
        raise CommandError("--tick and --memory are 1 or more")
    start_logging(options)
    return run_client(options, lambda cluster: _move(cluster, options))


async def _move(cluster: Cluster, options: argparse.Namespace) -> int:
    chosen = MoverOptions(Room(options.name), tick_ms=options.tick, memory_bytes=options.memory)
    mover = Mover(cluster, chosen)
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, mover.stop)
    await create_topics(cluster, chosen.room)
    print(f"delays: {options.name}", flush=True)
    await mover.run()
    return 0
