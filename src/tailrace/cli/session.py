"""What the commands that talk to a broker share: where the broker is, and how a failure is told.

A command hands over an async function of a Cluster; it runs over the real ports. A KafkaError ends the command with
its message, one line.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable

from tailrace.cli import CommandError
from tailrace.client.connection import Address, ConnectionLimits
from tailrace.client.metadata import Cluster, parse_bootstrap
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.real.ports import real_ports

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


def add_client_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap",
        type=_addresses,
        default=DEFAULT_BOOTSTRAP,
        metavar="HOST:PORT,...",
        help=f"brokers to ask first (default: {DEFAULT_BOOTSTRAP})",
    )
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=30.0,
        metavar="SECONDS",
        help="how long an answer may take (default: 30)",
    )


def _addresses(text: str) -> tuple[Address, ...]:
    try:
        return parse_bootstrap(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def positive_seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is not a time in seconds above 0")
    return seconds


def run_client(options: argparse.Namespace, work: Callable[[Cluster], Awaitable[int]]) -> int:
    try:
        return asyncio.run(_run(options, work))
    except KafkaError as error:
        raise CommandError(failure_text(error)) from None


async def _run(options: argparse.Namespace, work: Callable[[Cluster], Awaitable[int]]) -> int:
    timeout_ms = int(options.timeout * 1000)
    limits = ConnectionLimits(connect_timeout_ms=min(timeout_ms, 10_000), request_timeout_ms=timeout_ms)
    cluster = Cluster(real_ports(), options.bootstrap, limits=limits)
    try:
        return await work(cluster)
    finally:
        cluster.close()


def failure_text(error: KafkaError) -> str:
    """The code's name helps to find more about it; for a broker that is not there it would only confuse."""
    if not error.message:
        return error.code.name
    if error.code is ErrorCode.NETWORK_EXCEPTION:
        return error.message
    return f"{error.message} ({error.code.name})"


def key_and_value(word: str) -> tuple[str, str]:
    """The type of a `--set KEY=VALUE` option."""
    name, equals, value = word.partition("=")
    if not name.strip() or not equals:
        raise argparse.ArgumentTypeError(f"{word!r} is not KEY=VALUE, such as retention.ms=3600000")
    return name.strip(), value.strip()
