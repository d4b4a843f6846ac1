"""`tailrace up`: a broker in the foreground, from nothing to ready in a third of a second.

Prints one line on stdout, `ready: <bootstrap servers>`, once clients can connect. Without `--data` everything lives in
a temporary folder, which is removed at the end.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tailrace.cli import CommandError
from tailrace.cli.logs import add_log_options, start_logging

if TYPE_CHECKING:
    from tailrace.cli import Subparsers
    from tailrace.model.config import BrokerConfig

EXAMPLES = """\
examples:
  tailrace up                                 on 127.0.0.1:9092, data in a temporary folder
  tailrace up --data ./data --port 9093       keeps its data
  tailrace up --host 0.0.0.0 --set advertised.listeners=PLAINTEXT://queue.example:9092
  tailrace up --set log.retention.hours=1 --set num.partitions=4
"""

_ALL_ADDRESSES = ("", "0.0.0.0", "::")  # noqa: S104 (compared; the user asks for it)


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "up",
        help="start a broker in the foreground",
        description="Start a broker in the foreground; prints `ready: <bootstrap servers>` once clients can connect.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--brokers", type=int, default=1, metavar="N", help="how many brokers to start (default: 1)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=9092, help="port to listen on, 0 for a free one (default: 9092)")
    parser.add_argument("--data", metavar="DIR", help="keep the data here (default: a temporary folder)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any broker setting, by Kafka's name; repeatable",
    )
    add_log_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.brokers != 1:
        raise CommandError(f"--brokers {options.brokers}: clusters are not there yet; start one broker (--brokers 1)")
    if not 0 <= options.port <= 65535:
        raise CommandError(f"--port {options.port}: a port is a number from 0 (a free one) to 65535")
    start_logging(options)
    # Imported after the command line was judged: it brings asyncio and the whole broker.
    from tailrace.cli.process import run_broker

    with _data_folder(options.data) as folder:
        return run_broker(_config(options, folder))


@contextmanager
def _data_folder(wanted: str | None) -> Iterator[str]:
    if wanted is not None:
        yield os.path.abspath(wanted)
        return
    from tempfile import TemporaryDirectory

    # A broker that was killed leaves nothing to complain about: the folder goes as far as it can.
    with TemporaryDirectory(prefix="tailrace-", ignore_cleanup_errors=True) as folder:
        yield folder


def _config(options: argparse.Namespace, folder: str) -> BrokerConfig:
    from tailrace.broker.single_node import single_node_settings
    from tailrace.model.config import parse_broker_config
    from tailrace.model.errors import KafkaError

    settings = single_node_settings(options.host, options.port, folder)
    if options.host in _ALL_ADDRESSES:
        from socket import gethostname

        # Clients are told an address to come back to, and cannot connect to "all addresses".
        settings["advertised.listeners"] = f"PLAINTEXT://{gethostname()}:{options.port}"
    for word in options.set:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise CommandError(f"--set {word}: expected KEY=VALUE, such as --set log.retention.hours=1")
        settings[name.strip()] = value.strip()
    try:
        return parse_broker_config(settings)
    except KafkaError as error:
        raise CommandError(error.message) from None
